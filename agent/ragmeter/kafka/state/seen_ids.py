"""The trace ids that a partition has seen, as rows of its state."""

from __future__ import annotations

import sys
from array import array
from collections.abc import Iterable
from typing import Any

from ragmeter.core.dedupe import MAX_GENERATION_IDS, DedupeIds
from ragmeter.kafka.state.rows import Rows, row_key

# Ids a row: 8 kB, so that the four million of a generation are 4,096 rows to recover, and a step
# writes 4 kB on average for those that are new. A row a step would be a million rows a day.
_CHUNK = 1024
_DROP = 64  # rows of a past generation that a step deletes: they harm nobody meanwhile

_IdRowKey = tuple[int, int]  # (generation, number of the row in it)


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

    def add_hash(self, number: int, timestamp: float) -> bool:
        """Do as `DedupeIds.add_hash`."""
        before = self._new
        new = super().add_hash(number, timestamp)
        if self._new is not before:
            self._open_row((self._key[0] + 1, 0))
            self._over += self._keys[1]
            self._keys = [[], self._keys[0]]
        if new:
            if not self._open:
                self._keys[0].append(self._key)
            self._open.append(number)
            if len(self._open) >= _CHUNK:
                self._open_row((self._key[0], self._key[1] + 1))
        return new

    def _open_row(self, key: _IdRowKey) -> None:
        self._write_open()
        self._key = key
        self._open = array("Q")
        self._written = 0

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
        clock = self._clock
        return [self._key[0], clock.start, clock.outside, self._since, self._newest]

    def load(self, saved: list[Any], rows: Iterable[tuple[list[int], bytes]]) -> None:
        """Restore saved state and rows, in an empty object."""
        generation = int(saved[0])
        self._clock.start = saved[1]
        self._clock.outside = int(saved[2])
        self._since = saved[3]
        self._newest = saved[4]
        self._key = (generation, 0)
        for (row_generation, number), data in sorted(rows):
            key = (row_generation, number)
            age = generation - row_generation
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
                self._key = key
                self._open = numbers
                self._written = len(numbers)
        if len(self._open) >= _CHUNK:
            self._open_row((generation, self._key[1] + 1))


def _little_endian(numbers: array[int]) -> array[int]:
    if sys.byteorder == "big":
        numbers = numbers[:]
        numbers.byteswap()
    return numbers
