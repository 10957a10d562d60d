"""The consumer group of the score processor: aiokafka's, read in batches."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from aiokafka import TopicPartition
from aiokafka.abc import ConsumerRebalanceListener
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.errors import CommitFailedError, IllegalStateError, MessageSizeTooLargeError

from ragmeter.config.settings import Settings
from ragmeter.kafka.connection import HEARTBEAT_SECONDS, REBALANCE_SECONDS
from ragmeter.kafka.owners import (
    PASSING,
    SEND_SECONDS,
    STOP_SECONDS,
    OutRecord,
    OwnerGroup,
    make_consumer,
    make_producer,
)
from ragmeter.kafka.seeks import Seeks

log = logging.getLogger(__name__)

_POLL_MS = 200
_IDLE_SECONDS = 0.05  # between two looks whether a partition can be read
_FETCH_BYTES = 2**20  # of a partition in a response, Kafka's default; a larger message comes, too
_MAX_RECORDS = 2000
_COMMIT_SECONDS = 0.5  # between two commits of offsets: so much is scored again after a kill
_REREAD_SECONDS = 10.0  # between two attempts at a partition that cannot be read


class ScoreGroup(OwnerGroup, ConsumerRebalanceListener):  # type: ignore[misc]
    """The consumer group of aiokafka, which reads `topics` in batches."""

    def __init__(self, settings: Settings, topics: Sequence[str], *parts: Any) -> None:
        super().__init__(settings, settings.kafka.score_group, *parts)
        self.topics = tuple(topics)
        self._consumer: Any = None
        self._producer: Any = None
        self._committed: dict[TopicPartition, tuple[int, str]] = {}
        self._seeks = Seeks()
        self._unreadable: dict[TopicPartition, str] = {}  # why
        self._suspects: dict[TopicPartition, float] = {}  # when to read one alone

    async def run(self) -> None:
        """Deliver messages until cancelled."""
        kafka = self.kafka
        self._consumer = make_consumer(
            kafka,
            group_id=self.name,
            # as many partitions of each topic for each; others balance their sum alone
            partition_assignment_strategy=[RangePartitionAssignor],
            session_timeout_ms=int(kafka.session_seconds * 1000),
            heartbeat_interval_ms=int(HEARTBEAT_SECONDS * 1000),
            rebalance_timeout_ms=int(REBALANCE_SECONDS * 1000),
            max_poll_interval_ms=3_600_000,  # full queues are no reason to leave the group
            max_partition_fetch_bytes=_FETCH_BYTES,
            metadata_max_age_ms=20_000,  # a topic that has grown is noticed within it
        )
        self._consumer.subscribe(list(self.topics), listener=self)
        self._producer = make_producer(kafka, self.largest)
        committing = asyncio.create_task(self._commit_often())
        try:
            await self._producer.start()
            await self._consumer.start()
            while True:
                await self._deliver()
        finally:
            committing.cancel()
            await self.close()
            await self._consumer.stop()
            with contextlib.suppress(Exception):
                await asyncio.wait_for(self._producer.stop(), STOP_SECONDS)

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
                await self._consumer.commit(offsets)
        except (CommitFailedError, IllegalStateError):
            return False
        self.answered_at = time.monotonic()
        self._committed |= offsets
        return True

    async def _commit_all(self) -> None:
        here = self._consumer.assignment() if self._consumer else ()
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

    @property
    def unreadable(self) -> Mapping[TopicPartition, str]:
        """The partitions that are owned and cannot be read, and why."""
        return dict(self._unreadable)

    async def _deliver(self) -> None:
        open_ = [tp for tp, owner in self.owners.items() if owner.ready and not owner.full]
        sound = [tp for tp in open_ if tp not in self._suspects]
        for tp in open_:
            if self._suspects.get(tp, float("inf")) <= time.monotonic():
                await self._read_alone(tp)
        if not sound:
            await asyncio.sleep(_IDLE_SECONDS)
            return
        try:
            await self._read(sound)
        except Exception as error:
            # Some batch cannot be read, and the client does not say of which partition; records of
            # others that came with it are lost to us.
            log.warning("cannot read some partition: %r; each is read alone", error)
            for tp in sound:
                self._suspects[tp] = 0.0
                self._seeks.pending[tp] = self.owners[tp].expected

    async def _read(self, tps: Sequence[TopicPartition]) -> bool:
        """Hand on what is read of partitions, and return whether that was anything."""
        self._seeks.apply(self._consumer)
        try:
            found = await self._consumer.getmany(
                *tps, timeout_ms=_POLL_MS, max_records=_MAX_RECORDS
            )
        except IllegalStateError:  # the group has taken a partition away meanwhile
            await asyncio.sleep(_IDLE_SECONDS)
            return False
        for tp, messages in self._seeks.valid(found).items():
            owner = self.owners.get(tp)
            if owner is not None:
                for message in messages:
                    owner.put(message, 0)
        return bool(found)

    async def _read_alone(self, tp: TopicPartition) -> None:
        """Read a partition that is suspected of what no one can read."""
        try:
            sound = await self._read([tp]) or await self._at_end(tp)
        except Exception as error:
            owner = self.owners.get(tp)
            if owner is None:
                return
            why = f"{tp.topic}/{tp.partition} cannot be read from {owner.expected} on: {error!r}"
            if self._unreadable.get(tp) != why:
                log.error("%s; other partitions go on", why)
            self._unreadable[tp] = why
            self._suspects[tp] = time.monotonic() + _REREAD_SECONDS
            self._seeks.pending[tp] = owner.expected
            return
        if sound:  # else nothing has come yet
            self._suspects.pop(tp, None)
            self._unreadable.pop(tp, None)

    async def _at_end(self, tp: TopicPartition) -> bool:
        if tp not in self._consumer.assignment():
            return True
        end = self._consumer.last_stable_offset(tp)
        return end is not None and await self._consumer.position(tp) >= end

    async def on_partitions_revoked(self, revoked: Iterable[TopicPartition]) -> None:
        """Go on: whoever is given one of the partitions fences its owner here."""

    async def on_partitions_assigned(self, assigned: Iterable[TopicPartition]) -> None:
        """Own the partitions of the new assignment."""
        await self.assign(assigned)
        self._committed = {tp: at for tp, at in self._committed.items() if tp in self.owners}
        self._suspects = {tp: at for tp, at in self._suspects.items() if tp in self.owners}
        self._unreadable = {tp: why for tp, why in self._unreadable.items() if tp in self.owners}
        for tp, owner in self.owners.items():
            if owner.ready:
                await self.seek(tp, owner.expected)

    async def seek(self, tp: TopicPartition, offset: int) -> None:
        """Deliver the messages of an assigned partition from an offset on."""
        self._seeks.pending[tp] = offset

    def share(self, topic: str) -> float:
        """Return the part of the partitions of a topic that this worker owns, 0..1."""
        owned = sum(tp.topic == topic for tp in list(self.owners))
        known = self._consumer.partitions_for_topic(topic) if self._consumer else None
        return float(owned / max(len(known or ()), owned, 1))

    async def reached(self, tps: Sequence[TopicPartition]) -> dict[TopicPartition, tuple[int, int]]:
        """Return how far partitions were read, and their ends, of those that are assigned."""
        consumer = self._consumer
        here = [tp for tp in tps if consumer and tp in consumer.assignment()]
        ends = await consumer.end_offsets(here) if here else {}
        return {tp: (await consumer.position(tp), ends[tp]) for tp in here}
