"""Deduplication of trace ids by two generations of event time.

When the older generation of known trace ids is given up: one rule for file and memory. Pure.

Ids are kept in two generations; the older one is dropped when the newer has lasted a horizon of
event time, so an id is known for one to two horizons. Time is read from traces, and a trace may
be dated wrongly: were one enough to move the clock, two of them would empty both generations.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass
from hashlib import blake2b

CONSECUTIVE_TRACES = 8
"""So many traces one after the other must say that time is elsewhere. Where a tenth of the traces
is dated wrongly, that comes about by mistake once in 10^8 traces."""


@dataclass(slots=True)
class DedupeClock:
    """`start` is when the newer generation began, in event-time seconds; `outside` the traces in a
    row that were a horizon after it (positive) or before it (negative)."""

    horizon: float
    start: float | None = None
    outside: int = 0

    def rotate(self, timestamp: float) -> bool:
        """Whether a new generation begins with the trace of this time."""
        if self.start is None:
            self.start = timestamp
        side = (timestamp >= self.start + self.horizon) - (timestamp < self.start - self.horizon)
        if not side:
            self.outside = 0
            return False
        self.outside = self.outside + side if self.outside * side >= 0 else side
        if abs(self.outside) < CONSECUTIVE_TRACES:
            return False
        self.start, self.outside = timestamp, 0
        return side > 0  # time that went back makes no id older


MAX_GENERATION_IDS = 2**22
"""Ids a generation. At 16 to 32 bytes each that is 64 MiB, twice: beyond four million traces in
48 hours the older ones are forgotten sooner."""

_INITIAL_SLOTS = 2**10  # slots of an empty set


class _IntegerSet:
    """Numbers of 64 bits by open addressing: a `set` of Python's takes six times the memory."""

    def __init__(self) -> None:
        self.size = 0
        self._slots = array("Q", bytes(8 * _INITIAL_SLOTS))

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


class DedupeIds:
    """`horizon` is in event-time seconds; `most` ids a generation."""

    def __init__(self, horizon: float, most: int = MAX_GENERATION_IDS) -> None:
        self._clock = DedupeClock(horizon)
        self._most = most
        self._new, self._old = _IntegerSet(), _IntegerSet()

    def add(self, service: str, trace_id: str, timestamp: float) -> bool:
        """Whether the id is new to its service; it is known from now on."""
        if self._clock.rotate(timestamp) or self._new.size >= self._most:
            self._old, self._new = self._new, _IntegerSet()
        number = hash_trace_id(service, trace_id)
        if number in self._old or number in self._new:
            return False
        self._new.add(number)
        return True


def hash_trace_id(service: str, trace_id: str) -> int:
    """64 bits, never 0: no two of a million ids collide but with probability 3e-8."""
    text = f"{len(service)}:{service}{trace_id}".encode("utf-8", "surrogatepass")
    return int.from_bytes(blake2b(text, digest_size=8).digest(), "big") or 1
