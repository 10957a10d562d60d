"""When a line of the log is due again that anybody can cause."""

from __future__ import annotations

import time
from collections.abc import Callable

REPORT_SECONDS = 60.0  # between two lines for one reason

# Reasons that are remembered: some hold words of a client, which can make up any number of them.
_MOST_REASONS = 20


class ReportPace:
    """Admits one line a minute for each reason, of the first reasons that come.

    Args:
        clock: Seconds of a clock that never goes back.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._reported: dict[str, float] = {}  # when, by the reason

    def is_due(self, reason: str = "") -> bool:
        """Return whether a line for the reason is due; if so, the next is in a minute."""
        if reason not in self._reported and len(self._reported) >= _MOST_REASONS:
            return False
        now = self._clock()
        if now - self._reported.get(reason, float("-inf")) < REPORT_SECONDS:
            return False
        self._reported[reason] = now
        return True
