"""The group of the score stage: its owners share a producer, and it commits their offsets."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Iterable, Sequence
from typing import Any

from aiokafka import TopicPartition
from aiokafka.errors import CommitFailedError, IllegalStateError, MessageSizeTooLargeError

from ragmeter.config.settings import Settings
from ragmeter.kafka.owners import (
    PASSING,
    SEND_SECONDS,
    STOP_SECONDS,
    OutRecord,
    make_producer,
)
from ragmeter.kafka.reading_group import ReadingGroup

log = logging.getLogger(__name__)

_COMMIT_SECONDS = 0.5  # between two commits of offsets: so much is scored again after a kill


class ScoreGroup(ReadingGroup):
    """The consumer group of the topics that others write."""

    def __init__(self, settings: Settings, topics: Sequence[str], *parts: Any) -> None:
        super().__init__(settings, settings.kafka.score_group, topics, *parts)
        self._producer: Any = None
        self._committed: dict[TopicPartition, tuple[int, str]] = {}

    async def run(self) -> None:
        """Deliver messages until cancelled."""
        self._producer = make_producer(self.kafka, self.largest)
        committing = asyncio.create_task(self._commit_often())
        try:
            await self._producer.start()
            await super().run()
        finally:
            committing.cancel()
            with contextlib.suppress(Exception):
                async with asyncio.timeout(STOP_SECONDS):
                    await self._producer.stop()

    async def on_partitions_assigned(self, assigned: Iterable[TopicPartition]) -> None:
        """Own the partitions of the new assignment."""
        await super().on_partitions_assigned(assigned)
        self._committed = {tp: at for tp, at in self._committed.items() if tp in self.owners}

    async def drain(self) -> None:
        """Let all owners send what they have begun, and commit how far they are."""
        await super().drain()
        with contextlib.suppress(*PASSING):
            await self._commit_all()

    async def send(self, records: Sequence[OutRecord]) -> set[int]:
        """Send records, and return the numbers of those that topics refuse as too large.

        Others are acknowledged by then.
        """
        async with asyncio.timeout(SEND_SECONDS):
            outcomes = await asyncio.gather(*map(self._send, records), return_exceptions=True)
        self.answered_at = time.monotonic()
        failures = {
            number: one for number, one in enumerate(outcomes) if isinstance(one, BaseException)
        }
        for failure in failures.values():
            if not isinstance(failure, MessageSizeTooLargeError):
                raise failure
        return set(failures)

    async def _send(self, record: OutRecord) -> None:
        headers = list(record.headers.items())
        await self._producer.send_and_wait(*record.arguments, headers=headers)

    async def commit(self, tp: TopicPartition, position: int, note: str) -> bool:
        """Commit the offset of a partition, and return whether the group has taken it."""
        return await self._commit({tp: (position, note)})

    async def _commit(self, offsets: dict[TopicPartition, tuple[int, str]]) -> bool:
        """Commit offsets; the group takes none while it rebalances."""
        try:
            async with asyncio.timeout(SEND_SECONDS):
                await self.consumer.commit(offsets)
        except (CommitFailedError, IllegalStateError):
            return False
        self.answered_at = time.monotonic()
        self._committed |= offsets
        return True

    async def _commit_all(self) -> None:
        here = self.consumer.assignment() if self.consumer else ()
        offsets = {
            tp: (owner.position, owner.note)
            for tp, owner in self.owners.items()
            if owner.ready and tp in here
        }
        changed = {tp: at for tp, at in offsets.items() if self._committed.get(tp) != at}
        if changed:
            await self._commit(changed)

    async def _commit_often(self) -> None:
        """Commit how far owners are; where that fails, what follows is sent again some day."""
        while True:
            await asyncio.sleep(_COMMIT_SECONDS)
            try:
                await self._commit_all()
            except PASSING as error:
                log.info("offsets are not committed: %r", error)
            except Exception as error:
                await self.fail(error)
                return

    def share(self, topic: str) -> float:
        """Return the part of the partitions of a topic that this worker owns, 0..1."""
        owned = sum(tp.topic == topic for tp in list(self.owners))
        known = self.consumer.partitions_for_topic(topic) if self.consumer else None
        return float(owned / max(len(known or ()), owned, 1))
