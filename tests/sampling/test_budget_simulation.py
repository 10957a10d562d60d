"""Spend, estimates and freshness over an hour of traffic, on a simulated clock."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cache

import pytest

from benchmarks.budget import coverage, freshness
from benchmarks.budget_traffic import BOT, DAYS, SCENARIOS, SPIKE, Outcome, Scenario, simulate

pytestmark = pytest.mark.slow

BY_NAME = {scenario.name: scenario for scenario in SCENARIOS}


@cache
def hour(name: str) -> Outcome:
    return simulate(BY_NAME[name], 0)


IN_CI = ("steady", "tenfold step", "bursts, 60 s on and off", "one giant, ten small")


@pytest.mark.parametrize(
    "scenario",
    [pytest.param(name, marks=() if name in IN_CI else pytest.mark.long) for name in BY_NAME],
)
def test_an_hour_spends_its_budget_and_at_most_a_quarter_of_another(scenario: str) -> None:
    run = hour(scenario)
    assert 0.85 < run.ratio < 1.25
    assert 0.85 < run.from_start < 1.03  # the bucket is filled meanwhile
    assert len(run.probabilities) < 150
    # a quiet minute has no draw by chance alone, where it would have a few
    assert sum(n == 0 for n in run.judged_minutes) <= 5


@pytest.mark.parametrize("scenario", DAYS, ids=lambda scenario: scenario.name)
def test_a_day_spends_its_money_and_has_some_left_for_the_evening(scenario: Scenario) -> None:
    run = simulate(scenario, 0)
    assert 0.94 < run.ratio < 1.01
    minutes = run.judged_minutes
    for hour in range(len(minutes) // 60):
        assert min(sum(minutes[at : at + 10]) for at in range(60 * hour, 60 * hour + 60, 10)) > 0


def test_a_burst_is_drawn_as_the_traffic_around_it_until_the_bucket_runs_low() -> None:
    """Two minutes of ten times the traffic: half the probability, not a tenth."""
    short = replace(SPIKE, traffic={BOT: lambda t: 200.0 if 1500 <= t < 1620 else 20.0})
    run = simulate(short, 0, lambda t, rng: float(1500 <= t < 1620))
    pis = {
        burst: [t.results[0].probability for t in run.scored if t.results[0].value == burst]
        for burst in (0.0, 1.0)
    }
    mean = {burst: len(values) / sum(1 / p for p in values) for burst, values in pis.items()}
    assert mean[1.0] > 0.3 * mean[0.0]
    assert run.ratio < 1.25


def test_small_services_are_judged_in_full_beside_a_giant() -> None:
    run = hour("one giant, ten small")
    wanted = 0.15 * 3600 * 0.2 * 10  # traces a second, seconds, rate, requests a trace
    small = [spent for name, spent in run.by_service.items() if name != "bot"]
    assert sum(small) == pytest.approx(10 * wanted, rel=0.1)
    assert min(small) > 0.7 * wanted


def test_a_capped_service_stays_at_its_share() -> None:
    run = hour("the giant capped at 0.5")
    assert run.by_service["bot"] / 36_000 == pytest.approx(0.5, rel=0.06)


@pytest.mark.parametrize("kind", ["mean", "ratio"])
def test_weighted_estimates_survive_the_changes_of_probability(kind: str) -> None:
    figures = coverage(kind, range(4))
    assert abs(figures["error of the weighted mean"]) < 0.02
    assert figures["error of the plain mean"] > 0.1
    assert figures["coverage"] >= 0.5  # of so few runs; the benchmark does a hundred


def test_a_slow_judge_lowers_the_probability_and_not_the_freshness() -> None:
    slow = 10.0
    run = freshness(4, lambda t: 2.0 if t < 600 else slow, 5.0, 30)
    assert max(run.delays[:9]) < 10
    assert max(run.delays[12:]) < 4 * slow
    assert min(run.judged_minutes) >= 3  # four slots at ten seconds do 24 a minute
    free = freshness(4, lambda t: 2.0 if t < 600 else slow, 5.0, 30, controlled=False)
    assert free.delays[-1] > 100 * slow


def test_a_judge_that_hangs_does_not_overflow_the_queue() -> None:
    run = freshness(4, lambda _: math.inf, 5.0, 10, bound=100)
    assert run.longest_queue <= 100
