"""What a bucket of a quarter of an hour's calls leaves possible: the bound in docs/judge.md."""

from __future__ import annotations

import math

import pytest
from ragmeter.sampling.budget_accounts import _STEADY_FILL, BUDGET_DEPTH, HOUR


def least_width(minutes: float, times: float, calm: float, burst: float) -> float:
    """Return the width over that of a uniform sample of an hour that ends with a sudden burst.

    The calm part has spent its income; the burst spends the bucket and its own income evenly.

    Args:
        minutes: Length of the burst.
        times: The burst's traffic over the usual.
        calm: Share of good answers outside of the burst; `burst` is that within.
    """
    part = minutes / 60
    size = part * times / (part * times + 1 - part)
    spent = part + _STEADY_FILL * BUDGET_DEPTH / HOUR
    judged = spent / (spent + 1 - part)
    mean = size * burst + (1 - size) * calm
    variance = size**2 * burst * (1 - burst) / judged
    variance += (1 - size) ** 2 * calm * (1 - calm) / (1 - judged)
    return math.sqrt(variance / (mean * (1 - mean)))


def test_a_sudden_long_burst_cannot_be_as_narrow_as_a_uniform_sample() -> None:
    assert least_width(10, 10, 0.95, 0.65) == pytest.approx(1.31, abs=0.01)
    assert least_width(2, 10, 0.95, 0.65) < 1
