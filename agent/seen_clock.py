"""When the older generation of known trace ids is given up: one rule for file and memory. Pure.

Ids are kept in two generations; the older one is dropped when the newer has lasted a horizon of
event time, so an id is known for one to two horizons. Time is read from traces, and a trace may
be dated wrongly: were one enough to move the clock, two of them would empty both generations.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["IN_A_ROW", "SeenClock"]

IN_A_ROW = 8
"""So many traces one after the other must say that time is elsewhere. Where a tenth of the traces
is dated wrongly, that comes about by mistake once in 10^8 traces."""


@dataclass(slots=True)
class SeenClock:
    """`start` is when the newer generation began, in event-time seconds; `outside` the traces in a
    row that were a horizon after it (positive) or before it (negative)."""

    horizon: float
    start: float | None = None
    outside: int = 0

    def turns(self, timestamp: float) -> bool:
        """Whether a new generation begins with the trace of this time."""
        if self.start is None:
            self.start = timestamp
        side = (timestamp >= self.start + self.horizon) - (timestamp < self.start - self.horizon)
        if not side:
            self.outside = 0
            return False
        self.outside = self.outside + side if self.outside * side >= 0 else side
        if abs(self.outside) < IN_A_ROW:
            return False
        self.start, self.outside = timestamp, 0
        return side > 0  # time that went back makes no id older
