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
from dataclasses import dataclass, replace
from typing import Any

from ragmeter.config.scoring import JudgeBudgetSettings, SamplingSettings
from ragmeter.core.metric_specs import MetricSpec
from ragmeter.core.tiers import ScoringCost
from ragmeter.sampling.budget_controller import BudgetController
from ragmeter.sampling.sampler import Sampler
from ragmeter.trace import Trace
from ragmeter.windows.windows import Windows

from benchmarks.budget_traffic import (
    BOT,
    DAYS,
    RATE,
    SCENARIOS,
    SPIKE,
    START,
    Rate,
    Scenario,
    simulate,
)

__all__ = ["Freshness", "cost_of_a_draw", "coverage", "freshness", "main"]

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
    scenario = replace(SPIKE, rate=1.0)
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
    control = BudgetController(
        JudgeBudgetSettings(), capacity=0.9 * slots, prior=ScoringCost(seconds=1.0)
    )
    free = [0.0] * slots  # when each slot is free again
    under_way: list[tuple[float, float]] = []
    starts: list[float] = []
    delays: list[list[float]] = [[] for _ in range(minutes)]
    longest, t = 0, 0.0
    while t < 60 * minutes:
        t += rng.expovariate(arrivals)
        while under_way and under_way[0][0] <= t:
            at, took = heapq.heappop(under_way)
            control.settle(BOT, ScoringCost(seconds=took), START + at)
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
            control = BudgetController(JudgeBudgetSettings(requests_per_minute=600))
            sampler = Sampler(
                SamplingSettings(judge=RATE),
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
    hours, starts = [run.ratio for run in runs], [run.from_start for run in runs]
    pis = [p for run in runs for p in run.probabilities]
    return {
        "traffic": scenario.name,
        "spend over budget": (round(min(hours), 3), round(max(hours), 3)),
        "with the hour before": (round(min(starts), 3), round(max(starts), 3)),
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
    rows = [_row(scenario, options.seeds) for scenario in (*SCENARIOS, *DAYS)]
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
