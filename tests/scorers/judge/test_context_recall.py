from __future__ import annotations

from typing import Any

import pytest
from ragmeter.core.score import NoScore, ScoreState
from ragmeter.scorers.judge.passages import reference_statements
from ragmeter.scorers.llm.questions import JudgeQuestion
from ragmeter.trace import Reference

from tests.metrics.help import trace
from tests.scorers.judge.fakes import FakeJudge, judge_trace, scores_of
from tests.tables import each_row

REFERENCE = {"answer": "Refunds take 14 days [1]. They are free. Ask support."}


def held(*texts: str) -> FakeJudge:
    """A judge that finds statements with one of these texts."""

    def label(asked: JudgeQuestion[Any]) -> dict[str, str]:
        lines = {
            line.partition(". ")[0]: line for line in asked.user.splitlines() if line[:1].isdigit()
        }
        return {
            number: "supported" if any(text in lines[number] for text in texts) else "unsupported"
            for number in asked.schema["properties"]
        }

    return FakeJudge({"context-recall": label})


def recall(judge: FakeJudge | None = None, **fields: Any) -> tuple[float | str | None, FakeJudge]:
    scores, judge, _ = judge_trace(trace(**fields), judge, metrics=["context_recall"])
    return scores_of(scores)["context_recall"], judge


def test_share_of_the_references_sentences_that_the_passages_hold() -> None:
    judge = held("14 days", "support")
    scores, judge, cost = judge_trace(trace(reference=REFERENCE), judge, metrics=["context_recall"])
    score = scores["context_recall"]
    assert score.value == pytest.approx(2 / 3)
    assert (score.scorer, score.fingerprint) == ("judge", "f" * 12)
    assert score.detail == {"statements": 3, "missed": 1, "missed_statements": ["They are free."]}
    assert cost.requests == 1


def test_facts_that_the_reference_names_go_first() -> None:
    reference = Reference.model_validate({**REFERENCE, "facts": ["14 days", " ", "free"]})
    assert reference_statements(reference) == ["14 days", "free"]
    plain = Reference.model_validate(REFERENCE)
    assert reference_statements(plain) == [
        "Refunds take 14 days .",
        "They are free.",
        "Ask support.",
    ]


@each_row(
    ("fields", "expected", "state"),
    [
        ({}, "no_reference", ScoreState.NOT_APPLICABLE),
        ({"reference": {"facts": []}}, "no_reference_answer", ScoreState.NOT_APPLICABLE),
        (
            {"reference": {"answer": "x", "answerable": False}},
            "unanswerable",
            ScoreState.NOT_APPLICABLE,
        ),
        ({"reference": REFERENCE, "status": "timeout"}, "timeout", ScoreState.NOT_APPLICABLE),
        ({"reference": {"facts": ["f"] * 61}}, "too_long", ScoreState.UNSCORED),
        ({"reference": {"answer": "word " * 5_000}}, "too_long", ScoreState.UNSCORED),
        ({"reference": REFERENCE, "passages": None}, "no_passages_captured", ScoreState.UNSCORED),
        ({"reference": REFERENCE, "passages": [{"id": "1"}]}, "no_text", ScoreState.UNSCORED),
        ({"reference": REFERENCE, "passages": []}, 0.0, ScoreState.SCORED),
    ],
)
def test_what_is_known_without_a_call(
    fields: dict[str, Any], expected: float | str, state: ScoreState
) -> None:
    scores, judge, _ = judge_trace(trace(**fields), metrics=["context_recall"])
    assert scores_of(scores) == {"context_recall": expected}
    assert scores["context_recall"].state is state
    assert not judge.asked


def test_neither_answer_nor_query_is_needed() -> None:
    assert recall(held("free"), reference=REFERENCE, answer=None, query=None)[0] is not None
    value, judge = recall(held("free"), reference=REFERENCE, answer="Secret.", query="q" * 5_000)
    assert value == pytest.approx(1 / 3)
    assert "Secret." not in judge.asked[0].user
    assert "q" * 4_001 not in judge.asked[0].user


def test_a_failed_call_gives_no_number() -> None:
    value, _ = recall(FakeJudge(fails=lambda q: "unparsable"), reference=REFERENCE)
    assert value == "unparsable"


def test_no_statements() -> None:
    assert reference_statements(None) == NoScore("no_reference", applies=False)
