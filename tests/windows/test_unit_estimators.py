from __future__ import annotations

import pytest

from ragmeter.core.arithmetic import WEIGHT_ONE, value_units
from ragmeter.windows.estimators import (
    mean_interval,
    rate_interval,
    sample_variance,
    stratum_moments,
    unit_mean_interval,
    unit_rate_interval,
    unit_variance,
)
from ragmeter.windows.sums import add_scored, empty_sums


def sums_of(values: list[float]) -> list[int]:
    sums = empty_sums()
    ys = [value_units(value) for value in values]
    sums[0] = len(ys)
    add_scored(sums, WEIGHT_ONE, sum(ys), sum(y * y for y in ys), len(ys))
    return sums


@pytest.mark.parametrize("n", [1, 2, 5, 49, 50, 51, 400])
@pytest.mark.parametrize("bad", [0, 1, 7])
def test_the_short_rate_is_the_general_one(n: int, bad: int) -> None:
    values = [0.0] * min(bad, n) + [1.0] * max(0, n - bad)
    sums = sums_of(values)
    assert unit_rate_interval(n, sums[9]) == pytest.approx(
        rate_interval(stratum_moments([sums])), rel=1e-12
    )


@pytest.mark.parametrize("n", [1, 2, 5, 50])
@pytest.mark.parametrize("history", [0.0, 0.04])
def test_the_short_mean_is_the_general_one(n: int, history: float) -> None:
    sums = sums_of([(i * 0.37) % 1 for i in range(n)])
    short = unit_mean_interval(n, sums[9], sums[11], history, 0.0, 1.0)
    general = mean_interval(stratum_moments([sums]), [history], 0.0, 1.0)
    assert short == pytest.approx(general, rel=1e-12, abs=1e-15)
    if n > 1:
        variance, number = sample_variance(stratum_moments([sums]))
        assert (unit_variance(n, sums[9], sums[11]), n) == pytest.approx((variance, number))
