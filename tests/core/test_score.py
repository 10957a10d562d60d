from __future__ import annotations

import pytest
from ragmeter.core.score import NoScore, ScoreState, make_score, most_common_reason

from tests.metrics.help import trace


def test_a_gap_becomes_the_state_that_it_means() -> None:
    one = trace(sampling={"probability": 0.5})
    found = make_score("relevance", one, NoScore("judge_timeout"), "umbrela", detail={"missing": 1})
    assert (found.state, found.reason, found.value) == (ScoreState.UNSCORED, "judge_timeout", None)
    assert (found.scorer, found.probability, found.detail) == ("umbrela", 0.5, {"missing": 1})
    found = make_score("relevance", one, NoScore("no_passages", applies=False), "umbrela")
    assert (found.state, found.reason) == (ScoreState.NOT_APPLICABLE, "no_passages")
    found = make_score("relevance", one, 0.0, "umbrela", fingerprint="f")
    assert (found.state, found.value, found.fingerprint) == (ScoreState.SCORED, 0.0, "f")


def test_the_most_frequent_gap_prevails_and_the_first_of_equals() -> None:
    a, b = NoScore("judge_error"), NoScore("too_long")
    assert most_common_reason([a, b, b]) == b
    assert most_common_reason([b, a, a, b]) == b
    with pytest.raises(ValueError, match="no gaps"):
        most_common_reason([])
