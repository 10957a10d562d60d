from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ragmeter.core.score import REFERENCE_SCORER, Score, ScoreState
from ragmeter.metrics.builtin import PreparedTrace
from ragmeter.metrics.canary.scores import reference_metrics, reference_pairs, score_canary
from ragmeter.metrics.registry import metric_families, metric_specs
from ragmeter.trace import CANARY

from tests.metrics.help import trace

KS = [1, 3]
DOCS = [
    {
        "id": "kb-1",
        "text": "Refunds take 14 days.",
        "rank": 2,
        "metadata": {"rel_path": "refunds.md"},
    },
    {"id": "kb-2", "text": "Call us.", "rank": 1, "metadata": {"rel_path": "contact.md"}},
    {"id": "kb-3", "text": "Old page.", "rank": 3, "metadata": {"rel_path": "old.md"}},
]
GOLD: dict[str, Any] = {
    "answer": "Refunds take 14 days.",
    "answerable": True,
    "supports": [{"rel_path": "refunds.md", "snippet": "14 days"}],
    "facts": ["14 days"],
    "checks": [{"name": "days", "patterns": [r"\b14 days\b"]}],
    "calculation": {"result": 14},
}


def scores(**fields: Any) -> dict[str, Score]:
    base = {"passages": DOCS, "reference": GOLD, "answer": "Refunds take 14 days [1]."}
    one = trace(**{**base, **fields})
    clock = itertools.count(step=-60)  # always time left: how busy a machine is, nobody knows
    found = score_canary(PreparedTrace(one), KS, lambda: float(next(clock)))
    assert [one.metric for one in found] == reference_metrics(KS)
    assert {one.scorer for one in found} == {REFERENCE_SCORER}
    return {one.metric: one for one in found}


def values(**fields: Any) -> dict[str, float | str | None]:
    return {
        name: one.value if one.reason is None else f"{one.state}: {one.reason}"
        for name, one in scores(**fields).items()
    }


def test_a_right_answer() -> None:
    reference = {**GOLD, "similarity": 0.9, "scope": ["refunds.md"]}
    found = values(reference=reference, timings={"total": 1.5})
    assert found == {
        "canary_failed": 0.0,
        "canary_seconds": 1.5,
        "exact_match": 1.0,
        "keyword_coverage": 1.0,
        "number_match": 1.0,
        "answer_completeness": 1.0,
        "source_indicators": 0.0,
        "list_coverage": "not_applicable: no_list",
        "fact_coverage": 1.0,
        "fact_checks": 1.0,
        "calculation": 1.0,
        "calculation_shown": 0.0,
        "calculation_steps": "not_applicable: no_steps",
        "answer_correctness": pytest.approx(0.95),
        "recall_any_at_k:1": 0.0,  # rank 1 is kb-2
        "recall_any_at_k:3": 1.0,
        "recall_all_at_k:1": 0.0,
        "recall_all_at_k:3": 1.0,
        "precision_at_k:1": 0.0,
        "precision_at_k:3": pytest.approx(1 / 3),
        "reciprocal_rank_at_k:1": 0.0,
        "reciprocal_rank_at_k:3": 0.5,
        "scope_miss": 0.0,
        "attribution_hit": 0.0,  # [1] is the passage of rank 1
        "abstention_accuracy": "not_applicable: answerable",
        "unanswerable_hallucination": "not_applicable: answerable",
        "conflict_handled": "not_applicable: no_conflict",
    }
    assert values(answer="Refunds take 14 days [kb-1].")["attribution_hit"] == 1.0


def test_markers_of_citations_are_no_part_of_what_is_said() -> None:
    assert values(answer="Refunds take 14 days. [1]")["exact_match"] == 1.0
    marked = {**GOLD, "answer": "Refunds take 14 days. [1]"}
    assert values(answer="refunds take 14 days. [1]", reference=marked)["exact_match"] == 1.0
    # the 14 of a marker is none of days, and what a marker parts still stands in a row
    passages = [{"id": str(n), "text": "x"} for n in range(1, 15)]
    found = values(answer="Refunds take two weeks [14].", passages=passages)
    assert found["number_match"] == found["calculation"] == 0.0
    # a citation with a stretch is no marker: its words are said
    stretch = [{"start": 0, "end": 9, "passage_ids": ["kb-1"]}]
    found = values(answer="Refunds [1] take 14 [2, 3]days.", citations=stretch)
    assert found["fact_checks"] == found["keyword_coverage"] == 1.0


def test_a_refusal_of_what_can_be_answered_is_wrong() -> None:
    found = values(answer="I'm sorry, I don't know.")
    assert found["exact_match"] == found["keyword_coverage"] == found["fact_checks"] == 0.0
    assert found["attribution_hit"] == 0.0
    assert found["answer_correctness"] == pytest.approx(0.2)  # it is as long as a right answer
    blank = values(answer="")
    assert blank["exact_match"] == blank["calculation"] == blank["answer_completeness"] == 0.0


def test_a_question_that_can_not_be_answered() -> None:
    found = values(reference={"answerable": False, "answer": "not in the documents"})
    assert found["exact_match"] == found["attribution_hit"] == "not_applicable: unanswerable"
    assert (found["abstention_accuracy"], found["unanswerable_hallucination"]) == (0.0, 1.0)
    assert found["recall_any_at_k:3"] == "not_applicable: no_supports"


def test_what_was_not_captured_is_unscored() -> None:
    hidden = values(answer=None, missing={"answer": "content_hidden"})
    assert hidden["exact_match"] == hidden["attribution_hit"] == "unscored: content_hidden"
    assert hidden["recall_any_at_k:3"] == 1.0
    # that "[terms]" is a citation only the ids of hidden passages tell; it might hit
    named = [{**DOCS[0], "id": "terms"}]
    dark = values(answer="Soon [terms].", passages=named, missing={"passages": "content_hidden"})
    assert dark["attribution_hit"] == dark["recall_any_at_k:3"] == "unscored: content_hidden"
    bare = values(passages=None)
    assert bare["precision_at_k:1"] == bare["attribution_hit"] == "unscored: no_passages_captured"
    assert bare["exact_match"] == 1.0
    ids = values(passages=[{**one, "text": None} for one in DOCS])
    assert ids["recall_any_at_k:3"] == "unscored: no_anchor"  # the snippet can't be looked for
    assert ids["attribution_hit"] == 0.0  # another document


def test_a_failed_request_has_nothing_to_score() -> None:
    for status in ("timeout", "error"):
        found = values(status=status)
        assert found.pop("canary_failed") == 1.0
        assert set(found.values()) == {f"not_applicable: {status}"}


def test_a_canary_whose_reference_is_elsewhere_is_no_result() -> None:
    found = values(reference=None, tags={CANARY: True})
    assert set(found.values()) == {"not_applicable: no_reference"}
    assert (
        score_canary(PreparedTrace(trace(tags={CANARY: "no", "canary": True})), KS, lambda: 0.0)
        == []
    )


def test_sources_that_are_named() -> None:
    # two of the three indicators that are enough
    found = values(answer="According to the handbook, 14 days. See page 3.")
    assert found["source_indicators"] == pytest.approx(2 / 3)


def test_the_checks_that_failed_are_named() -> None:
    found = scores(answer="In a week.")["fact_checks"]
    assert (found.value, found.detail) == (0.0, {"failed": ["days"]})
    assert scores()["fact_checks"].detail is None


def test_without_checks_the_facts_count() -> None:
    reference = {**GOLD, "checks": [], "facts": ["14 days", "by mail"], "similarity": 1}
    assert values(reference=reference)["answer_correctness"] == pytest.approx(0.85)


def test_a_plain_question_and_answer_have_a_correctness() -> None:
    plain = {"answer": "Refunds take 14 days"}
    # keywords refunds, take, days and the number 14: three of four; completeness (1 + 3/4) / 2
    found = values(answer="Refunds take 15 days.", reference=plain)
    assert found["answer_correctness"] == pytest.approx(0.6 * 0.75 + 0.4 * 0.875)
    assert values(answer="Refunds take 14 days.", reference=plain)["answer_correctness"] == 1.0
    # of a wrong answer its length alone counts, 0.2 at most
    assert values(answer="A banana.", reference=plain)["answer_correctness"] == pytest.approx(0.1)
    # a right answer without keywords must be there word for word
    assert values(answer="No, never.", reference={"answer": "No"})["answer_correctness"] == 1.0
    assert values(answer="Yes, always.", reference={"answer": "No"})["answer_correctness"] == 0.2


@pytest.mark.parametrize(
    ("answer", "right", "abstained", "value"),
    [
        ("I don't know whether refunds take 14 days.", "Refunds take 14 days", None, 0.2),
        ("Refunds take 14 days.", "Refunds take 14 days", True, 0.2),
        ("I don't know whether refunds take 14 days.", "Refunds take 14 days", False, 1.0),
        ("I don't know.", "I don't know.", None, 1.0),  # that is what it should say
    ],
)
def test_an_answer_that_declines_states_no_fact_of_a_right_one(
    answer: str, right: str, abstained: bool | None, value: float
) -> None:
    for more in ({}, {"facts": ["14 days"]} if "14" in right else {}):
        found = values(answer=answer, abstained=abstained, reference={"answer": right, **more})
        assert found["answer_correctness"] == pytest.approx(value)


def test_of_several_right_answers_the_best_match_counts() -> None:
    several = {"answer": ["Two weeks", "14 days", "A fortnight"]}
    found = values(answer="14 days", reference=several)
    assert found["exact_match"] == found["answer_correctness"] == found["number_match"] == 1.0
    assert values(answer="A banana", reference=several)["answer_correctness"] == 0.2


def test_a_similarity_that_could_not_be_measured_leaves_correctness_unscored() -> None:
    failed = {"answer": "Refunds take 14 days", "similarity_failed": True}
    found = values(answer="Refunds take 14 days", reference=failed)
    assert found["answer_correctness"] == "unscored: embedding_failed"
    assert found["keyword_coverage"] == 1.0


def test_the_detail_counts_the_items_of_a_list() -> None:
    reference = {"answer": ["- apples\n- pears\n- plums", "- figs"]}
    found = scores(answer="We sell apples and plums.", reference=reference)["list_coverage"]
    assert found.value == pytest.approx(2 / 3)
    assert found.detail == {"held": 2, "items": 3}


def test_only_canaries_are_scored() -> None:
    assert score_canary(PreparedTrace(trace()), KS, lambda: 0.0) == []


def test_the_part_that_is_missing_says_why() -> None:
    none = values(reference={"supports": [], "similarity": 0.5})
    assert none["answer_correctness"] == "not_applicable: no_reference_answer"


def test_every_metric_has_a_spec() -> None:
    specs = {spec.name: spec for spec in metric_families()["canary"]}
    assert len(specs) == len(metric_families()["canary"])
    assert {name.partition(":")[0] for name in reference_metrics(KS)} == specs.keys()
    for name in reference_metrics(KS):
        assert (":" in name) == bool(specs[name.partition(":")[0]].labels)
    # the registry knows each with this scorer, whoever else measures the same quantity
    assert {
        name for name, spec in metric_specs().items() if REFERENCE_SCORER in spec.scorers
    } == specs.keys()
    assert reference_pairs([3, 1, 3]) == tuple(
        (name, REFERENCE_SCORER) for name in reference_metrics([1, 3])
    )


TEXT = st.one_of(
    st.none(), st.text(max_size=40), st.sampled_from(["Refunds take 14 days [1].", "-5"])
)
ANCHOR = st.sampled_from([None, "", "a.md", "./a.md", "A > B", "# A", ">"])
PLACE = st.fixed_dictionaries(
    {"rel_path": ANCHOR, "heading_path": ANCHOR, "snippet": TEXT},
    optional={"updated": st.sampled_from([None, "2024-01-01T00:00:00Z"])},
)
GOLDS = st.fixed_dictionaries(
    {"answer": TEXT, "answerable": st.sampled_from([None, True, False])},
    optional={
        "supports": st.lists(PLACE, max_size=3),
        "facts": st.lists(st.text(max_size=20), max_size=3),
        "keywords": st.lists(st.text(max_size=20), max_size=3),
        "checks": st.lists(
            st.fixed_dictionaries(
                {
                    "patterns": st.lists(st.text(max_size=12), max_size=2),
                    "forbidden": st.lists(st.text(max_size=8), max_size=2),
                }
            ),
            max_size=3,
        ),
        "calculation": st.sampled_from([None, {"result": -5, "steps": [14, 0]}]),
        "conflict": st.sampled_from([None, "cite_newer", "cite_both", "acknowledge_both"]),
    },
)
PASSAGES = st.one_of(
    st.none(),
    st.lists(
        st.fixed_dictionaries(
            {
                "id": st.sampled_from(["1", "b"]),
                "text": TEXT,
                "metadata": st.fixed_dictionaries({"rel_path": ANCHOR, "heading_path": ANCHOR}),
            }
        ),
        max_size=4,
    ),
)


@given(GOLDS, PASSAGES, TEXT, st.sampled_from([None, 0.0, 1.0]))
@settings(max_examples=150, deadline=None)
def test_every_metric_ends_in_one_state_with_a_value_in_range(
    reference: dict[str, Any],
    passages: list[dict[str, Any]] | None,
    answer: str | None,
    semantic: float | None,
) -> None:
    specs = {spec.name: spec for spec in metric_families()["canary"]}
    reference = {**reference, "similarity": semantic}
    found = scores(reference=reference, passages=passages, answer=answer)
    for name, one in found.items():
        assert (one.value is not None) == (one.state is ScoreState.SCORED)
        assert (one.reason is None) == (one.state is ScoreState.SCORED)
        if one.value is not None:
            assert 0.0 <= one.value <= 1.0
            spec = specs.get(name.partition(":")[0])
            assert spec is None or spec.kind == "mean" or one.value in (0.0, 1.0)
