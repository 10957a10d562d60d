"""The betting e-SR: wealth is not overstated, its bound holds on any null, it can be restored."""

from __future__ import annotations

import math
import random
from copy import deepcopy

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter
from ragmeter.parts.drift.detectors import BETS, EsrDetector, ScorePart, fall_gains, rise_gains

from tests.parts.drift.saved import copied

scores = st.lists(st.floats(0, 1), min_size=1, max_size=30)


def part(values: list[float], weight: float = 1.0) -> ScorePart:
    return ScorePart(len(values), sum(values), sum(y * y for y in values), weight)


def wealth(values: list[float], mean: float, weight: float, bet: float) -> float:
    return sum(math.log1p(bet * weight * (y - mean) / mean) for y in values)


@given(st.lists(st.sampled_from([0.0, 1.0]), min_size=1), st.floats(0.01, 0.99), st.floats(0.1, 1))
def test_bets_on_shares_gain_what_single_scores_give(
    values: list[float], mean: float, weight: float
) -> None:
    gains = rise_gains([part(values, weight)], mean)
    exact = [wealth(values, mean, weight, bet) for bet in BETS]
    assert gains == pytest.approx(exact, abs=1e-9)


@given(scores, st.floats(0.01, 0.99), st.floats(0.1, 1))
def test_bets_on_any_scores_never_gain_more_than_single_scores_give(
    values: list[float], mean: float, weight: float
) -> None:
    for gain, bet in zip(rise_gains([part(values, weight)], mean), BETS, strict=True):
        assert gain <= wealth(values, mean, weight, bet) + 1e-6


def test_little_is_lost_where_scores_are_alike() -> None:
    rng = random.Random(3)
    values = [rng.betavariate(2, 8) for _ in range(500)]
    gains = rise_gains([part(values)], 0.12)
    for i, bet in enumerate(BETS[:4]):
        assert gains[i] >= 0.9 * wealth(values, 0.12, 1.0, bet) > 0


@given(st.lists(st.floats(0, 50), min_size=2, max_size=6), st.floats(0.5, 1))
def test_a_bet_on_a_fall_of_an_unbounded_score_is_fair(values: list[float], share: float) -> None:
    """The expectation over scores of equal chance, whose mean and mean square are the limits."""
    mean = share * sum(values) / len(values)
    square = sum(y * y for y in values) / len(values)
    if square < 1e-6:
        return
    gains = [fall_gains([part([y])], mean, square) for y in values]
    for i in range(len(BETS)):
        assert sum(math.exp(own[i]) for own in gains) / len(values) <= 1 + 1e-9


def test_one_step_by_hand() -> None:
    esr = EsrDetector()
    gains = [math.log1p(bet) for bet in BETS]
    assert esr.update(60, [gains]) == pytest.approx(60 * (1 + sum(BETS) / len(BETS)))
    second = sum((60 * (1 + bet) + 30) * (1 - bet) for bet in BETS) / len(BETS)
    assert esr.update(30, [[math.log1p(-bet) for bet in BETS]]) == pytest.approx(second)


@given(st.lists(st.floats(-5, 5), min_size=1, max_size=60), st.integers(1, 5))
def test_a_detector_restored_goes_on_bit_for_bit(values: list[float], sides: int) -> None:
    one = EsrDetector(sides)
    for gain in values:
        one.update(60, [[gain] * len(BETS)] * sides)
    other = copied(one)
    assert other.statistic == one.statistic
    for gain in values:
        assert one.update(60, [[gain] * len(BETS)] * sides) == other.update(
            60, [[gain] * len(BETS)] * sides
        )
    assert one == other


@pytest.mark.parametrize("wealth", [[], [[0.0] * 5], [[0.0] * len(BETS), [0.0]], 2 * [[0.0] * 7]])
def test_a_damaged_state_is_refused(wealth: list[list[float]]) -> None:
    sides = min(len(wealth), 1)
    with pytest.raises(ValueError, match="EsrDetector"):
        TypeAdapter(EsrDetector).validate_python({"sides": sides, "_wealth": wealth})


@given(
    st.lists(st.tuples(st.floats(0, 0.99), st.floats(0.01, 1)), min_size=1, max_size=7),
    st.floats(0.05, 0.9),
    st.integers(1, 40),
)
def test_the_statistic_less_the_time_is_a_supermartingale_on_any_two_point_null(
    points: list[tuple[float, float]], mean: float, n: int
) -> None:
    """Each step has n equal scores of one of two values around the mean, other ones at each step;
    all n count as one. The expectation over all paths is computed, not simulated."""

    def outcomes(low: float, high: float) -> list[tuple[float, list[float]]]:
        """The probability of each of the two values, and what each bet gains by it."""
        found = []
        for y, p in ((low, (high - mean) / (high - low)), (high, (mean - low) / (high - low))):
            found.append((p, [gain / n for gain in rise_gains([part([y] * n)], mean)]))
        return found

    steps = [outcomes(mean * low, mean + (1 - mean) * high) for low, high in points]

    def expect(esr: EsrDetector, rest: list[list[tuple[float, list[float]]]]) -> float:
        if not rest:
            return esr.statistic
        total = 0.0
        for p, gains in rest[0]:
            path = deepcopy(esr)
            path.update(60, [gains])
            total += p * expect(path, rest[1:])
        return total

    assert expect(EsrDetector(), steps) <= 60 * len(points) * (1 + 1e-9)


def test_false_alarms_on_a_skewed_null_stay_within_the_promise() -> None:
    rng = random.Random(5)
    h, alarms, steps = 300.0, 0, 60_000
    esr = EsrDetector()
    for _ in range(steps):
        if esr.update(1, [rise_gains([part([float(rng.random() < 0.05)])], 0.05)]) >= h:
            alarms += 1
            esr.reset()
    assert 20 < alarms <= steps / h * 1.1


def test_it_finds_what_it_should_and_tells_where() -> None:
    esr = EsrDetector(3)
    calm, loss = rise_gains([ScorePart(20, 2, 2)], 0.1), rise_gains([ScorePart(20, 6, 6)], 0.1)
    found = [esr.update(60, [calm, loss, calm]) for _ in range(20)]
    assert found[0] < 30 * 86400 < found[-1]
    side, bet = esr.strongest()
    assert side == 1
    assert BETS[bet] >= 0.1
    esr.reset()
    assert esr == EsrDetector(3)
