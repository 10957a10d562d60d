"""At most so many traces a second."""

from __future__ import annotations

from collections.abc import Callable

__all__ = ["Pace"]

SLACK = 1.0
"""Seconds that are made up for after a delay. Without any, each late wake-up would lower the rate;
with more, an agent that was away for minutes would be met by a burst."""


class Pace:
    """`rate` in traces a second, None: as fast as it goes. `clock` never jumps."""

    def __init__(
        self, rate: float | None, clock: Callable[[], float], sleep: Callable[[float], None]
    ) -> None:
        self._pause = None if rate is None else 1 / rate
        self._clock, self._sleep = clock, sleep
        self._due: float | None = None

    def wait(self) -> None:
        """Until the next trace is due."""
        if self._pause is None:
            return
        now = self._clock()
        due = now if self._due is None else max(self._due, now - SLACK)
        if due > now:
            self._sleep(due - now)
        self._due = due + self._pause
