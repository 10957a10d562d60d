"""Faust tables with awaited, idempotent changelog writes and a recovery without message loss.

A batch that a broker refuses as too large leaves no hole in the numbers of a producer.

An idempotent producer numbers its records by partition, and brokers take no number but the next.
aiokafka numbers a batch when it goes out and does not take that back when the broker has refused
it: whatever is sent to the partition afterwards is "out of order", and the producer of no more use.
A worker would end at the record behind each one that is too large, again and again.

Size is checked before anything is stored or any number is used, and no other batch of the partition
is under way meanwhile, so the numbers can be given again.

The tables of the stages: raw bytes that reach the changelog before anybody relies on them.

`table[key] = value` of Faust hides what becomes of the changelog record, and the source offset is
committed whether or not it was delivered: a flush gives up after 0.1 s, a failed send is only
logged. Here a write is awaited, and enters the table when the broker has it. No windowed tables:
after a recovery nothing in them expires.

Faust's table recovery without the races that lose messages.

**Of the streams** (Faust issue 596). When a table is recovered, Faust 0.15 resumes the partitions
of the streams while messages still flow from reading the changelog, then seeks to the committed
offsets, one round trip each, and then clears the queues. What was delivered in between is thrown
away although the position has moved on; the next message makes it look like a gap that compaction
has left, and the commit goes past it. On a real broker three of six chaos runs lost traces or stood
still; with the flow off first, none of six did.

**Of the changelog.** Whoever delivers a record of the changelog waits for room in a queue. A
rebalance empties the queue, but where there has just been room for the one that waits, its record
goes into the queue behind that. To Faust all before it is read then, goes on behind it, and a part
of the state is missing, silently. So what another generation has left is dropped, and a record in
front of which others are missing ends the worker.
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

from ragmeter.kafka.consumer import ContiguousFrom, OffsetGap
from ragmeter.kafka.state.ledger import LogRecord, partition_of_key

_SendProduceHandler: Any = sender.SendProduceReqHandler


class SequenceRestoringHandler(_SendProduceHandler):  # type: ignore[misc]
    """Instead of aiokafka's handler of one request, for it has no hook."""

    def handle_response(self, response: Any) -> None:
        numbers = self._sender._txn_manager
        for topic, partitions in response.topics:
            for partition, code, *_ in partitions:
                batch = self._batches.get(TopicPartition(topic, partition))
                if code == MessageSizeTooLargeError.errno and batch and numbers is not None:
                    numbers.increment_sequence_number(batch.tp, -batch.record_count)
        super().handle_response(response)


class IdempotentProducer(Producer):
    """A retry of the changelog must not bring back what was overwritten since: Faust's producer is
    idempotent in its transactions only."""

    def _settings_extra(self) -> Mapping[str, Any]:
        return {"acks": "all", "enable_idempotence": True}

    def _new_producer(self, transactional_id: str | None = None) -> AIOKafkaProducer:
        sender.SendProduceReqHandler = SequenceRestoringHandler
        return super()._new_producer(transactional_id)


class StateTable(faust.Table[bytes, bytes]):
    """One dictionary for all partitions that are owned; keys begin with `PARTITION/`.

    The content is what was read from the changelog at the last takeover and what this worker has
    written and got acknowledged since.
    """

    @classmethod
    def add_to(cls, app: faust.App, name: str, partitions: int) -> StateTable:
        table = cls(
            app,
            name=name,
            partitions=partitions,
            key_type=bytes,
            value_type=bytes,
            default=None,
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
        """What is read anew must not meet what it has replaced: a row that was deleted meanwhile
        would be back. Faust forgets such keys at the end of a recovery only, which may not come."""
        topic = self.changelog_topic_name
        gone = {tp.partition for tp in revoked | newly_assigned if tp.topic == topic}
        for key in [key for key in self.data if partition_of_key(key) in gone]:
            del self.data[key]
        await super().on_rebalance(assigned, revoked, newly_assigned, generation_id)

    def by_partition(self) -> dict[int, list[tuple[bytes, bytes | None]]]:
        found: dict[int, list[tuple[bytes, bytes | None]]] = defaultdict(list)
        for key, value in self.data.items():
            found[partition_of_key(key)].append((key, value))
        return found

    async def send_changelog(  # type: ignore[override]
        self, partition: int, key: bytes, value: bytes | None
    ) -> None:
        """Returns when the broker has it. Faust's goes through a buffer and costs 100 us more."""
        producer = await self.app.maybe_start_producer()
        topic = self.changelog_topic_name
        await (await producer.send(topic, key, value, partition, None, {}))

    async def write(self, partition: int, writes: Iterable[LogRecord]) -> None:
        """Returns when the broker has all of them. Raises what the producer does."""
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
    """What an app is that owns state by partition."""

    def take_over(self, generation: int, assigned: set[TP]) -> None:
        """The tables hold all that the changelogs did when `generation` was formed: those of
        `assigned`. Nothing of the streams is delivered before this returns."""

    def start_owners(self, generation: int) -> None:
        """The positions are the committed ones, and messages flow."""

    async def fail(self, error: BaseException) -> None:
        """The worker ends."""


class ChangelogQueue(ThrowableQueue[EventT[Any]]):
    """Gives what continues what was read before, in this generation."""

    manager: TableManager

    async def get(self) -> EventT[Any]:
        while True:
            event: EventT[Any] = await super().get()
            if await self._follows(event.message):
                return event

    async def _follows(self, message: Any) -> bool:
        app, consumer = self.manager.app, cast(Any, self.manager.app.consumer)
        # what comes when the flow is off is read again when it is on
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
                    f"{message.topic}/{message.partition}: of the changelog offset"
                    f" {message.offset} came, and of those from {seen + 1} on none did"
                )
            )
            return False
        return True


class _SafeRecovery(Recovery):
    async def on_recovery_completed(self, generation_id: int = 0) -> None:
        consumer, flow = self.app.consumer, self.app.flow_control
        consumer.stop_flow()
        flow.suspend()
        await consumer.wait_for_stopped_flow()  # type: ignore[attr-defined]
        await asyncio.sleep(0)  # what the fetcher had in hand is put into the queues by now
        owner = cast(PartitionedApp, self.app)
        if self.app.consumer_generation_id == generation_id:
            tps: set[TP] = self.active_tps
            owner.take_over(generation_id, set(tps))
        await super().on_recovery_completed(generation_id)
        if self.app.consumer_generation_id == generation_id:
            owner.start_owners(generation_id)


class SafeTableManager(TableManager):
    """To be given to the app as `TableManager`."""

    @property
    def changelog_queue(self) -> Any:
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
        if self._recovery is None:
            self._recovery = _SafeRecovery(self.app, self, beacon=self.beacon, loop=self.loop)
        return self._recovery
