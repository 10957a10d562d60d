"""Differences: hand-worked intervals, p values against exact sums over all outcomes."""

from __future__ import annotations

import math
from itertools import product

import pytest
from ragmeter.windows.contrasts import compare_means
from ragmeter.windows.estimators import join_limits, student_p_value

from tests.tables import each_row
from tests.windows.cells import MEAN, rate, sample

SCIPY_T = {(10, 4.5869): 1e-3, (20, 3.8495): 1e-3, (60, 3.4602): 1e-3, (10, 2.2281): 0.05}
"""2 * scipy.stats.t.sf(t, df), scipy 1.17."""


@pytest.mark.parametrize(("key", "expected"), SCIPY_T.items())
def test_p_values_of_student(key: tuple[int, float], expected: float) -> None:
    freedom, t = key
    assert student_p_value(t, freedom) == pytest.approx(expected, rel=0.03)
    assert student_p_value(-t, freedom) == student_p_value(t, freedom)


def test_p_values_of_the_normal() -> None:
    assert student_p_value(1.959964, math.inf) == pytest.approx(0.05, abs=1e-6)
    assert student_p_value(math.inf, 5) == 0.0
    assert student_p_value(0.0, 5) == 1.0


def test_two_rates_have_the_interval_of_newcombe() -> None:
    # Newcombe (1998), table II, (a) 56/70 against 48/80: method 10 gives .0524 to .3339
    found = compare_means((sample(rate(56, 70)), sample(rate(48, 80))))
    assert found.value == pytest.approx(0.2)
    # ours are of 67 and 77 effective samples (t instead of z): a little wider
    assert found.lower == pytest.approx(0.0524, abs=5e-3)
    assert found.upper == pytest.approx(0.3339, abs=5e-3)


def test_the_sides_of_an_interval_change_with_the_sign() -> None:
    value, lower, upper = join_limits([(1, 0.9, 0.7, 0.95), (-1, 0.5, 0.4, 0.7)])
    assert value == pytest.approx(0.4)
    mirrored = join_limits([(-1, 0.9, 0.7, 0.95), (1, 0.5, 0.4, 0.7)])
    assert mirrored == pytest.approx((-value, -upper, -lower))
    assert 0.4 - lower > upper - 0.4


def _chance(n1: int, n0: int, p: float, alpha: float) -> float:
    """The exact chance of a p value of at most alpha where both rates are p."""

    def binomial(n: int, k: int) -> float:
        return math.comb(n, k) * p**k * (1 - p) ** (n - k)

    total = 0.0
    for a, b in product(range(n1 + 1), range(n0 + 1)):
        chance = binomial(n1, a) * binomial(n0, b)
        if chance > 1e-9 and compare_means((sample(rate(a, n1)), sample(rate(b, n0)))).p <= alpha:
            total += chance
    return total


@each_row("p", [0.5, 0.9, 0.98])
@each_row("alpha", [0.01, 0.001])
def test_small_p_values_of_rates_are_as_rare_as_they_say(p: float, alpha: float) -> None:
    assert _chance(20, 60, p, alpha) <= 1.25 * alpha


def test_a_shift_is_seen_and_none_is_not() -> None:
    good, bad = sample(rate(380, 400)), sample(rate(60, 100))
    assert compare_means((bad, good)).p < 1e-6
    assert compare_means((good, good)).p == 1.0
    assert compare_means((bad, good)).value == pytest.approx(-0.35)


def test_a_difference_of_differences_is_of_what_moved_alone() -> None:
    before, now = sample(rate(900, 1000)), sample(rate(140, 200))
    rest_before, rest_now = sample(rate(1800, 2000)), sample(rate(280, 400))
    together = compare_means((now, before), (rest_now, rest_before))
    assert together.value == pytest.approx(0.0)
    assert together.p == 1.0
    alone = compare_means((now, before), (rest_before, rest_before))
    assert alone.value == pytest.approx(-0.2)
    assert alone.p < 1e-6
    assert alone.lower < -0.2 < alone.upper < 0


def test_what_is_missing_makes_no_finding() -> None:
    before, now = rate(900, 1000), rate(160, 200)
    clean = compare_means((sample(now), sample(before)))
    assert clean.p < 0.05
    lost = compare_means((sample(now, unscored=250), sample(before)))
    assert lost.p == 1.0, "the values that are missing may all be good"
    assert lost.value == clean.value
    assert lost.lower < clean.lower
    assert lost.upper > clean.upper


def test_means_without_a_bound() -> None:
    kind = MEAN._replace(low=0.0, high=None)
    small = sample([100.0, 110.0, 95.0, 105.0] * 10, kind)
    large = sample([150.0, 160.0, 145.0, 155.0] * 10, kind)
    assert compare_means((large, small)).value == pytest.approx(50.0)
    assert compare_means((large, small)).p < 1e-9
