"""What the judge benchmark promises of our side: calls, round trips, memory."""

from __future__ import annotations

from ragmeter.core.score import ScoreState

from benchmarks.judge import stub
from benchmarks.judge_ours import depth, judge, traces
from benchmarks.judge_workload import NUGGETS, workload


def test_a_trace_takes_sixteen_calls_in_at_most_four_round_trips_and_none_again() -> None:
    batch = traces(workload(4))
    with stub(latency=0.05) as url:
        first, again = judge([batch, batch[1:]], url, side_by_side=True)
    assert first.requests == 3 * 16
    assert all(1 < depth(calls) <= 4 for calls in first.calls)
    assert again.requests == 0
    assert [[score.value for score in scores] for scores in again.scores] == [
        [score.value for score in scores] for scores in first.scores
    ]
    for scores in first.scores:
        (nuggets,) = (score for score in scores if score.metric == "nugget_all")
        assert nuggets.detail is not None
        assert nuggets.detail["created"] == NUGGETS
        assert {score.state for score in scores} == {ScoreState.SCORED}


def test_malformed_answers_cost_no_metric_that_they_are_not_part_of() -> None:
    with stub(latency=0.0, malformed=0.3) as url:
        (found,) = judge([traces(workload(41))], url, side_by_side=True)
    lost, beside, total = found.lost()
    assert 0 < lost < total, "some calls have failed for good"
    assert beside == 0


def test_depth_counts_what_cannot_have_been_side_by_side() -> None:
    assert depth([]) == 0
    assert depth([(0, 1), (0, 1.1), (0.5, 2)]) == 1
    assert depth([(0, 1), (1, 2), (0, 3), (2.5, 3.5)]) == 3
