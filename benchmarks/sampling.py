"""What sampling under a budget, late judgements and failing judges do to the estimate.

Run with `python -m benchmarks.sampling [--hours 300]`; seeded. Each simulated hour has three bursts
of ten times the traffic in which 60 instead of 95 % of the answers are good. The shipped sampler,
strata, budget and windows stand beside what is usual: the first k of each minute, their mean.
"""

from __future__ import annotations

import argparse
import heapq
import json
import math
import random
from collections.abc import Iterator
from dataclasses import dataclass, replace

from ragmeter.config.scoring import JudgeBudgetSettings, SamplingSettings
from ragmeter.core.score import Score, ScoredTrace, ScoreState
from ragmeter.core.tiers import ScoringCost
from ragmeter.metrics.registry import metric_specs
from ragmeter.sampling.budget_controller import BudgetController
from ragmeter.sampling.sampler import REST_STRATUM, Sampler, Stratum, drawn_stratum
from ragmeter.trace import Trace
from ragmeter.windows.estimators import wilson_interval
from ragmeter.windows.windows import Windows

__all__ = ["Run", "budget_hours", "judgements", "main"]

START = 1_760_054_400.0
HOUR = 3600
PER_HOUR = 300
"""Judged traces the budget allows in an hour."""

PAIR = ("answered", "judge")
LOW_CUT = 0.45
LOW = Stratum("low", 3.0)
_TRACE = Trace.model_validate({"trace_id": "-", "service": "bot", "timestamp": 0})


@dataclass(slots=True)
class Run:
    """One hour by one rule."""

    bias: float
    covered: bool
    width: float
    judged: int


def _traffic(rng: random.Random) -> Iterator[tuple[float, bool, float]]:
    """(time, good, cheap score); a trace a second, ten in a burst of two minutes."""
    bursts = [600 + 1000 * i + rng.uniform(0, 600) for i in range(3)]
    at = 0.0
    while True:
        burst = any(begin <= at < begin + 120 for begin in bursts)
        at += rng.expovariate(10.0 if burst else 1.0)
        if at >= HOUR:
            return
        good = rng.random() < (0.6 if burst else 0.95)
        yield at, good, rng.betavariate(6, 2) if good else rng.betavariate(3, 4)


def _scored(number: int, at: float, good: bool, pi: float, name: str, f: float) -> ScoredTrace:
    score = Score(*PAIR, ScoreState.SCORED, float(good), None, pi, stratum=name, cheap=f)
    return ScoredTrace(f"t{number}", "bot", START + at, "ok", [score])


def _left_out(number: int, at: float, pi: float, name: str, f: float) -> ScoredTrace:
    score = Score(*PAIR, ScoreState.SAMPLED_OUT, None, None, pi, stratum=name, cheap=f)
    return ScoredTrace(f"t{number}", "bot", START + at, "ok", [score])


def _hour(seed: int) -> dict[str, Run]:
    rng = random.Random(seed)
    traffic = list(_traffic(rng))
    truth = sum(good for _, good, _ in traffic) / len(traffic)
    # the usual: a random 20 % until the minute's share is used up
    taken: list[bool] = []
    used: dict[int, int] = {}
    for at, good, _ in traffic:
        minute = int(at // 60)
        if rng.random() < 0.2 and used.get(minute, 0) < PER_HOUR // 60:
            used[minute] = used.get(minute, 0) + 1
            taken.append(good)
    mean = sum(taken) / len(taken)
    lower, upper = wilson_interval(mean, len(taken))
    found = {"first k a minute": _run(truth, mean, lower, upper, len(taken))}
    clock = [START]
    control = BudgetController(
        JudgeBudgetSettings(requests_per_minute=PER_HOUR / 60), prior=ScoringCost(requests=1)
    )
    settings = SamplingSettings(judge=0.2, salt=str(seed))
    sampler = Sampler(settings, {"judge": control}, lambda: clock[0])
    windows = Windows(specs=metric_specs())
    windows.advance(START + HOUR - 1)
    for number, (at, good, cheap) in enumerate(traffic):
        clock[0] = START + at
        stratum = LOW if cheap < LOW_CUT else REST_STRATUM
        trace = _TRACE.model_copy(update={"trace_id": f"t{number}"})
        taken_, pi = sampler.draw(trace, "judge", stratum.ratio)
        name = drawn_stratum(stratum.name, pi)
        if taken_:
            control.settle("bot", ScoringCost(requests=1), clock[0])
            windows.add(_scored(number, at, good, pi, name, cheap), "bot")
        else:
            windows.add(_left_out(number, at, pi, name, cheap), "bot")
    for name, scorer in (("shipped", "judge"), ("shipped, with builtin", "judge+builtin")):
        told = windows.estimate("bot", "", "answered", scorer, "1h")
        assert told is not None
        found[name] = _run(truth, told.value, told.lower, told.upper, told.samples)
    return found


def _run(truth: float, value: float, lower: float, upper: float, judged: int) -> Run:
    return Run(value - truth, lower <= truth <= upper, upper - lower, judged)


def _summary(runs: list[Run]) -> dict[str, float]:
    number = len(runs)
    bias = sum(run.bias for run in runs) / number
    return {
        "judged": round(sum(run.judged for run in runs) / number),
        "bias": round(bias, 4),
        "its error": round(math.sqrt(sum((r.bias - bias) ** 2 for r in runs)) / number, 4),
        "rmse": round(math.sqrt(sum(run.bias**2 for run in runs) / number), 4),
        "coverage": round(sum(run.covered for run in runs) / number, 3),
        "width": round(sum(run.width for run in runs) / number, 3),
    }


def budget_hours(hours: int) -> dict[str, dict[str, float]]:
    """By rule, over so many hours."""
    found = [_hour(seed) for seed in range(hours)]
    return {rule: _summary([hour[rule] for hour in found]) for rule in found[0]}


def _judged_span(seed: int, slow: float, fails_good: float, fails_bad: float) -> dict[str, Run]:
    """Five minutes at 10/s, 5 % judged, a judgement after 20 s on average and `slow` times that for
    bad answers; failures by label. Read at once and 120 s later, as the shipped estimate and as
    the sum over known N that others use."""
    rng = random.Random(seed)
    windows = Windows(("1h",), specs=metric_specs())
    sampler = Sampler(SamplingSettings(judge=0.05, salt=str(seed)))
    goods = 0
    number = 0
    horvitz = 0.0
    late: list[tuple[float, int, ScoredTrace]] = []
    at = 0.0
    while (at := at + rng.expovariate(10.0)) < 300:
        number += 1
        good = rng.random() < 0.8
        goods += good
        cheap = rng.betavariate(6, 2) if good else rng.betavariate(3, 4)
        stratum = LOW if cheap < LOW_CUT else REST_STRATUM
        trace = _TRACE.model_copy(update={"trace_id": f"t{number}"})
        taken, pi = sampler.draw(trace, "judge", stratum.ratio)
        name = drawn_stratum(stratum.name, pi)
        if not taken:
            windows.add(_left_out(number, at, pi, name, cheap), "bot")
            continue
        pending = ((*PAIR, name, cheap),)
        whole = ScoredTrace(f"t{number}", "bot", START + at, "ok", [], pending=pending)
        windows.add(whole, "bot")
        part = replace(_scored(number, at, good, pi, name, cheap), partial=True)
        if rng.random() < (fails_good if good else fails_bad):
            part.results[0].state, part.results[0].value = ScoreState.UNSCORED, None
        took = rng.expovariate(1 / 20) * (1 if good else slow)
        heapq.heappush(late, (at + took, number, part))
        if at + took < 300 and part.results[0].value:
            horvitz += 1 / pi
    truth = goods / number
    found = {"known N, read at once": _run(truth, horvitz / number, 0.0, 1.0, 0)}
    for name, end in (("shipped, read at once", 300.0), ("shipped, 120 s later", 420.0)):
        while late and late[0][0] < end:
            windows.add(heapq.heappop(late)[2], "bot")
        told = windows.estimate("bot", "", "answered", "judge", "1h")
        assert told is not None
        found[name] = _run(truth, told.value, told.lower, told.upper, told.samples)
    return found


CASES = {
    "judgements come late": (1.0, 0.0, 0.0),
    "bad answers take 4 times as long": (4.0, 0.0, 0.0),
    "fails on 5 % of the good, 15 % of the bad": (1.0, 0.05, 0.15),
}


def judgements(spans: int) -> dict[str, dict[str, dict[str, float]]]:
    """By case and by how it is read."""
    out = {}
    for case, settings in CASES.items():
        found = [_judged_span(seed, *settings) for seed in range(spans)]
        out[case] = {how: _summary([span[how] for span in found]) for how in found[0]}
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--hours", type=int, default=300)
    options = parser.parse_args()
    for rule, row in budget_hours(options.hours).items():
        print(json.dumps({"table": "budget", "rule": rule, **row}), flush=True)
    for case, ways in judgements(options.hours).items():
        for how, row in ways.items():
            print(json.dumps({"table": "judgements", "case": case, "how": how, **row}), flush=True)


if __name__ == "__main__":
    main()
