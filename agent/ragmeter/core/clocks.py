"""The clocks of a process, event time, and a steady clock."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

# A trace or a label further in the future than this is set to its arrival time. Clocks that nobody
# corrects are wrong by minutes, and one that is wrong by days must not move the windows.
FUTURE_SECONDS = 300.0


@dataclass(frozen=True, slots=True)
class Clocks:
    """The two clocks of a process, in seconds: Unix time, and one that nobody sets."""

    wall: Callable[[], float] = time.time
    monotonic: Callable[[], float] = time.monotonic


@dataclass(slots=True)
class EventClock:
    """The newest event time, and the tick at which it was reached.

    Ticks are seconds of a clock that never jumps (`time.monotonic`): an NTP correction of the wall
    clock must not empty the windows. The lag between events and their arrival is kept: events that
    come 30 s late keep event time 30 s behind the clock.
    """

    event: float | None = None
    tick: float = 0.0

    def observe(self, event: float | None, tick: float) -> None:
        """Move event time forward to `event`; an earlier one changes nothing."""
        if event is not None and (self.event is None or event > self.event):
            self.event = event
            self.tick = tick

    def restore(self, event: float | None, down: float, tick: float) -> None:
        """Restore after a restart, `down` seconds of wall time after event time was `event`."""
        if event is not None:
            self.event = event + max(0.0, down)
            self.tick = tick

    def now(self, tick: float) -> float | None:
        """Return event time at `tick`, None before the first event."""
        return None if self.event is None else self.event + max(0.0, tick - self.tick)


def make_steady_clock(
    clock: Callable[[], float], monotonic: Callable[[], float]
) -> Callable[[], float]:
    """Make a clock that starts at the wall clock's time and follows the monotonic one.

    Setting or correcting the wall clock does not stretch or cut its spans of time.
    """
    begin = clock() - monotonic()
    return lambda: begin + monotonic()
