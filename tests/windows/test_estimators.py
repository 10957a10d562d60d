from __future__ import annotations

import math
import random

import pytest

from ragmeter.core.arithmetic import WEIGHT_ONE, value_units, weight_units
from ragmeter.windows.estimators import (
    StratumMoments,
    mean_interval,
    mean_spread,
    rate_interval,
    stratum_moments,
    t975,
    wilson_interval,
)
from ragmeter.windows.sums import add_scored, empty_sums

SCIPY_T = {1: 12.7062047, 5: 2.5705818, 9: 2.2621572, 10: 2.2281389, 30: 2.0422725, 1000: 1.9623390}
"""scipy.stats.t.ppf(.975, df), scipy 1.17."""


def stratum(
    values: list[float], probabilities: list[float], cheap: list[float], size: int, mean_f: float
) -> list[int]:
    sums = empty_sums()
    sums[0], sums[1] = size * WEIGHT_ONE, value_units(size * mean_f) * WEIGHT_ONE
    for value, probability, f in zip(values, probabilities, cheap, strict=True):
        y, x = value_units(value), value_units(f)
        add_scored(sums, weight_units(probability), y, y * y, f=x, ff=x * x, yf=x * y)
    return sums


def plain(values: list[float], probabilities: list[float] | None = None) -> list[StratumMoments]:
    n = len(values)
    return stratum_moments([stratum(values, probabilities or [1.0] * n, [0.0] * n, n, 0.0)])


@pytest.mark.parametrize(("df", "expected"), SCIPY_T.items())
def test_t_quantiles(df: int, expected: float) -> None:
    assert t975(df) == pytest.approx(expected, rel=5e-5)


def test_wilson_against_published_values() -> None:
    # Newcombe (1998), table I, method 3: 81/263 and 0/20.
    assert wilson_interval(81 / 263, 263) == pytest.approx((0.2553, 0.3662), abs=5e-5)
    assert wilson_interval(0.0, 20) == pytest.approx((0.0, 0.1611), abs=5e-5)


@pytest.mark.parametrize("n", [1, 5, 49, 50, 2000])
@pytest.mark.parametrize("share", [0.0, 1.0])
def test_a_rate_of_nothing_or_everything_has_a_proper_interval(n: int, share: float) -> None:
    found = rate_interval(plain([share] * n))
    assert found.value == share
    assert 0 <= found.lower <= share <= found.upper <= 1
    assert found.upper - found.lower > 1 / (n + 5)


def test_few_equal_weights_give_plain_wilson() -> None:
    found = rate_interval(plain([1.0] * 30 + [0.0] * 10, [0.1] * 40))
    assert (found.lower, found.upper) == wilson_interval(0.75, 40)
    assert found.effective == 40


def test_many_equal_weights_give_nearly_plain_wilson() -> None:
    found = rate_interval(plain([1.0] * 300 + [0.0] * 100))
    assert found.value == 0.75
    assert (found.lower, found.upper) == pytest.approx(wilson_interval(0.75, 400), abs=1e-3)


def test_a_mean_with_equal_weights_has_the_textbook_t_interval() -> None:
    values = [2.0, 3.0, 5.0, 7.0, 11.0]
    mean = sum(values) / 5
    variance = sum((v - mean) ** 2 for v in values) / 4
    found = mean_interval(plain(values), [variance])
    half = 2.776445 * math.sqrt(variance / 5)
    assert (found.value, found.lower, found.upper) == pytest.approx(
        (mean, mean - half, mean + half)
    )
    assert found.effective == 5


def test_history_rules_the_variance_of_few_samples() -> None:
    narrow = mean_interval(plain([0.5] * 5), [0.0])
    wide = mean_interval(plain([0.5] * 5), [0.04])
    assert narrow.lower == narrow.upper == 0.5
    assert wide.upper - wide.lower == pytest.approx(2 * 2.776445 * math.sqrt(10 * 0.04 / 14 / 5))


def test_a_mean_is_cut_to_its_range_only_where_there_is_one() -> None:
    values = plain([0.9, 1.0, 1.0, 0.2, 1.0])
    assert mean_interval(values, [0.1], 0.0, 1.0).upper == 1.0
    assert mean_interval(values, [0.1], 0.0, None).upper > 1.0


def test_strata_without_a_score_join_a_neighbour() -> None:
    empty = stratum([], [], [], 70, 0.5)
    some = stratum([1.0, 0.0], [0.1, 0.1], [0.9, 0.2], 30, 0.5)
    for order in ([empty, some], [some, empty]):
        (only,) = stratum_moments(order)
        assert (only.size, only.n, only.population_f) == (100, 2, 0.5)
    assert stratum_moments([empty]) == []


def test_strata_weigh_by_their_traffic() -> None:
    rest = stratum([1.0] * 60, [0.05] * 60, [0.0] * 60, 1200, 0.0)
    tail = stratum([0.0] * 60, [0.15] * 60, [0.0] * 60, 400, 0.0)
    assert rate_interval(stratum_moments([rest, tail])).value == pytest.approx(0.75)
    assert mean_interval(stratum_moments([rest, tail]), [0.0]).value == pytest.approx(0.75)


def test_a_stratum_judged_too_often_brings_less_than_its_samples() -> None:
    """Effective samples against the variance that the design really has: 100 + 100 judged, one
    half of them from a twentieth of the traffic, are worth 110 judged at random, not 200."""
    rng = random.Random(7)
    values = [[rng.random() for _ in range(100)] for _ in range(2)]
    rest = stratum(values[0], [100 / 1900] * 100, [0.0] * 100, 1900, 0.0)
    tail = stratum(values[1], [1.0] * 100, [0.0] * 100, 100, 0.0)
    found = mean_interval(stratum_moments([rest, tail]), [1 / 12])
    assert found.effective == pytest.approx(1 / (0.95**2 / 100 + 0.05**2 / 100), rel=1e-6)
    # what the width says: half = t * sqrt(variance of one / effective)
    half = (found.upper - found.lower) / 2
    assert 1 / 12 * (1.97 / half) ** 2 == pytest.approx(found.effective, rel=0.15)


def test_strata_judged_alike_are_worth_their_samples() -> None:
    rest = stratum([0.2, 0.4, 0.6] * 40, [0.1] * 120, [0.0] * 120, 1200, 0.0)
    tail = stratum([0.1, 0.3] * 20, [0.1] * 40, [0.0] * 40, 400, 0.0)
    assert mean_interval(stratum_moments([rest, tail]), [0.05]).effective == pytest.approx(160)


def test_a_good_cheap_score_narrows_the_interval_and_moves_the_estimate() -> None:
    rng = random.Random(4)
    values, cheap = [], []
    for _ in range(200):
        good = rng.random() < 0.8
        values.append(float(good))
        cheap.append(rng.betavariate(8, 2) if good else rng.betavariate(2, 8))
    population = sum(cheap) / 200 - 0.05  # all traffic is a little worse than the sample
    with_cheap = rate_interval(
        stratum_moments([stratum(values, [0.1] * 200, cheap, 2000, population)]), 0.7
    )
    without = rate_interval(plain(values, [0.1] * 200))
    assert with_cheap.upper - with_cheap.lower < 0.8 * (without.upper - without.lower)
    assert with_cheap.value < without.value - 0.02


@pytest.mark.parametrize("n", [2, 5, 10, 100])
def test_explained_variance_is_corrected_for_the_two_fitted_parameters(n: int) -> None:
    """By hand: the cheap scores equal the values, so the slope is 1 and no residual is left. The
    explained share is its cap of 0.95 times (n - 2) / n, and n samples are worth n / (1 - share).
    """
    values = [float(i % 2) for i in range(n)]
    strata = stratum_moments([stratum(values, [0.1] * n, values, 10 * n, sum(values) / n)])
    share = 0.95 * (n - 2) / n
    found = mean_spread(strata, [0.0], prior=0.0, slope_history=1.0)
    assert found.effective == pytest.approx(n / (1 - share))
    assert found.error == pytest.approx((1 - share) * strata[0].yy / (n - 1) / n)


@pytest.mark.parametrize("n", [20, 200])
@pytest.mark.parametrize("rate", [0.5, 0.9, 0.98])
@pytest.mark.parametrize("biased", [False, True])
def test_rate_interval_covers(n: int, rate: float, biased: bool) -> None:
    """The rate of a population of n/0.2 traces; `biased` scores the bad ones 3 times as often."""
    rng = random.Random(f"{n} {rate} {biased}")
    covered = runs = 0
    share = 0.2
    for _ in range(300):
        population = [float(rng.random() < rate) for _ in range(int(n / share))]
        keep_bad = 3 * share if biased else share
        values, probabilities = [], []
        for value in population:
            probability = share if value else keep_bad
            if rng.random() < probability:
                values.append(value)
                probabilities.append(probability)
        if len(values) < 5:
            continue
        found = rate_interval(plain(values, probabilities))
        runs += 1
        truth = sum(population) / len(population)
        covered += found.lower - 1e-12 <= truth <= found.upper + 1e-12
    assert covered / runs >= 0.93


@pytest.mark.parametrize("n", [20, 200])
@pytest.mark.parametrize("biased", [False, True])
def test_mean_interval_covers(n: int, biased: bool) -> None:
    """Graded scores with a lump at 1; `biased` scores those below 0.5 3 times as often."""
    rng = random.Random(f"{n} {biased}")
    share, covered, runs = 0.2, 0, 300

    def draw() -> float:
        return 1.0 if rng.random() < 0.5 else rng.betavariate(3, 2)

    def sample(number: int) -> tuple[list[float], list[float], float]:
        population = [draw() for _ in range(number)]
        kept = [(v, 3 * share if biased and v < 0.5 else share) for v in population]
        kept = [(v, p) for v, p in kept if rng.random() < p]
        return [v for v, _ in kept], [p for _, p in kept], sum(population) / number

    values, probabilities, _ = sample(10_000)
    (past,) = plain(values, probabilities)
    history = past.linearised * past.kish * past.n / (past.n - 1)
    for _ in range(runs):
        values, probabilities, truth = sample(int(n / share))
        found = mean_interval(plain(values, probabilities), [history], 0.0, 1.0)
        covered += found.lower <= truth <= found.upper
    assert covered / runs >= 0.93


def test_the_estimate_is_unbiased_under_biased_sampling_and_the_plain_mean_is_not() -> None:
    rng = random.Random(8)
    weighted, naive, runs = 0.0, 0.0, 400
    for _ in range(runs):
        values, probabilities = [], []
        for _ in range(1000):
            value = float(rng.random() < 0.9)
            probability = 0.1 if value else 0.5
            if rng.random() < probability:
                values.append(value)
                probabilities.append(probability)
        weighted += rate_interval(plain(values, probabilities)).value / runs
        naive += sum(values) / len(values) / runs
    assert weighted == pytest.approx(0.9, abs=0.005)
    assert naive < 0.7
