"""Small runs of the simulations behind docs/statistics.md; the figures there are of larger ones."""

from __future__ import annotations

from benchmarks.estimates import coverage, graded_scores, missing

from benchmarks.sampling import budget_hours, judgements


def test_coverage_and_saving() -> None:
    uniform, _, tail = coverage(8, sizes=(200,))
    assert uniform["stratified"][0] > 0.93  # type: ignore[index]
    assert tail["helped"][0] > 0.93  # type: ignore[index]
    assert tail["plain"][0] < 0.5  # type: ignore[index]
    assert min(uniform["saving helped"][0.7]) > 0.3  # type: ignore[index]


def test_graded_scores_gain_from_a_cheap_score() -> None:
    found = list(graded_scores(20, sizes=(200,), correlations=(0.7,)))
    assert all(row["width"] <= 1.01 for row in found)  # type: ignore[operator]
    assert found[1]["width"] < 0.95  # type: ignore[operator]
    assert found[1]["helped"][0] > 0.85  # type: ignore[index]


def test_bounds_hold_whatever_is_missing() -> None:
    assert [row["with bounds"][0] > 0.97 for row in missing(100)] == [True] * 3  # type: ignore[index]


def test_a_budget_bends_the_first_come_and_not_ours() -> None:
    found = budget_hours(6)
    assert found["first k a minute"]["bias"] > 0.1
    assert abs(found["shipped"]["bias"]) < 0.06  # of 6 hours; the error is 0.02
    assert found["shipped"]["coverage"] >= 5 / 6


def test_late_judgements_do_not_bend_the_estimate() -> None:
    late = judgements(6)["judgements come late"]
    assert late["known N, read at once"]["bias"] < -0.04
    assert abs(late["shipped, read at once"]["bias"]) < 0.03
