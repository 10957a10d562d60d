"""What a trace says is missing is unscored with its reason: never empty, never judged."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from ragmeter.core.score import Score, ScoreState
from ragmeter.core.tiers import ScoringCost
from ragmeter.ingest import native
from ragmeter.metrics.builtin import PreparedTrace, score_builtin, score_cheap
from ragmeter.metrics.missing_fields import visible_trace
from ragmeter.reasons import Reason
from ragmeter.sampling.sampler import StratumClassifier
from ragmeter.scoring.scorer import Scorer
from ragmeter.scoring.slow_tiers import score_tier
from ragmeter.trace import MISSING_REASONS, Trace

from tests.metrics.help import KB, outcome, trace
from tests.tables import each_row

HIDDEN = "content_hidden"
IDS = [{"id": one["id"], "rank": one["rank"]} for one in KB]
OPERATIONAL = {"error", "timeout", "cut_answer", "filtered_answer"}
OPERATIONAL |= {"input_tokens", "output_tokens", "cost_usd"}


def scores(**fields: Any) -> dict[str, tuple[str, str | None]]:
    one = trace(**fields)
    return {
        s.metric: (str(s.state), s.reason)
        for s in score_cheap(PreparedTrace(one)) + score_builtin(PreparedTrace(one))
    }


def test_every_gap_that_is_found_on_the_way_in_is_a_reason_of_a_trace() -> None:
    ingest = Path(native.__file__).parent
    text = "".join(path.read_text() for path in ingest.rglob("*.py"))
    found = {Reason[name] for name in re.findall(r"\bReason\.([A-Z_]+)", text)}
    assert Reason.PROMPT_ONLY in found
    assert found <= MISSING_REASONS


@each_row(
    ("given", "read"),
    [
        ({"answer": HIDDEN}, {"answer": HIDDEN}),
        ({"answer": "the dog ate it"}, {"answer": "not_captured"}),  # bounded: it becomes a label
        ({"answer": {"a": [1]}}, {"answer": "not_captured"}),
        ({"answer": True, "query": False, "passages": None}, {"answer": "not_captured"}),
        ({"model": HIDDEN, "x" * 9999: HIDDEN}, {}),
        (["answer"], {}),
        ("answer", {}),
        (None, {}),
        (7, {}),
    ],
)
def test_known_fields_with_known_reasons(given: object, read: dict[str, str]) -> None:
    assert trace(missing=given).missing == read


def test_it_survives_the_state_file() -> None:
    one = trace(missing={"passages": "passages_truncated"})
    assert Trace.model_validate_json(one.model_dump_json(exclude_none=True)) == one


def test_a_hidden_answer_is_not_an_empty_one() -> None:
    usage = {"input_tokens": 5, "output_tokens": 0, "cost_usd": 0.1}
    for answer in (None, "", "__REDACTED__"):
        found = scores(answer=answer, usage=usage, finish_reason="stop", missing={"answer": HIDDEN})
        for metric, outcome_ in found.items():
            if metric in OPERATIONAL:
                assert outcome_[0] == "scored"
            elif metric == "relevance":
                assert outcome_ == ("scored", None)
            elif metric != "source_indicators" or answer != "":
                assert outcome_ == ("unscored", HIDDEN), metric


def test_an_answer_that_was_cut_is_not_empty_but_not_judged() -> None:
    missing = {"answer": "answer_truncated"}
    assert outcome("empty_answer", missing=missing) == ("scored", 0.0, None)
    assert outcome("answered", missing=missing) == ("unscored", None, "answer_truncated")
    assert outcome("grounding", missing=missing) == ("unscored", None, "answer_truncated")
    assert outcome("empty_answer", answer=" ", missing=missing)[0] == "unscored"


def test_what_the_application_says_of_itself_stands() -> None:
    reported = {"answer": None, "abstained": True, "missing": {"answer": HIDDEN}}
    assert outcome("answered", **reported) == ("scored", 0.0, None)
    assert outcome("error", status="error", missing={"answer": HIDDEN}) == ("scored", 1.0, None)
    assert outcome("answered", status="error", missing={"answer": HIDDEN}) == (
        "not_applicable",
        None,
        "error",
    )


@each_row("passages", [None, [], IDS, KB])
@each_row("reason", [HIDDEN, "passages_truncated", "redaction_failed"])
def test_hidden_or_cut_passages_are_no_retrieval_of_nothing(passages: Any, reason: str) -> None:
    found = scores(passages=passages, missing={"passages": reason})
    for metric in ("relevance", "grounding", "citation_precision", "citation_fabricated"):
        assert found[metric] == ("unscored", reason), metric
    for metric in ("answered", "empty_answer", "citation_presence"):
        assert found[metric][0] == "scored", metric


@pytest.mark.parametrize("reason", ["passages_id_only", "resolver_error", "resolver_timeout"])
def test_ids_alone_still_tell_a_fabricated_citation(reason: str) -> None:
    given = {"passages": IDS, "missing": {"passages": reason}}
    found = scores(**given)
    for metric in ("relevance", "grounding", "citation_precision", "citation_recall"):
        assert found[metric] == ("unscored", reason), metric
    assert outcome("citation_fabricated", **given) == ("scored", 0.0, None)
    assert outcome("citation_fabricated", **given, answer="Yes [9].") == ("scored", 1.0, None)
    # some texts are known: what the others say is not
    mixed = {"passages": [KB[0], *IDS[1:]], "missing": {"passages": reason}}
    assert scores(**mixed)["relevance"] == ("unscored", reason)


def test_a_citation_by_id_is_one_though_the_text_was_cut() -> None:
    missing = {"passages": "passages_truncated"}
    assert outcome("citation_presence", answer="So it is [kb-2].", missing=missing)[1] == 1.0


def test_a_query_that_was_cut_costs_what_needs_it() -> None:
    found = scores(missing={"query": "query_truncated"})
    assert found["relevance"] == ("unscored", "query_truncated")
    assert found["grounding"][0] == found["answered"][0] == "scored"


def test_each_field_gives_its_own_reason() -> None:
    found = scores(missing={"answer": HIDDEN, "passages": "passages_id_only"}, passages=IDS)
    assert found["relevance"] == ("unscored", "passages_id_only")
    assert found["answered"] == ("unscored", HIDDEN)


def test_what_is_not_missing_is_left_alone() -> None:
    one = trace()
    assert visible_trace(one) is one
    assert outcome("answered", answer=None, missing={"passages": HIDDEN})[2] == "no_text"


def test_a_tier_is_not_shown_what_is_missing() -> None:
    seen: list[Trace] = []

    class Tier:
        tier = "judge"
        pairs = (("answered", "judge"), ("relevance", "umbrela"), ("precision_at_k:5", "umbrela"))

        async def score(self, trace: Trace, cost: ScoringCost) -> list[Score]:
            seen.append(trace)
            return [Score(*pair, ScoreState.UNSCORED, reason="no_text") for pair in self.pairs]

    one = trace(missing={"answer": "answer_truncated", "passages": "passages_id_only"})
    coroutine = score_tier(Tier(), one, ScoringCost())  # type: ignore[arg-type]
    try:
        coroutine.send(None)
    except StopIteration as end:
        found = [score.reason for score in end.value]
    assert found == ["answer_truncated", "passages_id_only", "passages_id_only"]
    assert seen[0].answer is None
    assert [p.text for p in seen[0].passages or ()] == [None, None, None]


def test_hidden_content_is_not_drawn_as_a_failure() -> None:
    strata = StratumClassifier()
    assert strata.classify(trace(answer=None), [], 0.0).name == "error"
    assert strata.classify(trace(answer=None, missing={"answer": HIDDEN}), [], 0.0).name == "rest"
    failed = trace(answer=None, status="error", missing={"answer": HIDDEN})
    assert strata.classify(failed, [], 0.0).name == "error"


def test_every_pair_has_its_result_whatever_is_missing() -> None:
    scorer = Scorer()
    expected = sorted(scorer.pairs)
    for missing in ({}, {"answer": HIDDEN}, {"query": HIDDEN, "passages": HIDDEN, "answer": "?"}):
        found = scorer.score_cheap(trace(missing=missing))
        assert sorted((score.metric, score.scorer) for score in found) == expected
