"""A steady pace of actions."""

from __future__ import annotations

import time
from collections.abc import Callable


class Pace:
    """A steady rate of actions, and pauses that hold all of them back.

    Args:
        rate: Actions a second; None: no bound.
        sleep: Used by `wait` only.
        slack: Seconds of delay that later actions make up for by following faster.
    """

    def __init__(
        self,
        rate: float | None,
        monotonic: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
        slack: float = 0.0,
    ) -> None:
        self._interval = 1 / rate if rate is not None else 0.0
        self._monotonic = monotonic
        self._sleep = sleep
        self._slack = slack
        self._due: float | None = None

    def delay(self) -> float:
        """Return the seconds until the next action may begin, at least 0."""
        return 0.0 if self._due is None else max(0.0, self._due - self._monotonic())

    def begin(self) -> None:
        """Record that an action begins now."""
        now = self._monotonic()
        due = now if self._due is None else max(self._due, now - self._slack)
        self._due = due + self._interval

    def wait(self) -> None:
        """Sleep until the next action may begin, and record that it begins."""
        if (seconds := self.delay()) > 0:
            self._sleep(seconds)
        self.begin()

    def hold(self, seconds: float) -> None:
        """Let no action begin within the next `seconds`."""
        until = self._monotonic() + seconds
        self._due = until if self._due is None else max(self._due, until)
