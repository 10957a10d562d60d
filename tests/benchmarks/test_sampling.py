"""Small runs of `benchmarks.sampling`; the figures in docs/statistics.md are of larger ones."""

from __future__ import annotations

from benchmarks.sampling import budget_hours, judgements


def test_a_budget_bends_the_first_come_and_not_ours() -> None:
    found = budget_hours(6)
    assert found["first k a minute"]["bias"] > 0.1
    assert abs(found["shipped"]["bias"]) < 0.06  # of 6 hours; the error is 0.02
    assert found["shipped"]["coverage"] >= 5 / 6


def test_late_judgements_do_not_bend_the_estimate() -> None:
    late = judgements(6)["judgements come late"]
    assert late["known N, read at once"]["bias"] < -0.04
    assert abs(late["shipped, read at once"]["bias"]) < 0.03
