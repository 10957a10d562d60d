"""Event time while nothing arrives: it moves on with the clock, from where the events left it."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["EventTime"]


@dataclass(slots=True)
class EventTime:
    """Remembers when the newest event time was reached.

    `tick` times are seconds of a clock that never jumps (`time.monotonic`): an NTP correction of
    the wall clock must not empty the windows. The lag between events and their arrival is kept:
    events that come 30 s late keep event time 30 s behind the clock.
    """

    event: float | None = None
    tick: float = 0.0

    def reached(self, event: float | None, tick: float) -> None:
        """The events have reached `event`; an earlier one than before changes nothing."""
        if event is not None and (self.event is None or event > self.event):
            self.event, self.tick = event, tick

    def restore(self, event: float | None, down: float, tick: float) -> None:
        """After a restart: `down` seconds of wall time passed since event time was `event`."""
        if event is not None:
            self.event, self.tick = event + max(0.0, down), tick

    def now(self, tick: float) -> float | None:
        """Event time at `tick`; None before the first event."""
        return None if self.event is None else self.event + max(0.0, tick - self.tick)
