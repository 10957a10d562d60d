"""Rings of event-time buckets with the weighted good and bad events of one objective.

A bucket is five whole numbers, so that sums are exact (see `ragmeter.core.arithmetic`) and a
restart continues bit for bit: the count n of events; by how much their weights and squared weights
are above 1 each (0 where nothing is sampled: such an int takes no memory); and of the bad ones the
sum of weights and of squared weights.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from ragmeter.core.arithmetic import WEIGHT_ONE

# Seconds a bucket: a tenth of the shortest window (5 m), and of the shortest of the long ones.
FINE, COARSE = 30, 300

# Seconds that the fine ring and the coarse ring reach back.
_FINE_LENGTH, LONGEST = 6 * 3600, 3 * 86400

CELL_FIELDS = 5
_SQUARE_ONE = WEIGHT_ONE * WEIGHT_ONE

# The five numbers of a bucket or of a sum of buckets.
BudgetCells = list[int]


def ring_width(seconds: float) -> int:
    """Return the bucket width of the ring that keeps a window of `seconds`.

    Raises:
        ValueError: No ring keeps such a window.
    """
    for width, length in ((FINE, _FINE_LENGTH), (COARSE, LONGEST)):
        if seconds <= length and seconds % width == 0 and seconds >= 2 * width:
            return width
    raise ValueError(
        "a window of whole 30 s between 1m and 6h, or of whole 5 minutes up to 3d, is needed"
    )


def budget_edge(now: float) -> float:
    """Return the time after which the windows at `now` next take in or lose a bucket."""
    return math.nextafter(math.ceil(now / FINE) * FINE, math.inf)


class BudgetSums(NamedTuple):
    """The content of a window, in natural units.

    Args:
        effective_samples: (sum w)^2 / sum w^2: events of equal weight that would know as much.
        effective_errors: The same of the bad events alone; their number if weights are equal.
    """

    samples: int
    weight: float
    bad: float
    effective_samples: float
    effective_errors: float

    @property
    def ratio(self) -> float:
        """The share of bad events by weight, 0 without events."""
        return self.bad / self.weight if self.weight else 0.0

    @classmethod
    def of(cls, cells: Sequence[int]) -> BudgetSums:
        """Return the sums of five cells."""
        n, above, above2, bad, bad2 = cells
        w, w2 = n * WEIGHT_ONE + above, n * _SQUARE_ONE + above2
        return cls(
            n,
            w / WEIGHT_ONE,
            bad / WEIGHT_ONE,
            w * w / w2 if w2 else 0.0,
            bad * bad / bad2 if bad2 else 0.0,
        )


class _BudgetRing:
    """Buckets of one width with a running total for each span (in buckets).

    Totals cover [end - span, end). Buckets from `end` on are held and not counted yet, so that
    windows may end before the newest event.
    """

    __slots__ = ("_cells", "_first", "_size", "end", "reach", "totals", "width")

    def __init__(self, width: int, length: int, spans: Sequence[int], ahead: int) -> None:
        self.width = width
        self.reach = length // width
        self._size = self.reach + -(-ahead // width) + 1
        self._cells = [0] * (self._size * CELL_FIELDS)
        self.totals: dict[int, BudgetCells] = {span: [0] * CELL_FIELDS for span in spans}
        self.end = 0
        self._first = 0  # no bucket before it holds anything

    @property
    def oldest(self) -> int | None:
        """The index of the oldest bucket that holds something."""
        self._first = max(self._first, self.end - self.reach)
        past = self.end - self.reach + self._size
        while self._first < past and not self.cells(self._first)[0]:
            self._first += 1
        return self._first if self._first < past else None

    def cells(self, index: int) -> BudgetCells:
        at = index % self._size * CELL_FIELDS
        return self._cells[at : at + CELL_FIELDS]

    def holds(self, index: int) -> bool:
        return self.end - self.reach <= index < self.end - self.reach + self._size

    def add(self, index: int, cells: Sequence[int]) -> None:
        at = index % self._size * CELL_FIELDS
        own = self._cells
        self._first = min(self._first, index)
        for offset, by in enumerate(cells):
            if by:
                own[at + offset] += by
        for span, total in self.totals.items():
            if self.end - span <= index < self.end:
                for offset, by in enumerate(cells):
                    total[offset] += by

    def advance(self, end: int) -> list[int]:
        """Move the end of the windows forward and return the indexes of the dropped buckets."""
        dropped: list[int] = []
        if end - self.end >= self._size:
            first = self.end - self.reach
            dropped = [i for i in range(first, first + self._size) if self.cells(i)[0]]
            self._cells = [0] * (self._size * CELL_FIELDS)
            for total in self.totals.values():
                total[:] = [0] * CELL_FIELDS
            self.end = end
            return dropped
        while self.end < end:
            entering = self.cells(self.end)
            for span, total in self.totals.items():
                leaving = self.cells(self.end - span)
                if entering[0] or leaving[0]:
                    total[:] = [
                        t + new - old for t, new, old in zip(total, entering, leaving, strict=True)
                    ]
            oldest = self.end - self.reach
            if self.cells(oldest)[0]:
                dropped.append(oldest)
                at = oldest % self._size * CELL_FIELDS
                self._cells[at : at + CELL_FIELDS] = [0] * CELL_FIELDS
            self.end += 1
        return dropped

    def rows(self) -> Iterator[tuple[int, BudgetCells]]:
        first = self.end - self.reach
        numbers = self._cells[::CELL_FIELDS]
        for index in range(first, first + self._size):
            if numbers[index % self._size]:
                yield index, self.cells(index)


class BudgetRings:
    """Both rings of one objective of one service.

    Args:
        spans: The windows to total, in seconds.
        lag: How many seconds before the time given to `advance` windows end.

    Attributes:
        dirty: The (width, index) of buckets that changed or went since the caller cleared it.
    """

    __slots__ = ("_lag", "_newest", "_open", "_open_at", "_rings", "dirty")

    def __init__(self, spans: Sequence[int], lag: int = 0) -> None:
        by_width: dict[int, list[int]] = {FINE: [], COARSE: []}
        for seconds in sorted(set(spans)):
            width = ring_width(seconds)
            by_width[width].append(seconds // width)
        self._rings = {
            width: _BudgetRing(width, length, by_width[width], lag)
            for width, length in ((FINE, _FINE_LENGTH), (COARSE, LONGEST))
        }
        self._lag = lag
        self._open_at: int | None = None  # a fine bucket whose events are not folded in yet
        self._open: BudgetCells = [0] * CELL_FIELDS
        self._newest = 0
        self.dirty: set[tuple[int, int]] = set()

    def advance(self, now: float) -> None:
        """Move to event time `now`, which never goes back."""
        # the bucket that `now` lies in counts as far as it is filled; one that begins at `now`
        # has nothing yet
        end = int(-(-(now - self._lag) // FINE))
        if end <= self._rings[FINE].end:
            return
        self.fold()
        for width, ring in self._rings.items():
            dropped = ring.advance(-(-end * FINE // width))
            self.dirty.update((width, index) for index in dropped)

    def add(self, timestamp: float, weight: int, bad: bool, count: int = 1) -> None:
        """Count `count` events of `weight` units each.

        Those that are older than a ring reaches are left out of that ring. `advance` must have
        passed their time.
        """
        at = int(timestamp // FINE)
        if at != self._open_at:
            self.fold()
            self._open_at = at
        cells = self._open
        cells[0] += count
        if weight != WEIGHT_ONE:
            cells[1] += (weight - WEIGHT_ONE) * count
            cells[2] += (weight * weight - _SQUARE_ONE) * count
        if bad:
            cells[3] += weight * count
            cells[4] += weight * weight * count

    def fold(self) -> None:
        """Bring the buckets up to date with what was added."""
        if self._open_at is None:
            return
        self._newest = self.newest
        for width, ring in self._rings.items():
            index = self._open_at * FINE // width
            if ring.holds(index):
                ring.add(index, self._open)
                self.dirty.add((width, index))
        self._open_at, self._open = None, [0] * CELL_FIELDS

    @property
    def ahead(self) -> bool:
        """Whether an event may lie beyond the end of the windows, which `lag` sets back."""
        self.fold()
        return self._newest + COARSE > self._rings[FINE].end * FINE and self._lag > 0

    @property
    def newest(self) -> int:
        """The time of the newest event, to the grain of the coarse ring."""
        # a restart knows no finer time
        return max(self._newest, (self._open_at or 0) * FINE // COARSE * COARSE)

    @property
    def oldest(self) -> int | None:
        """The time of the oldest event held, to the grain of the coarse ring."""
        self.fold()
        index = self._rings[COARSE].oldest
        return None if index is None else index * COARSE

    def sums(self, seconds: int) -> BudgetSums:
        """Return the content of a window of so many seconds, which must be one of `spans`."""
        self.fold()
        width = ring_width(seconds)
        return BudgetSums.of(self._rings[width].totals[seconds // width])

    def cells(self, width: int, index: int) -> BudgetCells | None:
        """Return the content of a bucket, or None if it is empty or gone."""
        self.fold()
        ring = self._rings[width]
        cells = ring.cells(index) if ring.holds(index) else None
        return cells if cells and cells[0] else None

    def restore(self, width: int, index: int, cells: Sequence[int]) -> None:
        """Put back a saved bucket, after `advance` to the time of the save."""
        ring = self._rings[width]
        if ring.holds(index):
            ring.add(index, cells)
            self._newest = max(self._newest, index * width // COARSE * COARSE)

    def rows(self) -> Iterator[tuple[int, int, BudgetCells]]:
        """Yield (width, index, content) of every bucket that holds something."""
        self.fold()
        for width, ring in self._rings.items():
            for index, cells in ring.rows():
                yield width, index, cells
