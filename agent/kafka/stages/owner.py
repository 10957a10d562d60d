"""Batches of records into the state of their partition, step by step: the machine of the stages.

    apply -> write the rows -> write the marker -> fence (commit the offset) -> done -> ack

An owner lives for one generation of the group. Whatever fails, it is given up: either the group
has formed anew, and the partition is loaded again by whoever owns it then, or the worker ends.
What is done with records is the subclasses' matter, and what is kept their state's.
"""

from __future__ import annotations

import asyncio
import logging
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from faust.types import TP, EventT

from agent.kafka.client.fence import commit_in
from agent.kafka.state.slots import Ledger
from agent.kafka.state.state_rows import Rows

if TYPE_CHECKING:
    from agent.kafka.stages.durable_stage import DurableStage

__all__ = ["GATHER_SECONDS", "Durable", "DurableStep", "Log", "Lost", "Owner", "S"]

log = logging.getLogger("ragmeter.kafka")

BATCH = 200  # records a step at most: one marker and one commit for many
BATCH_BYTES = 4 * 2**20  # or so many bytes of them, where that is more than one
GATHER_SECONDS = 1.0
"""And so long they are waited for. A step writes some eight rows of each service, however many of
its records it has, and every worker has many partitions: shorter steps are mostly rows."""
GATHER_STEPS = 4  # or so many times what the last step took: where they are slow, fewer are made
GATHER_MOST = 3.0  # but no longer
FENCE_SECONDS = 20.0  # for a coordinator that moves; well under the time of a rebalance

Log = Iterable[tuple[bytes, bytes | None]]


class DurableStep(Protocol):
    """For `Ledger.begin` and `Ledger.marker`."""

    @property
    def rows(self) -> Rows: ...

    @property
    def head(self) -> bytes: ...


class Durable(Protocol):
    """The state of a partition."""

    @property
    def changed(self) -> bool:
        """Whether there is anything to make durable."""

    def step(self) -> DurableStep:
        """All that changed since the last call."""

    def load(self, rows: Mapping[bytes, bytes], head: bytes | None) -> None:
        """What a ledger has recovered, into a new object."""


S = TypeVar("S", bound=Durable)


class Lost(Exception):
    """The partition is not ours any more."""


class Owner(ABC, Generic[S]):
    """One partition in one generation. `state` may be read while `stage.lock` is held."""

    def __init__(self, stage: DurableStage[S], partition: int, generation: int, rows: Log) -> None:
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
    async def turn(self, events: list[EventT[Any]]) -> None:
        """Do with the events (none: nothing has come for `idle_seconds`) what is to be done with
        them, and `commit` them."""

    @property
    @abstractmethod
    def idle_seconds(self) -> float:
        """How long events are waited for."""

    @property
    def gather_seconds(self) -> float:
        """How long others are waited for when one has come."""
        return min(max(GATHER_SECONDS, GATHER_STEPS * self._took), GATHER_MOST)

    def made_durable(self, step: DurableStep) -> None:
        """The step is done."""

    def start(self, position: int) -> None:
        self.position = position
        self._task = asyncio.create_task(self._run())

    def put(self, event: EventT[Any]) -> None:
        self.queue.append(event)
        self.waiting_bytes += _size(event)
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
                await self.turn(await self._gather())
        except asyncio.CancelledError:
            raise
        except Lost:
            log.warning("%s/%d was given to another worker", *self.tp)
            self.durable.drop(self)
        except Exception as error:
            self.durable.drop(self)
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
            size = _size(self.queue[0])
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
        if not await commit_in(stage.app, self.generation, self.tp, self.position, FENCE_SECONDS):
            raise Lost
        ledger.done()
        self._took = time.monotonic() - begun
        self.made_durable(step)

    def check_owned(self) -> None:
        """Raises `Lost` where the group has formed anew."""
        if self.durable.app.consumer_generation_id != self.generation:
            raise Lost


def _size(event: EventT[Any]) -> int:
    return len(event.message.value or b"")
