"""Faust tables with awaited, idempotent changelog writes and a recovery without message loss.

`table[key] = value` of Faust hides what becomes of the changelog record, and the source offset is
committed whether or not it was delivered: a flush gives up after 0.1 s, a failed send is only
logged. Here a write is awaited, and enters the table when the broker has it. No windowed tables:
after a recovery nothing in them expires.

Faust's recovery has two races. **Streams** (Faust issue 596): when a table is recovered, Faust 0.15
resumes the partitions of the streams while messages of the changelog still flow, then seeks to the
committed offsets, one round trip each, and then clears the queues. What was delivered in between is
thrown away although the position has moved on; the next message makes it look like a gap that
compaction has left, and the commit passes it. On a real broker three of six chaos runs lost traces
or stood still; with the flow off first, none of six did. **Changelog**: a sender of changelog
records waits for room in a queue. A rebalance empties the queue, but if room had just been made,
the waiting record enters it afterwards. Faust then takes all before it for read, and a part of the
state is missing, silently. So records of another generation are dropped, and a record in front of
which others are missing ends the worker.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any, Protocol, cast

import faust
from aiokafka import AIOKafkaProducer, TopicPartition
from aiokafka.errors import MessageSizeTooLargeError
from aiokafka.producer import sender
from faust.channels import ThrowableQueue  # type: ignore[attr-defined]
from faust.tables.manager import TableManager
from faust.tables.recovery import Recovery
from faust.transport.drivers.aiokafka import Producer
from faust.types import TP, EventT

from ragmeter.kafka.connection import FAUST_LOG
from ragmeter.kafka.consumer import ContiguousFrom, OffsetGap
from ragmeter.kafka.state.ledger import LogRecord, partition_of_key

_SendProduceHandler: Any = sender.SendProduceReqHandler


class SequenceRestoringHandler(_SendProduceHandler):  # type: ignore[misc]
    """A handler of one produce request that takes back the numbers of a refused batch.

    An idempotent producer numbers its records by partition, and brokers accept no number but the
    next. aiokafka numbers a batch when it goes out and keeps that when the broker refuses the batch
    as too large; every later record of the partition is then "out of order", and the worker would
    end. The size is checked before any number is used, and no other batch of the partition is under
    way meanwhile, so the numbers can be given again.
    """

    def handle_response(self, response: Any) -> None:
        """Process the response of a broker."""
        numbers = self._sender._txn_manager
        for topic, partitions in response.topics:
            for partition, code, *_ in partitions:
                batch = self._batches.get(TopicPartition(topic, partition))
                if code == MessageSizeTooLargeError.errno and batch and numbers is not None:
                    numbers.increment_sequence_number(batch.tp, -batch.record_count)
        super().handle_response(response)


class IdempotentProducer(Producer):
    """A producer whose retries never bring back a value that was overwritten since.

    Faust's own is idempotent in its transactions only.
    """

    logger = FAUST_LOG

    def _settings_extra(self) -> Mapping[str, Any]:
        return {"acks": "all", "enable_idempotence": True}

    def _new_producer(self, transactional_id: str | None = None) -> AIOKafkaProducer:
        sender.SendProduceReqHandler = SequenceRestoringHandler
        return super()._new_producer(transactional_id)


class StateTable(faust.Table[bytes, bytes]):
    """One dictionary for all owned partitions; keys begin with `PARTITION/`.

    It holds what was read from the changelog at the last takeover, and this worker's acknowledged
    writes since.
    """

    logger = FAUST_LOG

    @classmethod
    def add_to(cls, app: faust.App, name: str, partitions: int) -> StateTable:
        """Make a table of an app."""
        table = cls(
            app, name=name, partitions=partitions, key_type=bytes, value_type=bytes, default=None
        )
        app.tables.add(table)
        return table

    async def on_rebalance(
        self,
        assigned: set[TP],
        revoked: set[TP],
        newly_assigned: set[TP],
        generation_id: int = 0,
    ) -> None:
        """Forget partitions that are read anew, or rows deleted meanwhile would be back.

        Faust forgets such keys at the end of a recovery only, which may not come.
        """
        topic = self.changelog_topic_name
        gone = {tp.partition for tp in revoked | newly_assigned if tp.topic == topic}
        for key in [key for key in self.data if partition_of_key(key) in gone]:
            del self.data[key]
        await super().on_rebalance(assigned, revoked, newly_assigned, generation_id)

    def by_partition(self) -> dict[int, list[tuple[bytes, bytes | None]]]:
        """Return keys and values by partition."""
        rows: dict[int, list[tuple[bytes, bytes | None]]] = defaultdict(list)
        for key, value in self.data.items():
            rows[partition_of_key(key)].append((key, value))
        return rows

    async def send_changelog(  # type: ignore[override]
        self, partition: int, key: bytes, value: bytes | None
    ) -> None:
        """Write a record and wait for the broker; Faust's own buffer costs 100 us more."""
        producer = await self.app.maybe_start_producer()
        topic = self.changelog_topic_name
        await (await producer.send(topic, key, value, partition, None, {}))

    async def write(self, partition: int, writes: Iterable[LogRecord]) -> None:
        """Write records and wait until the broker has all; raises what the producer does."""
        writes = list(writes)
        await asyncio.gather(
            *(self.send_changelog(partition, write.key, write.value) for write in writes)
        )
        for key, value in writes:
            if value is None:
                self.data.pop(key, None)
            else:
                self.data[key] = value


class PartitionedApp(Protocol):
    """An app that owns state by partition."""

    def take_over(self, generation: int, assigned: set[TP]) -> None:
        """Load states: the tables hold the changelogs of `assigned` as of this generation.

        Nothing of the streams is delivered before this returns.
        """

    def start_owners(self, generation: int) -> None:
        """Start: the positions are the committed ones, and messages flow."""

    async def fail(self, error: BaseException) -> None:
        """End the worker."""


class ChangelogQueue(ThrowableQueue[EventT[Any]]):
    """A queue that yields only records that continue what was read in this generation."""

    manager: TableManager

    async def get(self) -> EventT[Any]:
        """Return the next record."""
        while True:
            event: EventT[Any] = await super().get()
            if await self._follows(event.message):
                return event

    async def _follows(self, message: Any) -> bool:
        app, consumer = self.manager.app, cast(Any, self.manager.app.consumer)
        # records that come while the flow is off are read again when it is on
        if message.generation_id != app.consumer_generation_id or not consumer.flow_active:
            return False
        recovery = self.manager.recovery
        seen = recovery.active_offsets.get(message.tp)
        if message.tp not in recovery.active_tps or seen is None:
            return False
        since = message.checksum
        if isinstance(since, ContiguousFrom) and since > seen + 1:
            await cast(PartitionedApp, app).fail(
                OffsetGap(
                    f"{message.topic}/{message.partition}: offset {message.offset} of the changelog"
                    f" was delivered without those from {seen + 1} on"
                )
            )
            return False
        return True


class _SafeRecovery(Recovery):
    logger = FAUST_LOG

    async def on_recovery_completed(self, generation_id: int = 0) -> None:
        consumer, flow = self.app.consumer, self.app.flow_control
        consumer.stop_flow()
        flow.suspend()
        await consumer.wait_for_stopped_flow()  # type: ignore[attr-defined]
        await asyncio.sleep(0)  # by now the fetcher has put its last batch into the queues
        owner = cast(PartitionedApp, self.app)
        if self.app.consumer_generation_id == generation_id:
            tps: set[TP] = self.active_tps
            owner.take_over(generation_id, set(tps))
        await super().on_recovery_completed(generation_id)
        if self.app.consumer_generation_id == generation_id:
            owner.start_owners(generation_id)


class SafeTableManager(TableManager):
    """The table manager of the app, with this module's queue and recovery."""

    logger = FAUST_LOG

    @property
    def changelog_queue(self) -> Any:
        """The queue of changelog records."""
        if self._changelog_queue is None:
            queue = ChangelogQueue(
                self.app.conf.stream_buffer_maxsize,
                flow_control=self.app.flow_control,
                clear_on_resume=True,
            )
            queue.manager = self
            self._changelog_queue = cast(Any, queue)
        return self._changelog_queue

    @property
    def recovery(self) -> Recovery:
        """The recovery service."""
        if self._recovery is None:
            self._recovery = _SafeRecovery(self.app, self, beacon=self.beacon, loop=self.loop)
        return self._recovery
