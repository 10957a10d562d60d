"""The families that are off by default, beside the others and by themselves."""

from __future__ import annotations

from typing import Any

import pytest
from ragmeter.config.scoring import JudgeSettings
from ragmeter.core.score import ScoreState
from ragmeter.metrics.registry import metric_specs
from ragmeter.scorers.llm.questions import JudgeQuestion

from tests.scorers.judge.fakes import FakeJudge, family, judge_trace, scores_of
from tests.scorers.judge.test_tier import PASSAGES, example
from tests.tables import each_row

OFF = ["claims", "facts", "context", "context_recall"]
REFERENCE = {"facts": ["Refunds take 14 days.", "They are free."]}


def calls(judge: FakeJudge) -> dict[str, int]:
    return {name: judge.count(name) for name in map(family, judge.asked)}


def test_they_are_off_until_asked_for() -> None:
    assert not set(OFF) & set(JudgeSettings().metrics)
    scores, judge, _ = judge_trace(example(reference=REFERENCE))
    assert not {"claims", "facts", "context-recall"} & set(calls(judge))
    assert not {"faithfulness", "groundedness", "context_recall"} & set(scores)


def test_all_of_them_cost_what_the_docs_say() -> None:
    every = [*JudgeSettings().metrics, *OFF]
    scores, judge, cost = judge_trace(example(reference=REFERENCE), metrics=every)
    assert cost.requests == 16 + 3  # as without them, and one each; context rests on the grades
    assert calls(judge)["umbrela"] == 5
    assert judge.depth == 3  # side by side
    assert all(score.state is ScoreState.SCORED for score in scores.values())
    assert scores["context_relevancy"].value == pytest.approx(2 / 3)
    assert scores["context_precision"].value == 1.0


@each_row(
    ("metrics", "expected"),
    [
        (["claims"], {"claims": 1}),
        (["facts"], {"facts": 1}),
        (["context"], {"umbrela": 5}),
        (
            ["context", "nuggets"],
            {"umbrela": 5, "nuggets-create": 1, "nuggets-importance": 2, "nuggets-assign": 2},
        ),
        (["context_recall"], {"context-recall": 1}),
    ],
)
def test_each_alone(metrics: list[str], expected: dict[str, int]) -> None:
    _, judge, _ = judge_trace(example(reference=REFERENCE), metrics=metrics)
    assert calls(judge) == expected


def test_context_follows_the_grades_by_rank() -> None:
    passages = [dict(PASSAGES[n], rank=5 - n) for n in range(5)]
    judge = FakeJudge({"umbrela": lambda q: {"grade": "3" if "Passage 3" in q.user else "0"}})
    scores, _, _ = judge_trace(example(passages=passages), judge, metrics=["context"])
    assert scores["context_relevancy"].value == pytest.approx(3 / 15)
    assert scores["context_precision"].value == 0.5
    assert {(s.scorer, s.fingerprint) for s in scores.values()} == {("umbrela", "f" * 12)}


@pytest.mark.parametrize(
    ("passages", "reason", "state"),
    [
        (None, "no_passages_captured", ScoreState.UNSCORED),
        ([], "no_passages", ScoreState.NOT_APPLICABLE),
        ([{"id": "a"}], "no_text", ScoreState.UNSCORED),
    ],
)
def test_context_without_grades(passages: Any, reason: str, state: ScoreState) -> None:
    scores, judge, _ = judge_trace(example(passages=passages), metrics=["context"])
    assert set(scores_of(scores).values()) == {reason}
    assert {score.state for score in scores.values()} == {state}
    assert not judge.asked


@pytest.mark.parametrize("failing", ["claims", "facts", "context-recall"])
def test_a_failed_family_disturbs_no_other(failing: str) -> None:
    def fails(asked: JudgeQuestion[Any]) -> str | None:
        return "judge_timeout" if family(asked) == failing else None

    whole, _, _ = judge_trace(example(reference=REFERENCE), metrics=OFF)
    scores, _, _ = judge_trace(example(reference=REFERENCE), FakeJudge(fails=fails), metrics=OFF)
    of = {
        "claims": ["faithfulness", "answer_relevancy", "groundedness_grade", "correctness_grade"],
        "facts": ["groundedness"],
        "context-recall": ["context_recall"],
    }[failing]
    assert {name for name, score in scores.items() if score.reason == "judge_timeout"} == set(of)
    kept = set(whole) - set(of)
    assert {scores[name].value for name in kept} == {whole[name].value for name in kept}


def test_values_are_within_the_bounds_that_the_registry_names() -> None:
    scores, _, _ = judge_trace(example(reference=REFERENCE), metrics=OFF)
    assert (
        metric_specs()["groundedness_grade"].high == metric_specs()["correctness_grade"].high == 5
    )
    for name, score in scores.items():
        spec = metric_specs()[name]
        assert score.scorer in spec.scorers
        assert spec.tier == "judge"
        assert score.value is not None
        assert spec.low <= score.value <= (spec.high or 0)
