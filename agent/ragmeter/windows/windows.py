"""Rolling event-time windows: add scored traces, read estimates. Time comes from the caller.

Memory is bounded by the series, not by the traffic: a bucket exists per (service, segment) and
time slot with traces, 234 slots for 5m, 1h and 24h. Of it a (metric, scorer) takes about 100
bytes, a busy latency stage 1 kB, the five worst of a metric 300 bytes (`benchmarks/windows.py`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from heapq import nsmallest
from typing import Any

from ragmeter.core.durations import parse_window
from ragmeter.core.metric_specs import MetricSpec, base_name
from ragmeter.metrics.registry import metric_specs
from ragmeter.windows.buckets import Bucket, SegmentKey, SeriesKey, WindowTotal
from ragmeter.windows.estimators import widen_for_missing
from ragmeter.windows.failures import FailedShare, estimate_failed_share
from ragmeter.windows.intervals import estimate_interval
from ragmeter.windows.log_histogram import LogHistogram
from ragmeter.windows.series import Estimate, Quantile, SeriesResolver
from ragmeter.windows.state import WindowState
from ragmeter.windows.sums import STATE_NAMES, ScoreSums
from ragmeter.windows.worst import (
    LATENCY_METRIC,
    RankedTrace,
    WorstEntry,
    unpack_entries,
    worst_sign,
)

_QUANTILES = (0.5, 0.95, 0.99)

# (low, high) of a metric without a spec.
_UNBOUNDED: tuple[float | None, float | None] = (None, None)

# The most points that a chart shows.
_HISTORY_POINTS = 60

# Scored traces of a point, on average, down to a dozen points: a share is then known to some 20
# points either way, and sixty minutes of two traces each draw no noise. With a hundred the 95th
# percentile of the latency has an upper limit.
_POINT_TRACES = 20
_LEAST_POINTS = 12
_QUANTILE_TRACES = 120

_ROUNDING = 1e-6  # of an effective number of samples: five alike make 4.9999999


class Windows:
    """Rolling windows by service and segment; the segment "" is the whole service.

    Writing (`advance`, `add`, `add_all`, `retract`, `open_range`, `too_late`, `next_expiry`,
    `take_changed`, `take_new_worst`, `drain`, `load`) is that of `WindowState`. Reading folds what
    was added since, so readers need the same lock as writers. Readers name a metric with its
    cut-off, a scorer by its plain name (its current series) or by one of its series, and a window
    by one of `names` (else KeyError). The caller bounds the number of services and segments.

    Args:
        windows: Names such as "5m"; at least one, and each once.
        specs: How each metric combines, its range and direction; by default those of the registry.
            A metric without a spec is an unbounded mean.
        min_samples: Estimates need at least so many scored traces, effective ones too.
        name_worst: Collect the ids of worst traces for `take_new_worst`, which must then be called.
        worst_of: Tags whose segments have worst traces, besides the whole service.
        current: The newest series of a scorer by (metric, scorer); the owner may change it.

    Raises:
        ValueError: A window has an unknown name, or `min_samples` is below 1.
    """

    def __init__(
        self,
        windows: Sequence[str] = ("5m", "1h", "24h"),
        *,
        specs: Mapping[str, MetricSpec] | None = None,
        min_samples: int = 5,
        name_worst: bool = False,
        worst_of: Collection[str] = (),
        current: Mapping[SeriesKey, str] | None = None,
    ) -> None:
        specs = metric_specs() if specs is None else specs
        if min_samples < 1:
            raise ValueError("min_samples must be at least 1")
        self.min_samples = min_samples
        self._specs = specs
        self._state = state = WindowState(windows, specs, name_worst, worst_of)
        self._resolver = SeriesResolver(state.slots, {} if current is None else current)
        self._bounds: dict[str, tuple[float | None, float | None]] = {
            name: (0.0, 1.0) if spec.kind == "ratio" else (spec.low, spec.high)
            for name, spec in specs.items()
        }
        self.names = state.names
        # bound once: a call of its own for each trace would cost time on the hot path
        self.advance = state.advance
        self.too_late = state.too_late
        self.add = state.add
        self.add_all = state.add_all
        self.retract = state.retract
        self.open_range = state.open_range
        self.take_new_worst = state.take_new_worst
        self.drain = state.drain
        self.load = state.load
        self.next_expiry = state.next_expiry
        self.take_changed = state.take_changed
        self.newest_trace = state.newest_trace
        self.take_ignored_stages = state.take_ignored_stages

    @property
    def now(self) -> float | None:
        """Stream time in Unix seconds, None before the first trace."""
        return self._state.now

    @property
    def additions(self) -> int:
        """How many traces were added, also partial ones."""
        return self._state.additions

    def services(self) -> list[str]:
        """Return the services with a trace in the longest window, sorted."""
        return self._state.services()

    def segments(self, service: str) -> list[str]:
        """Return the segments of a service with a trace in the longest window, without ""."""
        return [segment for segment in self._state.segments().get(service, ()) if segment]

    def series(self, service: str, segment: str = "") -> list[SeriesKey]:
        """Return each (metric, scorer) in the longest window; see `SeriesResolver.series_of`."""
        total = self._state.past(service, segment)
        return self._resolver.series_of(total) if total else []

    def current_scorer(self, metric: str, scorer: str) -> str:
        """Return the series that a scorer's name stands for: its newest version, if it has one."""
        return self._resolver.current_scorer(metric, scorer)

    def stages(self, service: str, segment: str = "") -> list[str]:
        """Return the latency stages in the longest window, sorted."""
        total = self._state.past(service, segment)
        return sorted(total.sketches) if total else []

    def count_traces(self, service: str, segment: str, window: str) -> int:
        """Return the number of traces in a window."""
        total = self._state.total(service, segment, window)
        return total.trace_count if total else 0

    def states(
        self, service: str, segment: str, metric: str, scorer: str, window: str
    ) -> dict[str, int]:
        """Return the number of traces in a window by state; all zero for an unknown series."""
        cell = self.cell(
            service=service, segment=segment, metric=metric, scorer=scorer, window=window
        )
        return cell.states() if cell else dict.fromkeys(STATE_NAMES, 0)

    def estimate(
        self, service: str, segment: str, metric: str, scorer: str, window: str
    ) -> Estimate | None:
        """Estimate a series in a window.

        None where its scores tell less than `min_samples` of equal weight would.
        """
        total = self._state.total(service, segment, window)
        if total is None:
            return None
        key = self._resolver.cache_key(metric, scorer)
        if key not in total.cache:
            cell = self._resolver.sum_cells([total], metric, scorer)
            total.cache[key] = self._estimate_enough(cell, metric, scorer)
        estimate: Estimate | None = total.cache[key]
        return estimate

    def _estimate_enough(self, cell: ScoreSums | None, metric: str, scorer: str) -> Estimate | None:
        """Estimate a series from its sums, if these tell enough."""
        if cell is None or cell.scored < self.min_samples:
            return None
        found = self._estimate(cell, metric, scorer)
        # a few scores that stand for nearly all traces would hide behind many that stand for few
        enough = found is not None and found.effective_samples > self.min_samples - _ROUNDING
        return found if enough else None

    def _estimate(
        self, cell: ScoreSums, metric: str, scorer: str, dependence: float = 1.0
    ) -> Estimate | None:
        """Estimate a series from its sums; None without a scored trace."""
        samples = cell.scored
        if not samples:
            return None
        bounds = self._bounds.get(base_name(metric), _UNBOUNDED)
        missing = cell.unscored_share() or 0.0
        interval = estimate_interval(cell, *bounds, dependence=dependence)
        if missing:
            interval = widen_for_missing(interval, missing, *bounds)
        return Estimate(*interval, samples, cell.states(), missing)

    def estimate_dependent(
        self,
        service: str,
        segment: str,
        metric: str,
        scorer: str,
        window: str,
        *,
        dependence: float,
    ) -> Estimate | None:
        """Estimate a series in a window, of traces that are alike; None without any.

        Args:
            service: The service.
            segment: The segment.
            metric: The metric.
            scorer: The scorer.
            window: The window.
            dependence: How many traces are worth one independent one. An estimate about all traffic
                of the window does not depend on it.
        """
        total = self._state.total(service, segment, window)
        cell = None if total is None else self._resolver.sum_cells([total], metric, scorer)
        return None if cell is None else self._estimate(cell, metric, scorer, dependence)

    def unscored(
        self, service: str, segment: str, metric: str, scorer: str, window: str
    ) -> tuple[float, int] | None:
        """Return (weighted share 0..1 without a value, number of traces that should have one).

        None with fewer than `min_samples` of those.
        """
        cell = self.cell(
            service=service, segment=segment, metric=metric, scorer=scorer, window=window
        )
        number = cell.scored + cell.unscored + cell.shed if cell else 0
        if cell is None or number < self.min_samples:
            return None
        return cell.unscored_share() or 0.0, number

    def failed(
        self, service: str, segment: str, metric: str, scorer: str, window: str
    ) -> FailedShare | None:
        """Estimate the part of `unscored` that is a fault of ours; None as there."""
        total = self._state.total(service, segment, window)
        cell = self._resolver.cell(total, metric, scorer)
        share = cell and estimate_failed_share(cell, _failure_reasons(total, metric, scorer))
        return share if share and share.samples >= self.min_samples else None

    def failing(self, service: str, window: str) -> list[SeriesKey]:
        """Return each (metric, scorer without version) with a failed result in a window."""
        total = self._state.total(service, "", window)
        return sorted(total.failures or ()) if total else []

    def quantiles(
        self, service: str, segment: str, stage: str, window: str, *, dependence: float = 1.0
    ) -> list[Quantile]:
        """Return those of the 50th, 95th and 99th percentile that have a sample beyond them.

        Args:
            service: The service.
            segment: The segment.
            stage: The stage.
            window: The window.
            dependence: How many traces are worth one independent one.
        """
        total = self._state.total(service, segment, window)
        hist = total.sketches.get(stage) if total else None
        if total is None or hist is None or hist.n < self.min_samples:
            return []
        if dependence > 1:
            return [Quantile(*limits, hist.n) for limits in hist.limits(_QUANTILES, dependence)]
        cached: list[Quantile] | None = total.cache.get(stage)
        if cached is None:
            cached = [Quantile(*limits, hist.n) for limits in hist.limits(_QUANTILES)]
            total.cache[stage] = cached
        return list(cached)

    def cell(
        self, service: str, segment: str, metric: str, scorer: str, window: str
    ) -> ScoreSums | None:
        """Return the sums of a series in a window."""
        total = self._state.total(service, segment, window)
        return self._resolver.cell(total, metric, scorer)

    def histogram(self, service: str, segment: str, stage: str, window: str) -> LogHistogram | None:
        """Return the latency histogram of a stage in a window; the caller must not change it."""
        total = self._state.total(service, segment, window)
        return total.sketches.get(stage) if total else None

    def bucket(
        self, service: str, segment: str, metric: str, scorer: str, width: int, start: float
    ) -> ScoreSums | None:
        """Return the sums of the traces of [start, start + width) that have come so far.

        Both are seconds and multiples of some window's grain. None without sums, or once expired.
        """
        buckets = list(self._state.buckets_between((service, segment), width, start))
        return self._resolver.sum_cells(buckets, metric, scorer)

    def bucket_latency(
        self, service: str, segment: str, stage: str, width: int, start: float
    ) -> LogHistogram | None:
        """Return a new latency histogram of a stage from the same buckets as `bucket`."""
        return _sum_latency(self._state.buckets_between((service, segment), width, start), stage)

    def add_bucket_latency(
        self, total: LogHistogram, owner: SegmentKey, *, stage: str, width: int, start: float
    ) -> None:
        """Add the latency histogram of a stage from the same buckets as `bucket`."""
        _add_latency(total, self._state.buckets_between(owner, width, start), stage)

    def known_from(self, width: int) -> float:
        """Return from when on there are buckets for a stretch of `width` seconds."""
        return self._state.known_from(width)

    def sums_within(
        self, service: str, segment: str, metric: str, scorer: str, start: float, end: float
    ) -> ScoreSums | None:
        """Return the sums of the traces of [start, end), as finely as there are buckets."""
        buckets = list(self._state.buckets_within((service, segment), start, end))
        return self._resolver.sum_cells(buckets, metric, scorer)

    def latency_within(
        self, service: str, segment: str, stage: str, start: float, end: float
    ) -> LogHistogram | None:
        """Return a new latency histogram of a stage from the same buckets as `sums_within`."""
        return _sum_latency(self._state.buckets_within((service, segment), start, end), stage)

    def requests_within(self, service: str, segment: str, start: float, end: float) -> int:
        """Return how many requests the same buckets hold."""
        buckets = self._state.buckets_within((service, segment), start, end)
        return sum(bucket.trace_count for bucket in buckets)

    def _past_and_window(
        self, service: str, segment: str, window: str
    ) -> tuple[WindowTotal | None, WindowTotal | None]:
        return self._state.past(service, segment), self._state.total(service, segment, window)

    def sums_before(
        self, service: str, segment: str, metric: str, scorer: str, window: str
    ) -> ScoreSums | None:
        """Return the sums of the longest window without those of `window`; None if none is left."""
        past, total = self._past_and_window(service, segment, window)
        cell = self._resolver.cell(past, metric, scorer)
        recent = self._resolver.cell(total, metric, scorer)
        return cell.without(recent) if cell and recent else cell

    def histogram_before(
        self, service: str, segment: str, stage: str, window: str
    ) -> LogHistogram | None:
        """Return a new histogram of the longest window without the samples of `window`."""
        past, total = self._past_and_window(service, segment, window)
        if past is None or stage not in past.sketches:
            return None
        hist = LogHistogram()
        hist.merge(past.sketches[stage])
        if total and stage in total.sketches:
            hist.merge(total.sketches[stage], -1)
        return hist if hist.n else None

    def failed_before(
        self, service: str, segment: str, metric: str, scorer: str, window: str
    ) -> FailedShare | None:
        """Estimate `failed` over the longest window without `window`."""
        cell = self.sums_before(
            service=service, segment=segment, metric=metric, scorer=scorer, window=window
        )
        past, total = self._past_and_window(service, segment, window)
        reasons = Counter(_failure_reasons(past, metric, scorer))
        reasons -= Counter(_failure_reasons(total, metric, scorer))
        return estimate_failed_share(cell, reasons) if cell else None

    def value_before(
        self, service: str, segment: str, metric: str, scorer: str, window: str
    ) -> float | None:
        """Estimate the mean over `sums_before`; None where `estimate` would give none."""
        cell = self.sums_before(
            service=service, segment=segment, metric=metric, scorer=scorer, window=window
        )
        estimate = self._estimate_enough(cell, metric, scorer)
        return estimate.value if estimate else None

    def history(
        self, service: str, segment: str, metric: str, scorer: str, window: str
    ) -> list[tuple[float, Estimate | None]]:
        """Return (start in Unix seconds, estimate) at up to 60 points of a window, oldest first.

        `window` may be any length; of whole services there are up to `ARCHIVE_SECONDS`. A point
        needs one scored trace, not `min_samples`: its interval tells how uncertain it is. Metric
        `latency` with a stage as scorer gives the 95th percentile.
        """
        width, numbers, buckets = self._state.past_buckets((service, segment), parse_window(window))
        if metric == LATENCY_METRIC:
            most = sum(bucket.trace_count for _, bucket in buckets) // _QUANTILE_TRACES
        else:
            whole = self._resolver.sum_cells([bucket for _, bucket in buckets], metric, scorer)
            most = max(_LEAST_POINTS, whole.scored // _POINT_TRACES if whole else 0)
        most = min(most, _HISTORY_POINTS)
        # One bucket less, so that a group cut by either end of the window never makes it 61.
        size = 1 if len(numbers) <= most else -(-len(numbers) // max(1, most - 1))
        groups: dict[int, list[Bucket]] = {number // size: [] for number in numbers}
        for start, bucket in buckets:
            groups[start // (size * width)].append(bucket)
        points: list[tuple[float, Estimate | None]] = []
        for number, group in groups.items():
            if metric == LATENCY_METRIC:
                estimate = _estimate_latency(group, scorer)
            else:
                cell = self._resolver.sum_cells(group, metric, scorer)
                estimate = self._estimate(cell, metric, scorer) if cell else None
            points.append((float(number * size * width), estimate))
        return points

    def worst(
        self,
        service: str,
        metric: str,
        scorer: str,
        window: str,
        limit: int = 5,
        segment: str = "",
    ) -> list[RankedTrace]:
        """Return up to `limit` worst traces of a window, worst first; each bucket knows five.

        Metric `latency` with a stage as scorer gives the slowest. Segments have worst traces if
        their tag is in `worst_of`. A grain below a minute reads the next coarser ring.
        """
        sign = worst_sign(metric, self._specs)
        entries: set[WorstEntry] = set()
        names = self._resolver.cache_key(metric, scorer)[1:]
        for key in dict.fromkeys((metric, name) for name in names) if sign else ():
            entries |= self._entries((service, segment), window, key).get(key, set())
        traces: dict[str, RankedTrace] = {}
        for entry in sorted(entries):
            if len(traces) == limit:
                break
            # Adding zero avoids a negative zero.
            trace = RankedTrace(entry.trace_id, sign * entry.rank + 0.0, entry.timestamp)
            traces.setdefault(entry.trace_id, trace)
        return list(traces.values())

    def worst_ids(self, service: str, depth: int = 25) -> set[str]:
        """Return the ids whose evidence to store: the `depth` worst of each metric and window."""
        segments = self.segments(service) if self._state.worst_of else []
        return {
            entry.trace_id
            for window in self.names
            for segment in ("", *segments)
            for entries in self._entries((service, segment), window).values()
            for entry in nsmallest(depth, entries)
        }

    def _entries(
        self, owner: SegmentKey, window: str, only: SeriesKey | None = None
    ) -> dict[SeriesKey, set[WorstEntry]]:
        """Return the worst entries in the buckets of a window, of all series or of one."""
        ring, span = self._state.span(window, owner)
        by_series: dict[SeriesKey, set[WorstEntry]] = {}
        if ring.newest is None:
            return by_series
        since = span.oldest * ring.width
        source = next(r for r in self._state.rings if r.worst and r.width >= ring.width)
        for index, row in source.rows.items():
            if (index + 1) * source.width <= since or owner not in row:
                continue
            worst = row[owner].worst
            for key in worst if only is None else worst.keys() & {only}:
                by_series.setdefault(key, set()).update(
                    entry for entry in unpack_entries(worst[key]) if entry.timestamp >= since
                )
        return by_series


def _estimate_latency(buckets: Sequence[Bucket], stage: str) -> Estimate | None:
    """Estimate the 95th percentile of buckets; None if an end of its interval is unknown."""
    hist = _sum_latency(buckets, stage)
    for _, value, lower, upper in hist.limits((0.95,)) if hist else ():
        if hist and upper is not None:
            return Estimate(
                value=value,
                lower=lower,
                upper=upper,
                effective_samples=hist.n,
                samples=hist.n,
                states={},
            )
    return None


def _sum_latency(buckets: Iterable[Bucket], stage: str) -> LogHistogram | None:
    hist = LogHistogram()
    _add_latency(hist, buckets, stage)
    return hist if hist.n else None


def _add_latency(total: LogHistogram, buckets: Iterable[Bucket], stage: str) -> None:
    for bucket in buckets:
        if stage in bucket.sketches:
            total.merge_sketch(bucket.sketches[stage])


def _failure_reasons(total: WindowTotal | None, metric: str, scorer: str) -> Mapping[str, int]:
    failures = (total.failures if total else None) or {}
    return failures.get((metric, scorer.partition("@")[0]), {})


# Methods whose first argument is a service; the last three are of breakdowns.
_BY_SERVICE = {
    "segments",
    "series",
    "stages",
    "count_traces",
    "estimate",
    "unscored",
    "quantiles",
    "states",
    "history",
    "newest_trace",
    "worst",
    "cell",
    "sums_before",
    "series_history",
}


class JoinedWindows:
    """What readers ask of `Windows`, of several that share the services.

    Args:
        parts: Returns them.
        empty: Answers for a service that none of them has.
    """

    def __init__(self, parts: Callable[[], Sequence[Windows]], empty: Windows) -> None:
        self._parts = parts
        self._empty = empty
        self.names = empty.names
        self.min_samples = empty.min_samples

    def services(self) -> list[str]:
        """Return the services of all."""
        return sorted({name for windows in self._parts() for name in windows.services()})

    @property
    def now(self) -> float | None:
        """The newest event time: parts without traffic stand still."""
        return max((one.now for one in self._parts() if one.now is not None), default=None)

    def current_scorer(self, metric: str, scorer: str) -> str:
        """Return the name under which a scorer scores now."""
        current = (windows.current_scorer(metric, scorer) for windows in self._parts())
        return next((name for name in current if name != scorer), scorer)

    def __getattr__(self, name: str) -> Any:
        if name not in _BY_SERVICE:
            raise AttributeError(name)

        def call(service: str, *args: Any, **options: Any) -> Any:
            own = (windows for windows in self._parts() if service in windows.services())
            return getattr(next(own, self._empty), name)(service, *args, **options)

        return call
