"""Deduplication of trace ids by two generations of event time.

The older generation is dropped when the newer has lasted a horizon of event time, so an id is
remembered for one to two horizons. `DedupeClock` holds this rule for the state file and for
`DedupeIds`, the ids in memory.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import blake2b

from ragmeter.core.counters import GaugeSample

# Consecutive traces that must lie outside the generation to end it. A trace may carry a wrong date:
# if one could move the clock, two would empty both generations. With a tenth of the traces dated
# wrongly, 8 in a row come by chance once in 10^8 traces.
CONSECUTIVE_TRACES = 8

# Ids a generation. At 16 to 32 bytes each that is 64 MiB, twice: beyond four million traces within
# a horizon older ones are forgotten sooner, and `DedupeIds.window` says how much sooner.
MAX_GENERATION_IDS = 2**22

_INITIAL_SLOTS = 2**10  # slots of an empty set


@dataclass(slots=True)
class DedupeClock:
    """The start of the newer generation.

    Args:
        horizon: Length of a generation in event-time seconds.
        start: Event time at which the newer generation began.
        outside: Consecutive traces a horizon after `start` (positive) or before it (negative).
    """

    horizon: float
    start: float | None = None
    outside: int = 0

    def copy(self) -> DedupeClock:
        """Return another one that stands as this does."""
        return DedupeClock(self.horizon, self.start, self.outside)

    def rotate(self, timestamp: float) -> bool:
        """Observe a trace's event time; return whether a new generation begins with it."""
        if self.start is None:
            self.start = timestamp
        side = (timestamp >= self.start + self.horizon) - (timestamp < self.start - self.horizon)
        if not side:
            self.outside = 0
            return False
        self.outside = self.outside + side if self.outside * side >= 0 else side
        if abs(self.outside) < CONSECUTIVE_TRACES:
            return False
        self.start = timestamp
        self.outside = 0
        return side > 0  # time that went back makes no id older


class _IntegerSet:
    """64-bit numbers by open addressing; a Python `set` takes six times the memory."""

    def __init__(self) -> None:
        self.size = 0
        self._slots = array("Q", bytes(8 * _INITIAL_SLOTS))

    def __contains__(self, number: int) -> bool:
        return bool(self._slots[self._find(number)])

    def add(self, number: int) -> None:
        """Add a number that is not in the set."""
        if 2 * self.size >= len(self._slots):
            self._grow()
        self._slots[self._find(number)] = number
        self.size += 1

    def _find(self, number: int) -> int:
        """Return the slot of a number, or the free slot for it."""
        slots = self._slots
        mask = len(self._slots) - 1
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
    """The trace ids of the last one to two horizons, in memory.

    Args:
        most: Most ids a generation.
    """

    def __init__(self, horizon: float, most: int = MAX_GENERATION_IDS) -> None:
        self._clock = DedupeClock(horizon)
        self._most = most
        self._new, self._old = _IntegerSet(), _IntegerSet()
        self._newest = 0.0  # event time, of traces within a horizon
        self._since: float | None = None  # ids of later traces are known; None: nothing forgotten

    def add(self, service: str, trace_id: str, timestamp: float) -> bool:
        """Remember an id; return whether it is new to its service."""
        return self.add_hash(hash_trace_id(service, trace_id), timestamp)

    def add_hash(self, number: int, timestamp: float) -> bool:
        """Do as `add`, given the hash of service and id."""
        clock = self._clock
        begun = self._clock.start
        rotates = clock.rotate(timestamp)
        if rotates or self._new.size >= self._most:
            if self._old.size:
                self._since = begun
            if not rotates:
                clock.start = self._newest
                clock.outside = 0
            self._old, self._new = self._new, _IntegerSet()
        start = clock.start or 0.0
        if timestamp < start + clock.horizon:  # a trace from the future moves nothing
            self._newest = max(self._newest, start, timestamp)
        if number in self._old or number in self._new:
            return False
        self._new.add(number)
        return True

    def window(self, now: float | None) -> float:
        """Return for how many seconds of event time an id is known for sure, at most the horizon.

        It is less where there were more than `most` ids within a horizon.
        """
        horizon = self._clock.horizon
        if self._since is None or now is None:
            return horizon
        return max(0.0, min(horizon, now - self._since))


def dedupe_gauges(windows: Mapping[str, float], horizon: float) -> list[GaugeSample]:
    """Return the gauges of the dedupe window of each service, and of the one that is promised."""
    return [
        *(
            ("ragmeter_dedupe_window_seconds", (("service", service),), seconds)
            for service, seconds in windows.items()
        ),
        ("ragmeter_dedupe_horizon_seconds", (), horizon),
    ]


def hash_trace_id(service: str, trace_id: str) -> int:
    """Hash to 64 bits, never 0: any two of a million ids collide with probability 3e-8."""
    text = f"{len(service)}:{service}{trace_id}".encode("utf-8", "surrogatepass")
    return int.from_bytes(blake2b(text, digest_size=8).digest(), "big") or 1
