"""Rolling event-time windows: scored traces in, estimates out. Pure: time comes from the caller.

Memory is bounded by the series, not by the traffic: a bucket exists per (service, segment) and
time slot in which traces came, 234 slots for 5m, 1h and 24h. A (metric, scorer) takes about 100
bytes of it, a busy latency stage about 1 kB, the ids of the five worst of a metric about 300
bytes; `benchmarks/windows.py` measures the whole. How many services and segments there are is for
the caller to bound.

Reading folds what was added since the last reading, so readers need the same lock as writers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from heapq import nsmallest

from agent.metrics.names import base
from agent.metrics.spec import MetricSpec
from agent.windows.bucket import Bucket, SeriesKey, Total
from agent.windows.estimators import mean_interval, moments, rate_interval, sample_variance
from agent.windows.records import Estimate, Quantile, Worst
from agent.windows.state import WindowState
from agent.windows.sums import STATE_NAMES, Cell
from agent.windows.units import unit_mean, unit_rate, unit_variance
from agent.windows.worst import Entry, direction_of, unpacked

__all__ = ["Windows"]

QUANTILES = (0.5, 0.95, 0.99)

_UNKNOWN: tuple[bool, float | None, float | None] = (False, None, None)

HISTORY_POINTS = 60
"""What a sparkline can show."""


class Windows(WindowState):
    """Rolling windows by service and segment.

    `specs` says of each metric how it combines, its range and direction (default: the registry
    `agent.metrics.METRICS`); a metric it does not know is an unbounded mean. Estimates need
    `min_samples` scored traces. `name_worst` collects ids for `take_named`, which must then be
    called. ValueError for window names that `periods` does not know.
    """

    def __init__(
        self,
        windows: Sequence[str] = ("5m", "1h", "24h"),
        *,
        specs: Mapping[str, MetricSpec] | None = None,
        min_samples: int = 5,
        name_worst: bool = False,
    ) -> None:
        if specs is None:
            from agent.metrics import METRICS  # late: tests and tools bring specs of their own

            specs = METRICS
        if min_samples < 1:
            raise ValueError("min_samples: at least 1")
        super().__init__(windows, specs, name_worst)
        self._specs = specs
        self.current: Mapping[SeriesKey, str] = {}
        """By (metric, scorer): the scorer's newest series, where each version of an instrument has
        one of its own. Readers that ask for the scorer get that one, with what has no version."""
        self.min_samples = min_samples
        self._kinds: dict[str, tuple[bool, float | None, float | None]] = {
            name: (spec.kind == "ratio", spec.low, spec.high) for name, spec in specs.items()
        }

    def services(self) -> list[str]:
        """Services with a trace in the longest window."""
        self._fold()
        return sorted(service for service, segment in self._longest.totals if not segment)

    def segments(self, service: str) -> list[str]:
        """Segments of a service with a trace in the longest window, without ""."""
        self._fold()
        return sorted(seg for name, seg in self._longest.totals if name == service and seg)

    def series(self, service: str, segment: str = "") -> list[SeriesKey]:
        """(metric, scorer) seen in the longest window. Of a scorer with several series the current
        one goes by the scorer's name, the older ones by their own."""
        total = self._total(service, segment, self._longest.name)
        if total is None:
            return []
        names = {series: pair for pair, series in self._current_keys()}
        return list(dict.fromkeys(names.get(key, key) for key, _ in total.cells(self._slots)))

    def _current_keys(self) -> Iterator[tuple[SeriesKey, SeriesKey]]:
        for pair, scorer in self.current.items():
            yield pair, (pair[0], scorer)

    def stages(self, service: str, segment: str = "") -> list[str]:
        """Latency stages seen in the longest window."""
        total = self._total(service, segment, self._longest.name)
        return sorted(total.sketches) if total else []

    def seen(self, service: str, segment: str, window: str) -> int:
        """Traces in the window."""
        total = self._total(service, segment, window)
        return total.seen if total else 0

    def states(
        self, service: str, segment: str, metric: str, scorer: str, window: str
    ) -> dict[str, int]:
        """Traces in the window by state; all zero for what was never seen."""
        total = self._total(service, segment, window)
        cached = total.cache.get(self._key(metric, scorer)) if total else None
        if cached and cached[1] is not None:
            return dict(cached[1].states)
        cell = self._cell(total, metric, scorer)
        return cell.states() if cell else dict.fromkeys(STATE_NAMES, 0)

    def estimate(
        self, service: str, segment: str, metric: str, scorer: str, window: str
    ) -> Estimate | None:
        """None with fewer than `min_samples` scored traces in the window."""
        if self._drafts:
            self._fold()
        owner = (service, segment)
        total = self._spans[window][1].totals.get(owner)
        if total is None:
            return None
        past = self._longest.totals.get(owner)
        # A mean leans on the longest window's variance, so its version counts, too.
        version = past.version if past else 0
        key = self._key(metric, scorer)
        cached: tuple[int, Estimate | None] | None = total.cache.get(key)
        if cached and cached[0] == version:
            return cached[1]
        cell = self._cell(total, metric, scorer)
        estimate = None
        if cell is not None and cell.scored >= self.min_samples:
            estimate = self._estimate(cell, metric, self._spread(past, metric, scorer))
        total.cache[key] = (version, estimate)
        return estimate

    def _spread(self, past: Total | None, metric: str, scorer: str) -> float:
        """The variance of one score in the longest window. Of a bounded score one
        pseudo-observation of the uniform variance is added: five equal scores must not claim to
        know the mean exactly."""
        ratio, low, high = self._kinds.get(base(metric), _UNKNOWN)
        if ratio or past is None:
            return 0.0
        key = ("spread", self._key(metric, scorer))
        spread: float | None = past.cache.get(key)
        if spread is None:
            cell = self._cell(past, metric, scorer)
            spread, weight = _variance(cell) if cell else (0.0, 0)
            if low is not None and high is not None:
                uniform = (high - low) ** 2 / 12
                spread = (spread * weight + uniform) / (weight + 1)
            past.cache[key] = spread
        return spread

    def _estimate(self, cell: Cell, metric: str, spread: float) -> Estimate | None:
        states = cell.states()
        samples = states["scored"]
        if not samples:
            return None
        ratio, low, high = self._kinds.get(base(metric), _UNKNOWN)
        if cell.strata:
            strata = moments(cell.sums())
            interval = (
                rate_interval(strata) if ratio else mean_interval(strata, (spread,), low, high)
            )
        elif ratio:
            interval = unit_rate(cell.n, cell.y)
        else:
            interval = unit_mean(cell.n, cell.y, cell.yy, spread, low, high)
        return Estimate(*interval, samples, states)

    def quantiles(self, service: str, segment: str, stage: str, window: str) -> list[Quantile]:
        """Of the 50th, 95th and 99th percentile those that have a sample beyond them."""
        total = self._total(service, segment, window)
        hist = total.sketches.get(stage) if total else None
        if total is None or hist is None or hist.n < self.min_samples:
            return []
        found: list[Quantile] | None = total.cache.get(stage)
        if found is None:
            found = [Quantile(*limits, hist.n) for limits in hist.limits(QUANTILES)]
            total.cache[stage] = found
        return list(found)

    def history(
        self, service: str, segment: str, metric: str, scorer: str, window: str
    ) -> list[tuple[float, Estimate | None]]:
        """(start, estimate) per bucket or group of buckets, oldest first: 30 to 60 points.

        A point needs one scored trace, not `min_samples`: its interval says how little it knows.
        """
        self._fold()
        ring, span = self._spans[window]
        if ring.newest is None:
            return []
        # One bucket less, so that a group cut by either end of the window never makes it 61.
        group = 1 if span.buckets <= HISTORY_POINTS else -(-span.buckets // (HISTORY_POINTS - 1))
        first, last = span.oldest // group, ring.newest // group
        points: dict[int, list[Cell]] = {at: [] for at in range(first, last + 1)}
        for index, row in ring.buckets(span):
            cell = self._cell(row.get((service, segment)), metric, scorer)
            if cell is not None:
                points[index // group].append(cell)
        past = self._longest.totals.get((service, segment))
        spread = self._spread(past, metric, scorer)
        return [
            (
                float(at * group * ring.width),
                self._estimate(Cell.total(cells), metric, spread) if cells else None,
            )
            for at, cells in points.items()
        ]

    def worst(
        self, service: str, metric: str, scorer: str, window: str, limit: int = 5
    ) -> list[Worst]:
        """The worst traces of the window, worst first; at most 5 of each of its buckets are known.
        Metric `latency` with a stage as scorer gives the slowest.

        A window of finer grain than a minute reads the buckets of the next ring that has them.
        """
        self._fold()
        sign = direction_of(metric, self._specs)
        entries: set[Entry] = set()
        for name in dict.fromkeys(self._key(metric, scorer)[1:]) if sign else ():
            entries |= self._entries(service, window, (metric, name)).get((metric, name), set())
        found: dict[str, Worst] = {}
        for entry in sorted(entries):
            if len(found) == limit:
                break
            # Plus zero: the negative of zero is no value to show.
            worst = Worst(entry.trace_id, sign * entry.rank + 0.0, entry.timestamp)
            found.setdefault(entry.trace_id, worst)
        return list(found.values())

    def worst_ids(self, service: str, depth: int = 25) -> set[str]:
        """The ids of the `depth` worst traces of each metric and window, the five that are shown
        and those that may follow them: whose evidence to keep."""
        self._fold()
        return {
            entry.trace_id
            for window in self.names
            for entries in self._entries(service, window).values()
            for entry in nsmallest(depth, entries)
        }

    def _entries(
        self, service: str, window: str, only: SeriesKey | None = None
    ) -> dict[SeriesKey, set[Entry]]:
        """What the buckets of a window know of its worst traces, of all series or of one."""
        ring, span = self._spans[window]
        found: dict[SeriesKey, set[Entry]] = {}
        if ring.newest is None:
            return found
        since = span.oldest * ring.width
        source = next(r for r in self._rings if r.worst and r.width >= ring.width)
        for index, row in source.rows.items():
            if (index + 1) * source.width > since and (service, "") in row:
                for key, entries in row[service, ""].worst.items():
                    if only in (None, key):
                        found.setdefault(key, set()).update(
                            entry for entry in unpacked(entries) if entry.timestamp >= since
                        )
        return found

    def _key(self, metric: str, scorer: str) -> tuple[str, str, str]:
        """(metric, scorer, its current series): what `_cell` is a function of."""
        return metric, scorer, self.current.get((metric, scorer), scorer)

    def _cell(self, sums: Total | Bucket | None, metric: str, scorer: str) -> Cell | None:
        """The series of a scorer: the current version's, and with it what no version has found
        (sampled out, failed, or known without asking)."""
        if sums is None:
            return None
        cells = []
        for name in dict.fromkeys(self._key(metric, scorer)[1:]):
            place = self._slots.find((metric, name))
            cell = None if place is None else sums.cell(place)
            if cell is not None:
                cells.append(cell)
        return Cell.total(cells) if len(cells) > 1 else (cells[0] if cells else None)


def _variance(cell: Cell) -> tuple[float, int]:
    """(variance of one score, number of scores behind it)."""
    if cell.strata:
        return sample_variance(moments(cell.sums()))
    return unit_variance(cell.n, cell.y, cell.yy), cell.n if cell.n > 1 else 0
