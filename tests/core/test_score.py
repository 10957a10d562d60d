from __future__ import annotations

import pytest
from ragmeter.core.score import (
    NoScore,
    ScoreState,
    make_plain_score,
    make_score,
    most_common_reason,
)

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


def test_scores_that_traces_have_alike_are_one_object() -> None:
    for value in (0.0, 1.0, NoScore("no_text"), NoScore("no_passages", applies=False)):
        one = make_plain_score("error", 0.5, value)
        assert make_plain_score("error", 0.5, value) is one
        others = [
            make_plain_score("timeout", 0.5, value),
            make_plain_score("error", 1.0, value),
            make_plain_score("error", 0.5, value, scorer="estimate"),
            make_plain_score("error", 0.5, 0.5),
            make_plain_score("error", 0.5, NoScore("no_text", applies=False)),
        ]
        assert one not in others
    assert make_plain_score("error", 0.5, 0.25) == make_plain_score("error", 0.5, 0.25)


def test_what_a_judge_writes_into_its_scores_reaches_no_other_trace() -> None:
    first, second = (make_score("relevance", trace(), NoScore("no_text"), "judge") for _ in "ab")
    first.probability = 0.1
    assert second.probability == 1.0
