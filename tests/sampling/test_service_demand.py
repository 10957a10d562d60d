from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ragmeter.sampling.service_demand import ServiceDemand, divide_fairly

AMOUNT = st.floats(0, 1e6)


def test_who_asks_for_little_gets_it_all_and_the_rest_is_divided_equally() -> None:
    assert divide_fairly(10, [1, 100, 3, 100]) == [1, 3, 3, 3]


def test_enough_for_all() -> None:
    assert divide_fairly(10, [1, 2, 3]) == [1, 2, 3]
    assert divide_fairly(10, []) == []


@given(st.floats(0.001, 1e6), st.lists(AMOUNT, min_size=1, max_size=20))
def test_all_is_given_as_far_as_asked_for(total: float, demands: list[float]) -> None:
    given_ = divide_fairly(total, demands)
    assert sum(given_) == pytest.approx(min(total, sum(demands)))
    assert all(0 <= got <= asked for got, asked in zip(given_, demands, strict=True))
    # whoever is not served in full gets at least as much as anybody else
    short = [got for got, asked in zip(given_, demands, strict=True) if got < asked]
    if short:
        assert min(short) >= max(given_) * (1 - 1e-9)


@given(st.lists(AMOUNT, min_size=2, max_size=10), st.floats(1, 1e3))
def test_a_noisy_service_takes_nothing_below_an_equal_part(
    demands: list[float], times: float
) -> None:
    total = 100.0
    noisy = [demands[0] * times, *demands[1:]]
    for got, asked in zip(divide_fairly(total, noisy)[1:], demands[1:], strict=True):
        assert got >= min(asked, total / len(demands)) * (1 - 1e-9)


COST = (1.0, 1.0, 1.0, 1.0)


def feed(demand: ServiceDemand, rate: float, begin: float, end: float, seed: int = 1) -> None:
    """Poisson arrivals, and an update every half second."""
    rng = random.Random(seed)
    now = begin
    while now < end:
        now += 0.5
        t = rng.expovariate(rate)
        while t < 0.5:
            demand.count_arrival(1.0)
            t += rng.expovariate(rate)
        demand.update(now)


def test_a_load_is_the_mean_over_the_bursts_and_the_recent_one_follows_them() -> None:
    demand = ServiceDemand(0.0, COST)
    for minute in range(0, 120, 10):  # a minute at 20 a second, nine at 2
        feed(demand, 20.0, 60.0 * minute, 60.0 * minute + 60, minute)
        assert demand.recent == pytest.approx(20.0, rel=0.3)
        feed(demand, 2.0, 60.0 * minute + 60, 60.0 * minute + 600, minute)
        assert demand.recent == pytest.approx(2.0, abs=1.5)
    assert demand.load == pytest.approx(3.8, rel=0.15)


def test_the_first_traces_of_a_service_say_little_of_its_load() -> None:
    demand = ServiceDemand(0.0, COST)
    for _ in range(10):
        demand.count_arrival(1.0)
    demand.update(0.5)
    assert demand.load == pytest.approx(10 / 900, rel=0.01)
    feed(demand, 1.0, 0.5, 3600)
    assert demand.load == pytest.approx(1.0, rel=0.15)


def test_a_load_counts_the_traces_that_a_scale_of_one_would_draw() -> None:
    demand = ServiceDemand(0.0, COST)
    demand.count_arrival(0.25)
    demand.count_arrival(3.0)  # drawn for certain: more than that is never spent
    demand.update(1.0)
    assert demand.recent == pytest.approx(1.25 / 10, rel=0.06)


def test_a_gap_of_which_nothing_is_known_changes_nothing() -> None:
    demand = ServiceDemand(0.0, COST)
    feed(demand, 20.0, 0, 600)
    again = ServiceDemand.restore(demand.dump(), 600.0)
    again.resume(5000.0)
    again.update(5000.5)
    assert again.load == pytest.approx(demand.load, rel=0.01)
    assert again.dump() == {**demand.dump(), "load": again.load, "seconds": 600.5}
