"""Sees a worker that has stopped working: there is a lag, and nothing has moved for a while.

Restarts are harmless, so the worker ends and says what its consumer looked like. Faust itself only
logs that a stream is slow, for ever.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable
from typing import Any

import faust
from faust.types import TP

__all__ = ["READY_SECONDS", "STALL_SECONDS", "Watchdog", "marks_of", "picture"]

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
        self._seen: Any = None
        self._since = monotonic()

    def look(self, marks: Marks, progress: object) -> float:
        """Seconds in which nothing has moved although there is work; `progress` is anything that
        changes when something does."""
        behind = any(end is not None and end > (done or 0) for end, _, done in marks.values())
        seen = ({tp: mark[1:] for tp, mark in marks.items()}, progress)
        if not behind or seen != self._seen:
            self._seen, self._since = seen, self._monotonic()
        return self._monotonic() - self._since


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
