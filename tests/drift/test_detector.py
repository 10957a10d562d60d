"""The e-SR: its bound holds on any null, its state comes back bit for bit."""

from __future__ import annotations

import json
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragmeter.drift.detectors import BETS, EsrDetector, detector_threshold

zs = st.lists(st.floats(-40, 40), min_size=1, max_size=60)


def test_one_step_by_hand() -> None:
    esr = EsrDetector()
    # y = (1.55 - .05) / 3 = .5: M = (0 + 1)(1 + l / 2), then the mean over the bets.
    assert esr.update([(1.55, 0.05)]) == pytest.approx(1 + sum(BETS) / len(BETS) / 2)
    second = sum((1 + b / 2 + 1) * (1 + b * -1) for b in BETS) / len(BETS)
    assert esr.update([(-1e9, 0.05)]) == pytest.approx(second)


def test_the_tolerance_is_taken_off_in_both_directions() -> None:
    """By hand: the upward bet is on z - tol and the downward one on -z - tol, so z cancels."""
    esr = EsrDetector(two_sided=True)
    for z in (0.0, 0.6, -0.6):
        esr.reset()
        assert esr.update([(z, 0.3)]) == pytest.approx(1 - sum(BETS) / len(BETS) * 0.3 / 3)


def test_a_freak_bucket_counts_ten_and_a_gap_in_the_numbers_costs_the_stake() -> None:
    assert EsrDetector().update([(1e300, 0.0)]) == EsrDetector().update([(30.0, 0.0)])
    assert EsrDetector().update([(float("nan"), 0.0)]) == EsrDetector().update([(-3.0, 0.0)])


def test_the_threshold_is_the_steps_in_the_time_of_one_alarm_times_the_streams() -> None:
    month = 30 * 86400
    assert detector_threshold(month, 60, 1) == 43200
    assert detector_threshold(month, 10, 1) == 259200
    assert detector_threshold(month, 300, 7) == 7 * 8640
    assert detector_threshold(month, 60, 0) == 43200


@given(zs, st.booleans(), st.integers(1, 5))
def test_a_detector_restored_goes_on_bit_for_bit(
    values: list[float], two_sided: bool, edges: int
) -> None:
    one = EsrDetector(edges, two_sided)
    for z in values:
        one.update([(z, 0.05)] * edges)
    other = EsrDetector.load(json.loads(json.dumps(one.dump())))
    assert other.statistic == one.statistic
    for z in values:
        assert one.update([(z, 0.1)] * edges) == other.update([(z, 0.1)] * edges)
    assert one.dump() == other.dump()


@pytest.mark.parametrize("state", [[[0.0, 0.0]], [[0.0, 1.0], [0.0] * 5], [[0.0, 0.0], [0.0]]])
def test_a_damaged_state_is_refused(state: list[list[float]]) -> None:
    with pytest.raises(ValueError, match="a detector's state"):
        EsrDetector.load(state)


@given(
    st.lists(st.tuples(st.floats(0.01, 60), st.floats(0.01, 60)), min_size=1, max_size=7),
    st.booleans(),
    st.floats(0, 1),
    st.floats(-1, 1),
)
def test_the_statistic_less_the_steps_is_a_supermartingale_on_any_two_point_null(
    points: list[tuple[float, float]], two_sided: bool, tol: float, part: float
) -> None:
    """Each step has two values, other ones at each step, and a mean within the tolerance: the
    expectation over all paths is computed, not simulated. It may be at most the number of steps.
    """
    shift = part * tol

    def expect(esr: EsrDetector, rest: list[tuple[float, float]]) -> float:
        if not rest:
            return esr.statistic
        up, down = rest[0]
        total = 0.0
        # mean `shift`: up with probability down / (up + down); values are kept above the cut of
        # each direction, where the e-value is exact (z - tol >= -3, -z - tol >= -3)
        for z, p in ((up, down / (up + down)), (-down, up / (up + down))):
            path = EsrDetector.load(esr.dump())
            path.update([(shift + z, tol)])
            total += p * expect(path, rest[1:])
        return total

    most = 3.0 - 2 * tol
    points = [(min(u, most) if two_sided else u, min(d, most)) for u, d in points]
    assert expect(EsrDetector(1, two_sided), points) <= len(points) * (1 + 1e-9)


def test_false_alarms_on_a_skewed_null_stay_within_the_promise() -> None:
    rng = random.Random(5)
    h, alarms, steps = 300.0, 0, 60_000
    esr = EsrDetector()
    for _ in range(steps):
        # rare large values, mean 0: the worst kind for a normal approximation
        z = 4.0 if rng.random() < 0.05 else -4.0 * 0.05 / 0.95
        if esr.update([(z, 0.0)]) >= h:
            alarms += 1
            esr.reset()
    assert 20 < alarms <= steps / h * 1.1


@pytest.mark.parametrize("shift", [-0.3, 0.0, 0.3])
def test_false_alarms_of_a_two_sided_detector_stay_within_the_promise_up_to_the_tolerance(
    shift: float,
) -> None:
    """A mean that is off by no more than the tolerance is no drift in either direction."""
    rng = random.Random(6)
    h, alarms, steps = 300.0, 0, 60_000
    esr = EsrDetector(two_sided=True)
    for _ in range(steps):
        if esr.update([(shift + rng.choice((-1.0, 1.0)), 0.3)]) >= h:
            alarms += 1
            esr.reset()
    assert alarms <= steps / h


def test_it_finds_what_it_should_and_says_where() -> None:
    esr = EsrDetector(3, two_sided=True)
    found = [esr.update([(0.0, 0.05), (-1.5, 0.05), (0.3, 0.05)]) for _ in range(60)]
    assert found[10] < 43200 < found[-1]
    assert esr.strongest() == (1, -1)
    esr.reset()
    assert esr.dump() == EsrDetector(3, two_sided=True).dump()
