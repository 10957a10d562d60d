"""Acceptance of drift detection, through the shipped monitor and series; `benchmarks.drift` runs it.

Each function prints a Markdown table with the goal beside the figure. Streams are drawn anew for
each seed. Delays are minutes of event time from the change to the end of the bucket that alarmed.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from benchmarks.devdata import Floats
from ragmeter.core.score import Score, ScoredTrace, ScoreState
from ragmeter.drift.baseline import DAY, HOUR, MINUTE
from ragmeter.drift.monitor import DriftMonitor, DriftSettings
from ragmeter.drift.series import DetectorSpec, DriftSeries, SeriesAlarm, milestones_for
from ragmeter.metrics.registry import metric_specs
from ragmeter.windows.windows import Windows

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


def speed(
    cases: Sequence[tuple[str, Floats, Floats, float, float, float, tuple[float, float]]],
    runs: int,
    seed: int,
) -> None:
    """Print delays: cases are (name, before, after, per minute, judged, days learned, goals)."""
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
