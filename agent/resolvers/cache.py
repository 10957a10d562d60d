"""Texts that were looked up, and ids that have none: the least recently used go first."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable
from typing import NamedTuple

__all__ = ["Cache", "Kept"]

ENTRY = 300  # bytes that an entry costs besides its text

Key = tuple[str, str]


class Kept(NamedTuple):
    text: str | None
    outcome: str


class Cache:
    """At most `size` bytes. Not safe from several threads."""

    def __init__(self, size: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._most = size
        self._clock = clock
        self._kept: OrderedDict[Key, tuple[Kept, int, float]] = OrderedDict()
        self.size = 0

    def get(self, key: Key) -> Kept | None:
        found = self._kept.get(key)
        if found is None:
            return None
        if found[2] <= self._clock():
            self._drop(key)
            return None
        self._kept.move_to_end(key)
        return found[0]

    def put(self, key: Key, kept: Kept, seconds: float) -> None:
        if key in self._kept:
            self._drop(key)
        # a character takes up to four bytes
        cost = ENTRY + 4 * (len(kept.text or "") + len(key[1]))
        if cost > self._most:
            return
        self._kept[key] = (kept, cost, self._clock() + seconds)
        self.size += cost
        while self.size > self._most:
            self._drop(next(iter(self._kept)))

    def _drop(self, key: Key) -> None:
        self.size -= self._kept.pop(key)[1]
