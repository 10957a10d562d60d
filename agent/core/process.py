"""Heartbeats, the stall watchdog and signal handling of a process.

Sees work that waits while nothing moves. Pure but for the clock: the embedded agent shows it its
threads and its queue, a Kafka worker its partitions.

What is shown is a mark for each place: anything that changes when the place moves, or None where
nothing waits there. A place that stands still among others that go on is the usual stall, so each
is watched by itself. A restart is harmless by design: readiness goes off first, so that whoever
watches can look, and then the process ends with a failure.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Hashable, Mapping
from typing import Generic, TypeVar

_HEARTBEAT_SECONDS = 2.0  # of an event loop; a stall is a matter of many seconds


class Heartbeat:
    """One thread beats, any other may read `count`."""

    def __init__(self) -> None:
        self.count = 0

    def beat(self) -> None:
        self.count += 1

    async def run(self) -> None:
        """Beat for ever, in an event loop: it stops where something holds the loop up."""
        while True:
            self.beat()
            await asyncio.sleep(_HEARTBEAT_SECONDS)


_UNREADY_SHARE = 0.25
"""Of `limits.stalled_seconds`: when readiness goes off. 30 s of 120: longer than the longest sound
pause of the embedded agent (5 s between two tries to write), and time to look is left."""

MAX_CHECK_SECONDS = 10.0
"""Seconds that one look may add. Where whoever looks has stood still for longer, so has the whole
process (stopped, or its machine frozen), and nothing in it can have moved."""

_WatchedKey = TypeVar("_WatchedKey", bound=Hashable)


class Watchdog(Generic[_WatchedKey]):
    """Call `look` every second or so."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._last = monotonic()
        self._time = 0.0  # that was looked at
        self._common: object = None
        self._since: dict[_WatchedKey, tuple[object, float]] = {}

    def update(
        self, marks: Mapping[_WatchedKey, object | None], common: object = None
    ) -> dict[_WatchedKey, float]:
        """For how many seconds each place with work has not moved, the longest first. `common` is
        anything that changes when all of them have a reason to wait."""
        read = self._monotonic()
        self._time += min(read - self._last, MAX_CHECK_SECONDS)
        self._last, now = read, self._time
        if common != self._common:
            self._common, self._since = common, {}
        since: dict[_WatchedKey, tuple[object, float]] = {}
        for place, mark in marks.items():
            if mark is None:
                continue
            before = self._since.get(place)
            since[place] = before if before is not None and before[0] == mark else (mark, now)
        self._since = since
        found = {place: now - at for place, (_, at) in since.items()}
        return dict(sorted(found.items(), key=lambda item: -item[1]))


def is_unready(stalled: float, limit: float) -> bool:
    """Whether readiness is off; `limit` is `limits.stalled_seconds`."""
    return stalled > limit * _UNREADY_SHARE


class SignalHandlers:
    """`stop` is set by SIGINT and SIGTERM; a second one ends the process at once. SIGHUP calls
    `reload`. To be made in the loop that runs."""

    def __init__(self, reload: Callable[[], None] | None = None) -> None:
        self.stop = asyncio.Event()
        self.reload = reload
        """None: nothing is running yet that it could change."""
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
