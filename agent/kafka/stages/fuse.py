"""A circuit breaker that counts deadlines: leaves a tier alone that does not answer in time.

A trace waits in line for its tiers, and no offset goes further than `kafka.in_flight` beyond it.
A judge that hangs would hold every partition to that many traces in each deadline, for ever; its
own breaker does not see it, for what the deadline cuts off is no answer. So after some that were
late in a row the tier is not asked, but by one trace now and then.
"""

from __future__ import annotations

from collections.abc import Callable

__all__ = ["LATE", "Fuse"]

LATE = 5  # in a row; a tier that is slow, but answers, hardly gets there
# Between two tries, the second when they fail. A try that fails holds up its partition for the 20 s
# of a deadline: at most two fifths of the time at first, and a fifteenth of it in the end.
FIRST_PAUSE, LONGEST_PAUSE = 30.0, 300.0


class Fuse:
    """`may` before the tier is asked; if so, `answered` or `late` afterwards, or `dropped` where
    nobody waited for an answer."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._late = 0
        self._next = 0.0
        self._pause = FIRST_PAUSE
        self._trying = False

    @property
    def blown(self) -> bool:
        return self._late >= LATE

    def may(self) -> bool:
        if not self.blown:
            return True
        if self._trying or self._monotonic() < self._next:
            return False
        self._trying = True
        return True

    def answered(self) -> None:
        self._late, self._pause, self._trying = 0, FIRST_PAUSE, False

    def late(self) -> bool:
        """Whether the tier is left alone from now on."""
        was, tried = self.blown, self._trying
        self._late += 1
        if not self.blown or (was and not tried):
            return False  # those that were under way when it blew say nothing new
        if was:
            self._pause = min(2 * self._pause, LONGEST_PAUSE)
        self._trying = False
        self._next = self._monotonic() + self._pause
        return not was

    def dropped(self) -> None:
        self._trying = False
