"""What sampling under a budget, late judgements and failing judges do to the estimate.

Run with `python -m benchmarks.sampling [--hours 200] [--seed 1] [--only TEXT] [--design]`; the last
leaves the windows out, in a fifth of the time. A budget of 300 calls an hour meets traffic of one
trace a second with bursts in which quality falls. Sampler, strata, budget and windows are the
shipped ones; beside the windows' estimates stands that of a stratified reference of this file,
which tells the design from the shipped estimator, and a uniform sample of the same size of the same
hour. Spend is of all hours, the rest of those with bursts.
"""

from __future__ import annotations

import argparse
import heapq
import json
import math
import random
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any, NamedTuple

from ragmeter.config.scoring import JudgeBudgetSettings, SamplingSettings
from ragmeter.core.score import Score, ScoredTrace, ScoreState
from ragmeter.core.tiers import ScoringCost
from ragmeter.metrics.registry import metric_specs
from ragmeter.sampling.budget_controller import BudgetController
from ragmeter.sampling.sampler import REST_STRATUM, Sampler, Stratum, drawn_stratum
from ragmeter.trace import Trace
from ragmeter.windows.estimators import wilson_interval
from ragmeter.windows.windows import Windows

__all__ = ["SHAPES", "Run", "budget_hours", "judgements", "main"]

START = 1_760_054_400.0
HOUR = 3600
PER_HOUR = 300
"""Judged traces the budget allows in an hour."""

SETTLED_SECONDS = 20.0
"""From a draw to its verdict."""

RATE = 0.2
"""The configured rate, over twice what the budget allows in an hour without bursts."""

PAIR = ("answered", "judge")
PAIRS = (PAIR, ("faithfulness", "judge"))
LOW_CUT = 0.45
LOW = Stratum("low", 3.0)
_TRACE = Trace.model_validate({"trace_id": "-", "service": "bot", "timestamp": 0})


class Burst(NamedTuple):
    """Of an hour: from `begin` to `end` seconds `factor` times the traffic."""

    begin: float
    end: float
    factor: float


@dataclass(frozen=True, slots=True)
class Shape:
    """An hour with bursts in which the share of good answers falls by `fall`.

    `quiet` hours without any come before each; what is measured is the hour with bursts.
    """

    name: str
    bursts: Callable[[random.Random], list[Burst]]
    fall: float
    quiet: int = 0
    ramp: float = 1.0

    def load(self, at: float, bursts: Sequence[Burst]) -> tuple[float, bool]:
        """Traces a second, and whether a burst holds, `at` seconds into the hour."""
        for begin, end, factor in bursts:
            if begin <= at < end:
                return factor, True
        rising = self.ramp ** (at / HOUR)
        return rising, rising > self.ramp**0.8 > 1


def _three(factor: float, seconds: float = 120.0) -> Callable[[random.Random], list[Burst]]:
    def bursts(rng: random.Random) -> list[Burst]:
        begins = [600 + 1000 * i + rng.uniform(0, 600) for i in range(3)]
        return [Burst(begin, min(HOUR, begin + seconds), factor) for begin in begins]

    return bursts


def _one(factor: float, minutes: float) -> Callable[[random.Random], list[Burst]]:
    def bursts(rng: random.Random) -> list[Burst]:
        begin = rng.uniform(300, HOUR - 60 * minutes - 300)
        return [Burst(begin, begin + 60 * minutes, factor)]

    return bursts


def _on_and_off(_: random.Random) -> list[Burst]:
    return [Burst(120 * i, 120 * i + 60, 5.0) for i in range(30)]


SHAPES = (
    Shape("steady", lambda _: [], 0.0),
    Shape("three bursts x3, quality -.1", _three(3), 0.1),
    Shape("three bursts x3, quality -.3", _three(3), 0.3),
    Shape("three bursts x10, quality -.1", _three(10), 0.1),
    Shape("three bursts x10, quality -.3", _three(10), 0.3),
    Shape("three bursts x30, quality -.1", _three(30), 0.1),
    Shape("three bursts x30, quality -.3", _three(30), 0.3),
    Shape("a minute x5, a minute x1", _on_and_off, 0.3),
    Shape("20 minutes x3 every hour", _one(3, 20), 0.3),
    Shape("20 minutes x10 every hour", _one(10, 20), 0.3),
    Shape("ramp to x10 every hour", lambda _: [], 0.3, ramp=10.0),
    Shape("2 minutes x10 after 3 quiet hours", _one(10, 2), 0.3, quiet=3),
    Shape("2 minutes x30 after 3 quiet hours", _one(30, 2), 0.3, quiet=3),
    Shape("10 minutes x3 after 3 quiet hours", _one(3, 10), 0.3, quiet=3),
    Shape("10 minutes x10 after 3 quiet hours", _one(10, 10), 0.3, quiet=3),
    Shape("20 minutes x10 after 3 quiet hours", _one(10, 20), 0.3, quiet=3),
)


@dataclass(slots=True)
class Run:
    """One hour by one rule."""

    bias: float
    covered: bool
    width: float
    judged: int


def _traffic(
    rng: random.Random, shape: Shape, bursts: Sequence[Burst]
) -> Iterator[tuple[float, float, float, float]]:
    """(time, 0/1 score, graded score, cheap score) of each trace of an hour."""
    at = 0.0
    while True:
        at += rng.expovariate(shape.load(at, bursts)[0])
        if at >= HOUR:
            return
        good = rng.random() < 0.95 - (shape.fall if shape.load(at, bursts)[1] else 0.0)
        graded = rng.choice((1.0, 1.0, 1.0, 0.8) if good else (0.0, 0.33, 0.5, 0.67))
        yield at, float(good), graded, rng.betavariate(6, 2) if good else rng.betavariate(3, 4)


@dataclass(slots=True)
class _Cell:
    """Traces of one stratum and probability class, and (score, weight) of those judged."""

    size: int = 0
    judged: list[tuple[float, float]] = field(default_factory=list)

    def join(self, other: _Cell) -> None:
        self.size += other.size
        self.judged += other.judged

    def interval(self, ratio: bool) -> tuple[float, float, float]:
        """Mean and limits: Wilson's on Kish's n, corrected for the finite population.

        The variance of graded scores is taken as a share of p(1 - p), shrunk to 1 with 16
        pseudo-observations.
        """
        w = sum(weight for _, weight in self.judged)
        mean = sum(y * weight for y, weight in self.judged) / w
        n = w * w / sum(weight * weight for _, weight in self.judged)
        share = 1.0
        if not ratio:
            square = sum(weight * (y - mean) ** 2 for y, weight in self.judged) / w
            smooth = (n * mean + 1) / (n + 2)
            prior = 16 * smooth * (1 - smooth)
            share = min(1.0, (n * square + prior) / (n * mean * (1 - mean) + prior))
        left = max(1e-3, 1 - len(self.judged) / self.size)
        return (mean, *wilson_interval(mean, n / share / left))


def _reference(cells: dict[str, _Cell], ratio: bool) -> tuple[float, float, float]:
    """Mean and limits over strata and classes by MOVER (Zou and Donner, 2008).

    A class with fewer than five judged traces joins its neighbour.
    """
    joined: list[_Cell] = []
    for stratum in sorted({name.split(":")[0] for name in cells}):
        classes = [cells[name] for name in sorted(cells) if name.split(":")[0] == stratum]
        current = _Cell()
        for cell in classes:
            current.join(cell)
            if len(current.judged) >= 5:
                joined.append(current)
                current = _Cell()
        if current.size and joined:
            joined[-1].join(current)
    total = sum(cell.size for cell in joined)
    mean = below = above = 0.0
    for cell in joined:
        m, lower, upper = cell.interval(ratio)
        part = cell.size / total
        mean += part * m
        below += (part * (m - lower)) ** 2
        above += (part * (upper - m)) ** 2
    return mean, mean - math.sqrt(below), mean + math.sqrt(above)


class _Budget:
    """A sampler under a budget whose draws are settled after `SETTLED_SECONDS`."""

    def __init__(self, seed: int) -> None:
        self._now = START
        self._control = BudgetController(
            JudgeBudgetSettings(requests_per_minute=PER_HOUR / 60), prior=ScoringCost(requests=1)
        )
        settings = SamplingSettings(judge=RATE)
        self._sampler = Sampler(
            settings, {"judge": self._control}, lambda: self._now, salt=str(seed)
        )
        self._waiting: deque[float] = deque()
        self._number = 0

    def draw(self, now: float, cheap: float) -> tuple[bool, float, str]:
        """Whether a trace is judged, its probability and its stratum."""
        self._now = now
        while self._waiting and self._waiting[0] <= now:
            self._control.settle("bot", ScoringCost(requests=1), self._waiting.popleft())
        stratum = LOW if cheap < LOW_CUT else REST_STRATUM
        self._number += 1
        trace: Any = SimpleNamespace(trace_id=f"t{self._number}", service="bot", probability=1.0)
        taken, pi, _ = self._sampler.draw(trace, "judge", stratum.ratio)
        if taken:
            self._waiting.append(now + SETTLED_SECONDS)
        return taken, pi, drawn_stratum(stratum.name, pi)


def _result(pair: tuple[str, str], value: float | None, pi: float, name: str, f: float) -> Score:
    state = ScoreState.SAMPLED_OUT if value is None else ScoreState.SCORED
    return Score(*pair, state, value, None, pi, stratum=name, cheap=f)


def _scored(number: int, at: float, good: bool, pi: float, name: str, f: float) -> ScoredTrace:
    score = _result(PAIR, float(good), pi, name, f)
    return ScoredTrace(f"t{number}", "bot", START + at, "ok", [score])


def _left_out(number: int, at: float, pi: float, name: str, f: float) -> ScoredTrace:
    return ScoredTrace(f"t{number}", "bot", START + at, "ok", [_result(PAIR, None, pi, name, f)])


def _hour(
    rng: random.Random, shape: Shape, budget: _Budget, begin: float, windows: Windows | None
) -> dict[str, Run]:
    """One hour by every rule, for the 0/1 score and for the graded one."""
    bursts = shape.bursts(rng)
    traffic: list[tuple[float, float]] = []
    cells: tuple[dict[str, _Cell], ...] = (defaultdict(_Cell), defaultdict(_Cell))
    minutes: dict[int, list[tuple[float, float]]] = defaultdict(list)
    for at, good, graded, cheap in _traffic(rng, shape, bursts):
        values = (good, graded)
        traffic.append(values)
        taken, pi, name = budget.draw(begin + at, cheap)
        if windows is not None:
            scores = [
                _result(pair, value if taken else None, pi, name, cheap)
                for pair, value in zip(PAIRS, values, strict=True)
            ]
            windows.add(ScoredTrace(f"t{len(traffic)}", "bot", begin + at, "ok", scores), "bot")
        for of, value in zip(cells, values, strict=True):
            of[name].size += 1
            if taken:
                of[name].judged.append((value, 1 / pi))
        minute = minutes[int(at // 60)]
        if len(minute) < PER_HOUR // 60 and rng.random() < RATE:
            minute.append(values)
    judged = sum(len(cell.judged) for cell in cells[0].values())
    samples = {
        "uniform sample": rng.sample(traffic, judged),
        "first k a minute": [values for minute in minutes.values() for values in minute],
    }
    found = {}
    for number, (kind, (metric, _)) in enumerate(zip(("rate", "mean"), PAIRS, strict=True)):
        ratio = kind == "rate"
        truth = sum(values[number] for values in traffic) / len(traffic)
        for rule, sample in samples.items():
            whole = _Cell(len(traffic), [(values[number], 1.0) for values in sample])
            found[f"{kind}, {rule}"] = _run(truth, *whole.interval(ratio), len(sample))
        limits = _reference(cells[number], ratio)
        found[f"{kind}, reference"] = _run(truth, *limits, judged)
        if windows is not None:
            told = windows.estimate("bot", "", metric, "judge", "1h")
            assert told is not None
            run = _run(truth, told.value, told.lower, told.upper, told.samples)
            found[f"{kind}, shipped"] = run
    return found


def _run(truth: float, value: float, lower: float, upper: float, judged: int) -> Run:
    return Run(value - truth, lower <= truth <= upper, upper - lower, judged)


def _summary(runs: list[Run], uniform: list[Run] | None = None) -> dict[str, float]:
    number = len(runs)
    bias = sum(run.bias for run in runs) / number
    width = sum(run.width for run in runs) / number
    summary = {
        "judged": round(sum(run.judged for run in runs) / number),
        "bias": round(bias, 4),
        "its error": round(math.sqrt(sum((r.bias - bias) ** 2 for r in runs)) / number, 4),
        "rmse": round(math.sqrt(sum(run.bias**2 for run in runs) / number), 4),
        "coverage": round(sum(run.covered for run in runs) / number, 3),
        "width": round(width, 3),
    }
    if uniform:
        rmse = math.sqrt(sum(run.bias**2 for run in uniform) / number)
        summary["rmse over uniform"] = round(summary["rmse"] / rmse, 2)
        summary["width over uniform"] = round(width * number / sum(r.width for r in uniform), 2)
    return summary


def budget_hours(
    shape: Shape, hours: int, seed: int, design: bool = False
) -> dict[str, dict[str, float]]:
    """By rule, over so many hours with bursts; two more come before them unmeasured.

    With `design` the shipped estimates are left out.
    """
    rng = random.Random(f"{seed}:{shape.name}")
    budget = _Budget(seed)
    runs: dict[str, list[Run]] = defaultdict(list)
    spent = []
    calm = replace(shape, fall=0.0, ramp=1.0)
    for hour in range((hours + 2) * (shape.quiet + 1)):
        begin = START + HOUR * hour
        if hour % (shape.quiet + 1) < shape.quiet or hour < 2:
            of = calm if shape.quiet else shape
            bursts = [] if shape.quiet else shape.bursts(rng)
            spent.append(
                sum(budget.draw(begin + at, f)[0] for at, *_, f in _traffic(rng, of, bursts))
            )
            continue
        windows = None if design else Windows(("1h",), specs=metric_specs())
        if windows is not None:
            windows.advance(begin + HOUR - 1)
        hourly = _hour(rng, shape, budget, begin, windows)
        for rule, run in hourly.items():
            runs[rule].append(run)
        spent.append(hourly["rate, reference"].judged)
    spend = {
        "spend over budget": round(sum(spent[2:]) / len(spent[2:]) / PER_HOUR, 3),
        "worst hour": round(max(spent[2:]) / PER_HOUR, 2),
    }
    return {
        rule: {**_summary(of, runs[f"{rule.split(',')[0]}, uniform sample"]), **spend}
        for rule, of in runs.items()
    }


def _judged_span(seed: int, slow: float, fails_good: float, fails_bad: float) -> dict[str, Run]:
    """Five minutes at 10/s, 5 % judged, a judgement after 20 s on average and `slow` times that for
    bad answers; failures by label. Read at once and 120 s later, as the shipped estimate and as
    the sum over known N that others use."""
    rng = random.Random(seed)
    windows = Windows(("1h",), specs=metric_specs())
    sampler = Sampler(SamplingSettings(judge=0.05), salt=str(seed))
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
        taken, pi, _ = sampler.draw(trace, "judge", stratum.ratio)
        name = drawn_stratum(stratum.name, pi)
        if not taken:
            windows.add(_left_out(number, at, pi, name, cheap), "bot")
            continue
        pending = ((*PAIR, name),)
        whole = ScoredTrace(f"t{number}", "bot", START + at, "ok", [], pending=pending)
        windows.add(whole, "bot")
        part = _scored(number, at, good, pi, name, cheap)._replace(partial=True)
        if rng.random() < (fails_good if good else fails_bad):
            part.results[0].state = ScoreState.UNSCORED
            part.results[0].value = None
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


def judgements(spans: int, seed: int) -> dict[str, dict[str, dict[str, float]]]:
    """By case and by how it is read."""
    out = {}
    for case, settings in CASES.items():
        found = [_judged_span(1000 * seed + number, *settings) for number in range(spans)]
        out[case] = {how: _summary([span[how] for span in found]) for how in found[0]}
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--hours", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default="", help="tables and shapes whose name contains this")
    parser.add_argument("--design", action="store_true", help="leave the shipped estimates out")
    options = parser.parse_args()
    for shape in SHAPES:
        if options.only in f"budget {shape.name}":
            rows = budget_hours(shape, options.hours, options.seed, options.design)
            for rule, row in rows.items():
                print(json.dumps({"table": "budget", "shape": shape.name, "rule": rule, **row}))
    if options.only in "judgements":
        for case, ways in judgements(options.hours, options.seed).items():
            for how, row in ways.items():
                print(json.dumps({"table": "judgements", "case": case, "how": how, **row}))


if __name__ == "__main__":
    main()
