"""Base of the stateful processors: batches become atomic steps of a partition's state.

    apply -> write the rows -> write the marker -> fence (commit the offset) -> done -> ack

A `PartitionOwner` lives for one generation of the group. Whatever fails, it is given up: either the
group has rebalanced, and the next owner loads the partition again, or the worker ends.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Generic, Protocol, TypeVar, cast

import faust
from aiokafka import TopicPartition
from aiokafka.errors import (
    IllegalGenerationError,
    KafkaError,
    RebalanceInProgressError,
    UnknownMemberIdError,
)
from aiokafka.structs import OffsetAndMetadata
from faust.types import TP, AppT, EventT, StreamT

from ragmeter.core.errors import RagmeterError
from ragmeter.kafka.consumer import GapDetector, check_gap, discard_messages
from ragmeter.kafka.processors.delivery import ProcessorContext
from ragmeter.kafka.state.ledger import Ledger
from ragmeter.kafka.state.rows import StateStep
from ragmeter.kafka.tables import StateTable

log = logging.getLogger(__name__)

BATCH = 200  # records a step at most: one marker and one commit for many
BATCH_BYTES = 4 * 2**20  # or so many bytes of them, where that is more than one
# How long more records are waited for. A step writes some eight rows of each service, however many
# of its records it has, and every worker has many partitions: shorter steps are mostly rows.
_GATHER_SECONDS = 1.0
_GATHER_STEPS = 4  # or so many times what the last step took: where they are slow, fewer are made
_GATHER_MOST = 3.0  # but no longer
FENCE_SECONDS = 20.0  # for a coordinator that moves; well under the time of a rebalance
QUEUE_POLL_SECONDS = 0.02  # between two looks whether a full queue has room again
_RETRY_SECONDS = 0.1  # as aiokafka's own

ChangelogRows = Iterable[tuple[bytes, bytes | None]]


async def commit_in_generation(
    app: AppT, generation: int, tp: TP, offset: int, seconds: float
) -> bool:
    """Commit an offset in one generation of the consumer group, or not at all.

    Faust's own commit, and aiokafka's below it, retry in whatever generation there is by then. A
    commit that began in one generation and succeeded in the next would not prove who owned the
    partition when the step was written (`ragmeter.kafka.state.ledger`). While the coordinator
    cannot be reached, this retries for `seconds` and then raises.

    Returns:
        Whether the coordinator has accepted the offset from this member in `generation`.
    """
    thread = app.consumer._thread  # type: ignore[attr-defined]
    return bool(await thread.call_thread(_commit, thread, generation, tp, offset, seconds))


async def _commit(thread: Any, generation: int, tp: TP, offset: int, seconds: float) -> bool:
    coordinator = thread._ensure_consumer()._coordinator
    offsets = {TopicPartition(tp.topic, tp.partition): OffsetAndMetadata(offset, "")}
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
                await coordinator._do_commit_offsets(None, offsets)
                return True
        except (UnknownMemberIdError, IllegalGenerationError, RebalanceInProgressError):
            return False
        except KafkaError as error:
            if not error.retriable or time.monotonic() >= end:
                raise
        await asyncio.sleep(_RETRY_SECONDS)


class DurableState(Protocol):
    """The state of a partition."""

    @property
    def changed(self) -> bool:
        """Whether there is anything to make durable."""

    def step(self) -> StateStep:
        """Return all that changed since the last call."""

    def load(self, rows: Mapping[bytes, bytes], head: bytes | None) -> None:
        """Restore what a ledger has recovered, in a new object."""


S = TypeVar("S", bound=DurableState)


class PartitionLost(RagmeterError):
    """The partition belongs to another worker by now."""


class PartitionOwner(ABC, Generic[S]):
    """One partition in one generation.

    `state` may be read while `processor.lock` is held. `position` is the offset after the last
    counted record: the fence commits it. `sweep` is that of the ledger.
    """

    sweep: int | None = None

    def __init__(
        self, processor: DurableProcessor[S], partition: int, generation: int, rows: ChangelogRows
    ) -> None:
        self.processor = processor
        self.tp = TP(processor.topic, partition)
        self.generation = generation
        self.ledger, recovered = Ledger.recover(partition, generation, rows)
        self.ledger.sweep = self.sweep
        self.state = processor.build()
        self.state.load(recovered.rows, recovered.head)
        self.position = 0
        self.queue: deque[EventT[Any]] = deque()
        self.waiting_bytes = 0
        self._arrived = asyncio.Event()
        self._took = 0.0  # seconds of the last step
        self._task: asyncio.Task[None] | None = None

    @abstractmethod
    async def process(self, events: list[EventT[Any]]) -> None:
        """Apply the events (none: nothing came for `idle_seconds`) and `commit` them."""

    @property
    @abstractmethod
    def idle_seconds(self) -> float:
        """How long the owner waits for a first event."""

    @property
    def gather_seconds(self) -> float:
        """How long the owner waits for more events after the first."""
        return min(max(_GATHER_SECONDS, _GATHER_STEPS * self._took), _GATHER_MOST)

    def on_committed(self, step: StateStep) -> None:
        """React to a step that is durable."""

    def start(self, position: int) -> None:
        """Begin to process at an offset."""
        self.position = position
        self._task = asyncio.create_task(self._run())

    def put(self, event: EventT[Any]) -> None:
        """Queue an event."""
        self.queue.append(event)
        self.waiting_bytes += _event_bytes(event)
        self._arrived.set()

    @property
    def full(self) -> bool:
        """Whether the queue holds two batches."""
        return len(self.queue) >= 2 * BATCH or self.waiting_bytes >= 2 * BATCH_BYTES

    def close(self) -> None:
        """Stop, and drop queued messages: a rebalance waits for all that anybody still holds."""
        self.queue.clear()
        if self._task is not None:
            self._task.cancel()

    async def _run(self) -> None:
        try:
            while True:
                await self.process(await self._gather())
        except asyncio.CancelledError:
            raise
        except PartitionLost:
            log.warning("%s/%d was given to another worker", *self.tp)
            self.processor.drop_owner(self)
        except Exception as error:
            self.processor.drop_owner(self)
            await self.processor.context.fail(error)

    async def _gather(self) -> list[EventT[Any]]:
        if not self.queue:
            self._arrived.clear()
            try:
                await asyncio.wait_for(self._arrived.wait(), self.idle_seconds)
            except TimeoutError:
                return []
        if len(self.queue) < BATCH and self.waiting_bytes < BATCH_BYTES:
            await asyncio.sleep(self.gather_seconds)
        batch: list[EventT[Any]] = []
        taken = 0
        while self.queue and len(batch) < BATCH:
            size = _event_bytes(self.queue[0])
            if batch and taken + size > BATCH_BYTES:
                break
            taken += size
            batch.append(self.queue.popleft())
        self.waiting_bytes -= taken
        return batch

    def reload(self) -> None:
        """Restore the state of the last durable step; the ledger stays."""
        rows = self.processor.table.by_partition().get(self.tp.partition, [])
        _, recovered = Ledger.recover(self.tp.partition, self.generation, rows)
        state = self.processor.build()
        state.load(recovered.rows, recovered.head)
        with self.processor.lock:
            self.state = state

    async def commit(self, events: list[EventT[Any]]) -> None:
        """Make the effects of these events and all before them durable, and acknowledge them.

        Raises:
            PartitionLost: Another worker owns the partition by now.
        """
        if events:
            self.position = events[-1].message.offset + 1
        if self.state.changed:
            await self._step()
        for event in events:
            await self.processor.ack(event)

    async def _step(self) -> None:
        processor, ledger, partition = self.processor, self.ledger, self.tp.partition
        begun = time.monotonic()
        with processor.lock:
            step = self.state.step()
        self.check_owned()
        await processor.table.write(partition, ledger.begin(step.rows))
        self.check_owned()
        await processor.table.write(partition, [ledger.marker(step.head)])
        if not await commit_in_generation(
            processor.app, self.generation, self.tp, self.position, FENCE_SECONDS
        ):
            raise PartitionLost
        ledger.done()
        self._took = time.monotonic() - begun
        self.on_committed(step)

    def check_owned(self) -> None:
        """Raise `PartitionLost` if the group has rebalanced."""
        if self.processor.app.consumer_generation_id != self.generation:
            raise PartitionLost


def _event_bytes(event: EventT[Any]) -> int:
    return len(event.message.value or b"")


class DurableProcessor(Generic[S]):
    """The partitions of a topic that this worker owns, with their states in a table.

    `build` makes an empty state. `lock` is held while a state changes, and by other threads that
    read one.
    """

    owner_type: type[PartitionOwner[S]]

    def __init__(
        self,
        context: ProcessorContext,
        app: faust.App,
        table: StateTable,
        topic: str,
        build: Callable[[], S],
    ) -> None:
        self.context = context
        self.app = app
        self.table = table
        self.topic = topic
        self.build = build
        self.lock = threading.RLock()
        self.owners: dict[int, PartitionOwner[S]] = {}
        self._stream: StreamT[Any] | None = None

    def take_over(self, generation: int, assigned: set[TP]) -> None:
        """Load the states whose changelog partition is in `assigned`."""
        self.release()
        started = time.monotonic()
        rows = self.table.by_partition()
        topic = self.table.changelog_topic_name
        partitions = sorted(tp.partition for tp in assigned if tp.topic == topic)
        owners = {
            partition: self.owner_type(self, partition, generation, rows.get(partition, []))
            for partition in partitions
        }
        with self.lock:
            self.owners = owners
        numbers = ", ".join(map(str, partitions)) or "none"
        seconds = time.monotonic() - started
        log.info(
            "generation %d owns partitions %s of %s (%.2f s)",
            *(generation, numbers, self.topic, seconds),
        )

    def start_owners(self, generation: int) -> None:
        """Start the owners of a generation at the committed offsets."""
        for owner in self.owners.values():
            if owner.generation == generation:
                committed = self.app.consumer._committed_offset[owner.tp]  # type: ignore[attr-defined]
                owner.start(committed or 0)

    def release(self) -> None:
        """Give up all partitions."""
        with self.lock:
            owners, self.owners = self.owners, {}
        for owner in owners.values():
            owner.close()

    def drop_owner(self, owner: PartitionOwner[S]) -> None:
        """Give up one partition, and discard its unacknowledged messages."""
        with self.lock:
            if self._owns(owner):
                del self.owners[owner.tp.partition]
        owner.queue.clear()
        unacked = list(cast(Any, self.app.consumer).unacked)
        discard_messages(self.app, [message for message in unacked if message.tp == owner.tp])

    async def agent(self, stream: StreamT[Any]) -> None:
        """Give each event to the owner of its partition; this is the body of the Faust agent."""
        assert isinstance(stream, faust.Stream)
        stream = self._stream = stream.noack()
        gaps = GapDetector()
        try:
            async for event in stream.events():
                message = event.message
                generation = message.generation_id or 0
                await check_gap(self.app, gaps, message, self.context.counters)
                owner = self.owners.get(message.partition)
                # what an older generation has left is delivered again to the present owner
                if owner is not None and owner.generation == generation:
                    # polled: the agent is the only one that waits here
                    while owner.full and self._owns(owner):  # noqa: ASYNC110
                        await asyncio.sleep(QUEUE_POLL_SECONDS)
                if owner is None or owner.generation != generation or not self._owns(owner):
                    discard_messages(self.app, [message])
                else:
                    owner.put(event)
                del event, message, owner  # see `PartitionOwner.close`
        except asyncio.CancelledError:
            raise
        except BaseException as error:
            await self.context.fail(error)
            raise

    def _owns(self, owner: PartitionOwner[S]) -> bool:
        return self.owners.get(owner.tp.partition) is owner

    async def ack(self, event: EventT[Any]) -> None:
        """Acknowledge an event."""
        assert self._stream is not None
        await self._stream.ack(event)

    async def send_dead_letter(
        self, event: EventT[Any], reason: str, why: str, *, count: bool = True
    ) -> None:
        """Deliver the message of an event as a dead letter, and count it unless the state does."""
        await self.context.dead.send(event, reason, (("", why),))
        if count:
            self.context.count_dead_letter(reason)

    @property
    def waiting(self) -> int:
        """Queued messages of all partitions."""
        return sum(len(owner.queue) for owner in list(self.owners.values()))
