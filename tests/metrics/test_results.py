from __future__ import annotations

import pytest

from agent.metrics.results import Gap, prevailing, result
from agent.trace import State
from tests.metrics.help import trace


def test_a_gap_becomes_the_state_that_it_means() -> None:
    one = trace(sampling={"probability": 0.5})
    found = result("relevance", one, Gap("judge_timeout"), "umbrela", detail={"missing": 1})
    assert (found.state, found.reason, found.value) == (State.UNSCORED, "judge_timeout", None)
    assert (found.scorer, found.probability, found.detail) == ("umbrela", 0.5, {"missing": 1})
    found = result("relevance", one, Gap("no_passages", applies=False), "umbrela")
    assert (found.state, found.reason) == (State.NOT_APPLICABLE, "no_passages")
    found = result("relevance", one, 0.0, "umbrela", fingerprint="f")
    assert (found.state, found.value, found.fingerprint) == (State.SCORED, 0.0, "f")


def test_the_most_frequent_gap_prevails_and_the_first_of_equals() -> None:
    a, b = Gap("judge_error"), Gap("too_long")
    assert prevailing([a, b, b]) == b
    assert prevailing([b, a, a, b]) == b
    with pytest.raises(ValueError, match="no gaps"):
        prevailing([])
