from __future__ import annotations

import asyncio
import hashlib

import pytest
from ragmeter.core.score import NoScore
from ragmeter.core.tiers import ScoringCost
from ragmeter.scorers.judge.calls import JudgeResult, all_fingerprints, ask_judge, score_fingerprint
from ragmeter.scorers.judge.material import missing_text_reason
from ragmeter.scorers.judge.passages import grade_question
from ragmeter.scorers.judge.schemas import labels_schema

from tests.scorers.judge.fakes import FakeJudge

A = "a" * 12
B = "b" * 12
C = "c" * 12


def test_a_fingerprint_of_several_is_one_of_their_set() -> None:
    failed: JudgeResult[int] = JudgeResult(NoScore("judge_error"))

    def fingerprint(*results: JudgeResult[int]) -> str | None:
        return score_fingerprint("relevance", all_fingerprints(results))

    assert fingerprint() is None
    assert fingerprint(failed) is None
    assert fingerprint(JudgeResult(1, A), failed, JudgeResult(2, A)) == A
    mixed = fingerprint(JudgeResult(1, C), JudgeResult(1, A), JudgeResult(1, B), JudgeResult(1, A))
    assert mixed == hashlib.sha256(f"{A},{B},{C}".encode()).hexdigest()[:12]
    assert mixed == fingerprint(JudgeResult(1, B), JudgeResult(1, C), JudgeResult(1, A))


def test_a_failed_call_is_a_gap_and_costs() -> None:
    cost = ScoringCost()
    failing = FakeJudge(fails=lambda q: "judge_refused")
    found = asyncio.run(ask_judge(failing, grade_question("q", "p"), cost))
    assert found == JudgeResult(NoScore("judge_refused"))
    assert cost.requests == 1
    assert asyncio.run(ask_judge(FakeJudge(), grade_question("q", "p"), cost)) == JudgeResult(
        2, "f" * 12
    )


@pytest.mark.parametrize(
    ("text", "gap"),
    [
        (None, NoScore("no_text")),
        (" \n", NoScore("no_text")),
        ("xxxx", NoScore("too_long")),
        ("xxx", None),
    ],
)
def test_texts_that_cannot_be_asked_about(text: str | None, gap: NoScore | None) -> None:
    assert missing_text_reason(text, 3) == gap


def test_labels_are_closed_in_names_and_values() -> None:
    assert labels_schema(["1", "2"], ("a", "b")) == {
        "type": "object",
        "properties": {name: {"type": "string", "enum": ["a", "b"]} for name in ("1", "2")},
        "required": ["1", "2"],
        "additionalProperties": False,
    }
