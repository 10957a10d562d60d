"""The two consumer groups of a worker, and how far each is behind.

The score group is aiokafka's, read in batches. The state group is Faust's: its records are few,
and its agents hand them to the owners of their partitions. Faust neither tracks nor commits
offsets here (`acks=False`): owners commit theirs in transactions (`ragmeter.kafka.transactions`).
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar, cast

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.abc import ConsumerRebalanceListener
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.errors import IllegalStateError
from faust import App
from faust.transport.drivers.aiokafka import AIOKafkaConsumerThread, Consumer
from faust.types import TP

from ragmeter.config.settings import Settings
from ragmeter.kafka.client_logs import FAUST_LOG
from ragmeter.kafka.connection import faust_options
from ragmeter.kafka.transactions import PASSING, OwnerGroup, make_consumer

S = TypeVar("S")

_HEARTBEATS = 6  # in a session: five may be lost
_REBALANCE_SECONDS = 60.0
_POLL_MS = 200
_IDLE_SECONDS = 0.05  # between two looks whether a partition can be read
_FETCH_BYTES = 2**20  # of a partition in a response, Kafka's default; a larger message comes, too
_MAX_RECORDS = 2000
_LAG_SECONDS = 2.0


class _Seeks:
    """Positions that are sought between two reads of a consumer, never during one.

    A read that ends after a seek may hold records from before it. So what a read brings for a
    partition with a `pending` seek is dropped, and read again.
    """

    def __init__(self) -> None:
        self.pending: dict[Any, int] = {}

    def apply(self, consumer: Any) -> dict[Any, int]:
        """Seek, right before a read; return the positions."""
        sought = {}
        for tp in list(self.pending):  # other threads add to it
            offset = self.pending.pop(tp)
            if tp in consumer.assignment():
                consumer.seek(tp, offset)
                sought[tp] = offset
        return sought

    def valid(self, found: Mapping[Any, Any]) -> dict[Any, Any]:
        """Return what a read has brought, without partitions that are to be sought."""
        return {tp: records for tp, records in found.items() if tp not in self.pending}


class ScoreGroup(OwnerGroup, ConsumerRebalanceListener):  # type: ignore[misc]
    """The consumer group of aiokafka, which reads `topics` in batches."""

    def __init__(self, settings: Settings, topics: Sequence[str], *parts: Any) -> None:
        super().__init__(settings, settings.kafka.score_group, *parts)
        self.topics = tuple(topics)
        self._consumer: Any = None
        self._seeks = _Seeks()

    async def run(self) -> None:
        """Deliver messages until cancelled."""
        kafka = self.kafka
        self._consumer = make_consumer(
            kafka,
            group_id=self.name,
            # as many partitions of each topic for each; others balance their sum alone
            partition_assignment_strategy=[RangePartitionAssignor],
            session_timeout_ms=int(kafka.session_seconds * 1000),
            heartbeat_interval_ms=int(kafka.session_seconds * 1000 / _HEARTBEATS),
            rebalance_timeout_ms=int(_REBALANCE_SECONDS * 1000),
            max_poll_interval_ms=3_600_000,  # full queues are no reason to leave the group
            max_partition_fetch_bytes=_FETCH_BYTES,
            metadata_max_age_ms=20_000,  # a topic that has grown is noticed within it
        )
        self._consumer.subscribe(list(self.topics), listener=self)
        try:
            await self._consumer.start()
            while True:
                await self._deliver()
        finally:
            await self.close()
            await self._consumer.stop()

    async def _deliver(self) -> None:
        owners = self.owners
        open_ = [tp for tp, owner in owners.items() if owner.ready and not owner.full]
        if not open_:
            await asyncio.sleep(_IDLE_SECONDS)
            return
        self._seeks.apply(self._consumer)
        try:
            found = await self._consumer.getmany(
                *open_, timeout_ms=_POLL_MS, max_records=_MAX_RECORDS
            )
        except IllegalStateError:  # the group has taken a partition away meanwhile
            await asyncio.sleep(_IDLE_SECONDS)
            return
        for tp, messages in self._seeks.valid(found).items():
            owner = owners.get(tp)
            if owner is not None:
                for message in messages:
                    owner.put(message, 0)

    async def on_partitions_revoked(self, revoked: Iterable[TopicPartition]) -> None:
        """Go on: whoever is given one of the partitions fences its owner here."""

    async def on_partitions_assigned(self, assigned: Iterable[TopicPartition]) -> None:
        """Own the partitions of the new assignment."""
        await self.assign(assigned)
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


class _ReadingThread(AIOKafkaConsumerThread):
    """Faust's thread, which also marks records with the offset from which on none precedes them.

    Faust drops what its queues hold at a rebalance. The mark lets an owner notice that, and ends of
    transactions, which take an offset and are delivered to nobody, are not taken for it.
    """

    logger = FAUST_LOG

    def __post_init__(self) -> None:
        super().__post_init__()
        self._seeks = _Seeks()
        self._next: dict[Any, int] = {}

    def _create_worker_consumer(self, transport: Any) -> AIOKafkaConsumer:
        # Faust reads committed messages in its own transactions only
        self.consumer.in_transaction = True
        try:
            return super()._create_worker_consumer(transport)
        finally:
            self.consumer.in_transaction = False

    async def seek_to_committed(self) -> Mapping[TP, int]:
        offsets: Mapping[TP, int] = await super().seek_to_committed()
        self._seeks.pending |= {TopicPartition(*tp): at or 0 for tp, at in offsets.items()}
        return offsets

    def seek(self, partition: TP, offset: int) -> None:
        self._seeks.pending[TopicPartition(*partition)] = offset

    async def _fetch_records(self, consumer: Any, *args: Any, **options: Any) -> Any:
        self._next |= self._seeks.apply(consumer)
        found = self._seeks.valid(await super()._fetch_records(consumer, *args, **options))
        for tp, records in found.items():
            for record in records:
                # a field that is unused since message format 2
                record.checksum = min(self._next.get(tp, 0), record.offset)
                self._next[tp] = record.offset + 1
        return found

    def verify_event_path(self, now: float, tp: TP) -> None:
        """Leave out: Faust would warn that nothing is committed, which it never is."""


class _NoOffsets(dict[TP, int | None]):
    """Offsets that are never known.

    Faust drops messages below the last offset that it has passed on, and sets that from messages
    of before a seek: what was sought would never come.
    """

    def __missing__(self, tp: TP) -> None:
        return None

    def __setitem__(self, tp: TP, offset: object) -> None:
        pass

    def update(self, *offsets: Any, **more: Any) -> None:
        """Forget them."""


class ReadingConsumer(Consumer):
    """Faust's consumer with such a thread."""

    logger = FAUST_LOG

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._read_offset = _NoOffsets()

    def _new_consumer_thread(self) -> AIOKafkaConsumerThread:
        return _ReadingThread(self, loop=self.loop, beacon=self.beacon)


class StateGroup(OwnerGroup):
    """Faust's consumer group, whose owners have a `state` each; `agents` are names by topic.

    `lock` is held while one of them changes, and by other threads that read one.
    """

    def __init__(
        self, settings: Settings, agents: Mapping[str, str], datadir: Path, *parts: Any
    ) -> None:
        kafka = settings.kafka
        super().__init__(settings, kafka.group, *parts)
        self.lock = threading.RLock()
        self.app = App(
            kafka.group,
            **faust_options(kafka),
            loop=asyncio.get_running_loop(),
            datadir=datadir,  # Faust makes it, though there are no tables
            store="memory://",
            # topics are made by `ragmeter kafka init`, with the right partitions and retention
            topic_allow_declare=False,
            topic_disable_leader=True,
            topic_partitions=kafka.partitions,
            stream_recovery_delay=0.0,
            stream_buffer_maxsize=256,
            broker_max_poll_records=500,
            broker_session_timeout=kafka.session_seconds,
            broker_heartbeat_interval=kafka.session_seconds / _HEARTBEATS,
            broker_rebalance_timeout=_REBALANCE_SECONDS,
            consumer_auto_offset_reset="earliest",
            consumer_max_fetch_size=4 * 2**20,
            web_enabled=False,  # ours is served instead; Faust's shows tables to anybody
        )
        cast(Any, self.app.transport).Consumer = ReadingConsumer
        cast(Any, self.app.on_partitions_assigned).connect(self._assigned, weak=False)
        # topics of bytes: a typed one acknowledges messages that it cannot decode
        raw: Any = {"key_type": bytes, "value_type": bytes, "acks": False}
        raw |= {"key_serializer": "raw", "value_serializer": "raw"}
        for topic, name in agents.items():
            self.app.agent(self.app.topic(topic, **raw), name=name)(self._deliver)

    def states(self, kind: type[S]) -> dict[int, S]:
        """Return the loaded states of a kind by partition."""
        owners: list[tuple[TopicPartition, Any]] = list(self.owners.items())
        return {
            tp.partition: owner.state
            for tp, owner in owners
            if owner.loaded and isinstance(owner.state, kind)
        }

    async def _assigned(self, app: App, assigned: set[TP], **_: Any) -> None:
        await self.assign(TopicPartition(*tp) for tp in assigned)

    async def _deliver(self, stream: Any) -> None:
        """Hand messages to the owners of their partitions; the body of Faust's agents."""
        async for event in stream.noack().events():
            message = event.message
            tp = TopicPartition(message.topic, message.partition)
            owner = self.owners.get(tp)
            if owner is not None:
                await owner.wait_for_room()
                owner.put(message, message.checksum)

    async def seek(self, tp: TopicPartition, offset: int) -> None:
        """Deliver the messages of an assigned partition from an offset on."""
        if TP(*tp) in self.app.consumer.assignment():
            await self.app.consumer.seek(TP(*tp), offset)

    async def reached(self, tps: Sequence[TopicPartition]) -> dict[TopicPartition, tuple[int, int]]:
        """Return how far partitions were read, and their ends, of those that are assigned."""
        consumer = self.app.consumer
        here = [TP(*tp) for tp in tps if TP(*tp) in consumer.assignment()]
        ends = await consumer.highwaters(*here) if here else {}
        return {
            TopicPartition(*tp): (await consumer.position(tp) or 0, end) for tp, end in ends.items()
        }


async def follow_lag(answered: Callable[[], None], *groups: OwnerGroup) -> None:
    """Measure the lag of groups now and then, and call `answered` after it, until cancelled.

    Where the brokers do not answer, the last values stay, and `answered` is not called.
    """
    while True:
        with contextlib.suppress(*PASSING):
            async with asyncio.timeout(3 * _LAG_SECONDS):  # a busy worker takes seconds for it
                for group in groups:
                    await group.measure()
            answered()
        await asyncio.sleep(_LAG_SECONDS)
