"""Rolling event-time windows: scored traces in, estimates out. Pure: time comes from the caller.

Memory is bounded by the series, not by the traffic: a bucket exists per (service, segment) and
time slot in which traces came, 234 slots for 5m, 1h and 24h, and takes about 250 bytes per (metric,
scorer), about 1 kB per busy latency stage, and 5 ids per metric that has a good direction. How
many services and segments there are is for the caller to bound.

Reading folds what was added since the last reading, so readers need the same lock as writers.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from agent.metrics.spec import MetricSpec
from agent.trace import ScoredTrace
from agent.windows.bucket import Bucket, SeriesKey, Slots, Total
from agent.windows.draft import make_bucket
from agent.windows.estimators import (
    Moments,
    mean_interval,
    moments,
    rate_interval,
    sample_variance,
    unit_moments,
)
from agent.windows.periods import grain_of, seconds_of
from agent.windows.persist import decode_bucket, decode_clock, encode_bucket, encode_clock
from agent.windows.rings import Ring, Span
from agent.windows.sums import STATE_NAMES, Cell
from agent.windows.worst import unpacked

__all__ = ["BucketRow", "Estimate", "Quantile", "Windows", "Worst"]

BucketRow = tuple[str, str, int, int, bytes | None]
"""(service, segment, width, start, data): key and content of a saved bucket; None: delete it.
The row ("", "", 0, 0) holds the stream time."""

MAX_STAGES = 8
"""Latency stages per service: `total`, `retrieval`, `generation` and some of the user's own.
Stage names come from outside, and each has histograms in every window."""

QUANTILES = (0.5, 0.95, 0.99)

WORST_GRAIN = 60
"""Seconds. Five traces per ten-second bucket would be most of a small service's traffic."""

MAX_DRAFTED = 1024
"""Fold when so many traces wait: bounds memory, and the time of the next reading."""

HISTORY_POINTS = 60

_CLOCK = ("", "", 0, 0)
_NONE: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Estimate:
    """A 95 % interval, with how many equal-weight samples would know as much.

    `samples` were scored; `states` counts all traces by state, and its sum is what was seen.
    """

    value: float
    lower: float
    upper: float
    effective_samples: float
    samples: int
    states: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Quantile:
    """Seconds, within 1 %. A limit is None where the samples do not carry it."""

    quantile: float
    value: float
    lower: float | None
    upper: float | None
    samples: int


@dataclass(frozen=True, slots=True)
class Worst:
    trace_id: str
    value: float
    timestamp: float


class Windows:
    """Rolling windows by service and segment.

    `specs` says of each metric how it combines, its range and direction (default: the registry
    `agent.metrics.METRICS`); a metric it does not know is an unbounded mean. Estimates need
    `min_samples` scored traces.
    """

    def __init__(
        self,
        windows: Sequence[str] = ("5m", "1h", "24h"),
        *,
        specs: Mapping[str, MetricSpec] | None = None,
        min_samples: int = 5,
    ) -> None:
        if specs is None:
            from agent.metrics import METRICS  # late: tests and tools bring specs of their own

            specs = METRICS
        if not windows or len(set(windows)) != len(windows):
            raise ValueError("windows: at least one, and each once")
        if min_samples < 1:
            raise ValueError("min_samples: at least 1")
        self.names: tuple[str, ...] = tuple(windows)
        self.now: float | None = None
        self.ignored_stages = 0
        """Timings dropped because their service already has `MAX_STAGES` stages."""
        self._specs = specs
        self._min_samples = min_samples
        by_width: dict[int, list[Span]] = {}
        for name in windows:
            seconds = seconds_of(name)
            width = grain_of(seconds)
            by_width.setdefault(width, []).append(Span(name, seconds, seconds // width))
        coarsest = max(by_width)
        self._rings = [
            Ring(width, by_width[width], worst=width >= WORST_GRAIN or width == coarsest)
            for width in sorted(by_width)
        ]
        self._spans = {span.name: (ring, span) for ring in self._rings for span in ring.spans}
        self._longest = max((s for _, s in self._spans.values()), key=lambda span: span.seconds)
        self._finest = math.gcd(*by_width)
        self._since = -math.inf
        self._edge = -math.inf
        self._slots = Slots(specs)
        self._drafts: dict[tuple[str, tuple[str, ...], int], list[ScoredTrace]] = {}
        self._drafted = 0
        self._stages: dict[str, set[str]] = {}
        self._saved_now: float | None = None
        self._stray: list[tuple[str, str, int, int]] = []

    # ---- writing

    def advance(self, now: float) -> None:
        """Move stream time to `now` (Unix seconds) and expire buckets; never goes back."""
        if not math.isfinite(now):
            raise ValueError("stream time must be finite")
        if self.now is not None and now <= self.now:
            return
        self.now = now
        if now < self._edge:
            return
        self._edge = (now // self._finest + 1) * self._finest
        ring, _ = self._spans[self._longest.name]
        forget = ring.newest is not None and int(now // ring.width) > ring.newest
        if forget:
            self._fold()  # what waits must enter first, or its stages would be forgotten
        for ring in self._rings:
            ring.advance(int(now // ring.width))
        if forget:
            self._recall_stages()
        self._since = min(float(ring.oldest * ring.width) for ring in self._rings)

    def _recall_stages(self) -> None:
        """The stages that the longest window holds are those that keep their places."""
        self._stages = {
            service: set(total.sketches)
            for (service, segment), total in self._longest.totals.items()
            if not segment
        }

    def add(self, scored: ScoredTrace, service: str, segments: Sequence[str] = ()) -> bool:
        """Count a trace in its bucket, for the whole service and for each of `segments`.

        Each window takes it if its bucket is still inside; False if it is too late for all. The
        caller advances the time first and has bounded `service` and `segments`. The trace is read
        at the next fold and must not be changed afterwards.
        """
        timestamp = scored.timestamp
        if not math.isfinite(timestamp):
            raise ValueError("the time of a trace must be finite")
        if not 0 < scored.probability <= 1:
            raise ValueError("the probability of a trace must be in (0, 1]")
        if self.now is None or timestamp > self.now:
            self.advance(timestamp)
        index = int(timestamp // self._finest)
        if index * self._finest < self._since:
            return False
        if not scored.timings.keys() <= self._stages.get(service, _NONE):
            scored = self._with_known_stages(service, scored)
        key = (service, tuple(segments), index)
        draft = self._drafts.get(key)
        if draft is None:
            self._drafts[key] = [scored]
        else:
            draft.append(scored)
        self._drafted += 1
        if self._drafted >= MAX_DRAFTED:
            self._fold()
        return True

    def _with_known_stages(self, service: str, scored: ScoredTrace) -> ScoredTrace:
        """Learn the stages of a trace while there is room; without the others."""
        known = self._stages.setdefault(service, set())
        for stage, seconds in scored.timings.items():
            if seconds >= 0 and len(known) < MAX_STAGES:
                known.add(stage)
        timings = {stage: t for stage, t in scored.timings.items() if stage in known}
        self.ignored_stages += len(scored.timings) - len(timings)
        return replace(scored, timings=timings)

    def _fold(self) -> None:
        """Bring what waits into the rings."""
        if not self._drafts:
            return
        drafts, self._drafts, self._drafted = self._drafts, {}, 0
        for (service, segments, index), traces in drafts.items():
            delta = make_bucket(traces, self._slots)
            rings = [(ring, index * self._finest // ring.width) for ring in self._rings]
            for ring, at in reversed(rings):
                alone = ring is self._rings[0] and not segments
                ring.fold(at, (service, ""), delta, give=alone)
            if segments:
                delta.worst = {}  # worst traces are kept for the whole service only
                for segment in dict.fromkeys(segments):
                    for ring, at in rings:
                        ring.fold(at, (service, segment), delta)

    # ---- reading

    def _total(self, service: str, segment: str, window: str) -> Total | None:
        self._fold()
        return self._spans[window][1].totals.get((service, segment))

    def _cell(self, sums: Total | Bucket | None, metric: str, scorer: str) -> Cell | None:
        place = self._slots.find((metric, scorer))
        return None if sums is None or place is None else sums.cell(place)

    def services(self) -> list[str]:
        """Services with a trace in the longest window."""
        self._fold()
        return sorted(service for service, segment in self._longest.totals if not segment)

    def segments(self, service: str) -> list[str]:
        """Segments of a service with a trace in the longest window, without ""."""
        self._fold()
        return sorted(seg for name, seg in self._longest.totals if name == service and seg)

    def series(self, service: str, segment: str = "") -> list[SeriesKey]:
        """(metric, scorer) seen in the longest window."""
        total = self._total(service, segment, self._longest.name)
        return [key for key, _ in total.cells(self._slots)] if total else []

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
        cell = self._cell(self._total(service, segment, window), metric, scorer)
        return cell.states() if cell else dict.fromkeys(STATE_NAMES, 0)

    def estimate(
        self, service: str, segment: str, metric: str, scorer: str, window: str
    ) -> Estimate | None:
        """None with fewer than `min_samples` scored traces in the window."""
        total = self._total(service, segment, window)
        if total is None:
            return None
        past = self._longest.totals.get((service, segment))
        # A mean leans on the longest window's variance, so its version counts, too.
        version = past.version if past else 0
        key = (metric, scorer)
        cached: tuple[int, Estimate | None] | None = total.cache.get(key)
        if cached and cached[0] == version:
            return cached[1]
        cell = self._cell(total, metric, scorer)
        estimate = None
        if cell is not None and cell.scored >= self._min_samples:
            estimate = self._estimate(cell, metric, self._spread(past, metric, scorer))
        total.cache[key] = (version, estimate)
        return estimate

    def _spread(self, past: Total | None, metric: str, scorer: str) -> float:
        """The variance of one score in the longest window. Of a bounded score one
        pseudo-observation of the uniform variance is added: five equal scores must not claim to
        know the mean exactly."""
        spec = self._specs.get(metric)
        if past is None or (spec is not None and spec.kind == "ratio"):
            return 0.0
        key = ("spread", metric, scorer)
        spread: float | None = past.cache.get(key)
        if spread is None:
            cell = self._cell(past, metric, scorer)
            spread, weight = sample_variance(_strata(cell)) if cell and cell.scored else (0.0, 0)
            if spec is not None and spec.high is not None:
                uniform = (spec.high - spec.low) ** 2 / 12
                spread = (spread * weight + uniform) / (weight + 1)
            past.cache[key] = spread
        return spread

    def _estimate(self, cell: Cell, metric: str, spread: float) -> Estimate | None:
        states = cell.states()
        samples = states["scored"]
        if not samples:
            return None
        spec = self._specs.get(metric)
        strata = _strata(cell)
        if spec is None:
            value, lower, upper, effective = mean_interval(strata, (spread,))
        elif spec.kind == "ratio":
            value, lower, upper, effective = rate_interval(strata)
        else:
            value, lower, upper, effective = mean_interval(strata, (spread,), spec.low, spec.high)
        return Estimate(value, lower, upper, effective, samples, states)

    def quantiles(self, service: str, segment: str, stage: str, window: str) -> list[Quantile]:
        """Of the 50th, 95th and 99th percentile those that have a sample beyond them."""
        total = self._total(service, segment, window)
        hist = total.sketches.get(stage) if total else None
        if total is None or hist is None or hist.n < self._min_samples:
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

        A window of finer grain than a minute reads the buckets of the next ring that has them.
        """
        self._fold()
        ring, span = self._spans[window]
        if ring.newest is None:
            return []
        since = span.oldest * ring.width
        source = next(r for r in self._rings if r.worst and r.width >= ring.width)
        key = (metric, scorer)
        _, sign, _ = self._slots.column(key)
        entries = {
            entry
            for index, row in source.rows.items()
            if (index + 1) * source.width > since and (service, "") in row
            for entry in unpacked(row[service, ""].worst.get(key, []))
            if entry.timestamp >= since
        }
        found: dict[str, Worst] = {}
        for entry in sorted(entries) if sign else ():
            if len(found) == limit:
                break
            # Plus zero: the negative of zero is no value to show.
            worst = Worst(entry.trace_id, sign * entry.rank + 0.0, entry.timestamp)
            found.setdefault(entry.trace_id, worst)
        return list(found.values())

    def worst_ids(self) -> set[tuple[str, str]]:
        """(service, trace id) of every trace that some bucket names: whose evidence to keep."""
        self._fold()
        return {
            (service, entry.trace_id)
            for ring in self._rings
            if ring.worst
            for row in ring.rows.values()
            for (service, _), bucket in row.items()
            for entries in bucket.worst.values()
            for entry in unpacked(entries)
        }

    # ---- keeping

    def drain(self) -> list[BucketRow]:
        """Rows that changed since the last drain, whole; writing one twice is harmless."""
        return list(self._drain())

    def _drain(self) -> Iterator[BucketRow]:
        self._fold()
        if self.now is not None and self.now != self._saved_now:
            self._saved_now = self.now
            yield (*_CLOCK, encode_clock(self.now))
        for key in self._stray:
            yield (*key, None)
        self._stray.clear()
        for ring in self._rings:
            for index, (service, segment), bucket in ring.drain():
                data = None if bucket is None else encode_bucket(bucket, self._slots)
                yield (service, segment, ring.width, index * ring.width, data)

    def load(self, rows: Iterable[BucketRow]) -> None:
        """Restore from all saved rows, into an empty object; then everything is as it was.

        Rows of no window (the windows were configured otherwise) are given up: the next drain
        deletes them. ValueError for rows that cannot be read.
        """
        if self.now is not None:
            raise ValueError("window state can only be loaded into empty windows")
        kept = [row for row in rows if row[4] is not None]
        clocks = [decode_clock(data) for *key, data in kept if tuple(key) == _CLOCK and data]
        buckets = [row for row in kept if row[:4] != _CLOCK]
        now = max(clocks, default=max((float(row[3]) for row in buckets), default=None))
        if now is None:
            return
        self.advance(now)
        self._saved_now = clocks[0] if clocks else None
        by_width = {ring.width: ring for ring in self._rings}
        for service, segment, width, start, data in buckets:
            ring = by_width.get(width)
            index, offset = divmod(start, width) if width else (0, 1)
            if ring is None or offset or not ring.oldest <= index <= (ring.newest or 0):
                self._stray.append((service, segment, width, start))
            else:
                ring.restore(index, (service, segment), decode_bucket(data or b"", self._slots))
        self._recall_stages()


def _strata(cell: Cell) -> list[Moments]:
    """Of a cell with a scored trace."""
    if not cell.strata:
        return [unit_moments(cell.n, cell.y, cell.yy)]
    return moments(cell.sums())
