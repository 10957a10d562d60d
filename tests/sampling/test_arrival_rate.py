from __future__ import annotations

import random

import pytest

from ragmeter.sampling.service_demand import ArrivalRate


def feed(arrivals: ArrivalRate, rate: float, begin: float, end: float, rng: random.Random) -> float:
    """Poisson arrivals, a look every half second; the time of the last look."""
    now = begin
    while now < end:
        now += 0.5
        t = rng.expovariate(rate)
        while t < 0.5:
            arrivals.count += 1
            t += rng.expovariate(rate)
        arrivals.update(now, 0.5)
    return now


@pytest.mark.parametrize("rate", [0.2, 3.0, 50.0, 1000.0])
def test_a_steady_rate_is_found_within_a_third(rate: float) -> None:
    arrivals = ArrivalRate(0.0)
    feed(arrivals, rate, 0, 200, random.Random(1))
    assert arrivals.rate == pytest.approx(rate, rel=0.35)


@pytest.mark.parametrize(("before", "after"), [(2, 20), (20, 200), (200, 20), (50, 5)])
def test_a_tenfold_step_is_followed_within_five_seconds(before: float, after: float) -> None:
    for seed in range(10):
        rng = random.Random(seed)
        arrivals = ArrivalRate(0.0)
        feed(arrivals, before, 0, 120, rng)
        feed(arrivals, after, 120, 125, rng)
        assert arrivals.rate == pytest.approx(after, rel=0.6), seed


def test_the_first_arrivals_count_at_once() -> None:
    arrivals = ArrivalRate(100.0)
    arrivals.count = 50
    arrivals.update(100.0, 0.5)
    assert arrivals.rate == pytest.approx(100.0)


def test_a_gap_of_which_nothing_is_known_changes_nothing() -> None:
    arrivals = ArrivalRate(0.0)
    feed(arrivals, 20, 0, 60, random.Random(1))
    before = arrivals.rate
    arrivals.resume(5000.0)
    arrivals.count = 10
    arrivals.update(5000.5, 0.5)
    assert arrivals.rate == pytest.approx(before, rel=0.2)


def test_batches_are_not_taken_for_steps() -> None:
    """Twenty traces every 0.8 s are 25 a second, however they come."""
    arrivals = ArrivalRate(0.0)
    seen = []
    for look in range(1, 400):
        now = look * 0.5
        arrivals.count = 20 * (int(now / 0.8) - int((now - 0.5) / 0.8))
        arrivals.update(now, 0.5)
        seen.append(arrivals.rate)
    assert all(15 < rate < 40 for rate in seen[20:])
