"""Traffic by the bucket: a source of minute sums, and streams to fill it with."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

from ragmeter.core.arithmetic import value_units, weight_units
from ragmeter.core.metric_specs import MetricSpec
from ragmeter.parts.drift.alarms import Alarm
from ragmeter.parts.drift.baseline import HOUR
from ragmeter.parts.drift.monitor import DriftMonitor, DriftSettings
from ragmeter.windows.log_histogram import LogHistogram
from ragmeter.windows.sums import NO_SUMS, ScoreSums, StratumSums

SPECS = {
    "error": MetricSpec("error", "ratio", "cheap", ("builtin",), "", "", "", good="lower"),
    "grounding": MetricSpec("grounding", "mean", "cheap", ("builtin",), "", "", ""),
    "tokens": MetricSpec("tokens", "mean", "cheap", ("builtin",), "", "", "", high=None, good=None),
}
QUICK = DriftSettings(milestones=((6 * HOUR, 1),))
Key = tuple[str, str, str, str]  # service, segment, metric, scorer


class Fake:
    """A source of cells by the minute."""

    def __init__(self) -> None:
        self.cells: dict[Key, dict[int, ScoreSums]] = {}
        self.latencies: dict[tuple[str, str, str], dict[int, LogHistogram]] = {}

    def put(self, minute: int, n: int, total: float, squares: float, *key: str) -> None:
        """n scores of weight 1. `key`: metric, scorer; service and segment, if not "bot", ""."""
        metric, scorer, service, segment = (*key, *("bot", "")[len(key) - 2 :])
        counts = [0, 0, 0, 0, n, value_units(total), round(squares * 2**60)]
        cells = self.cells.setdefault((service, segment, metric, scorer), {})
        own = ScoreSums(counts, None)
        cells[minute] = ScoreSums.total([cells[minute], own]) if minute in cells else own

    def services(self) -> Sequence[str]:
        return sorted({key[0] for key in (*self.cells, *self.latencies)})

    def series(self, service: str, segment: str = "") -> Sequence[tuple[str, str]]:
        return sorted(key[2:] for key in self.cells if key[:2] == (service, segment))

    def stages(self, service: str, segment: str = "") -> Sequence[str]:
        return sorted(key[2] for key in self.latencies if key[:2] == (service, segment))

    def bucket(
        self, service: str, segment: str, metric: str, scorer: str, width: int, start: float
    ) -> ScoreSums | None:
        rows = self.cells.get((service, segment, metric, scorer), {})
        first = int(start // 60)
        found = [rows[i] for i in range(first, first + width // 60) if i in rows]
        return ScoreSums.total(found) if found else None

    def bucket_latency(
        self, service: str, segment: str, stage: str, width: int, start: float
    ) -> LogHistogram | None:
        rows = self.latencies.get((service, segment, stage), {})
        hist = LogHistogram()
        first = int(start // 60)
        for i in range(first, first + width // 60):
            if i in rows:
                hist.merge(rows[i])
        return hist if hist.n else None


def judged(
    rng: random.Random, n: int, bad: float, wrong: float, rates: dict[str, float]
) -> tuple[ScoreSums, tuple[int, float, float]]:
    """n answers of five minutes, `bad` of them bad: (the judge's cell, n and sums of the cheap
    score). The cheap score is low for bad answers, mostly; the judge calls a good answer bad with
    probability `wrong`. Strata "low" and "rest" at their rates."""
    strata = dict.fromkeys(rates, NO_SUMS)
    total = squares = 0.0
    for _ in range(n):
        is_bad = rng.random() < bad
        f = rng.betavariate(3, 4) if is_bad else rng.betavariate(12, 3)
        total += f
        squares += f * f
        name = "low" if f < 0.65 else "rest"
        strata[name] = strata[name].plus(StratumSums(size=weight_units(1.0)))
        if rng.random() < rates[name]:
            y = value_units(float(not is_bad and rng.random() >= wrong))
            x = value_units(f)
            scores = StratumSums.of_scores(
                weight_units(rates[name]), y, y * y, f=x, ff=x * x, yf=x * y
            )
            strata[name] = strata[name].plus(scores)
    scored = sum(sums.n for sums in strata.values())
    return ScoreSums([0, n - scored, 0, 0, 0, 0, 0], strata), (n, total, squares)


def run(
    monitor: DriftMonitor,
    source: Fake,
    minutes: range,
    fill: Callable[[int], None] | None = None,
    step: int = 1,
) -> list[Alarm]:
    """Fill a minute, then advance: what was said on the way."""
    out = []
    for minute in minutes:
        if fill is not None:
            fill(minute)
        if (minute + 1) % step == 0:
            out += monitor.advance((minute + 1) * 60.0 + 60, source)
    return out
