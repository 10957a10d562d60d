"""Consumer groups of aiokafka, read in batches and handed to the owners of their partitions."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from aiokafka import TopicPartition
from aiokafka.abc import ConsumerRebalanceListener
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.errors import GroupAuthorizationFailedError, IllegalStateError

from ragmeter.config.settings import Settings
from ragmeter.kafka.connection import HEARTBEAT_SECONDS, REBALANCE_SECONDS
from ragmeter.kafka.owners import OwnerGroup, make_consumer
from ragmeter.kafka.rights import explain_failure, missing_right
from ragmeter.kafka.seeks import Seeks

log = logging.getLogger(__name__)

_POLL_MS = 200
_IDLE_SECONDS = 0.05  # between two looks whether a partition can be read
_FETCH_BYTES = 2**20  # of a partition in a response, Kafka's default; a larger message comes, too
_MAX_RECORDS = 2000
_REREAD_SECONDS = 10.0  # between two attempts at a partition that cannot be read


class ReadingGroup(OwnerGroup, ConsumerRebalanceListener):  # type: ignore[misc]
    """A consumer group that reads `topics`; owners say where each partition begins."""

    def __init__(self, settings: Settings, name: str, topics: Sequence[str], *parts: Any) -> None:
        super().__init__(settings, name, *parts)
        self.topics = tuple(topics)
        self.consumer: Any = None
        self._seeks = Seeks()
        self._unreadable: dict[TopicPartition, str] = {}  # why
        self._suspects: dict[TopicPartition, float] = {}  # when to read one alone

    async def run(self) -> None:
        """Deliver messages until cancelled."""
        kafka = self.kafka
        self.open()
        self.consumer = make_consumer(
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
        self.consumer.subscribe(list(self.topics), listener=self)
        try:
            await self.consumer.start()
            while True:
                await self._deliver()
        except GroupAuthorizationFailedError as error:
            self.refused = missing_right(error)
            raise
        finally:
            await self.close()
            await self.consumer.stop()

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
        self._seeks.apply(self.consumer)
        try:
            found = await self.consumer.getmany(*tps, timeout_ms=_POLL_MS, max_records=_MAX_RECORDS)
        except IllegalStateError:  # the group has taken a partition away meanwhile
            await asyncio.sleep(_IDLE_SECONDS)
            return False
        for tp, messages in self._seeks.valid(found).items():
            owner = self.owners.get(tp)
            if owner is not None:
                for message in messages:
                    owner.put(message)
        return bool(found)

    async def _read_alone(self, tp: TopicPartition) -> None:
        """Read a partition that is suspected of what no one can read."""
        try:
            sound = await self._read([tp]) or await self._at_end(tp)
        except Exception as error:
            owner = self.owners.get(tp)
            if owner is None:
                return
            cause = explain_failure(error)
            why = f"{tp.topic}/{tp.partition} cannot be read from {owner.expected} on: {cause}"
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
        if tp not in self.consumer.assignment():
            return True
        end = self.consumer.last_stable_offset(tp)
        return end is not None and await self.consumer.position(tp) >= end

    async def on_partitions_revoked(self, revoked: Iterable[TopicPartition]) -> None:
        """Go on: whoever is given one of the partitions fences its owner here."""

    async def on_partitions_assigned(self, assigned: Iterable[TopicPartition]) -> None:
        """Own the partitions of the new assignment."""
        self.refused = ""
        await self.assign(assigned)
        self._suspects = {tp: at for tp, at in self._suspects.items() if tp in self.owners}
        self._unreadable = {tp: why for tp, why in self._unreadable.items() if tp in self.owners}
        for tp, owner in self.owners.items():
            if owner.ready:
                await self.seek(tp, owner.expected)

    async def seek(self, tp: TopicPartition, offset: int) -> None:
        """Deliver the messages of an assigned partition from an offset on."""
        self._seeks.pending[tp] = offset

    async def reached(self, tps: Sequence[TopicPartition]) -> dict[TopicPartition, tuple[int, int]]:
        """Return how far partitions were read, and their ends, of those that are assigned."""
        consumer = self.consumer
        here = [tp for tp in tps if consumer and tp in consumer.assignment()]
        ends = await consumer.end_offsets(here) if here else {}
        return {tp: (await consumer.position(tp), ends[tp]) for tp in here}
