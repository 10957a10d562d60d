"""Simulated traffic under a budget: scenarios, and a run of one of them on a simulated clock."""

from __future__ import annotations

import heapq
import math
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from ragmeter.config.scoring import JudgeBudgetSettings
from ragmeter.core.score import Score, ScoredTrace, ScoreState
from ragmeter.core.tiers import ScoringCost
from ragmeter.sampling.budget_controller import BudgetController

__all__ = [
    "BOT",
    "DAYS",
    "RATE",
    "SCENARIOS",
    "SPIKE",
    "START",
    "Outcome",
    "Rate",
    "Scenario",
    "simulate",
]

PRIOR = ScoringCost(requests=8, input_tokens=10_000, output_tokens=1_000, usd=0.015, seconds=8.0)
"""What a controller believes of a trace before the first is settled: not quite what holds."""

START = 1_760_054_400.0  # 00:00 UTC of a day
HOUR = 3600.0
RATE = 0.2
"""The configured sampling rate: it asks for four times the budget at 20 traces a second."""

Rate = Callable[[float], float]
"""Of seconds since the start."""


def _steady(_: float) -> float:
    return 20.0


def _spike(t: float) -> float:
    return 200.0 if 1500 <= t < 2100 else 20.0


def _step(t: float) -> float:
    return 200.0 if t >= 1800 else 20.0


def _ramp(t: float) -> float:
    return 20.0 * 10 ** (t / HOUR)


def _bursts(t: float) -> float:
    return 100.0 if t % 120 < 60 else 6.0


def _flat(rate: float) -> Rate:
    return lambda _: rate


def _one(_: float) -> float:
    return 1.0


def _dearer(t: float) -> float:
    return 5.0 if t >= 1200 else 1.0


def _default_budget() -> JudgeBudgetSettings:
    return JudgeBudgetSettings(requests_per_minute=600)


@dataclass(frozen=True)
class Scenario:
    """`traffic` by service in traces a second; a trace costs `calls` requests on average, times
    `dear(t)`; it is settled after `delay` seconds, uniform between the two. `reach` is the part of
    the budget that the traffic can use, where caps keep it from all of it. So many `warm` seconds
    come before, which fill the bucket and are counted in `from_start` alone."""

    name: str
    traffic: Mapping[str, Rate]
    budget: JudgeBudgetSettings = field(default_factory=_default_budget)
    calls: float = 10.0
    dear: Rate = _one
    delay: tuple[float, float] = (2.0, 60.0)
    seconds: float = HOUR
    rate: float = RATE
    start: float = START
    reach: float = 1.0
    warm: float = HOUR


@dataclass
class Outcome:
    """Of one run. Minutes are whole minutes of the run; `spent` and the rest count what was
    drawn in the run at what it really cost."""

    arrived: int = 0
    judged: int = 0
    spent: float = 0.0
    spent_warm: float = 0.0
    allowed: float = 0.0
    by_service: dict[str, float] = field(default_factory=dict)
    judged_minutes: list[int] = field(default_factory=list)
    spent_minutes: list[float] = field(default_factory=list)
    probabilities: set[float] = field(default_factory=set)
    scored: list[ScoredTrace] = field(default_factory=list)
    truth: float = 0.0
    naive: float = 0.0
    warm: float = 0.0

    @property
    def ratio(self) -> float:
        """Spend over budget."""
        return self.spent / self.allowed

    @property
    def from_start(self) -> float:
        """Spend over budget with what came before the run."""
        minutes = len(self.spent_minutes)
        before = self.allowed * self.warm / 60 / minutes
        return (self.spent + self.spent_warm) / (self.allowed + before)

    def worst_minute(self) -> float:
        """The greatest spend of a minute, as settled, over the budget of a minute."""
        return max(self.spent_minutes) / (self.allowed / len(self.spent_minutes))


def simulate(
    scenario: Scenario,
    seed: int,
    quality: Callable[[float, random.Random], float] | None = None,
    controller: BudgetController | None = None,
) -> Outcome:
    """One run. With `quality` (of time, a value for each trace) every drawn trace is kept as a
    scored one, beside the true mean over all and the plain mean of the drawn ones."""
    rng = random.Random(f"{scenario.name}:{seed}")
    control = controller or BudgetController(scenario.budget, prior=PRIOR)
    unit = _unit(scenario.budget)
    minutes = math.ceil(scenario.seconds / 60)
    out = Outcome(judged_minutes=[0] * minutes, spent_minutes=[0.0] * minutes)
    out.allowed = scenario.reach * _allowed(scenario)
    out.warm = scenario.warm
    arrivals = [
        (_next(-scenario.warm, rate, rng), service, rate)
        for service, rate in scenario.traffic.items()
    ]
    heapq.heapify(arrivals)
    under_way: list[tuple[float, int, str, ScoringCost]] = []
    total = drawn = 0.0
    number = 0
    while arrivals and arrivals[0][0] < scenario.seconds:
        t, service, _ = heapq.heapreplace(
            arrivals, (_next(arrivals[0][0], arrivals[0][2], rng), *arrivals[0][1:])
        )
        now = scenario.start + t
        while under_way and under_way[0][0] <= t:
            at, _, owner, cost = heapq.heappop(under_way)
            control.settle(owner, cost, scenario.start + at)
            if at >= 0:
                out.spent_minutes[int(at // 60)] += unit(cost)
        counted = t >= 0
        out.arrived += counted
        value = quality(t, rng) if quality else 0.0
        total += value * counted
        probability = scenario.rate * control.offer(service, now, scenario.rate)
        if rng.random() >= probability:
            continue
        control.reserve(service, now)
        cost = _cost(scenario.calls * scenario.dear(t), rng)
        number += 1
        heapq.heappush(under_way, (t + rng.uniform(*scenario.delay), number, service, cost))
        if not counted:
            out.spent_warm += unit(cost)
            continue
        out.judged += 1
        out.spent += unit(cost)
        out.by_service[service] = out.by_service.get(service, 0.0) + unit(cost)
        out.judged_minutes[int(t // 60)] += 1
        out.probabilities.add(probability)
        drawn += value
        if quality:
            score = Score("quality", "judge", ScoreState.SCORED, value, None, probability)
            out.scored.append(ScoredTrace(f"t{out.arrived}", service, now, "ok", [score]))
    out.truth = total / max(1, out.arrived)
    out.naive = drawn / max(1, out.judged)
    return out


def _next(t: float, rate: Rate, rng: random.Random) -> float:
    """The next arrival of an inhomogeneous Poisson process. The rate is held for at most a second:
    what comes later is drawn anew, which changes nothing in a process without memory."""
    while t < 1e9:
        gap = rng.expovariate(max(1e-9, rate(t)))
        if gap <= 1.0:
            return t + gap
        t += 1.0
    return math.inf


def _cost(calls: float, rng: random.Random) -> ScoringCost:
    """Long-tailed, as traces are: a spread of about half the mean."""
    factor = rng.lognormvariate(-0.11, 0.47)
    requests = max(1, round(calls * factor))
    tokens = round(900 * calls * factor)
    return ScoringCost(requests, tokens, tokens // 20, 1e-6 * tokens, 1.0 * requests)


def _unit(budget: JudgeBudgetSettings) -> Callable[[ScoringCost], float]:
    if budget.requests_per_minute is not None:
        return lambda cost: cost.requests
    if budget.tokens_per_minute is not None:
        return lambda cost: cost.input_tokens + cost.output_tokens
    return lambda cost: cost.usd


def _allowed(scenario: Scenario) -> float:
    budget = scenario.budget
    if budget.requests_per_minute is not None:
        return budget.requests_per_minute * scenario.seconds / 60
    if budget.tokens_per_minute is not None:
        return budget.tokens_per_minute * scenario.seconds / 60
    assert budget.usd_per_day is not None
    return budget.usd_per_day * scenario.seconds / 86_400


BOT = "bot"
SMALL = {f"small{n}": _flat(0.15) for n in range(10)}
"""Together they ask for 0.3 of the budget."""

SPIKE = Scenario("tenfold spike of 10 min", {BOT: _spike})

SCENARIOS = (
    Scenario("steady", {BOT: _steady}),
    SPIKE,
    Scenario("the same, tokens", {BOT: _spike}, JudgeBudgetSettings(tokens_per_minute=600_000)),
    Scenario("the same, USD a day", {BOT: _spike}, JudgeBudgetSettings(usd_per_day=864)),
    Scenario("tenfold step", {BOT: _step}),
    Scenario("ramp to tenfold", {BOT: _ramp}),
    Scenario("bursts, 60 s on and off", {BOT: _bursts}),
    Scenario("cost of a trace times 5", {BOT: _steady}, dear=_dearer),
    Scenario("the same, settled in 2 s", {BOT: _steady}, dear=_dearer, delay=(1.0, 2.0)),
    Scenario("one giant, ten small", {BOT: _flat(100.0), **SMALL}),
    Scenario(
        "the giant capped at 0.5",
        {BOT: _flat(100.0), **SMALL},
        JudgeBudgetSettings(requests_per_minute=600, shares={BOT: 0.5}),
        reach=0.8,
    ),
    Scenario("6 traces a minute", {BOT: _spike}, JudgeBudgetSettings(requests_per_minute=60)),
)


def _day_and_night(t: float) -> float:
    return 1.0 + 0.9 * math.sin(2 * math.pi * (t / 86_400 - 0.3))


def _day(name: str, traffic: Rate) -> Scenario:
    """From midnight to midnight; at 1 a second five times the budget are asked for."""
    money = JudgeBudgetSettings(usd_per_day=173)
    return Scenario(name, {BOT: traffic}, money, seconds=86_400, rate=1.0, warm=0)


DAYS = (
    _day("a day, even", _flat(1.0)),
    _day("a day, busy by day and quiet by night", _day_and_night),
    _day("a day, idle until 18:00", lambda t: 0.01 if t < 64_800 else 2.0),
)
