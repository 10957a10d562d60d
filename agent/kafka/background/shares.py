"""How much of all traces a worker reads, and so of the budgets that all workers share."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from faust.types import AppT

__all__ = ["follow", "part_of"]

LOOK_SECONDS = 1.0


def part_of(app: AppT, topic: str) -> float:
    """The part of the partitions of `topic` that is assigned to this worker; 0 while the group
    forms."""
    owned = sum(tp.topic == topic for tp in app.consumer.assignment())
    total = app.consumer.topic_partitions(topic) or owned
    return owned / total if total else 0.0


async def follow(app: AppT, topic: str, own: Callable[[float], None]) -> None:
    """Tell `own` of each other part. Until cancelled."""
    last = -1.0
    while True:
        part = part_of(app, topic)
        if part != last:
            own(part)
            last = part
        await asyncio.sleep(LOOK_SECONDS)
