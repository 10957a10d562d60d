"""Tells whether messages of a topic that is not compacted were passed over.

Each message says from which offset on there was nothing before it
(`agent.kafka.client.committed_reads`): marks of transactions and what was aborted leave holes that
are none. A hole that remains is either Faust's (it has dropped messages at a rebalance, and would
commit past them: a restart reads them again), or the topic's: what was older than its retention is
gone, restart or not. The second is counted and passed over, or the worker would end at it for ever.
"""

from __future__ import annotations

import logging
from typing import Any, cast

from faust.types import TP, AppT

from agent.counters import Counters
from agent.kafka.client.committed_reads import Gap, Since

__all__ = ["NoGaps", "check"]

log = logging.getLogger("ragmeter.kafka")

UNREAD = "ragmeter_kafka_deleted_unread_total"


class NoGaps:
    """By partition and generation. A generation begins at what was committed, or at the beginning;
    an offset may go back, for whatever is not committed may be sought anew."""

    def __init__(self) -> None:
        self._last: dict[int, tuple[int, int]] = {}

    def missing(
        self, partition: int, generation: int, offset: int, since: int, committed: int | None
    ) -> range:
        """The offsets that should have come before `offset`: `since` up to it there are none."""
        last = self._last.get(partition)
        if last is not None and generation < last[0]:
            return range(0)  # left in a buffer by the generation before
        expected = committed or 0
        if last is not None and generation == last[0]:
            expected = last[1] + 1
        self._last[partition] = (generation, offset)
        return range(expected, max(expected, since))


async def check(app: AppT, gaps: NoGaps, message: Any, counters: Counters) -> None:
    """Raises `Gap` for messages that are still there and were not delivered."""
    tp: TP = message.tp
    consumer = cast(Any, app.consumer)
    offset, since, committed = message.offset, message.checksum, consumer._committed_offset[tp]
    missing = gaps.missing(
        message.partition,
        message.generation_id or 0,
        offset,
        since if isinstance(since, Since) else offset,
        committed,
    )
    if not missing:
        return
    first = (await consumer.earliest_offsets(tp))[tp]
    if first < missing.stop:
        raise Gap(
            f"{tp.topic}/{tp.partition}: offset {offset} came, and of those from {missing.start} on"
            " none did; a restart reads again from what was committed"
        )
    if committed is None and missing.start == 0:
        return  # of a group that is new, or whose offsets are gone: nobody was to read them
    log.error(
        "%s/%d: offsets %d to %d were deleted before they were read (retention)",
        *(tp.topic, tp.partition, missing.start, missing.stop - 1),
    )
    counters.inc(UNREAD, (("topic", tp.topic),), len(missing))
