"""When a line of the log is due again that anybody can cause, or that goes on being true."""

from __future__ import annotations

import time
from collections.abc import Callable

REPORT_SECONDS = 60.0  # between two lines for one reason

# Reasons that are remembered at a time: some hold words of a client, which can make up any number.
_MOST_REASONS = 20


class ReportPace:
    """Admits one line in so many seconds for each reason, of the first reasons that come.

    Args:
        clock: Seconds of a clock that never goes back.
        seconds: Between two lines for one reason.
    """

    def __init__(
        self, clock: Callable[[], float] = time.monotonic, seconds: float = REPORT_SECONDS
    ) -> None:
        self._clock = clock
        self._seconds = seconds
        self._reported: dict[str, float] = {}  # when, by the reason

    def is_due(self, reason: str = "") -> bool:
        """Return whether a line for the reason is due; if so, the next is in `seconds`."""
        now = self._clock()
        if now - self._reported.get(reason, float("-inf")) < self._seconds:
            return False
        if len(self._reported) >= _MOST_REASONS:
            self._reported = {
                one: at for one, at in self._reported.items() if now - at < self._seconds
            }
        if len(self._reported) >= _MOST_REASONS:
            return False
        self._reported[reason] = now
        return True
