"""Buckets of event time, the running totals of windows, and the rings that hold both.

Rings of event-time buckets with running totals.

A ring has one bucket width. A span is a window on it: the last `buckets` of the ring, the open one
included. Its totals are kept by adding on arrival and subtracting on expiry, which is exact
(see `exact`), so reading a window never walks its buckets.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from operator import lt
from typing import Any

from ragmeter.core.metric_specs import MetricSpec, find_spec
from ragmeter.windows.failures import FailureCounts, add_failures
from ragmeter.windows.log_histogram import LogHistogram, SparseLogHistogram
from ragmeter.windows.sums import (
    WIDTH,
    ScoreSums,
    StrataSums,
    add_strata,
    add_sums,
    empty_sums,
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

SeriesKey = tuple[str, str]
"""(metric, scorer)"""

_OF_RESULTS = 5
"""The first numbers of a series, which count results: the rest are sums of values."""


class SeriesSlots:
    """The place of each (metric, scorer) in the flat lists of all buckets.

    One list of numbers per bucket, instead of an object per series, is half the memory, and
    merging two is one pass in C. Places are given in order of arrival and never taken back.
    """

    def __init__(self, specs: Mapping[str, MetricSpec]) -> None:
        self._specs = specs
        self.columns: dict[SeriesKey, tuple[int, int, float]] = {}
        """What `column` has given out, for a quick look."""
        self._sorted: list[tuple[SeriesKey, int]] = []

    def column(self, key: SeriesKey) -> tuple[int, int, float]:
        """(place, sign, bar): where the numbers of `key` begin, a multiple of `WIDTH`, and what
        `worst.direction` says of its metric."""
        found = self.columns.get(key)
        if found is None:
            place = len(self.columns) * WIDTH
            found = self.columns[key] = (place, *worst_direction(find_spec(self._specs, key[0])))
            self._sorted = sorted((key, column[0]) for key, column in self.columns.items())
        return found

    def find(self, key: SeriesKey) -> int | None:
        """The place of `key` if it has one."""
        found = self.columns.get(key)
        return found[0] if found else None

    @property
    def size(self) -> int:
        """The length of a list that has all places."""
        return len(self.columns) * WIDTH

    def items(self) -> list[tuple[SeriesKey, int]]:
        """(key, place) by key: whatever goes out must not show the order of arrival."""
        return self._sorted


class _BucketSums:
    """`seen` counts traces; `counts` holds `WIDTH` numbers per slot, `strata` what is weighted,
    `failures` why results have no value (None: none has failed)."""

    __slots__ = ("counts", "failures", "seen", "strata")

    def __init__(self) -> None:
        self.seen = 0
        self.counts: list[int] = []
        self.strata: dict[int, StrataSums] = {}
        self.failures: FailureCounts | None = None

    @property
    def empty(self) -> bool:
        """Whether nothing is left, of results that came without their trace either."""
        return not self.seen and not self.strata and not any(self.counts)

    def cell(self, place: int) -> ScoreSums | None:
        """The series in slot `place`; None where nothing was seen of it."""
        counts = self.counts[place : place + WIDTH]
        strata = self.strata.get(place) if self.strata else None
        return ScoreSums(counts, strata) if strata or any(counts[:5]) else None

    def cells(self, slots: SeriesSlots) -> Iterator[tuple[SeriesKey, ScoreSums]]:
        for key, place in slots.items():
            cell = self.cell(place)
            if cell is not None:
                yield key, cell

    def _add(self, other: _BucketSums) -> None:
        self.seen += other.seen
        self.counts = add_sums(self.counts, other.counts)
        for place, strata in other.strata.items():
            self.strata[place] = add_strata(self.strata.get(place), strata)
        self.failures = add_failures(self.failures, other.failures)

    def holds(self, other: _BucketSums) -> bool:
        """Whether `other` can be a part of it: no number of results may fall below 0."""
        numbers = [*self.counts, *[0] * max(0, len(other.counts) - len(self.counts))]
        for place in range(0, len(other.counts), WIDTH):
            end = place + _OF_RESULTS
            if any(map(lt, numbers[place:end], other.counts[place:end])):
                return False
        return all(
            self.strata.get(place, {}).get(name, empty_sums())[2] >= sums[2]
            for place, strata in other.strata.items()
            for name, sums in strata.items()
        )

    def _subtract(self, other: _BucketSums) -> None:
        self.seen -= other.seen
        self.counts = subtract_sums(self.counts, other.counts)
        for place, strata in other.strata.items():
            left = subtract_strata(self.strata[place], strata)
            if left:
                self.strata[place] = left
            else:
                del self.strata[place]
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

    def add(self, other: Bucket, with_worst: bool) -> None:
        """Merge; nothing that is ever changed in place is shared afterwards (lists of numbers
        and of worst traces are replaced, not changed)."""
        self._add(other)
        for stage, sketch in other.sketches.items():
            own = self.sketches.get(stage)
            if own is None:
                own = self.sketches[stage] = SparseLogHistogram()
            own.merge(sketch)
        if with_worst:
            for key, entries in other.worst.items():
                old = self.worst.get(key)
                self.worst[key] = entries if old is None else merge_entries(old, entries)

    def subtract(self, other: Bucket) -> None:
        """Undo `add` of one that has no latency. Its worst traces are gone, too; those that they
        had pushed out do not come back."""
        self._subtract(other)
        for key, entries in other.worst.items():
            gone = unpack_entries(entries)
            left = [entry for entry in unpack_entries(self.worst.get(key, [])) if entry not in gone]
            if left:
                self.worst[key] = left
            else:
                self.worst.pop(key, None)

    def seal(self) -> None:
        """Make it small; a late trace opens it again."""
        for sketch in self.sketches.values():
            sketch.seal()
        for key, entries in self.worst.items():
            self.worst[key] = pack_entries(entries)


class WindowTotal(_BucketSums):
    """The running total of a window.

    `version` changes whenever the content does; `cache` is the reader's, emptied then.
    """

    __slots__ = ("cache", "sketches", "version")

    def __init__(self) -> None:
        super().__init__()
        self.sketches: dict[str, LogHistogram] = {}
        self.version = 0
        self.cache: dict[object, Any] = {}

    def add(self, bucket: Bucket) -> None:
        self._changed()
        self._add(bucket)
        for stage, sketch in bucket.sketches.items():
            own = self.sketches.get(stage)
            if own is None:
                own = self.sketches[stage] = LogHistogram()
            own.merge_sketch(sketch)

    def subtract(self, bucket: Bucket) -> None:
        """Exactly undo `add`; what has become empty is forgotten."""
        self._changed()
        self._subtract(bucket)
        for stage, sketch in bucket.sketches.items():
            own = self.sketches[stage]
            own.merge_sketch(sketch, -1)
            if not own.n:
                del self.sketches[stage]

    def _changed(self) -> None:
        self.version += 1
        self.cache = {}


SegmentKey = tuple[str, str]
"""(service, segment); the segment "" is the whole service."""


@dataclass(slots=True)
class WindowSpan:
    """A window: `oldest` is the index of its first bucket once time is known."""

    name: str
    seconds: int
    buckets: int
    oldest: int = 0
    totals: dict[SegmentKey, WindowTotal] = field(default_factory=dict)


class BucketRing:
    """Buckets of `width` seconds by index (start = index * width), as many as its longest span.

    `worst`: whether its buckets keep worst traces.
    """

    def __init__(self, width: int, spans: list[WindowSpan], worst: bool) -> None:
        self.width = width
        self.spans = spans
        self.worst = worst
        self.keep = max(span.buckets for span in spans)
        self.rows: dict[int, dict[SegmentKey, Bucket]] = {}
        self.dirty: set[tuple[int, SegmentKey]] = set()
        self.gone: list[tuple[int, SegmentKey]] = []
        self.newest: int | None = None
        self._open: set[int] = set()

    @property
    def oldest(self) -> int:
        """The index of the oldest bucket kept; only once time is known."""
        assert self.newest is not None
        return self.newest - self.keep + 1

    def fold(self, index: int, owner: SegmentKey, delta: Bucket, give: bool = False) -> None:
        """Add `delta` to its bucket and to the totals of every span that reaches back to it.
        `give`: nobody else uses `delta`, it may become the bucket."""
        if index < self.oldest:
            return
        self._total(index, owner, delta)
        row = self.rows.setdefault(index, {})
        bucket = row.get(owner)
        if bucket is not None:
            bucket.add(delta, self.worst)
        elif give:
            row[owner] = delta
            if not self.worst:
                delta.worst = {}
        else:
            row[owner] = bucket = Bucket()
            bucket.add(delta, self.worst)
        self.dirty.add((index, owner))
        self._open.add(index)

    def retract(self, index: int, owner: SegmentKey, delta: Bucket) -> None:
        """Undo `fold`, where it is still there: a bucket may have expired since, and one of a
        window that is new in the configuration never had it."""
        bucket = self.rows.get(index, {}).get(owner) if index >= self.oldest else None
        if bucket is None or not bucket.holds(delta):
            return
        bucket.subtract(delta)
        for span in self.spans:
            if index >= span.oldest:
                span.totals[owner].subtract(delta)
        self.dirty.add((index, owner))
        self._open.add(index)

    def restore(self, index: int, owner: SegmentKey, bucket: Bucket) -> None:
        """Put back a saved bucket."""
        bucket.saved = True
        bucket.seal()
        self.rows.setdefault(index, {})[owner] = bucket
        self._total(index, owner, bucket)

    def _total(self, index: int, owner: SegmentKey, delta: Bucket) -> None:
        for span in self.spans:
            if index >= span.oldest:
                total = span.totals.get(owner)
                if total is None:
                    total = span.totals[owner] = WindowTotal()
                total.add(delta)

    def advance(self, newest: int) -> bool:
        """Move on to the bucket `newest`; whether any total changed. Work is proportional to what
        expires, not to the gap."""
        if self.newest is not None and newest <= self.newest:
            return False
        self.newest = newest
        changed = [self._expire(span, newest - span.buckets + 1) for span in self.spans]
        for index in [i for i in self._expired(self.oldest) if i in self.rows]:
            for owner, bucket in self.rows.pop(index).items():
                self.dirty.discard((index, owner))
                if bucket.saved:
                    self.gone.append((index, owner))
        for index in [i for i in self._open if i < newest]:
            self._open.discard(index)
            for bucket in self.rows.get(index, {}).values():
                bucket.seal()
        return any(changed)

    def _expired(self, oldest: int) -> list[int]:
        return sorted(index for index in self.rows if index < oldest)

    def _expire(self, span: WindowSpan, oldest: int) -> bool:
        changed = False
        for index in self._expired(oldest):
            if index < span.oldest:
                continue
            changed = True
            for owner, bucket in self.rows[index].items():
                total = span.totals.get(owner)
                if total is None:  # nothing is left of it: what this bucket had was retracted
                    continue
                total.subtract(bucket)
                if total.empty:
                    del span.totals[owner]
        span.oldest = oldest
        return changed

    def buckets(self, span: WindowSpan) -> Iterator[tuple[int, dict[SegmentKey, Bucket]]]:
        """The filled buckets of a span, oldest first."""
        for index in sorted(self.rows):
            if index >= span.oldest:
                yield index, self.rows[index]

    def drain(self) -> Iterator[tuple[int, SegmentKey, Bucket | None]]:
        """What changed since the last drain, in a fixed order; None where it expired."""
        for index, owner in sorted(self.gone):
            yield index, owner, None
        for index, owner in sorted(self.dirty):
            bucket = self.rows[index][owner]
            bucket.saved = True
            yield index, owner, bucket
        self.gone.clear()
        self.dirty.clear()
