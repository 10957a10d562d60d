"""Rolling event-time windows: add scored traces, read estimates. Time comes from the caller.

Memory is bounded by the series, not by the traffic: a bucket exists per (service, segment) and
time slot in which traces came, 234 slots for 5m, 1h and 24h. A (metric, scorer) takes about 100
bytes of it, a busy latency stage about 1 kB, the ids of the five worst of a metric about 300
bytes; `benchmarks/windows.py` measures the whole. How many services and segments there are is for
the caller to bound.

Reading folds what was added since the last reading, so readers need the same lock as writers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from heapq import nsmallest

from ragmeter.core.metric_specs import MetricSpec, base_name
from ragmeter.windows.buckets import Bucket, SegmentKey, SeriesKey, WindowTotal
from ragmeter.windows.estimators import widen_for_missing
from ragmeter.windows.failures import FailedShare, estimate_failed_share
from ragmeter.windows.intervals import (
    SeriesHistory,
    estimate_history,
    estimate_interval,
    is_assisted,
    unassisted_scorer,
)
from ragmeter.windows.series import Estimate, Quantile, WindowSums
from ragmeter.windows.sums import STATE_NAMES, ScoreSums
from ragmeter.windows.worst import RankedTrace, WorstEntry, unpack_entries, worst_sign

_QUANTILES = (0.5, 0.95, 0.99)

_NO_HISTORY = SeriesHistory()

_UNKNOWN: tuple[bool, float | None, float | None] = (False, None, None)

_HISTORY_POINTS = 60
"""What a sparkline can show."""


class Windows(WindowSums):
    """Rolling windows by service and segment.

    `specs` says of each metric how it combines, its range and direction (default: the registry
    `ragmeter.metrics.registry.METRICS`); a metric it does not know is an unbounded mean. Estimates need
    `min_samples` scored traces. `name_worst` collects ids for `take_named`, which must then be
    called. Worst traces are kept for the whole service, and for each segment of the tags in
    `worst_of`. ValueError for window names that `periods` does not know.
    """

    def __init__(
        self,
        windows: Sequence[str] = ("5m", "1h", "24h"),
        *,
        specs: Mapping[str, MetricSpec] | None = None,
        min_samples: int = 5,
        name_worst: bool = False,
        worst_of: Collection[str] = (),
    ) -> None:
        if specs is None:
            from ragmeter.metrics.registry import (
                METRICS,  # late: tests and tools bring specs of their own
            )

            specs = METRICS
        if min_samples < 1:
            raise ValueError("min_samples: at least 1")
        super().__init__(windows, specs, name_worst, worst_of)
        self._specs = specs
        self.min_samples = min_samples
        self._kinds: dict[str, tuple[bool, float | None, float | None]] = {
            name: (spec.kind == "ratio", spec.low, spec.high) for name, spec in specs.items()
        }

    def states(
        self, service: str, segment: str, metric: str, scorer: str, window: str
    ) -> dict[str, int]:
        """Traces in the window by state; all zero for what was never seen."""
        scorer = unassisted_scorer(scorer)
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
            estimate = self._estimate(cell, metric, scorer, self._history(past, metric, scorer))
        total.cache[key] = (version, estimate)
        return estimate

    def unscored(
        self, service: str, segment: str, metric: str, scorer: str, window: str
    ) -> tuple[float, int] | None:
        """(weighted share, number behind it) of the traces that should have a value and have none.
        None with fewer than `min_samples` of those that should."""
        total = self._total(service, segment, window)
        if total is None:
            return None
        key = ("unscored", *self._key(metric, unassisted_scorer(scorer)))
        found: tuple[float, int] | None = total.cache.get(key)
        if found is None:
            cell = self._cell(total, metric, scorer)
            number = cell.scored + cell.unscored + cell.shed if cell else 0
            share = cell.unscored_share() if cell else None
            found = total.cache[key] = (share or 0.0, number)
        return found if found[1] >= self.min_samples else None

    def failed(
        self, service: str, segment: str, metric: str, scorer: str, window: str
    ) -> FailedShare | None:
        """The part of `unscored` that is a fault of ours. None with fewer than `min_samples`."""
        total = self._total(service, segment, window)
        return None if total is None else self._failed(total, metric, unassisted_scorer(scorer))

    def _failed(self, total: WindowTotal, metric: str, scorer: str) -> FailedShare | None:
        key = ("failed", *self._key(metric, scorer))
        if key not in total.cache:
            cell = self._cell(total, metric, scorer)
            reasons = (total.failures or {}).get((metric, scorer.partition("@")[0]), {})
            total.cache[key] = estimate_failed_share(cell, reasons) if cell else None
        found: FailedShare | None = total.cache[key]
        return found if found and found.samples >= self.min_samples else None

    def failing(self, service: str, window: str) -> list[SeriesKey]:
        """(metric, scorer without version) with a result in the window that failed."""
        total = self._total(service, "", window)
        return sorted(total.failures or ()) if total else []

    def failed_before(
        self, service: str, segment: str, metric: str, scorer: str, window: str
    ) -> FailedShare | None:
        """The same of `failed`."""
        cell = self.sums_before(service, segment, metric, scorer, window)
        past, total = self._past_and_window(service, segment, window)
        if cell is None or past is None:
            return None
        key = (metric, scorer.partition("@")[0])
        reasons = Counter((past.failures or {}).get(key, {}))
        reasons -= Counter((total.failures or {}).get(key, {}) if total else {})
        return estimate_failed_share(cell, reasons)

    def value_of(self, cell: ScoreSums, service: str, metric: str, scorer: str) -> float | None:
        """The estimate of sums that were read; None with fewer than `min_samples`."""
        if cell.scored < self.min_samples:
            return None
        past = self._total(service, "", self._longest.name)
        found = self._estimate(cell, metric, scorer, self._history(past, metric, scorer))
        return found.value if found else None

    def series_history(
        self, service: str, segment: str, metric: str, scorer: str
    ) -> SeriesHistory | None:
        """What the longest window knows of one score; None of a segment that it does not hold."""
        past = self._total(service, segment, self._longest.name)
        return None if past is None else self._history(past, metric, scorer)

    def _history(self, past: WindowTotal | None, metric: str, scorer: str) -> SeriesHistory:
        """What the longest window knows of one score. Of a bounded score one pseudo-observation of
        the uniform variance is added: five equal scores must not claim to know the mean exactly."""
        if past is None:
            return _NO_HISTORY
        key = ("history", *self._key(metric, scorer))
        found: SeriesHistory | None = past.cache.get(key)
        if found is None:
            ratio, low, high = self._kinds.get(base_name(metric), _UNKNOWN)
            if ratio and not is_assisted(scorer):
                found = _NO_HISTORY
            else:
                cell = self._cell(past, metric, scorer)
                uniform = None if low is None or high is None else (high - low) ** 2 / 12
                found = estimate_history(cell, uniform) if cell else _NO_HISTORY
            past.cache[key] = found
        return found

    def _estimate(
        self, cell: ScoreSums, metric: str, scorer: str, history: SeriesHistory
    ) -> Estimate | None:
        states = cell.states()
        samples = states["scored"]
        if not samples:
            return None
        ratio, low, high = self._kinds.get(base_name(metric), _UNKNOWN)
        missing = 0.0
        interval = estimate_interval(cell, ratio, low, high, history, is_assisted(scorer))
        if cell.unscored or cell.shed:
            missing = cell.unscored_share() or 0.0
            interval = widen_for_missing(interval, missing, *((0.0, 1.0) if ratio else (low, high)))
        return Estimate(*interval, samples, states, missing)

    def quantiles(self, service: str, segment: str, stage: str, window: str) -> list[Quantile]:
        """Of the 50th, 95th and 99th percentile those that have a sample beyond them."""
        total = self._total(service, segment, window)
        hist = total.sketches.get(stage) if total else None
        if total is None or hist is None or hist.n < self.min_samples:
            return []
        found: list[Quantile] | None = total.cache.get(stage)
        if found is None:
            found = [Quantile(*limits, hist.n) for limits in hist.limits(_QUANTILES)]
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
        group = 1 if span.buckets <= _HISTORY_POINTS else -(-span.buckets // (_HISTORY_POINTS - 1))
        first, last = span.oldest // group, ring.newest // group
        points: dict[int, list[Bucket]] = {at: [] for at in range(first, last + 1)}
        for index, row in ring.buckets(span):
            if (service, segment) in row:
                points[index // group].append(row[service, segment])
        past = self._longest.totals.get((service, segment))
        known = self._history(past, metric, scorer)
        found: list[tuple[float, Estimate | None]] = []
        for at, buckets in points.items():
            cell = self._sum(buckets, metric, scorer)
            estimate = self._estimate(cell, metric, scorer, known) if cell else None
            found.append((float(at * group * ring.width), estimate))
        return found

    def worst(
        self,
        service: str,
        metric: str,
        scorer: str,
        window: str,
        limit: int = 5,
        segment: str = "",
    ) -> list[RankedTrace]:
        """The worst traces of the window, worst first; at most 5 of each of its buckets are known.
        Metric `latency` with a stage as scorer gives the slowest. Of a segment there are some if
        its tag is in `worst_of`.

        A window of finer grain than a minute reads the buckets of the next ring that has them.
        """
        self._fold()
        sign = worst_sign(metric, self._specs)
        entries: set[WorstEntry] = set()
        for name in dict.fromkeys(self._key(metric, unassisted_scorer(scorer))[1:]) if sign else ():
            key = (metric, name)
            entries |= self._entries((service, segment), window, key).get(key, set())
        found: dict[str, RankedTrace] = {}
        for entry in sorted(entries):
            if len(found) == limit:
                break
            # Plus zero: the negative of zero is no value to show.
            worst = RankedTrace(entry.trace_id, sign * entry.rank + 0.0, entry.timestamp)
            found.setdefault(entry.trace_id, worst)
        return list(found.values())

    def worst_ids(self, service: str, depth: int = 25) -> set[str]:
        """The ids of the `depth` worst traces of each metric and window, the five that are shown
        and those that may follow them: whose evidence to keep."""
        self._fold()
        owners = [(service, "")]
        if self._worst_of:
            owners += [(service, name) for name in self.segments(service)]
        return {
            entry.trace_id
            for window in self.names
            for owner in owners
            for entries in self._entries(owner, window).values()
            for entry in nsmallest(depth, entries)
        }

    def _entries(
        self, owner: SegmentKey, window: str, only: SeriesKey | None = None
    ) -> dict[SeriesKey, set[WorstEntry]]:
        """What the buckets of a window know of its worst traces, of all series or of one."""
        ring, span = self._spans[window]
        found: dict[SeriesKey, set[WorstEntry]] = {}
        if ring.newest is None:
            return found
        since = span.oldest * ring.width
        source = next(r for r in self._rings if r.worst and r.width >= ring.width)
        for index, row in source.rows.items():
            if (index + 1) * source.width > since and owner in row:
                held = row[owner].worst
                wanted = held if only is None else {only: held[only]} if only in held else {}
                for key, entries in wanted.items():
                    found.setdefault(key, set()).update(
                        entry for entry in unpack_entries(entries) if entry.timestamp >= since
                    )
        return found
