"""Commits an offset in one generation of the consumer group, or not at all.

Faust's own commit, and aiokafka's below it, retry with whatever generation there is by then. A
fence must not: a commit that began in one generation and was accepted in the next says nothing
about who owned the partition when the step was written (`agent.kafka.state.slots`).
"""

from __future__ import annotations

import asyncio
import time
from typing import Any

from aiokafka import TopicPartition
from aiokafka.errors import (
    IllegalGenerationError,
    KafkaError,
    RebalanceInProgressError,
    UnknownMemberIdError,
)
from aiokafka.structs import OffsetAndMetadata
from faust.types import TP, AppT

__all__ = ["commit_in"]

PAUSE_SECONDS = 0.1  # as aiokafka's own retry


async def commit_in(app: AppT, generation: int, tp: TP, offset: int, seconds: float) -> bool:
    """Whether the coordinator has accepted `offset` from this member in `generation`. While it
    cannot be asked this is repeated for `seconds`; then the error is raised."""
    thread = app.consumer._thread  # type: ignore[attr-defined]
    return bool(await thread.call_thread(_commit, thread, generation, tp, offset, seconds))


async def _commit(thread: Any, generation: int, tp: TP, offset: int, seconds: float) -> bool:
    coordinator = thread._ensure_consumer()._coordinator
    wanted = {TopicPartition(tp.topic, tp.partition): OffsetAndMetadata(offset, "")}
    end = time.monotonic() + seconds
    while True:
        try:
            await asyncio.wait_for(
                coordinator.ensure_coordinator_known(), max(0.1, end - time.monotonic())
            )
            async with coordinator._commit_lock:
                # the request is built before the first await: of this generation or not at all
                if coordinator.generation != generation:
                    return False
                await coordinator._do_commit_offsets(None, wanted)
                return True
        except (UnknownMemberIdError, IllegalGenerationError, RebalanceInProgressError):
            return False
        except KafkaError as error:
            if not error.retriable or time.monotonic() >= end:
                raise
        await asyncio.sleep(PAUSE_SECONDS)
