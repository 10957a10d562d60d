"""Windows of redelivered records and sets of seen trace ids, saved as rows.

The score processors score every trace at least once, and may send its record twice: after a crash,
after a rebalance, by a zombie. Each record names its source offset. Of each source the guard keeps
the highest counted offset and a bit for each of the `width` offsets up to it, as IPsec's
anti-replay window does; what is older was counted or will never come.

That rule is sound because of a promise of those processors
(`ragmeter.kafka.processors.acknowledged`): the record of offset m is never sent before the records
of all offsets up to m - K are in the scores topic. It holds for every sender on its own, zombies
too, because each begins at the committed offset. All records of one source offset go to the same
partition of the scores and this guard reads that in its order, so when it reads m it has read all
up to m - K that will ever count. `width` is 2K, so that `kafka.in_flight` may be doubled while old
and new workers run side by side. Offsets that never come (compaction, dead letters, another
partition's) stay 0.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Iterable, Mapping
from typing import Any

from ragmeter.core.dedupe import MAX_GENERATION_IDS, DedupeIds, hash_trace_id
from ragmeter.kafka.score_records import SourceOffset
from ragmeter.kafka.state.rows import Rows, row_key

# Epochs of a partition that are told apart. The operator raises the epoch when the topic of the
# traces was made anew, for its offsets start over; during the change the log holds records of both.
_EPOCHS = 2
# Ids a row: 8 kB, so that the four million of a generation are 4,096 rows to recover, and a step
# writes 4 kB on average for those that are new. A row a step would be a million rows a day.
_CHUNK = 1024
_DROP = 64  # rows of a past generation that a step deletes: they harm nobody meanwhile

_IdRowKey = tuple[int, int]  # (generation, number of the row in it)


class RedeliveryGuard:
    """Tells new records from repeated ones; `width` is the size of a window, at least K offsets."""

    def __init__(self, width: int) -> None:
        if width < 1:
            raise ValueError("the window needs at least one offset")
        self.width = width
        self._mask = (1 << width) - 1
        self._windows: dict[tuple[int, int], tuple[int, int]] = {}  # highest offset, bits below it

    def accept(self, source: SourceOffset) -> bool:
        """Return whether the record is to be counted, and mark it as counted."""
        key = (source.epoch, source.partition)
        window = self._windows.get(key)
        if window is None:
            epochs = self._epochs(source.partition)
            if len(epochs) >= _EPOCHS:
                if source.epoch < epochs[0]:
                    return False
                del self._windows[epochs[0], source.partition]
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
        """Return whether `accept` would refuse the record."""
        window = self._windows.get((source.epoch, source.partition))
        if window is None:
            epochs = self._epochs(source.partition)
            return len(epochs) >= _EPOCHS and source.epoch < epochs[0]
        behind = window[0] - source.offset
        return behind >= 0 and (behind >= self.width or bool(window[1] >> behind & 1))

    def _epochs(self, partition: int) -> list[int]:
        return sorted(epoch for epoch, other in self._windows if other == partition)

    def dump(self) -> dict[str, Any]:
        """Return JSON-able state: a source is [epoch, partition, highest offset, bits in hex]."""
        rows = [[*key, top, f"{bits:x}"] for key, (top, bits) in sorted(self._windows.items())]
        return {"width": self.width, "sources": rows}

    @classmethod
    def load(cls, width: int, saved: Mapping[str, Any]) -> RedeliveryGuard:
        """Restore what `dump` has saved; raises KeyError, ValueError or TypeError for other data.

        A narrower window is widened, and what lay beyond it stays counted. A wider one stays as it
        is, because records of senders with a larger K may still be on their way.
        """
        saved_width = int(saved["width"])
        guard = cls(max(width, saved_width))
        beyond = guard._mask & ~((1 << saved_width) - 1)
        for epoch, partition, top, bits in saved["sources"]:
            guard._windows[int(epoch), int(partition)] = (int(top), int(bits, 16) | beyond)
        return guard


class SpanRedeliveryGuard:
    """A guard for sources that may have several records in one partition.

    A source enters the window of offsets when all of its records are here. Until then the numbers
    of those that are here are kept: a sender that dies in between is replaced, and all of them are
    sent again.
    """

    def __init__(self, width: int) -> None:
        self._complete = RedeliveryGuard(width)
        self._partial: dict[SourceOffset, set[int]] = {}

    @property
    def width(self) -> int:
        """The size of a window in offsets."""
        return self._complete.width

    def accept(self, source: SourceOffset, number: int, count: int) -> bool:
        """Return whether record `number` of the `count` of a source is new, and mark it as seen."""
        seen = self._partial.get(source)
        if seen is None and count == 1:
            return self._complete.accept(source)
        if seen is None:
            if self._complete.is_counted(source):
                return False
            seen = self._partial[source] = set()
        if number in seen:
            return False
        seen.add(number)
        if len(seen) == count:
            del self._partial[source]
            self._complete.accept(source)
        return True

    def dump(self) -> dict[str, Any]:
        """Return JSON-able state, without sources that the window has passed: they stay partial."""
        for source in [one for one in self._partial if self._complete.is_counted(one)]:
            del self._partial[source]
        parts = [[*source, *sorted(seen)] for source, seen in sorted(self._partial.items())]
        return {**self._complete.dump(), "parts": parts}

    @classmethod
    def load(cls, width: int, saved: Mapping[str, Any]) -> SpanRedeliveryGuard:
        """Restore what `dump` has saved; raises as `RedeliveryGuard.load` does."""
        guard = cls(width)
        guard._complete = RedeliveryGuard.load(width, saved)
        for epoch, partition, offset, *seen in saved["parts"]:
            source = SourceOffset(int(epoch), int(partition), int(offset))
            guard._partial[source] = set(map(int, seen))
        return guard


class SeenIdRows(DedupeIds):
    """Seen trace ids, gathered in rows of `_CHUNK`; the open row is rewritten at each step."""

    def __init__(self, horizon: float, most: int = MAX_GENERATION_IDS) -> None:
        super().__init__(horizon, most)
        self._key = (0, 0)  # of the open row
        self._open = array("Q")
        self._written = 0  # ids of the open row that the last `drain` gave
        self._changed: dict[_IdRowKey, bytes | None] = {}
        self._keys: list[list[_IdRowKey]] = [
            [],
            [],
        ]  # rows of this generation and of the one before
        self._over: list[_IdRowKey] = []

    def add(self, service: str, trace_id: str, timestamp: float) -> bool:
        """Return whether an id is new, and remember it."""
        before = self._new
        new = super().add(service, trace_id, timestamp)
        if self._new is not before:
            self._open_row((self._key[0] + 1, 0))
            self._over += self._keys[1]
            self._keys = [[], self._keys[0]]
        if new:
            if not self._open:
                self._keys[0].append(self._key)
            self._open.append(hash_trace_id(service, trace_id))
            if len(self._open) >= _CHUNK:
                self._open_row((self._key[0], self._key[1] + 1))
        return new

    def _open_row(self, key: _IdRowKey) -> None:
        self._write_open()
        self._key, self._open, self._written = key, array("Q"), 0

    def _write_open(self) -> None:
        if len(self._open) > self._written:
            self._changed[self._key] = _little_endian(self._open).tobytes()
            self._written = len(self._open)

    def drain(self) -> Rows:
        """Return the rows that changed since the last call."""
        self._write_open()
        changed, self._changed = self._changed, {}
        changed.update(dict.fromkeys(self._over[:_DROP]))
        del self._over[:_DROP]
        return {row_key("s", *key): data for key, data in changed.items()}

    def dump(self) -> list[Any]:
        """Return JSON-able state, which belongs to the rows of the same step."""
        return [self._key[0], self._clock.start, self._clock.outside]

    def load(self, saved: list[Any], rows: Iterable[tuple[list[int], bytes]]) -> None:
        """Restore saved state and rows, in an empty object."""
        generation = int(saved[0])
        self._clock.start, self._clock.outside = saved[1], int(saved[2])
        self._key = (generation, 0)
        for (row_generation, number), data in sorted(rows):
            key, age = (row_generation, number), generation - row_generation
            if age > 1:
                self._over.append(key)
                continue
            self._keys[age].append(key)
            numbers = array("Q")
            numbers.frombytes(data)
            numbers = _little_endian(numbers)
            for hashed in numbers:
                (self._old if age else self._new).add(hashed)
            if not age:
                self._key, self._open, self._written = key, numbers, len(numbers)
        if len(self._open) >= _CHUNK:
            self._open_row((generation, self._key[1] + 1))


def _little_endian(numbers: array[int]) -> array[int]:
    if sys.byteorder == "big":
        numbers = numbers[:]
        numbers.byteswap()
    return numbers
