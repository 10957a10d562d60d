"""A run in which nothing could be judged says so, whatever the reason."""

from __future__ import annotations

from ragmeter.core.score import Score, ScoreState
from ragmeter.offline.scoring_summary import ScoringSummary
from ragmeter.reasons import Reason

from tests.tables import each_row


def unscored(reason: Reason) -> Score:
    return Score("answered", "judge", ScoreState.UNSCORED, reason=reason)


@each_row(
    "reason",
    [
        Reason.TOO_LONG,
        Reason.UNPARSABLE,
        Reason.JUDGE_ERROR,
        Reason.JUDGE_REFUSED,
        Reason.JUDGE_TIMEOUT,
        Reason.JUDGE_UNAVAILABLE,
    ],
)
def test_a_tier_that_gave_nothing_has_failed(reason: Reason) -> None:
    done = ScoringSummary(traces=2)
    for _ in range(2):
        done.add("judge", [unscored(reason)])
    assert done.failed_tiers == ["judge"]
    assert done.summary_lines() == [f"judge: 2 of 2 results unscored ({reason} 2)"]


def test_one_value_is_enough_for_a_run() -> None:
    done = ScoringSummary(traces=2)
    done.add("judge", [unscored(Reason.TOO_LONG)])
    done.add("judge", [Score("answered", "judge", ScoreState.SCORED, value=1.0)])
    assert done.failed_tiers == []
    assert len(done.summary_lines()) == 1


def test_what_the_trace_lacks_is_no_failure_of_a_judge() -> None:
    done = ScoringSummary(traces=1)
    done.add("judge", [unscored(Reason.NO_TEXT)])
    assert done.failed_tiers == []
