"""What one bucket, and one window, of a (service, segment) holds."""

from __future__ import annotations

from agent.windows.loghist import LogHist, Sketch
from agent.windows.sums import Cell
from agent.windows.worst import Entry, merge

__all__ = ["Bucket", "SeriesKey", "Total"]

SeriesKey = tuple[str, str]
"""(metric, scorer)"""


class Bucket:
    """Sums by (metric, scorer), latency by stage, worst traces by (metric, scorer).

    `seen` counts traces, whatever was scored of them. `saved` says that the store has a row of it.
    """

    __slots__ = ("cells", "saved", "seen", "sketches", "worst")

    def __init__(self) -> None:
        self.seen = 0
        self.cells: dict[SeriesKey, Cell] = {}
        self.sketches: dict[str, Sketch] = {}
        self.worst: dict[SeriesKey, list[Entry]] = {}
        self.saved = False

    def add(self, other: Bucket, with_worst: bool) -> None:
        """Merge; nothing of `other` is shared afterwards but immutable parts."""
        self.seen += other.seen
        cells = self.cells
        for key, cell in other.cells.items():
            mine = cells.get(key)
            if mine is None:
                cells[key] = cell.copy()
            else:
                mine.add(cell)
        for stage, sketch in other.sketches.items():
            own = self.sketches.get(stage)
            if own is None:
                own = self.sketches[stage] = Sketch()
            own.merge(sketch)
        if with_worst:
            for key, entries in other.worst.items():
                self.worst[key] = merge(self.worst.get(key, []), entries)

    def seal(self) -> None:
        """Make the histograms small; a late trace opens them again."""
        for sketch in self.sketches.values():
            sketch.seal()


class Total:
    """The running total of a window. `version` changes whenever the content does."""

    __slots__ = ("cells", "seen", "sketches", "version")

    def __init__(self) -> None:
        self.seen = 0
        self.cells: dict[SeriesKey, Cell] = {}
        self.sketches: dict[str, LogHist] = {}
        self.version = 0

    def add(self, bucket: Bucket) -> None:
        self.version += 1
        self.seen += bucket.seen
        cells = self.cells
        for key, cell in bucket.cells.items():
            mine = cells.get(key)
            if mine is None:
                cells[key] = cell.copy()
            else:
                mine.add(cell)
        for stage, sketch in bucket.sketches.items():
            own = self.sketches.get(stage)
            if own is None:
                own = self.sketches[stage] = LogHist()
            own.merge_sketch(sketch)

    def subtract(self, bucket: Bucket) -> None:
        """Exactly undo `add`; what has become empty is forgotten."""
        self.version += 1
        self.seen -= bucket.seen
        for key, cell in bucket.cells.items():
            mine = self.cells[key]
            mine.subtract(cell)
            if not mine.seen:
                del self.cells[key]
        for stage, sketch in bucket.sketches.items():
            own = self.sketches[stage]
            own.merge_sketch(sketch, -1)
            if not own.n:
                del self.sketches[stage]
