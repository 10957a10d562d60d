"""Heartbeats, the stall watchdog and signal handling of a process.

The watchdog notices work that waits while nothing moves: the embedded agent shows it its threads
and its queue, a Kafka worker its partitions. A restart is harmless by design: readiness goes off
first, so that operators can look, and then the process ends with a failure.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Hashable, Mapping
from typing import Generic, TypeVar

_HEARTBEAT_SECONDS = 2.0  # of an event loop; a stall is a matter of many seconds

# Share of `limits.stalled_seconds` after which readiness goes off: 30 s of 120. That is longer
# than the longest sound pause of the embedded agent (5 s between two tries to write), and leaves
# time to look.
_UNREADY_SHARE = 0.25

# Most seconds that one update may add. A longer gap between updates means that the whole process
# stood still (stopped, or its machine frozen), so nothing in it could have moved.
MAX_CHECK_SECONDS = 10.0

_WatchedKey = TypeVar("_WatchedKey", bound=Hashable)


class Heartbeat:
    """A counter that one thread increases and any thread may read."""

    def __init__(self) -> None:
        self.count = 0

    def beat(self) -> None:
        """Show that the thread is alive."""
        self.count += 1

    async def run(self) -> None:
        """Beat for ever in an event loop; the beats stop while something blocks the loop."""
        while True:
            self.beat()
            await asyncio.sleep(_HEARTBEAT_SECONDS)


class Watchdog(Generic[_WatchedKey]):
    """Measures for how long each watched part has not moved; call `update` about every second.

    Usually one part stands still while others go on, so each is watched by itself.
    """

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._last = monotonic()
        self._watched = 0.0  # seconds between updates, each bounded by `MAX_CHECK_SECONDS`
        self._common: object = None
        self._since: dict[_WatchedKey, tuple[object, float]] = {}

    def update(
        self, marks: Mapping[_WatchedKey, object | None], common: object = None
    ) -> dict[_WatchedKey, float]:
        """Take the current marks; return for how many seconds each part with work stood still.

        The longest is the first.

        Args:
            marks: By part, any value that changes when it moves; None where nothing waits.
            common: Any value that changes when all of them have a reason to wait.
        """
        time = self._monotonic()
        self._watched += min(time - self._last, MAX_CHECK_SECONDS)
        self._last, now = time, self._watched
        if common != self._common:
            self._common, self._since = common, {}
        since: dict[_WatchedKey, tuple[object, float]] = {}
        for key, mark in marks.items():
            if mark is not None:
                before = self._since.get(key)
                since[key] = before if before is not None and before[0] == mark else (mark, now)
        self._since = since
        stalled = {key: now - at for key, (_, at) in since.items()}
        return dict(sorted(stalled.items(), key=lambda item: -item[1]))


def is_unready(stalled: float, limit: float) -> bool:
    """Return whether readiness is off; `limit` is `limits.stalled_seconds`."""
    return stalled > limit * _UNREADY_SHARE


class SignalHandlers:
    """Signal handlers of the running event loop.

    SIGINT and SIGTERM set `stop`; a second one ends the process at once. SIGHUP calls `reload`.

    Args:
        reload: None as long as nothing is running that could be reloaded.
    """

    def __init__(self, reload: Callable[[], None] | None = None) -> None:
        self.stop = asyncio.Event()
        self.reload = reload
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGHUP, self._reload)
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._stop, number)

    def _reload(self) -> None:
        if self.reload is not None:
            self.reload()

    def _stop(self, number: signal.Signals) -> None:
        if self.stop.is_set():
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)
        self.stop.set()
