from __future__ import annotations

import time
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from ragmeter.core.feedback import ANNOTATION, HUMAN
from ragmeter.core.score import REFERENCE_SCORER, ScoreState
from ragmeter.metrics.builtin import PreparedTrace, score_builtin, score_cheap
from ragmeter.metrics.canary.specs import canary_scorer
from ragmeter.metrics.registry import metric_specs

from tests.metrics.help import trace
from tests.tables import each_row

PIECES = st.sampled_from(
    [
        "[1]",
        "[2, 9]",
        "【1†s】",
        "[kb-1]",
        "[[[[[[[[",
        "Sources:",
        "```",
        "{",
        '"a": false',
        "The",
        "parcel",
        "14",
        "days.",
        "3.5",
        "5:30 pm",
        "I do not know.",
        "？",
        "密码",
        "é",
        "\n",
        " ",
        "\x00",
        "\ud7ff",
    ]
)
TEXT = st.one_of(st.none(), st.text(max_size=80), st.lists(PIECES, max_size=30).map(" ".join))
PASSAGE = st.fixed_dictionaries(
    {"id": st.sampled_from(["kb-1", "2", "[3]", "x"]), "text": TEXT},
    optional={"rank": st.integers(-3, 9)},
)
CITATION = st.fixed_dictionaries(
    {"passage_ids": st.lists(st.sampled_from(["kb-1", "1", "9", ""]), max_size=3)},
    optional={"start": st.integers(0, 90), "end": st.integers(0, 90)},
)
TRACE = st.fixed_dictionaries(
    {
        "query": TEXT,
        "answer": TEXT,
        "passages": st.one_of(st.none(), st.lists(PASSAGE, max_size=4)),
        "citations": st.one_of(st.none(), st.lists(CITATION, max_size=3)),
        "abstained": st.sampled_from([None, True, False]),
        "status": st.sampled_from(["ok", "error", "timeout"]),
        "usage": st.sampled_from([None, {"output_tokens": 0}, {"cost_usd": 0.1}]),
        "sampling": st.sampled_from([None, {"probability": 0.2}]),
    }
)


@given(TRACE)
@settings(max_examples=300, deadline=None)
def test_every_metric_ends_in_one_state_with_a_value_in_range(fields: dict[str, Any]) -> None:
    one = trace(**fields)
    scores = score_cheap(PreparedTrace(one)) + score_builtin(PreparedTrace(one))
    built = [name for name, spec in metric_specs().items() if "builtin" in spec.scorers]
    assert [score.metric for score in scores] == built
    for score in scores:
        spec = metric_specs()[score.metric]
        assert score.scorer in spec.scorers
        assert score.probability == one.probability
        assert (score.value is not None) == (score.state is ScoreState.SCORED)
        assert (score.reason is None) == (score.state is ScoreState.SCORED)
        if score.value is not None:
            assert score.value >= spec.low
            assert spec.high is None or score.value <= spec.high
            assert spec.kind == "mean" or score.value in (0.0, 1.0)


@given(TRACE)
@settings(max_examples=50, deadline=None)
def test_scoring_is_a_function_of_the_trace(fields: dict[str, Any]) -> None:
    first, second = trace(**fields), trace(**fields)
    assert score_builtin(PreparedTrace(first)) == score_builtin(PreparedTrace(second))
    assert score_cheap(PreparedTrace(second)) == score_cheap(PreparedTrace(first))


def test_the_contract_names_are_registered() -> None:
    # of references and labels: tests/metrics/canary and tests/metrics/labelled know them
    notified = {REFERENCE_SCORER, HUMAN, ANNOTATION, canary_scorer(ANNOTATION)}
    notified |= {canary_scorer("judge")}
    canary = {name for name, spec in metric_specs().items() if set(spec.scorers) <= notified}
    ratios = {name for name, spec in metric_specs().items() if spec.kind == "ratio"} - canary
    assert ratios == {
        "answered",
        "citation_presence",
        "citation_fabricated",
        "error",
        "timeout",
        "empty_answer",
        "cut_answer",
        "filtered_answer",
    }
    assert set(metric_specs()) - ratios - canary == {
        "relevance",
        "grounding",
        "citation_precision",
        "citation_recall",
        "citation_f1",
        "source_indicators",
        "input_tokens",
        "output_tokens",
        "cost_usd",
        "citation_passage_precision",
        "citation_passage_f1",
        "precision_at_k",
        "average_precision_at_k",
        "reciprocal_rank",
        "ndcg_at_k",
        "nugget_all",
        "nugget_vital",
        "nugget_weighted",
        "nugget_all_strict",
        "nugget_vital_strict",
        "nugget_weighted_strict",
        "nugget_count",
        "nugget_vital_count",
        "nugget_okay_count",
        "faithfulness",
        "answer_relevancy",
        "groundedness_grade",
        "correctness_grade",
        "groundedness",
        "context_relevancy",
        "context_precision",
        "context_recall",
        "judge_disagreement",
        "judge_probe_agreement",
        "judge_probe_change",
    }
    assert metric_specs()["relevance"].gauge == "rag_relevance_mean"


def test_the_scorers_of_the_judge_are_registered() -> None:
    judged = {
        name: spec.scorers for name, spec in metric_specs().items() if spec.scorers != ("builtin",)
    }
    judged.pop("grounding", None)  # a local model may score it
    assert {name for name, scorers in judged.items() if "umbrela" in scorers} == {
        "relevance",
        "reciprocal_rank",
        "precision_at_k",
        "average_precision_at_k",
        "ndcg_at_k",
        "context_relevancy",
        "context_precision",
    }
    assert {name for name, scorers in judged.items() if "judge" in scorers} == {
        "answered",
        "citation_precision",
        "citation_recall",
        "citation_f1",
        "citation_passage_precision",
        "citation_passage_f1",
        "faithfulness",
        "answer_relevancy",
        "groundedness_grade",
        "correctness_grade",
        "groundedness",
        "context_recall",
        "judge_disagreement",
        "judge_probe_agreement",
        "judge_probe_change",
    }
    nuggets = {name for name, scorers in judged.items() if "autonuggetizer" in scorers}
    assert nuggets == {name for name in metric_specs() if name.startswith("nugget_")}
    with_k = {name for name, spec in metric_specs().items() if spec.labels == ("k",)}
    assert with_k == {name for name in metric_specs() if name.endswith("_at_k")}


@each_row(
    "fields",
    [
        {"answer": "[" * 200_000},
        {"answer": " " * 200_000 + "x"},
        {"answer": "word " * 200_000},
        {"answer": "a. " * 100_000 + "[1]"},
        {"answer": "[1] same word. " * 20_000},
        {"answer": "i am sorry " * 50_000},
        {"answer": "same " * 4_000, "passages": [{"id": "a", "text": "same " * 200_000}]},
        {"passages": [{"id": f"p{i}", "text": "some words here " * 50} for i in range(800)]},
        {"passages": [{"id": "a", "text": '{"a": {"b": {"c": ' * 50_000}]},
        {"query": "password " * 100_000},
    ],
)
def test_huge_and_hostile_traces_are_bounded(fields: dict[str, Any]) -> None:
    one = trace(**fields)
    before = time.process_time()
    score_cheap(PreparedTrace(one))
    score_builtin(PreparedTrace(one))
    assert time.process_time() - before < 3
