"""Small runs of the simulations behind docs/statistics.md; the figures there are of larger ones."""

from __future__ import annotations

from benchmarks.estimates import coverage, graded_scores, missing


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
