from __future__ import annotations

import asyncio
import hashlib

import pytest

from agent.judge.asked import Asked, ask, fingerprint, labels, text_gap
from agent.judge.umbrela import question
from agent.metrics.results import Gap
from agent.tiers import Cost
from tests.judge.fakes import FakeJudge

A, B, C = "a" * 12, "b" * 12, "c" * 12


def test_a_fingerprint_of_several_is_one_of_their_set() -> None:
    assert fingerprint([]) is None
    assert fingerprint([Asked(Gap("judge_error"))]) is None
    assert fingerprint([Asked(1, A), Asked(Gap("judge_error")), Asked(2, A)]) == A
    mixed = fingerprint([Asked(1, C), Asked(1, A), Asked(1, B), Asked(1, A)])
    assert mixed == hashlib.sha256(f"{A},{B},{C}".encode()).hexdigest()[:12]
    assert mixed == fingerprint([Asked(1, B), Asked(1, C), Asked(1, A)])


def test_a_failed_call_is_a_gap_and_costs() -> None:
    cost = Cost()
    failing = FakeJudge(fails=lambda q: "judge_refused")
    found = asyncio.run(ask(failing, question("q", "p"), cost))
    assert found == Asked(Gap("judge_refused"))
    assert cost.requests == 1
    assert asyncio.run(ask(FakeJudge(), question("q", "p"), cost)) == Asked(2, "f" * 12)


@pytest.mark.parametrize(
    ("text", "gap"),
    [
        (None, Gap("no_text")),
        (" \n", Gap("no_text")),
        ("xxxx", Gap("too_long")),
        ("xxx", None),
    ],
)
def test_texts_that_cannot_be_asked_about(text: str | None, gap: Gap | None) -> None:
    assert text_gap(text, 3) == gap


def test_labels_are_closed_in_names_and_values() -> None:
    assert labels(["1", "2"], ("a", "b")) == {
        "type": "object",
        "properties": {name: {"type": "string", "enum": ["a", "b"]} for name in ("1", "2")},
        "required": ["1", "2"],
        "additionalProperties": False,
    }
