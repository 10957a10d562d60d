"""Sees work that waits while nothing moves. Pure but for the clock: the embedded agent shows it its
threads and its queue, a Kafka worker its partitions.

What is shown is a mark for each place: anything that changes when the place moves, or None where
nothing waits there. A place that stands still among others that go on is the usual stall, so each
is watched by itself. A restart is harmless by design: readiness goes off first, so that whoever
watches can look, and then the process ends with a failure.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from typing import Generic, TypeVar

__all__ = ["LONGEST_STEP", "READY_SHARE", "Stalls", "unready"]

READY_SHARE = 0.25
"""Of `limits.stalled_seconds`: when readiness goes off. 30 s of 120: longer than the longest sound
pause of the embedded agent (5 s between two tries to write), and time to look is left."""

LONGEST_STEP = 10.0
"""Seconds that one look may add. Where whoever looks has stood still for longer, so has the whole
process (stopped, or its machine frozen), and nothing in it can have moved."""

Place = TypeVar("Place", bound=Hashable)


class Stalls(Generic[Place]):
    """Call `look` every second or so."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._last = monotonic()
        self._time = 0.0  # that was looked at
        self._common: object = None
        self._since: dict[Place, tuple[object, float]] = {}

    def look(
        self, marks: Mapping[Place, object | None], common: object = None
    ) -> dict[Place, float]:
        """For how many seconds each place with work has not moved, the longest first. `common` is
        anything that changes when all of them have a reason to wait."""
        read = self._monotonic()
        self._time += min(read - self._last, LONGEST_STEP)
        self._last, now = read, self._time
        if common != self._common:
            self._common, self._since = common, {}
        since: dict[Place, tuple[object, float]] = {}
        for place, mark in marks.items():
            if mark is None:
                continue
            before = self._since.get(place)
            since[place] = before if before is not None and before[0] == mark else (mark, now)
        self._since = since
        found = {place: now - at for place, (_, at) in since.items()}
        return dict(sorted(found.items(), key=lambda item: -item[1]))


def unready(stalled: float, limit: float) -> bool:
    """Whether readiness is off; `limit` is `limits.stalled_seconds`."""
    return stalled > limit * READY_SHARE
