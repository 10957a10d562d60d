"""What `agent.stalls` is shown of a worker: its partitions, each by itself.

States make steps of their own while nothing is read, and one partition may stand still among others
that go on. Restarts are harmless, so the worker ends and says what its consumer looked like. Faust
itself only logs that a stream is slow, for ever.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable
from typing import Any, cast

import faust
from faust.types import TP

__all__ = ["Mark", "mark", "marks_of", "picture", "progress_of"]

Mark = tuple[int | None, int | None]
"""Offsets of a partition: read, and done (committed, or with nothing to do)."""


def progress_of(app: faust.App) -> object:
    """Of a rebalance, and of the states that are read after it."""
    read = cast(Any, app.tables).recovery.active_offsets
    return app.consumer_generation_id, sum(offset or 0 for offset in read.values())


def mark(end: int | None, read: int | None, done: int | None) -> Mark | None:
    """None where nothing waits before the `end` of what can be read."""
    return (read, done) if end is not None and end > (done or 0) else None


def marks_of(app: faust.App, topics: Collection[str]) -> dict[TP, Mark | None]:
    consumer: Any = app.consumer
    found: dict[TP, Mark | None] = {}
    for tp in consumer.assignment():
        if tp.topic in topics:
            done, end = consumer.done_and_end(tp)
            found[tp] = mark(end, consumer._read_offset[tp], done)
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
