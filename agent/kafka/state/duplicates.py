"""Detect redelivered records and repeated trace ids, and save what was seen as rows.

Which records were counted already: a window of offsets for each source, as IPsec has it.

Stage 1 scores every trace at least once and may send its record twice: after a crash, after a
rebalance, by a zombie. Each record names the source offset it comes from. Of each source the
highest offset that was counted is kept, and a bit for each of the `width` offsets up to it; what
is older still was counted or will never come.

That last rule is sound because of a promise of stage 1 (`ragmeter.kafka.processors.acknowledged`): the record of
offset m is never sent before the records of all offsets up to m - K are in the log of the scores.
It holds for every sender on its own, zombies too, for each begins where the offsets before it were
committed, hence sent. All records of one source offset go to the same partition of the scores and
this guard reads that in its order, so when it reads m it has read all that will ever count up to
m - K. `width` is 2K, so that `kafka.in_flight` may be doubled while old and new workers run side
by side. Offsets that never come (compaction, dead letters, another partition's) just stay 0.

Which records of spans were taken in already: `ragmeter.kafka.state.duplicates` for sources that
may have several records in one partition.

A source is complete, and enters the window of offsets, when all of its records are here. The
numbers of those that are not (a stage 1 that died in between; it sends all of them again) are kept
meanwhile.

Trace ids that were seen, and the rows that keep them.

A row a step would be a million rows a day to recover; a row for all would be written whole at each
step. So ids are gathered in rows of `CHUNK`: the open one is written again at each step until it
is full.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Iterable, Mapping
from typing import Any

from ragmeter.core.dedupe import MAX_GENERATION_IDS, DedupeIds, hash_trace_id
from ragmeter.kafka.score_records import SourceOffset

_EPOCHS = 2
"""Kept of each partition. The operator raises the epoch when the topic of the traces was made
anew, for its offsets start over; while the change goes round, records of both are in the log."""


class RedeliveryGuard:
    """`width` is how many offsets up to the highest one are told apart: at least K."""

    def __init__(self, width: int) -> None:
        if width < 1:
            raise ValueError("the window needs at least one offset")
        self.width = width
        self._mask = (1 << width) - 1
        self._windows: dict[tuple[int, int], tuple[int, int]] = {}  # highest offset, bits below it

    def accept(self, source: SourceOffset) -> bool:
        """Whether the record is to be counted; it counts as counted from now on."""
        key = (source.epoch, source.partition)
        window = self._windows.get(key)
        if window is None:
            if not self._admit(source.epoch, source.partition):
                return False
            window = (-1, 0)
        top, bits = window
        ahead = source.offset - top
        if ahead > 0:
            # a shift by a gap of millions would build a number of as many bits
            bits = (bits << ahead | 1) & self._mask if ahead < self.width else 1
            self._windows[key] = (source.offset, bits)
            return True
        if -ahead >= self.width or bits >> -ahead & 1:
            return False
        self._windows[key] = (top, bits | 1 << -ahead)
        return True

    def is_counted(self, source: SourceOffset) -> bool:
        """Whether `first` would say no."""
        window = self._windows.get((source.epoch, source.partition))
        if window is None:
            epochs = sorted(known for known, other in self._windows if other == source.partition)
            return len(epochs) >= _EPOCHS and source.epoch < epochs[0]
        behind = window[0] - source.offset
        return behind >= 0 and (behind >= self.width or bool(window[1] >> behind & 1))

    def _admit(self, epoch: int, partition: int) -> bool:
        """Make room for another epoch of a partition; False for one older than those kept."""
        epochs = sorted(known for known, other in self._windows if other == partition)
        if len(epochs) >= _EPOCHS:
            if epoch < epochs[0]:
                return False
            del self._windows[epochs[0], partition]
        return True

    def __len__(self) -> int:
        return len(self._windows)

    def dump(self) -> dict[str, Any]:
        """JSON-able; of each source [epoch, partition, highest offset, bits in hexadecimal]."""
        rows = [[*key, top, f"{bits:x}"] for key, (top, bits) in sorted(self._windows.items())]
        return {"width": self.width, "sources": rows}

    @classmethod
    def load(cls, width: int, saved: Mapping[str, Any]) -> RedeliveryGuard:
        """Back from `dump`. A narrower window is widened, what lay beyond it stays counted; a wider
        one stays as it is, for what senders with a larger K have sent may still be on its way.
        Raises KeyError, ValueError or TypeError for what `dump` has not written."""
        was = int(saved["width"])
        guard = cls(max(width, was))
        beyond = guard._mask & ~((1 << was) - 1)
        for epoch, partition, top, bits in saved["sources"]:
            guard._windows[int(epoch), int(partition)] = (int(top), int(bits, 16) | beyond)
        return guard

    def highest_offsets(self) -> Mapping[tuple[int, int], int]:
        """The highest offset counted, by (epoch, partition)."""
        return {key: top for key, (top, _) in self._windows.items()}


class SpanRedeliveryGuard:
    """`width` as for `ReplayGuard`."""

    def __init__(self, width: int) -> None:
        self._whole = RedeliveryGuard(width)
        self._parts: dict[SourceOffset, set[int]] = {}

    @property
    def width(self) -> int:
        return self._whole.width

    def accept(self, source: SourceOffset, number: int, count: int) -> bool:
        """Whether record `number` of the `count` of this source is new; it is known from now on."""
        known = self._parts.get(source)
        if known is None and count == 1:
            return self._whole.accept(source)
        if known is None:
            if self._whole.is_counted(source):
                return False
            known = self._parts[source] = set()
        if number in known:
            return False
        known.add(number)
        if len(known) == count:
            del self._parts[source]
            self._whole.accept(source)
        return True

    def _forget(self) -> None:
        """What the window has left behind will never be complete."""
        for source in [one for one in self._parts if self._whole.is_counted(one)]:
            del self._parts[source]

    def dump(self) -> dict[str, Any]:
        """JSON-able."""
        self._forget()
        parts = [[*source, *sorted(known)] for source, known in sorted(self._parts.items())]
        return {**self._whole.dump(), "parts": parts}

    @classmethod
    def load(cls, width: int, saved: Mapping[str, Any]) -> SpanRedeliveryGuard:
        """Back from `dump`. Raises as `ReplayGuard.load` does."""
        guard = cls(width)
        guard._whole = RedeliveryGuard.load(width, saved)
        for epoch, partition, offset, *known in saved["parts"]:
            guard._parts[SourceOffset(int(epoch), int(partition), int(offset))] = set(
                map(int, known)
            )
        return guard


_CHUNK = 1024
"""Ids a row: 8 kB, so that the four million of a generation are 4,096 rows to recover, and a step
writes 4 kB on average for those that are new."""

_DROP = 64
"""Rows of a generation that is over that are deleted in a step: they harm nobody meanwhile."""

IdRowKey = tuple[int, int]
"""(generation, number of the row in it)"""


class SeenIdRows(DedupeIds):
    """`SeenIds` that says what to write and can be loaded."""

    def __init__(self, horizon: float, most: int = MAX_GENERATION_IDS) -> None:
        super().__init__(horizon, most)
        self._key = (0, 0)  # of the open row
        self._open = array("Q")
        self._changed: dict[IdRowKey, bytes | None] = {}
        self._keys: list[list[IdRowKey]] = [[], []]  # rows of this generation and of the one before
        self._over: list[IdRowKey] = []

    def add(self, service: str, trace_id: str, timestamp: float) -> bool:
        before = self._new
        new = super().add(service, trace_id, timestamp)
        if self._new is not before:
            self._next((self._key[0] + 1, 0))
            self._over += self._keys[1]
            self._keys = [[], self._keys[0]]
        if new:
            if not self._open:
                self._keys[0].append(self._key)
            self._open.append(hash_trace_id(service, trace_id))
            if len(self._open) >= _CHUNK:
                self._next((self._key[0], self._key[1] + 1))
        return new

    def _next(self, key: IdRowKey) -> None:
        self._write_open()
        self._key, self._open, self._written = key, array("Q"), 0

    _written = 0  # ids of the open row that the last `drain` gave

    def _write_open(self) -> None:
        if len(self._open) > self._written:
            self._changed[self._key] = _swapped(self._open).tobytes()
            self._written = len(self._open)

    def drain(self) -> dict[IdRowKey, bytes | None]:
        """The rows that changed since the last call; None for one that goes."""
        self._write_open()
        changed, self._changed = self._changed, {}
        changed.update(dict.fromkeys(self._over[:_DROP]))
        del self._over[:_DROP]
        return changed

    def dump(self) -> list[Any]:
        """JSON-able; belongs to the rows of the same step."""
        return [self._key[0], self._clock.start, self._clock.outside]

    def load(self, saved: list[Any], rows: Iterable[tuple[IdRowKey, bytes]]) -> None:
        """Into an empty object."""
        generation = int(saved[0])
        self._clock.start, self._clock.outside = saved[1], int(saved[2])
        self._key = (generation, 0)
        for key, data in sorted(rows):
            age = generation - key[0]
            if age > 1:
                self._over.append(key)
                continue
            self._keys[age].append(key)
            numbers = array("Q")
            numbers.frombytes(data)
            numbers = _swapped(numbers)
            for number in numbers:
                (self._old if age else self._new).add(number)
            if not age:
                self._key, self._open, self._written = key, numbers, len(numbers)
        if len(self._open) >= _CHUNK:
            self._next((generation, self._key[1] + 1))


def _swapped(numbers: array[int]) -> array[int]:
    """Little-endian on every machine."""
    if sys.byteorder == "big":
        numbers = numbers[:]
        numbers.byteswap()
    return numbers
