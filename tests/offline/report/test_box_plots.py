"""Quartiles and whiskers, by hand, with weights, and beside numpy."""

from __future__ import annotations

import random

import numpy
import pytest
from ragmeter.offline.report.box_plot import MAX_OUTLIERS, compute_box_plot

from tests.tables import each_row


def box(values: list[float], probabilities: list[float] | None = None) -> tuple[float, ...]:
    found = compute_box_plot(values, probabilities or [1.0] * len(values))
    assert found is not None
    return found.low, found.q1, found.median, found.q3, found.high


def test_by_hand() -> None:
    # quartiles of eight are the middles of the 2nd and 3rd, 4th and 5th, 6th and 7th; of nine the
    # 3rd, 5th and 7th
    assert box([8, 1, 7, 2, 6, 3, 5, 4]) == (1, 2.5, 4.5, 6.5, 8)
    assert box([9, 8, 1, 7, 2, 6, 3, 5, 4]) == (1, 3, 5, 7, 9)
    assert box([0.4]) == (0.4,) * 5
    assert compute_box_plot([], []) is None


def test_whiskers_end_at_the_furthest_score_within_one_and_a_half_lengths() -> None:
    # quartiles 3 and 7: a score may lie 6 away, at 13 and no further
    found = compute_box_plot([1, 2, 3, 4, 5, 6, 7, 13, 13.5], [1.0] * 9)
    assert found is not None
    assert (found.low, found.q1, found.q3, found.high) == (1, 3, 7, 13)
    assert (found.outside, found.outliers) == (1, (13.5,))


@each_row("seed", range(20))
def test_like_numpy_of_equal_weights(seed: int) -> None:
    rng = random.Random(seed)
    values = [round(rng.random(), 2) for _ in range(rng.randint(1, 60))]
    wanted = numpy.quantile(values, [0.25, 0.5, 0.75], method="averaged_inverted_cdf")
    assert box(values)[1:4] == pytest.approx(wanted)


@each_row("seed", range(20))
def test_a_score_of_weight_three_counts_as_three(seed: int) -> None:
    rng = random.Random(seed)
    values = [round(rng.random(), 2) for _ in range(rng.randint(1, 30))]
    weights = [rng.choice((1, 2, 4)) for _ in values]
    repeated = [value for value, n in zip(values, weights, strict=True) for _ in range(n)]
    assert box(values, [1 / n for n in weights]) == box(repeated)


def test_many_outliers_are_counted_and_the_furthest_drawn() -> None:
    values = [0.5] * 2_000 + [0.6 + n / 10_000 for n in range(300)]
    found = compute_box_plot(values, [1.0] * len(values))
    assert found is not None
    assert (found.outside, len(found.outliers)) == (300, MAX_OUTLIERS)
    assert found.outliers[-1] == pytest.approx(0.6299)
    assert found.outliers[0] == pytest.approx(0.61)
