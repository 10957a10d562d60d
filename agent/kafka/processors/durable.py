"""Base of the stateful processors: batches become atomic steps of a partition's state, committed in one group generation.

Commits an offset in one generation of the consumer group, or not at all.

Faust's own commit, and aiokafka's below it, retry with whatever generation there is by then. A
fence must not: a commit that began in one generation and was accepted in the next says nothing
about who owned the partition when the step was written (`ragmeter.kafka.state.ledger`).

Batches of records into the state of their partition, step by step: the machine of the stages.

    apply -> write the rows -> write the marker -> fence (commit the offset) -> done -> ack

An owner lives for one generation of the group. Whatever fails, it is given up: either the group
has formed anew, and the partition is loaded again by whoever owns it then, or the worker ends.
What is done with records is the subclasses' matter, and what is kept their state's.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping
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

from ragmeter.core.counters import Counters
from ragmeter.kafka.consumer import GapDetector, check_gap, discard_messages
from ragmeter.kafka.processors.delivery import DeadLetterTopic
from ragmeter.kafka.state.ledger import Ledger
from ragmeter.kafka.state.rows import Rows
from ragmeter.kafka.tables import StateTable

_PAUSE_SECONDS = 0.1  # as aiokafka's own retry


async def commit_in_generation(
    app: AppT, generation: int, tp: TP, offset: int, seconds: float
) -> bool:
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
        await asyncio.sleep(_PAUSE_SECONDS)


log = logging.getLogger("ragmeter.kafka")

BATCH = 200  # records a step at most: one marker and one commit for many
BATCH_BYTES = 4 * 2**20  # or so many bytes of them, where that is more than one
_GATHER_SECONDS = 1.0
"""And so long they are waited for. A step writes some eight rows of each service, however many of
its records it has, and every worker has many partitions: shorter steps are mostly rows."""
_GATHER_STEPS = 4  # or so many times what the last step took: where they are slow, fewer are made
_GATHER_MOST = 3.0  # but no longer
FENCE_SECONDS = 20.0  # for a coordinator that moves; well under the time of a rebalance

ChangelogRows = Iterable[tuple[bytes, bytes | None]]


class DurableStep(Protocol):
    """For `Ledger.begin` and `Ledger.marker`."""

    @property
    def rows(self) -> Rows: ...

    @property
    def head(self) -> bytes: ...


class DurableState(Protocol):
    """The state of a partition."""

    @property
    def changed(self) -> bool:
        """Whether there is anything to make durable."""

    def step(self) -> DurableStep:
        """All that changed since the last call."""

    def load(self, rows: Mapping[bytes, bytes], head: bytes | None) -> None:
        """What a ledger has recovered, into a new object."""


S = TypeVar("S", bound=DurableState)


class PartitionLost(Exception):
    """The partition is not ours any more."""


class PartitionOwner(ABC, Generic[S]):
    """One partition in one generation. `state` may be read while `stage.lock` is held."""

    def __init__(
        self, stage: DurableProcessor[S], partition: int, generation: int, rows: ChangelogRows
    ) -> None:
        self.durable = stage
        self.tp = TP(stage.topic, partition)
        self.generation = generation
        self.ledger, recovered = Ledger.recover(partition, generation, rows)
        self.state = stage.build()
        self.state.load(recovered.rows, recovered.head)
        self.position = 0
        """What the fence commits: the offset after the last one that is counted."""
        self.queue: deque[EventT[Any]] = deque()
        self.waiting_bytes = 0
        self._arrived = asyncio.Event()
        self._took = 0.0  # seconds of the last step
        self._task: asyncio.Task[None] | None = None

    @abstractmethod
    async def process(self, events: list[EventT[Any]]) -> None:
        """Do with the events (none: nothing has come for `idle_seconds`) what is to be done with
        them, and `commit` them."""

    @property
    @abstractmethod
    def idle_seconds(self) -> float:
        """How long events are waited for."""

    @property
    def gather_seconds(self) -> float:
        """How long others are waited for when one has come."""
        return min(max(_GATHER_SECONDS, _GATHER_STEPS * self._took), _GATHER_MOST)

    def on_committed(self, step: DurableStep) -> None:
        """The step is done."""

    def start(self, position: int) -> None:
        self.position = position
        self._task = asyncio.create_task(self._run())

    def put(self, event: EventT[Any]) -> None:
        self.queue.append(event)
        self.waiting_bytes += _event_bytes(event)
        self._arrived.set()

    @property
    def full(self) -> bool:
        return len(self.queue) >= 2 * BATCH or self.waiting_bytes >= 2 * BATCH_BYTES

    def close(self) -> None:
        """Lets go of the messages: a rebalance waits for all that anybody still holds."""
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
            self.durable.drop_owner(self)
        except Exception as error:
            self.durable.drop_owner(self)
            await self.durable.failed(error)

    async def _gather(self) -> list[EventT[Any]]:
        if not self.queue:
            self._arrived.clear()
            try:
                await asyncio.wait_for(self._arrived.wait(), self.idle_seconds)
            except TimeoutError:
                return []
        if len(self.queue) < BATCH and self.waiting_bytes < BATCH_BYTES:
            await asyncio.sleep(self.gather_seconds)
        found: list[EventT[Any]] = []
        taken = 0
        while self.queue and len(found) < BATCH:
            size = _event_bytes(self.queue[0])
            if found and taken + size > BATCH_BYTES:
                break
            taken += size
            found.append(self.queue.popleft())
        self.waiting_bytes -= taken
        return found

    def reload(self) -> None:
        """Back to what the last step has made durable; the ledger stays."""
        rows = self.durable.table.by_partition().get(self.tp.partition, [])
        _, recovered = Ledger.recover(self.tp.partition, self.generation, rows)
        state = self.durable.build()
        state.load(recovered.rows, recovered.head)
        with self.durable.lock:
            self.state = state

    async def commit(self, events: list[EventT[Any]]) -> None:
        """What was done with these events and all before them is durable when this returns, and
        they are acknowledged. Raises `Lost`."""
        if events:
            self.position = events[-1].message.offset + 1
        if self.state.changed:
            await self._step()
        for event in events:
            await self.durable.ack(event)

    async def _step(self) -> None:
        stage, ledger, partition = self.durable, self.ledger, self.tp.partition
        begun = time.monotonic()
        with stage.lock:
            step = self.state.step()
        self.check_owned()
        await stage.table.write(partition, ledger.begin(step.rows))
        self.check_owned()
        await stage.table.write(partition, [ledger.marker(step.head)])
        if not await commit_in_generation(
            stage.app, self.generation, self.tp, self.position, FENCE_SECONDS
        ):
            raise PartitionLost
        ledger.done()
        self._took = time.monotonic() - begun
        self.on_committed(step)

    def check_owned(self) -> None:
        """Raises `Lost` where the group has formed anew."""
        if self.durable.app.consumer_generation_id != self.generation:
            raise PartitionLost


def _event_bytes(event: EventT[Any]) -> int:
    return len(event.message.value or b"")


QUEUE_POLL_SECONDS = 0.02  # between two looks whether a full queue has room again


class DurableProcessor(ABC, Generic[S]):
    """All partitions of a topic that this worker owns. `build` makes an empty state."""

    def __init__(
        self,
        app: faust.App,
        table: StateTable,
        topic: str,
        dead: DeadLetterTopic,
        counters: Counters,
        *,
        build: Callable[[], S],
        failed: Callable[[BaseException], Awaitable[object]],
    ) -> None:
        self.app = app
        self.table = table
        self.topic = topic
        self.dead = dead
        self.counters = counters
        self.build = build
        self.failed = failed
        self.lock = threading.RLock()
        """Held while a state changes; renderings in other threads hold it to read."""
        self.owners: dict[int, PartitionOwner[S]] = {}
        self._stream: StreamT[Any] | None = None

    @abstractmethod
    def make_owner(self, partition: int, generation: int, rows: ChangelogRows) -> PartitionOwner[S]:
        """The owner of a partition."""

    # Partitions ---------------------------------------------------------------------------------

    def take_over(self, generation: int, assigned: set[TP]) -> None:
        """Load the states from the table: those of which `assigned` has the changelog, and no
        others."""
        self.release()
        started = time.monotonic()
        rows = self.table.by_partition()
        topic = self.table.changelog_topic_name
        partitions = sorted(tp.partition for tp in assigned if tp.topic == topic)
        owners = {
            partition: self.make_owner(partition, generation, rows.get(partition, []))
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
        for owner in self.owners.values():
            if owner.generation == generation:
                committed = self.app.consumer._committed_offset[owner.tp]  # type: ignore[attr-defined]
                owner.start(committed or 0)

    def release(self) -> None:
        with self.lock:
            owners, self.owners = self.owners, {}
        for owner in owners.values():
            owner.close()

    def drop_owner(self, owner: PartitionOwner[S]) -> None:
        with self.lock:
            if self.owners.get(owner.tp.partition) is owner:
                del self.owners[owner.tp.partition]
        owner.queue.clear()
        unacked = list(cast(Any, self.app.consumer).unacked)
        discard_messages(self.app, [message for message in unacked if message.tp == owner.tp])

    # Records ------------------------------------------------------------------------------------

    async def agent(self, stream: StreamT[Any]) -> None:
        """The body of the Faust agent."""
        assert isinstance(stream, faust.Stream)
        stream = self._stream = stream.noack()
        gaps = GapDetector()
        try:
            async for event in stream.events():
                message = event.message
                generation = message.generation_id or 0
                await check_gap(self.app, gaps, message, self.counters)
                owner = self.owners.get(message.partition)
                # what an older generation has left is delivered again to whoever owns it now
                if owner is not None and owner.generation == generation:
                    # a look now and then: the agent is the only one that waits here
                    while owner.full and self._owns(owner):  # noqa: ASYNC110
                        await asyncio.sleep(QUEUE_POLL_SECONDS)
                if owner is None or owner.generation != generation or not self._owns(owner):
                    discard_messages(self.app, [message])
                else:
                    owner.put(event)
                del event, message, owner  # see `Owner.close`
        except asyncio.CancelledError:
            raise
        except BaseException as error:
            await self.failed(error)
            raise

    def _owns(self, owner: PartitionOwner[S]) -> bool:
        return self.owners.get(owner.tp.partition) is owner

    async def ack(self, event: EventT[Any]) -> None:
        assert self._stream is not None
        await self._stream.ack(event)

    async def send_dead_letter(
        self, event: EventT[Any], reason: str, why: str, *, count: bool = True
    ) -> None:
        await self.dead.send(event, reason, (("", why),))
        if count:
            self.counters.inc("ragmeter_dead_letters_total", (("reason", reason),))

    @property
    def waiting(self) -> int:
        return sum(len(owner.queue) for owner in list(self.owners.values()))
