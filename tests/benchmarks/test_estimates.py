"""Small runs of the simulations behind docs/statistics.md; the figures there are of larger ones."""

from __future__ import annotations

from benchmarks.estimates import coverage, graded_scores, missing
from benchmarks.sampling import SHAPES, budget_hours, judgements


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
    (shape,) = (shape for shape in SHAPES if shape.name == "three bursts x10, quality -.3")
    found = budget_hours(shape, 8, 1)
    for kind in ("rate", "mean"):
        assert found[f"{kind}, first k a minute"]["bias"] > 0.05
        for rule in ("reference", "shipped"):
            row = found[f"{kind}, {rule}"]
            assert abs(row["bias"]) < 0.02  # of 8 hours; the error is 0.007
            assert row["width over uniform"] < 1.25
        assert found[f"{kind}, reference"]["coverage"] >= 7 / 8
        assert 0.95 < row["spend over budget"] < 1.05
        assert row["worst hour"] < 1.25


def test_late_judgements_do_not_bend_the_estimate() -> None:
    late = judgements(6, 0)["judgements come late"]
    assert late["known N, read at once"]["bias"] < -0.04
    assert abs(late["shipped, read at once"]["bias"]) < 0.03
