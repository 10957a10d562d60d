"""What one bucket, and one window, of a (service, segment) holds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from operator import lt
from typing import Any

from agent.metrics.names import spec_of
from agent.metrics.spec import MetricSpec
from agent.windows.failures import Failures, add_failures
from agent.windows.loghist import LogHist, Sketch
from agent.windows.sums import (
    WIDTH,
    Cell,
    StrataSums,
    add_strata,
    add_up,
    empty_sums,
    subtract_strata,
    take_away,
)
from agent.windows.worst import Packed, direction, merge, packed, unpacked

__all__ = ["Bucket", "SeriesKey", "Slots", "Total"]

SeriesKey = tuple[str, str]
"""(metric, scorer)"""

OF_RESULTS = 5
"""The first numbers of a series, which count results: the rest are sums of values."""


class Slots:
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
            found = self.columns[key] = (place, *direction(spec_of(self._specs, key[0])))
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


class _Sums:
    """`seen` counts traces; `counts` holds `WIDTH` numbers per slot, `strata` what is weighted,
    `failures` why results have no value (None: none has failed)."""

    __slots__ = ("counts", "failures", "seen", "strata")

    def __init__(self) -> None:
        self.seen = 0
        self.counts: list[int] = []
        self.strata: dict[int, StrataSums] = {}
        self.failures: Failures | None = None

    @property
    def empty(self) -> bool:
        """Whether nothing is left, of results that came without their trace either."""
        return not self.seen and not self.strata and not any(self.counts)

    def cell(self, place: int) -> Cell | None:
        """The series in slot `place`; None where nothing was seen of it."""
        counts = self.counts[place : place + WIDTH]
        strata = self.strata.get(place) if self.strata else None
        return Cell(counts, strata) if strata or any(counts[:5]) else None

    def cells(self, slots: Slots) -> Iterator[tuple[SeriesKey, Cell]]:
        for key, place in slots.items():
            cell = self.cell(place)
            if cell is not None:
                yield key, cell

    def _add(self, other: _Sums) -> None:
        self.seen += other.seen
        self.counts = add_up(self.counts, other.counts)
        for place, strata in other.strata.items():
            self.strata[place] = add_strata(self.strata.get(place), strata)
        self.failures = add_failures(self.failures, other.failures)

    def holds(self, other: _Sums) -> bool:
        """Whether `other` can be a part of it: no number of results may fall below 0."""
        numbers = [*self.counts, *[0] * max(0, len(other.counts) - len(self.counts))]
        for place in range(0, len(other.counts), WIDTH):
            end = place + OF_RESULTS
            if any(map(lt, numbers[place:end], other.counts[place:end])):
                return False
        return all(
            self.strata.get(place, {}).get(name, empty_sums())[2] >= sums[2]
            for place, strata in other.strata.items()
            for name, sums in strata.items()
        )

    def _subtract(self, other: _Sums) -> None:
        self.seen -= other.seen
        self.counts = take_away(self.counts, other.counts)
        for place, strata in other.strata.items():
            left = subtract_strata(self.strata[place], strata)
            if left:
                self.strata[place] = left
            else:
                del self.strata[place]
        self.failures = add_failures(self.failures, other.failures, -1)


class Bucket(_Sums):
    """A bucket of a ring, or a delta on its way there: sums, latency by stage, worst traces.

    `saved` says that the store has a row of it.
    """

    __slots__ = ("saved", "sketches", "worst")

    def __init__(self) -> None:
        super().__init__()
        self.sketches: dict[str, Sketch] = {}
        self.worst: dict[SeriesKey, Packed] = {}
        self.saved = False

    def add(self, other: Bucket, with_worst: bool) -> None:
        """Merge; nothing that is ever changed in place is shared afterwards (lists of numbers
        and of worst traces are replaced, not changed)."""
        self._add(other)
        for stage, sketch in other.sketches.items():
            own = self.sketches.get(stage)
            if own is None:
                own = self.sketches[stage] = Sketch()
            own.merge(sketch)
        if with_worst:
            for key, entries in other.worst.items():
                old = self.worst.get(key)
                self.worst[key] = entries if old is None else merge(old, entries)

    def subtract(self, other: Bucket) -> None:
        """Undo `add` of one that has no latency. Its worst traces are gone, too; those that they
        had pushed out do not come back."""
        self._subtract(other)
        for key, entries in other.worst.items():
            gone = unpacked(entries)
            left = [entry for entry in unpacked(self.worst.get(key, [])) if entry not in gone]
            if left:
                self.worst[key] = left
            else:
                self.worst.pop(key, None)

    def seal(self) -> None:
        """Make it small; a late trace opens it again."""
        for sketch in self.sketches.values():
            sketch.seal()
        for key, entries in self.worst.items():
            self.worst[key] = packed(entries)


class Total(_Sums):
    """The running total of a window.

    `version` changes whenever the content does; `cache` is the reader's, emptied then.
    """

    __slots__ = ("cache", "sketches", "version")

    def __init__(self) -> None:
        super().__init__()
        self.sketches: dict[str, LogHist] = {}
        self.version = 0
        self.cache: dict[object, Any] = {}

    def add(self, bucket: Bucket) -> None:
        self._changed()
        self._add(bucket)
        for stage, sketch in bucket.sketches.items():
            own = self.sketches.get(stage)
            if own is None:
                own = self.sketches[stage] = LogHist()
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
