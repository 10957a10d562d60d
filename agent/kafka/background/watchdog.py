"""Sees a worker that has stopped working: there is a lag, and nothing has moved for a while.

It looks at each partition: one that stands still among others that go on is the usual stall, and
states make steps of their own while nothing is read. Restarts are harmless, so the worker ends and
says what its consumer looked like. Faust itself only logs that a stream is slow, for ever.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable
from typing import Any, cast

import faust
from faust.types import TP

__all__ = ["READY_SECONDS", "STALL_SECONDS", "Watchdog", "marks_of", "picture", "progress_of"]

READY_SECONDS = 30.0
STALL_SECONDS = 120.0
"""The slowest thing that is sound is a rebalance with all deadlines used up (60 s) and a recovery
behind it; after readiness is off whoever watches has this long to look."""

Marks = dict[TP, tuple[int | None, int | None, int | None]]
"""Of each partition: end of what can be read, read, done (committed, or with nothing to do)."""


class Watchdog:
    """Call `look` every second or so. Pure but for the clock."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._progress: object = None
        self._behind: dict[TP, tuple[object, float]] = {}  # where each stands, and since when

    def look(self, marks: Marks, progress: object) -> float:
        """Seconds in which a partition has not moved although there is work in it; `progress` is
        anything that changes when all of them have a reason to wait."""
        now = self._monotonic()
        if progress != self._progress:
            self._progress, self._behind = progress, {}
        behind: dict[TP, tuple[object, float]] = {}
        for tp, (end, read, done) in marks.items():
            if end is not None and end > (done or 0):
                before = self._behind.get(tp)
                if before is None or before[0] != (read, done):
                    before = (read, done), now
                behind[tp] = before
        self._behind = behind
        return max((now - since for _, since in behind.values()), default=0.0)


def progress_of(app: faust.App) -> object:
    """Of a rebalance, and of the states that are read after it."""
    read = cast(Any, app.tables).recovery.active_offsets
    return app.consumer_generation_id, sum(offset or 0 for offset in read.values())


def marks_of(app: faust.App, topics: Collection[str]) -> Marks:
    consumer: Any = app.consumer
    found: Marks = {}
    for tp in consumer.assignment():
        if tp.topic in topics:
            done, end = consumer.done_and_end(tp)
            found[tp] = (end, consumer._read_offset[tp], done)
    return found


def picture(app: faust.App) -> str:
    """The consumer's state, for a log that somebody reads after the restart."""
    consumer: Any = app.consumer

    def names(tps: Iterable[TP]) -> list[str]:
        return sorted(map(_name, tps))

    found = {
        "generation": app.consumer_generation_id,
        "rebalancing": app.rebalancing,
        "flow": consumer.flow_active,
        "unacked": len(consumer._unacked_messages),
        "acked": {_name(tp): acked[:4] for tp, acked in consumer._acked.items() if acked},
        "committed": {_name(tp): offset for tp, offset in consumer._committed_offset.items()},
        "read": {_name(tp): offset for tp, offset in consumer._read_offset.items()},
        "active": names(consumer._active_partitions or ()),
        "paused": names(consumer._paused_partitions),
        "assigned": names(consumer.assignment()),
    }
    return json.dumps(found)


def _name(tp: TP) -> str:
    return f"{tp.topic}/{tp.partition}"
