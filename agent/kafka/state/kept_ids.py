"""Trace ids that were seen, and the rows that keep them.

A row a step would be a million rows a day to recover; a row for all would be written whole at each
step. So ids are gathered in rows of `CHUNK`: the open one is written again at each step until it
is full.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Iterable
from typing import Any

from agent.seen_ids import MOST, SeenIds, number_of

__all__ = ["CHUNK", "KeptIds"]

CHUNK = 1024
"""Ids a row: 8 kB, so that the four million of a generation are 4,096 rows to recover, and a step
writes 4 kB on average for those that are new."""

DROP = 64
"""Rows of a generation that is over that are deleted in a step: they harm nobody meanwhile."""

Key = tuple[int, int]
"""(generation, number of the row in it)"""


class KeptIds(SeenIds):
    """`SeenIds` that says what to write and can be loaded."""

    def __init__(self, horizon: float, most: int = MOST) -> None:
        super().__init__(horizon, most)
        self._key = (0, 0)  # of the open row
        self._open = array("Q")
        self._changed: dict[Key, bytes | None] = {}
        self._keys: list[list[Key]] = [[], []]  # rows of this generation and of the one before
        self._over: list[Key] = []

    def first(self, service: str, trace_id: str, timestamp: float) -> bool:
        before = self._new
        new = super().first(service, trace_id, timestamp)
        if self._new is not before:
            self._next((self._key[0] + 1, 0))
            self._over += self._keys[1]
            self._keys = [[], self._keys[0]]
        if new:
            if not self._open:
                self._keys[0].append(self._key)
            self._open.append(number_of(service, trace_id))
            if len(self._open) >= CHUNK:
                self._next((self._key[0], self._key[1] + 1))
        return new

    def _next(self, key: Key) -> None:
        self._write_open()
        self._key, self._open, self._written = key, array("Q"), 0

    _written = 0  # ids of the open row that the last `drain` gave

    def _write_open(self) -> None:
        if len(self._open) > self._written:
            self._changed[self._key] = _swapped(self._open).tobytes()
            self._written = len(self._open)

    def drain(self) -> dict[Key, bytes | None]:
        """The rows that changed since the last call; None for one that goes."""
        self._write_open()
        changed, self._changed = self._changed, {}
        changed.update(dict.fromkeys(self._over[:DROP]))
        del self._over[:DROP]
        return changed

    def dump(self) -> list[Any]:
        """JSON-able; belongs to the rows of the same step."""
        return [self._key[0], self._clock.start, self._clock.outside]

    def load(self, saved: list[Any], rows: Iterable[tuple[Key, bytes]]) -> None:
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
        if len(self._open) >= CHUNK:
            self._next((generation, self._key[1] + 1))


def _swapped(numbers: array[int]) -> array[int]:
    """Little-endian on every machine."""
    if sys.byteorder == "big":
        numbers = numbers[:]
        numbers.byteswap()
    return numbers
