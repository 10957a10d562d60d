"""Buckets of event time, the running totals of windows, and the rings that hold both.

A ring has one bucket width. A span is a window on it: the last `buckets` of the ring, the open one
included. Its totals are maintained by adding on arrival and subtracting on expiry, which is exact
(see `ragmeter.core.arithmetic`), so reading a window never walks its buckets.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from operator import lt
from typing import Any

from ragmeter.core.metric_specs import MetricSpec, find_spec
from ragmeter.windows.failures import FailureCounts, add_failures
from ragmeter.windows.log_histogram import LogHistogram, SparseLogHistogram
from ragmeter.windows.sums import (
    NO_SUMS,
    WIDTH,
    ScoreSums,
    StrataSums,
    add_strata,
    add_sums,
    subtract_strata,
    subtract_sums,
)
from ragmeter.windows.worst import (
    PackedEntries,
    merge_entries,
    pack_entries,
    unpack_entries,
    worst_direction,
)

SeriesKey = tuple[str, str]  # (metric, scorer)
SegmentKey = tuple[str, str]  # (service, segment); the segment "" is the whole service

# The stage whose latency the archive of a ring has, too.
TOTAL_STAGE = "total"

# The first numbers of a series count results; the rest are sums of values, which may be negative.
_RESULT_COUNTS = 5


class SeriesSlots:
    """Offsets of each (metric, scorer) in the flat lists of numbers of all buckets.

    One list of numbers per bucket, instead of an object per series, takes half the memory, and
    merging two is one pass in C. Offsets are given in order of arrival and never taken back.
    `columns` maps keys to what `column` returned, for a fast look-up.

    Args:
        specs: Metric specs by base name; they decide which values are worst.
    """

    def __init__(self, specs: Mapping[str, MetricSpec]) -> None:
        self._specs = specs
        self.columns: dict[SeriesKey, tuple[int, int, float]] = {}
        self._sorted: list[tuple[SeriesKey, int]] = []

    def column(self, key: SeriesKey) -> tuple[int, int, float]:
        """Return (offset, sign, bar) of a series, the last two from `worst_direction`."""
        column = self.columns.get(key)
        if column is None:
            direction = worst_direction(find_spec(self._specs, key[0]))
            column = self.columns[key] = (self.size, *direction)
            self._sorted = sorted((key, column[0]) for key, column in self.columns.items())
        return column

    def find(self, key: SeriesKey) -> int | None:
        """Return the offset of a series, None if it has none."""
        column = self.columns.get(key)
        return column[0] if column else None

    @property
    def size(self) -> int:
        """The length of a list with the numbers of all series."""
        return len(self.columns) * WIDTH

    def items(self) -> list[tuple[SeriesKey, int]]:
        """Return (key, offset) sorted by key, so that saved rows do not show order of arrival."""
        return self._sorted


class _BucketSums:
    """Sums of the traces of one owner.

    `trace_count` counts traces; `counts` holds `WIDTH` numbers per series, `strata` sums by offset
    of series, `failures` the failed results by reason (None: none has failed).
    """

    __slots__ = ("counts", "failures", "strata", "trace_count")

    def __init__(self) -> None:
        self.trace_count = 0
        self.counts: list[int] = []
        self.strata: dict[int, StrataSums] = {}
        self.failures: FailureCounts | None = None

    @property
    def empty(self) -> bool:
        """True if no trace and no result is left."""
        return not self.trace_count and not self.strata and not any(self.counts)

    def cell(self, offset: int) -> ScoreSums | None:
        """Return the sums of the series at `offset`, None without any."""
        counts = self.counts[offset : offset + WIDTH]
        strata = self.strata.get(offset) if self.strata else None
        return ScoreSums(counts, strata) if strata or any(counts[:_RESULT_COUNTS]) else None

    def cells(self, slots: SeriesSlots) -> Iterator[tuple[SeriesKey, ScoreSums]]:
        """Iterate over the series that have sums, sorted by key."""
        for key, offset in slots.items():
            cell = self.cell(offset)
            if cell is not None:
                yield key, cell

    def contains(self, part: _BucketSums) -> bool:
        """Return whether `part` can be subtracted without a number of results below 0."""
        counts = [*self.counts, *[0] * max(0, len(part.counts) - len(self.counts))]
        for offset in range(0, len(part.counts), WIDTH):
            end = offset + _RESULT_COUNTS
            if any(map(lt, counts[offset:end], part.counts[offset:end])):
                return False
        return all(
            self.strata.get(offset, {}).get(name, NO_SUMS).n >= sums.n
            for offset, strata in part.strata.items()
            for name, sums in strata.items()
        )

    def _add_sums(self, other: _BucketSums) -> None:
        self.trace_count += other.trace_count
        self.counts = add_sums(self.counts, other.counts)
        for offset, strata in other.strata.items():
            self.strata[offset] = add_strata(self.strata.get(offset), strata)
        self.failures = add_failures(self.failures, other.failures)

    def _subtract_sums(self, other: _BucketSums) -> None:
        self.trace_count -= other.trace_count
        self.counts = subtract_sums(self.counts, other.counts)
        for offset, strata in other.strata.items():
            left = subtract_strata(self.strata[offset], strata)
            if left:
                self.strata[offset] = left
            else:
                del self.strata[offset]
        self.failures = add_failures(self.failures, other.failures, -1)


class Bucket(_BucketSums):
    """A bucket of a ring, or a delta on its way there: sums, latency by stage, worst traces.

    `saved` says that the store has a row of it.
    """

    __slots__ = ("saved", "sketches", "worst")

    def __init__(self) -> None:
        super().__init__()
        self.sketches: dict[str, SparseLogHistogram] = {}
        self.worst: dict[SeriesKey, PackedEntries] = {}
        self.saved = False

    @classmethod
    def total(cls, parts: Sequence[Bucket], with_worst: bool) -> Bucket:
        """Return a new bucket with the sum of several; far faster than to add them one by one."""
        new = cls()
        new.trace_count = sum([part.trace_count for part in parts])
        columns = zip_longest(*[part.counts for part in parts], fillvalue=0)
        new.counts = list(map(sum, columns))
        for part in parts:
            for offset, strata in part.strata.items():
                new.strata[offset] = add_strata(new.strata.get(offset), strata)
            if part.failures:
                new.failures = add_failures(new.failures, part.failures)
            if with_worst:
                new._add_worst(part)
        sketches: dict[str, list[SparseLogHistogram]] = {}
        for part in parts:
            for stage, sketch in part.sketches.items():
                sketches.setdefault(stage, []).append(sketch)
        new.sketches = {name: SparseLogHistogram.total(own) for name, own in sketches.items()}
        return new

    def add(self, other: Bucket, with_worst: bool) -> None:
        """Merge another bucket; afterwards the two share nothing that is changed in place."""
        self._add_sums(other)
        for stage, sketch in other.sketches.items():
            own = self.sketches.get(stage)
            if own is None:
                own = self.sketches[stage] = SparseLogHistogram()
            own.merge(sketch)
        if with_worst:
            self._add_worst(other)

    def _add_worst(self, other: Bucket) -> None:
        for key, entries in other.worst.items():
            old = self.worst.get(key)
            self.worst[key] = entries if old is None else merge_entries(old, entries)

    def subtract(self, other: Bucket) -> None:
        """Undo `add` of a bucket without latency; displaced worst traces do not come back."""
        self._subtract_sums(other)
        for key, entries in other.worst.items():
            removed = unpack_entries(entries)
            own = unpack_entries(self.worst.get(key, []))
            left = [entry for entry in own if entry not in removed]
            if left:
                self.worst[key] = left
            else:
                self.worst.pop(key, None)

    def seal(self) -> None:
        """Pack the contents to save memory; a late trace opens them again."""
        for sketch in self.sketches.values():
            sketch.seal()
        for key, entries in self.worst.items():
            self.worst[key] = pack_entries(entries)


class WindowTotal(_BucketSums):
    """The running total of a window.

    `version` changes whenever the content does. `cache` belongs to the reader and is emptied then.
    """

    __slots__ = ("cache", "sketches", "version")

    def __init__(self) -> None:
        super().__init__()
        self.sketches: dict[str, LogHistogram] = {}
        self.version = 0
        self.cache: dict[object, Any] = {}

    def add(self, bucket: Bucket) -> None:
        """Add a bucket, in place."""
        self._mark_changed()
        self._add_sums(bucket)
        for stage, sketch in bucket.sketches.items():
            own = self.sketches.get(stage)
            if own is None:
                own = self.sketches[stage] = LogHistogram()
            own.merge_sketch(sketch)

    def subtract(self, bucket: Bucket) -> None:
        """Undo `add` exactly; histograms that become empty are removed."""
        self._mark_changed()
        self._subtract_sums(bucket)
        for stage, sketch in bucket.sketches.items():
            own = self.sketches[stage]
            own.merge_sketch(sketch, -1)
            if not own.n:
                del self.sketches[stage]

    def _mark_changed(self) -> None:
        self.version += 1
        self.cache = {}


@dataclass(slots=True)
class WindowSpan:
    """A window of `seconds` on a ring, with the running total of each owner.

    `oldest` is the index of its first bucket once time is known.
    """

    name: str
    seconds: int
    buckets: int
    oldest: int = 0
    totals: dict[SegmentKey, WindowTotal] = field(default_factory=dict)
    _segments: dict[str, list[str]] | None = None

    def segments(self) -> dict[str, list[str]]:
        """Return the sorted segments of each service, "" among them; it must not be changed."""
        if self._segments is None:
            self._segments = {}
            for service, segment in sorted(self.totals):
                self._segments.setdefault(service, []).append(segment)
        return self._segments

    def add_owner(self, owner: SegmentKey) -> WindowTotal:
        """Return a new total of an owner that has none."""
        self._segments = None
        total = self.totals[owner] = WindowTotal()
        return total

    def remove_owners(self, owners: Iterable[SegmentKey]) -> None:
        """Remove totals."""
        self._segments = None
        for owner in owners:
            del self.totals[owner]


class BucketRing:
    """Buckets of `width` seconds by index (start = index * width), enough for the longest span.

    Without spans it has no totals and holds `capacity` buckets. `worst` tells whether buckets hold
    worst traces; what expires goes to `archive`, of whole services and without them.
    """

    def __init__(self, width: int, spans: list[WindowSpan], worst: bool, capacity: int = 0) -> None:
        self.width = width
        self.spans = spans
        self.worst = worst
        self.archive: BucketRing | None = None
        self.rows: dict[int, dict[SegmentKey, Bucket]] = {}
        self.newest: int | None = None
        self.capacity = max([capacity, *(span.buckets for span in spans)])
        self._dirty: set[tuple[int, SegmentKey]] = set()
        self._expired: list[tuple[int, SegmentKey]] = []
        self._open: set[int] = set()

    @property
    def oldest(self) -> int:
        """The index of the oldest bucket of the ring; only once time is known."""
        if self.newest is None:
            raise RuntimeError("newest is missing")
        return self.newest - self.capacity + 1

    def fold(
        self,
        index: int,
        owner: SegmentKey,
        delta: Bucket,
        adopt: bool = False,
        with_worst: bool = True,
    ) -> None:
        """Add `delta` to its bucket and to the totals of every span that reaches back to it.

        An expired bucket is ignored. `adopt`: nobody else uses `delta`, it may become the bucket.
        """
        if index < self.oldest:
            return
        self._add_to_totals(index, owner, delta)
        row = self.rows.setdefault(index, {})
        bucket = row.get(owner)
        if bucket is not None:
            bucket.add(delta, self.worst and with_worst)
        elif adopt:
            row[owner] = delta
            if not (self.worst and with_worst):
                delta.worst = {}
        else:
            row[owner] = bucket = Bucket()
            bucket.add(delta, self.worst and with_worst)
        self._dirty.add((index, owner))
        self._open.add(index)

    def retract(self, index: int, owner: SegmentKey, delta: Bucket) -> None:
        """Undo `fold`, unless the bucket has expired or began after those traces."""
        bucket = self.rows.get(index, {}).get(owner) if index >= self.oldest else None
        if bucket is None or not bucket.contains(delta):
            return
        bucket.subtract(delta)
        for span in self.spans:
            if index >= span.oldest:
                span.totals[owner].subtract(delta)
        self._dirty.add((index, owner))
        self._open.add(index)

    def restore(self, index: int, owner: SegmentKey, bucket: Bucket) -> None:
        """Put back a saved bucket."""
        bucket.saved = True
        bucket.seal()
        self.rows.setdefault(index, {})[owner] = bucket
        self._add_to_totals(index, owner, bucket)

    def _add_to_totals(self, index: int, owner: SegmentKey, delta: Bucket) -> None:
        for span in self.spans:
            if index >= span.oldest:
                total = span.totals.get(owner)
                if total is None:
                    total = span.add_owner(owner)
                total.add(delta)

    def advance(self, newest: int) -> set[tuple[str, str]]:
        """Move on to the bucket `newest`, expiring old ones.

        The work is proportional to what expires, not to the gap.

        Returns:
            (service, window) of the totals that changed.
        """
        if self.newest is not None and newest <= self.newest:
            return set()
        self.newest = newest
        if self.archive is not None:
            self.archive.advance(newest * self.width // self.archive.width)
        changed = {
            pair for span in self.spans for pair in self._expire(span, newest - span.buckets + 1)
        }
        for index in self._indexes_before(self.oldest):
            for owner, bucket in self.rows.pop(index).items():
                self._dirty.discard((index, owner))
                if bucket.saved:
                    self._expired.append((index, owner))
                if self.archive is not None and not owner[1]:
                    bucket.sketches = {k: v for k, v in bucket.sketches.items() if k == TOTAL_STAGE}
                    at = index * self.width // self.archive.width
                    self.archive.fold(at, owner, bucket, with_worst=False)
        for index in [i for i in self._open if i < newest]:
            self._open.discard(index)
            for bucket in self.rows.get(index, {}).values():
                bucket.seal()
        return changed

    def next_expiry(self) -> float:
        """Return the earliest time at which a bucket leaves a window, infinity without any."""
        indexes = sorted(self.rows)
        edges = [
            (indexes[at] + span.buckets) * self.width
            for span in self.spans
            if (at := bisect_left(indexes, span.oldest)) < len(indexes)
        ]
        return min(edges, default=math.inf)

    def _indexes_before(self, oldest: int) -> list[int]:
        return sorted(index for index in self.rows if index < oldest)

    def _expire(self, span: WindowSpan, oldest: int) -> Iterator[tuple[str, str]]:
        expired = [index for index in self._indexes_before(oldest) if index >= span.oldest]
        span.oldest = oldest
        if expired and all(index < oldest for index in self.rows):  # nothing is left to subtract
            yield from ((service, span.name) for service, _ in span.totals)
            span.remove_owners(list(span.totals))
            return
        for index in expired:
            for owner, bucket in self.rows[index].items():
                total = span.totals.get(owner)
                if total is None:  # already removed: what this bucket had was retracted
                    continue
                total.subtract(bucket)
                if total.empty:
                    span.remove_owners([owner])
                yield owner[0], span.name

    def buckets_since(self, since: float) -> Iterator[tuple[int, dict[SegmentKey, Bucket]]]:
        """Iterate over the filled buckets from a time on as (start, buckets by owner)."""
        for index in sorted(self.rows):
            if index * self.width >= since:
                yield index * self.width, self.rows[index]

    def drain(self, changed: bool) -> Iterator[tuple[int, SegmentKey, Bucket | None]]:
        """Iterate over what expired since the last drain (None) and, if asked, what changed."""
        for index, owner in sorted(self._expired):
            yield index, owner, None
        self._expired.clear()
        if not changed:
            return
        for index, owner in sorted(self._dirty):
            bucket = self.rows[index][owner]
            bucket.saved = True
            yield index, owner, bucket
        self._dirty.clear()
