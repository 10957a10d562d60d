"""Acceptance of drift detection through the shipped monitor and series, for `benchmarks.drift`.

Each function prints a Markdown table with the goal beside the figure. Streams are drawn anew for
each seed. Delays are minutes of event time from the change to the end of the bucket that alarmed.
"""

from __future__ import annotations

import heapq
import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from ragmeter.core.score import Score, ScoredTrace, ScoreState
from ragmeter.metrics.registry import metric_specs
from ragmeter.parts.drift.baseline import DAY, MINUTE
from ragmeter.parts.drift.monitor import DriftMonitor, DriftSettings
from ragmeter.parts.drift.series import DetectorSpec, DriftSeries, SeriesAlarm, milestones_for
from ragmeter.windows.windows import Windows

from training.devdata import Floats

__all__ = ["counterexample", "flapping", "installation", "speed", "table", "weekends"]

MONTH = 30.0 * DAY
MONDAY = 4.0 * DAY

# Judged: the lowest fifth by the built-in score is drawn three times as often, as is shipped.
TAIL, TAIL_FACTOR = 0.2, 3.0

Sums = tuple[Floats, Floats, Floats]  # n, sums, sums of squares by minute


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a Markdown table."""
    print("| " + " | ".join(head) + " |")
    print("| --- |" + " ---: |" * (len(head) - 1))
    for row in rows:
        print("| " + " | ".join(row) + " |")
    print(flush=True)


def information(before: float, scores: Floats) -> float:
    """Return the least divergence a score from any law on 0..1 with mean `before` or more.

    It is max E log(1 + l (before - y)) (Honda and Takemura), for 0/1 scores that of Kullback and
    Leibler. No detector of a fall needs fewer than log(scores between false alarms) over this.
    """
    bets = np.linspace(0.0, 0.999, 400)[1:, None] / (1 - before)
    return float(np.log1p(bets * (before - scores[None, :])).mean(1).max())


# ------------------------------------------------------------------ (d) speed on the real path


class Traffic:
    """A service with the usual built-in scores, three stages, and a judge of `grounding`.

    `before` and `after` are pools of (built-in score, judge's score) that traces are drawn from.
    """

    def __init__(self, seed: int, per_minute: float, judged: float, before: Floats, after: Floats):
        self.rng = np.random.default_rng(seed)
        self.gap, self.judged = MINUTE / per_minute, judged
        self.pools = before, after
        self.cut = float(np.quantile(before[:, 0], TAIL))

    def traces(self, seconds: float, change: float) -> Iterator[ScoredTrace]:
        """Yield the traces of `seconds` from Monday on; `after` holds from `change` on."""
        at, rng = 0.0, self.rng
        base = self.judged / (1 + TAIL * (TAIL_FACTOR - 1))
        while (at := at + rng.exponential(self.gap)) < seconds:
            pool = self.pools[at >= change]
            cheap, judge = pool[rng.integers(len(pool))].tolist()
            low = cheap < self.cut
            rate = min(1.0, base * (TAIL_FACTOR if low else 1.0))
            ok = ScoreState.SCORED
            results = [
                Score("grounding", "builtin", ok, cheap),
                Score("relevance", "builtin", ok, 3 * rng.beta(4, 3)),
                Score("source_indicators", "builtin", ok, rng.beta(2, 8)),
                Score("citation_precision", "builtin", ok, float(rng.random() < 0.9)),
                *(
                    Score(name, "builtin", ok, float(rng.random() < rate))
                    for name, rate in (
                        *(("error", 0.01), ("timeout", 0.005), ("empty_answer", 0.01)),
                        *(("answered", 0.93), ("citation_presence", 0.7)),
                    )
                ),
            ]
            if rng.random() < rate:
                draw: dict[str, Any] = {"probability": rate, "stratum": "low" if low else "rest"}
                results.append(Score("grounding", "judge", ok, judge, cheap=cheap, **draw))
            timings = {name: float(rng.lognormal(0, 0.5)) for name in ("retrieval", "generation")}
            timings["total"] = sum(timings.values())
            yield ScoredTrace(f"t{at}", "bot", MONDAY + at, "ok", results, timings=timings)


def first_alarms(
    traffic: Traffic, learn: float, within: float
) -> tuple[dict[tuple[str, str, str], float], Counter[str], int]:
    """Return minutes to the first alarm by (metric, scorer, kind), detectors, and early alarms."""
    specs = metric_specs()
    windows, monitor = Windows(specs=specs), DriftMonitor(DriftSettings(), specs)
    found: dict[tuple[str, str, str], float] = {}
    kinds: Counter[str] = Counter()
    due, early = MONDAY + MINUTE, 0
    for trace in traffic.traces(learn + within, learn):
        while trace.timestamp >= due:
            windows.advance(due)
            for alarm in monitor.advance(due, windows):
                # `held` only says who speaks; the detector has found it
                if alarm.state == "cleared":
                    continue
                late = (alarm.at - MONDAY - learn) / MINUTE
                if late < 0:
                    early += 1
                else:
                    found.setdefault((alarm.metric, alarm.scorer, alarm.kind), late)
            due += MINUTE
        windows.add(trace, "bot")
        monitor.observe([trace])
        if ("grounding", "judge", "mean") in found and ("grounding", "builtin", "mean") in found:
            break
    kinds.update(f"{scorer or 'latency'} {kind}" for _, _, scorer, kind, _ in monitor.ratios())
    return found, kinds, early


Case = tuple[str, Floats, Floats, float, float, float, tuple[float, float]]
"""Name, pools before and after, scores a minute, share judged, days learned, goals in minutes."""


def speed(cases: Sequence[Case], runs: int, seed: int) -> None:
    """Print delays of the built-in and of the judged mean beside the information bound."""
    rows = []
    for name, before, after, per_minute, judged, days, goals in cases:
        late: dict[str, list[float]] = {"builtin": [], "judge": []}
        early = 0
        for run in range(runs):
            traffic = Traffic(1000 * seed + run, per_minute, judged, before, after)
            within = 40 * max(goals) * MINUTE if per_minute > 1 else 10 * max(goals) * MINUTE
            found, kinds, before_it = first_alarms(traffic, days * DAY, within)
            early += before_it
            for scorer, own in late.items():
                own.append(found.get(("grounding", scorer, "mean"), math.inf))
        sharing = sum(kinds.values())
        for column, (scorer, goal) in enumerate(zip(late, goals, strict=True)):
            rate = per_minute * (judged if scorer == "judge" else 1.0)
            nats = math.log(MONTH / MINUTE * rate * sharing)
            bound = nats / information(before[:, column].mean(), after[:, column]) / rate
            middle, slow = np.median(late[scorer]), np.quantile(late[scorer], 0.9)
            rows.append(
                [
                    f"{name}, {scorer}",
                    *(f"{pool[:, column].mean():.2f}" for pool in (before, after)),
                    *(f"{goal:.0f}", f"{middle:.0f}", f"{slow:.0f}", f"{bound:.0f}"),
                    *(f"{middle / bound:.2f}", f"{sharing}", f"{early}"),
                ]
            )
    head = ("minutes to the alarm", "before", "after", "goal", "median", "90 %", "bound")
    table((*head, "times the bound", "detectors", "early alarms"), rows)


# ------------------------------------------------------- one series: weeks, nulls and recovery


def minutes(rng: np.random.Generator, mean: Floats, load: Floats | float, sd: float = 0.0) -> Sums:
    """Return sums of Poisson(`load`) scores a minute: shares of 0/1, or with `sd` Beta scores."""
    n = rng.poisson(load, len(mean))
    if not sd:
        k = rng.binomial(n, mean).astype(float)
        return n.astype(float), k, k
    strength = mean * (1 - mean) / sd**2 - 1
    index = np.repeat(np.arange(len(mean)), n)
    y = rng.beta((mean * strength)[index], ((1 - mean) * strength)[index])
    one, two = (np.bincount(index, w, len(mean)).astype(float) for w in (y, y * y))
    return n.astype(float), one, two


def play(
    sums: Sums, h: float = MONTH, days: float = 14, sign: int = 1, start: float = MONDAY
) -> tuple[list[tuple[int, SeriesAlarm]], DriftSeries]:
    """Feed a series from Monday on; return (minute, alarm) of each alarm, and the series."""
    series = DriftSeries(DetectorSpec(60, sign), milestones_for(days))
    found = []
    for i, (n, *row) in enumerate(zip(*(column.tolist() for column in sums), strict=True)):
        if n:
            alarm = series.feed(start + i * MINUTE, n, row[:1], row[1:], h)
            if alarm is not None:
                found.append((i, alarm))
    return found, series


def _is_weekend(minute: Floats) -> Floats:
    return (minute // 1440 % 7 >= 5).astype(float)


Week = Callable[[Floats, np.random.Generator], tuple[Floats, Floats, float]]

# By name: minutes -> (mean, scores a minute, sd of a score, 0 for shares).
WEEKS: dict[str, Week] = {
    **{
        f"score, weekend +{shift}": lambda t, rng, shift=shift: (  # type: ignore[misc]
            0.15 + 0.03 * np.sin(2 * np.pi * t / 1440) + shift * _is_weekend(t),
            np.full(len(t), 60.0),
            0.1,
        )
        for shift in (0.0, 0.01, 0.02, 0.04)
    },
    "score, +.03 in office hours only": lambda t, rng: (
        0.15 + 0.03 * (1 - _is_weekend(t)) * ((t % 1440 >= 480) & (t % 1440 < 1080)),
        20.0 - 15.0 * _is_weekend(t),
        0.15,
    ),
    "errors 5 %, weekend 7 %, a fifth of the traffic": lambda t, rng: (
        0.05 + 0.02 * _is_weekend(t),
        30.0 - 24.0 * _is_weekend(t),
        0.0,
    ),
    "score, each day off by chance, sd .02": lambda t, rng: (
        0.15
        + np.repeat(np.clip(rng.normal(0, 0.02, len(t) // 1440 + 1), -0.06, 0.06), 1440)[: len(t)],
        np.full(len(t), 20.0),
        0.1,
    ),
}


def weekends(runs: int, seed: int) -> None:
    """Print alarms in ten weeks, and minutes until +.05 is found in the third and second week."""
    head = ("traffic without drift", "promised", "alarms in ten weeks")
    late_head = ("minutes to find +.05 on day 9", "on day 17", "on day 20, a Sunday")
    table((*head, *late_head), [])
    for name, week in WEEKS.items():
        alarms = []
        for run in range(runs):
            rng = np.random.default_rng([seed, run])
            mean, load, sd = week(np.arange(70 * 1440.0), rng)
            alarms.append(len(play(minutes(rng, mean, load, sd))[0]))
        cells = [f"{np.mean(alarms):.2f}, most {max(alarms)}"]
        for day in (9, 17, 20):
            late = []
            for run in range(2 * runs):
                rng = np.random.default_rng([seed, 100 + run])
                change = int((day + 0.3 + 0.4 * rng.random()) * 1440)
                t = np.arange(change + 1440.0)
                mean, load, sd = week(t, rng)
                found, _ = play(minutes(rng, mean + 0.05 * (t >= change), load, sd))
                late.append(
                    min((i + 1 - change for i, _ in found if i >= change), default=math.inf)
                )
            middle = float(np.median(late))
            cells.append(f"{middle:.0f}")
        print("| " + " | ".join([name, "2.33", *cells]) + " |", flush=True)
    print()


def counterexample(runs: int, seed: int) -> None:
    """Print alarms in 180 days where the mean never moves and 2 % of minutes are perfect."""
    rows = []
    for days in (2, 7, 14, 28):
        alarms = []
        for run in range(runs):
            rng = np.random.default_rng([seed, days, run])
            count = int((180 + days) * 1440)
            n = rng.poisson(60.0, count)
            perfect = rng.random(count) < 0.02
            level = 0.15 / 0.98  # the others are worse, so that the mean is .15
            strength = level * (1 - level) / 0.1**2 - 1
            index = np.repeat(np.arange(count), n)
            y = rng.beta(level * strength, (1 - level) * strength, len(index)) * ~perfect[index]
            one, two = (np.bincount(index, w, count).astype(float) for w in (y, y * y))
            found, _ = play((n.astype(float), one, two), days=days)
            alarms.append(len(found))
        rows.append([f"baseline of {days} days", "6", f"{np.mean(alarms):.1f}, most {max(alarms)}"])
    table(("a perfect batch in 2 % of minutes", "bound in 180 days", "alarms"), rows)


def installation(services: int, days: float, seed: int) -> None:
    """Print the false alarms of an installation on traffic that does not drift."""
    specs = metric_specs()
    windows, monitor = Windows(specs=specs), DriftMonitor(DriftSettings(), specs)
    rng = np.random.default_rng(seed)
    alarms: Counter[str] = Counter()
    due = MONDAY + MINUTE
    streams = []
    for i in range(services):
        level, strength = 0.55 + 0.4 * rng.random(), 3 + 5 * rng.random()
        y = rng.beta(level * strength, (1 - level) * strength, 2000)
        pool = np.stack([y, (rng.random(2000) < y) * 1.0], 1)
        traffic = Traffic(int(rng.integers(2**31)), 0.5, 0.3, pool, pool)
        streams.append(replace_service(traffic.traces(days * DAY, math.inf), f"s{i}"))
    for trace in heapq.merge(*streams, key=lambda trace: trace.timestamp):
        while trace.timestamp >= due:
            windows.advance(due)
            for alarm in monitor.advance(due, windows):
                if alarm.state != "cleared":
                    alarms[f"{alarm.service} {alarm.metric} {alarm.scorer} {alarm.kind}"] += 1
            due += MINUTE
        windows.add(trace, trace.service)
        monitor.observe([trace])
    ratios = monitor.ratios()
    share = monitor.baselines()[0]["false_alarm_days"]
    row = [f"{services}", f"{len(ratios)}", f"{share:.0f}", f"{days / 30:.1f}"]
    head = ("services", "detectors", "a service's share: one in days", "promised", "false alarms")
    table(head, [[*row, f"{sum(alarms.values())}"]])


def replace_service(traces: Iterator[ScoredTrace], service: str) -> Iterator[ScoredTrace]:
    """Yield the traces under another service."""
    for trace in traces:
        yield trace._replace(service=service)


def flapping(runs: int, seed: int) -> None:
    """Print alarms under an unchanged shift and after its end, and how well it is dated."""
    rows = []
    for name, before, after, load in (
        ("errors 5 to 5.6 %, 60 a minute", 0.05, 0.056, 60.0),
        ("errors 5 to 8 %, 6 a minute", 0.05, 0.08, 6.0),
        ("good .72 to .62, one in 10 min", 0.28, 0.38, 0.1),
        ("errors 5 to 50 %, 6 a minute", 0.05, 0.5, 6.0),
    ):
        many, more, delays, dated, cleared = [], [], [], [], []
        for run in range(runs):
            rng = np.random.default_rng([seed, run])
            learn, shift, calm = 7 * 1440, 10 * 1440, 10 * 1440
            mean = np.repeat([before, after, before], [learn, shift, calm])
            found, series = play(minutes(rng, mean, load), days=7)
            during = [(i, alarm) for i, alarm in found if learn <= i < learn + shift]
            many.append(len(during))
            more.append(sum(i >= learn + shift for i, _ in found))
            cleared.append(not series.active)
            for i, alarm in during[:1]:
                since = (alarm.change.since - MONDAY) / MINUTE
                delays.append((i - learn) / 60)
                dated.append(abs(since - learn) / 60)
        rows.append(
            [
                name,
                *(f"{np.median(x):.1f}" if x else "" for x in (delays, dated)),
                "1",
                f"{np.mean(many):.2f}, most {max(many)}",
                f"{np.mean(more):.2f}",
                f"{np.mean(cleared):.0%}",
            ]
        )
    head = ("unchanged for ten days", "hours to the alarm", "`since` off by hours", "goal")
    table((*head, "alarms", "in the ten days after", "cleared"), rows)
