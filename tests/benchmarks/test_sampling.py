"""Small runs of the simulation behind docs/judge.md; the figures there are of larger ones."""

from __future__ import annotations

import pytest

from benchmarks.sampling import SHAPES, budget_hours, judgements


@pytest.mark.slow
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
