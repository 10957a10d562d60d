"""Which trace ids were seen: the rule of the state file's dedupe table, in memory."""

from __future__ import annotations

from array import array
from hashlib import blake2b

from agent.seen_clock import SeenClock

__all__ = ["SeenIds", "number_of"]

MOST = 2**22
"""Ids a generation. At 16 to 32 bytes each that is 64 MiB, twice: beyond four million traces in
48 hours the older ones are forgotten sooner."""

FIRST = 2**10  # slots of an empty set


class _Set:
    """Numbers of 64 bits by open addressing: a `set` of Python's takes six times the memory."""

    def __init__(self) -> None:
        self.size = 0
        self._slots = array("Q", bytes(8 * FIRST))

    def __contains__(self, number: int) -> bool:
        return bool(self._slots[self._find(number)])

    def add(self, number: int) -> None:
        """Put in a number that is not there."""
        if 2 * self.size >= len(self._slots):
            self._grow()
        self._slots[self._find(number)] = number
        self.size += 1

    def _find(self, number: int) -> int:
        """The slot of a number, or the free one where it belongs."""
        slots, mask = self._slots, len(self._slots) - 1
        at = number & mask
        while slots[at] not in (0, number):
            at = (at + 1) & mask
        return at

    def _grow(self) -> None:
        old, self._slots = self._slots, array("Q", bytes(16 * len(self._slots)))
        for number in old:
            if number:
                self._slots[self._find(number)] = number


class SeenIds:
    """`horizon` is in event-time seconds; `most` ids a generation."""

    def __init__(self, horizon: float, most: int = MOST) -> None:
        self._clock = SeenClock(horizon)
        self._most = most
        self._new, self._old = _Set(), _Set()

    def first(self, service: str, trace_id: str, timestamp: float) -> bool:
        """Whether the id is new to its service; it is known from now on."""
        if self._clock.turns(timestamp) or self._new.size >= self._most:
            self._old, self._new = self._new, _Set()
        number = number_of(service, trace_id)
        if number in self._old or number in self._new:
            return False
        self._new.add(number)
        return True


def number_of(service: str, trace_id: str) -> int:
    """64 bits, never 0: no two of a million ids collide but with probability 3e-8."""
    text = f"{len(service)}:{service}{trace_id}".encode("utf-8", "surrogatepass")
    return int.from_bytes(blake2b(text, digest_size=8).digest(), "big") or 1
