"""How well spend follows the budget, on a simulated clock: one row a traffic pattern.

Run with `python -m benchmarks.budget [--seeds N] [--json]`. Arrivals are Poisson (or bursts), a
drawn trace is settled after a random delay at a random cost, and the controller knows only what
it would know in production. The tests run the same simulation.
"""

from __future__ import annotations

import argparse
import heapq
import json
import math
import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from agent.budget import BudgetController
from agent.config import Budget, Sampling
from agent.metrics.spec import MetricSpec
from agent.sampling import Sampler
from agent.tiers import Cost
from agent.trace import Score, ScoredTrace, State, Trace
from agent.windows import Windows

__all__ = [
    "SCENARIOS",
    "Freshness",
    "Outcome",
    "Scenario",
    "cost_of_a_draw",
    "coverage",
    "freshness",
    "main",
    "simulate",
]

PRIOR = Cost(requests=8, input_tokens=10_000, output_tokens=1_000, usd=0.015, seconds=8.0)
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


def _default_budget() -> Budget:
    return Budget(requests_per_minute=600)


@dataclass(frozen=True)
class Scenario:
    """`traffic` by service in traces a second; a trace costs `calls` requests on average, times
    `dear(t)`; it is settled after `delay` seconds, uniform between the two. `reach` is the part of
    the budget that the traffic can use, where caps keep it from all of it."""

    name: str
    traffic: Mapping[str, Rate]
    budget: Budget = field(default_factory=_default_budget)
    calls: float = 10.0
    dear: Rate = _one
    delay: tuple[float, float] = (2.0, 60.0)
    seconds: float = HOUR
    rate: float = RATE
    start: float = START
    reach: float = 1.0


@dataclass
class Outcome:
    """Of one run. Minutes are whole minutes of the run; `spent` and the rest count what was
    drawn in the run at what it really cost."""

    arrived: int = 0
    judged: int = 0
    spent: float = 0.0
    allowed: float = 0.0
    by_service: dict[str, float] = field(default_factory=dict)
    judged_minutes: list[int] = field(default_factory=list)
    spent_minutes: list[float] = field(default_factory=list)
    probabilities: set[float] = field(default_factory=set)
    scored: list[ScoredTrace] = field(default_factory=list)
    truth: float = 0.0
    naive: float = 0.0

    @property
    def ratio(self) -> float:
        """Spend over budget."""
        return self.spent / self.allowed

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
    arrivals = [
        (_next(0.0, rate, rng), service, rate) for service, rate in scenario.traffic.items()
    ]
    heapq.heapify(arrivals)
    under_way: list[tuple[float, int, str, Cost]] = []
    total = drawn = 0.0
    while arrivals and arrivals[0][0] < scenario.seconds:
        t, service, _ = heapq.heapreplace(
            arrivals, (_next(arrivals[0][0], arrivals[0][2], rng), *arrivals[0][1:])
        )
        now = scenario.start + t
        while under_way and under_way[0][0] <= t:
            at, _, owner, cost = heapq.heappop(under_way)
            control.settle(owner, cost, scenario.start + at)
            out.spent_minutes[int(at // 60)] += unit(cost)
        out.arrived += 1
        value = quality(t, rng) if quality else 0.0
        total += value
        probability = scenario.rate * control.offer(service, now, scenario.rate)
        if rng.random() >= probability:
            continue
        control.reserve(service, now)
        cost = _cost(scenario.calls * scenario.dear(t), rng)
        heapq.heappush(under_way, (t + rng.uniform(*scenario.delay), out.judged, service, cost))
        out.judged += 1
        out.spent += unit(cost)
        out.by_service[service] = out.by_service.get(service, 0.0) + unit(cost)
        out.judged_minutes[int(t // 60)] += 1
        out.probabilities.add(probability)
        drawn += value
        if quality:
            score = Score("quality", "judge", State.SCORED, value, None, probability)
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


def _cost(calls: float, rng: random.Random) -> Cost:
    """Long-tailed, as traces are: a spread of about half the mean."""
    factor = rng.lognormvariate(-0.11, 0.47)
    requests = max(1, round(calls * factor))
    tokens = round(900 * calls * factor)
    return Cost(requests, tokens, tokens // 20, 1e-6 * tokens, 1.0 * requests)


def _unit(budget: Budget) -> Callable[[Cost], float]:
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
    left = 86400 - scenario.start % 86400
    return budget.usd_per_day * min(1.0, scenario.seconds / left)


BOT = "bot"
SMALL = {f"small{n}": _flat(0.15) for n in range(10)}
"""Together they ask for 0.3 of the budget."""

SCENARIOS = (
    Scenario("steady", {BOT: _steady}),
    Scenario("tenfold spike of 10 min", {BOT: _spike}),
    Scenario("the same, tokens", {BOT: _spike}, Budget(tokens_per_minute=600_000)),
    Scenario("the same, USD a day", {BOT: _spike}, Budget(usd_per_day=200)),
    Scenario("tenfold step", {BOT: _step}),
    Scenario("ramp to tenfold", {BOT: _ramp}),
    Scenario("bursts, 60 s on and off", {BOT: _bursts}),
    Scenario("cost of a trace times 5", {BOT: _steady}, dear=_dearer),
    Scenario("the same, settled in 2 s", {BOT: _steady}, dear=_dearer, delay=(1.0, 2.0)),
    Scenario("one giant, ten small", {BOT: _flat(100.0), **SMALL}),
    Scenario(
        "the giant capped at 0.5",
        {BOT: _flat(100.0), **SMALL},
        Budget(requests_per_minute=600, shares={BOT: 0.5}),
        reach=0.8,
    ),
    Scenario("6 traces a minute", {BOT: _spike}, Budget(requests_per_minute=60)),
)


SPECS = {
    "quality": MetricSpec("quality", "mean", "judge", ("judge",), "", "", ""),
    "good": MetricSpec("good", "ratio", "judge", ("judge",), "", "", ""),
}


def _drifting(t: float) -> float:
    """The mean quality: it falls while the spike lasts, when pi is least."""
    return 0.5 if 1500 <= t < 2100 else 0.9


def _graded(t: float, rng: random.Random) -> float:
    return rng.betavariate(10 * _drifting(t), 10 * (1 - _drifting(t)))


def _binary(t: float, rng: random.Random) -> float:
    return float(rng.random() < _drifting(t))


def coverage(kind: str, seeds: range) -> dict[str, float]:
    """Of the hour with the spike, by the windows themselves: mean error of the weighted and of
    the plain mean, and how often the 95 % interval held the true mean of all traces of the run."""
    metric, quality = ("quality", _graded) if kind == "mean" else ("good", _binary)
    scenario = Scenario("tenfold spike of 10 min", {BOT: _spike}, rate=1.0)
    weighted = naive = held = 0.0
    for seed in seeds:
        run = simulate(scenario, seed, quality)
        windows = Windows(["2h"], specs=SPECS)
        for trace in run.scored:
            trace.results[0].metric = metric
            windows.add(trace, BOT)
        estimate = windows.estimate(BOT, "", metric, "judge", "2h")
        assert estimate is not None
        weighted += estimate.value - run.truth
        naive += run.naive - run.truth
        held += estimate.lower <= run.truth <= estimate.upper
    runs = len(seeds)
    return {
        "runs": runs,
        "error of the weighted mean": round(weighted / runs, 4),
        "error of the plain mean": round(naive / runs, 4),
        "coverage": round(held / runs, 3),
    }


@dataclass
class Freshness:
    """Seconds from draw to verdict by minute (mean), the longest queue, traces judged."""

    delays: list[float]
    longest_queue: int
    judged_minutes: list[int]


def freshness(
    slots: int,
    seconds: Rate,
    arrivals: float,
    minutes: int,
    *,
    bound: int = 10_000,
    controlled: bool = True,
) -> Freshness:
    """A judge with so many slots, each trace holding one for `seconds(t)` on average: a first-come
    queue before it. Without a controller everything is drawn."""
    rng = random.Random(1)
    control = BudgetController(Budget(), capacity=0.9 * slots, prior=Cost(seconds=1.0))
    free = [0.0] * slots  # when each slot is free again
    under_way: list[tuple[float, float]] = []
    starts: list[float] = []
    delays: list[list[float]] = [[] for _ in range(minutes)]
    longest, t = 0, 0.0
    while t < 60 * minutes:
        t += rng.expovariate(arrivals)
        while under_way and under_way[0][0] <= t:
            at, took = heapq.heappop(under_way)
            control.settle(BOT, Cost(seconds=took), START + at)
        while starts and starts[0] <= t:
            heapq.heappop(starts)
        longest = max(longest, len(starts))
        control.backlog(len(starts), bound)
        scale = control.offer(BOT, START + t)
        if controlled and rng.random() >= scale:
            continue
        control.reserve(BOT, START + t)
        took = seconds(t) * rng.lognormvariate(-0.11, 0.47)
        begin = max(t, heapq.heappop(free))
        heapq.heappush(free, begin + took)
        heapq.heappush(starts, begin)
        heapq.heappush(under_way, (begin + took, took))
        if t < 60 * minutes:
            delays[int(t // 60)].append(begin + took - t)
    return Freshness(
        [sum(d) / len(d) if d else math.nan for d in delays], longest, [len(d) for d in delays]
    )


def cost_of_a_draw() -> dict[str, float]:
    """Microseconds of CPU for `Sampler.draw`, best of three, with and without a budget."""
    traces = [
        Trace.model_validate({"trace_id": f"trace-{n}", "service": f"s{n % 20}", "timestamp": n})
        for n in range(20_000)
    ]
    out = {}
    for name, controlled in (("without a budget", False), ("with one, 20 services", True)):
        best = math.inf
        for _ in range(3):
            clock = [START]
            control = BudgetController(_default_budget())
            sampler = Sampler(
                Sampling(judge=RATE),
                {"judge": control} if controlled else None,
                lambda clock=clock: clock[0],  # type: ignore[misc]
            )
            begin = time.process_time()
            for trace in traces:
                clock[0] += 0.0005  # 2,000 a second, what one core can score
                sampler.draw(trace, "judge")
            best = min(best, time.process_time() - begin)
        out[name] = round(best / len(traces) * 1e6, 2)
    return out


def _row(scenario: Scenario, seeds: int) -> dict[str, Any]:
    runs = [simulate(scenario, seed) for seed in range(seeds)]
    ratios = [run.ratio for run in runs]
    pis = [p for run in runs for p in run.probabilities]
    return {
        "traffic": scenario.name,
        "spend over budget": (round(min(ratios), 4), round(max(ratios), 4)),
        "worst minute": round(max(run.worst_minute() for run in runs), 2),
        "judged a minute, least": min(min(run.judged_minutes) for run in runs),
        "judged a minute, mean": round(
            sum(run.judged for run in runs) / sum(len(run.judged_minutes) for run in runs), 1
        ),
        "pi, least": float(f"{min(pis):.2g}"),
        "pi, greatest": float(f"{max(pis):.2g}"),
        "values of pi": max(len(run.probabilities) for run in runs),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--json", action="store_true", help="one JSON object")
    options = parser.parse_args()
    rows = [_row(scenario, options.seeds) for scenario in SCENARIOS]
    draws = cost_of_a_draw()
    estimates = {kind: coverage(kind, range(20 * options.seeds)) for kind in ("mean", "ratio")}
    slow = {
        name: freshness(4, lambda t: 2.0 if t < 600 else 10.0, 5.0, 30, controlled=controlled)
        for name, controlled in (("without control", False), ("with control", True))
    }
    if options.json:
        print(
            json.dumps(
                {
                    "seeds": options.seeds,
                    "rows": rows,
                    "us a draw": draws,
                    "estimates": estimates,
                    "seconds from draw to verdict": {k: run.delays for k, run in slow.items()},
                },
                indent=2,
            )
        )
        return
    print("| " + " | ".join(rows[0]) + " |")
    print("| --- |" + " ---: |" * (len(rows[0]) - 1))
    for row in rows:
        cells = [" to ".join(map(str, v)) if isinstance(v, tuple) else str(v) for v in row.values()]
        print("| " + " | ".join(cells) + " |")
    for name, microseconds in draws.items():
        print(f"a draw {name}: {microseconds} us")
    for kind, figures in estimates.items():
        print(f"estimate of a {kind} across the spike: {figures}")
    for name, run in slow.items():
        print(
            f"a judge that slows from 2 s to 10 s in minute 10, {name}: seconds from draw to "
            f"verdict in minute 9, 12, 20, 29: {[round(run.delays[m], 1) for m in (9, 12, 20, 29)]}"
            f", judged a minute at least {min(run.judged_minutes)}"
        )


if __name__ == "__main__":
    main()
