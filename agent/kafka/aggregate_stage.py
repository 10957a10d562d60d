"""Stage 2 on the cluster: batches of score records into the state of their partition, step by step.

    apply -> write the rows -> write the marker -> fence (commit the offset) -> done -> ack

An owner lives for one generation of the group. Whatever fails, it is given up: either the group
has formed anew, and the partition is loaded again by whoever owns it then, or the worker ends.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

import faust
from faust.types import TP, EventT, StreamT

from agent.counters import Counters
from agent.kafka.fence import commit_in
from agent.kafka.gaps import NoGaps
from agent.kafka.partition_state import PartitionState
from agent.kafka.records import BadRecord, ScoreRecord, decode_record
from agent.kafka.sending import DeadTopic
from agent.kafka.slots import Ledger
from agent.kafka.state_table import StateTable

__all__ = ["AggregateStage", "Owner"]

log = logging.getLogger("ragmeter.kafka")

BATCH = 200  # records a step at most: one marker and one commit for many
GATHER_SECONDS = 0.05  # and so long they are waited for
IDLE_SECONDS = 1.0  # how often event time moves on while nothing arrives
FENCE_SECONDS = 20.0  # for a coordinator that moves; well under the time of a rebalance

Log = Iterable[tuple[bytes, bytes | None]]
Read = tuple[EventT[Any], ScoreRecord]


class _Lost(Exception):
    """The partition is not ours any more."""


class Owner:
    """One partition in one generation. `state` may be read while `stage.lock` is held."""

    def __init__(self, stage: AggregateStage, partition: int, generation: int, rows: Log) -> None:
        self._stage = stage
        self.tp = TP(stage.topic, partition)
        self.generation = generation
        self.ledger, recovered = Ledger.recover(partition, generation, rows)
        self.state = stage.build()
        self.state.load(recovered.rows, recovered.head)
        self.position = 0
        """What the fence commits: the offset after the last one that is counted."""
        self.queue: deque[EventT[Any]] = deque()
        self._arrived = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self, position: int) -> None:
        self.position = position
        self._task = asyncio.create_task(self._run())

    def put(self, event: EventT[Any]) -> None:
        self.queue.append(event)
        self._arrived.set()

    def close(self) -> None:
        """Lets go of the messages: a rebalance waits for all that anybody still holds."""
        self.queue.clear()
        if self._task is not None:
            self._task.cancel()

    async def _run(self) -> None:
        try:
            while True:
                await self._turn(await self._gather())
        except asyncio.CancelledError:
            raise
        except _Lost:
            log.warning("%s/%d was given to another worker", *self.tp)
            self._stage.drop(self)
        except Exception as error:
            self._stage.drop(self)
            await self._stage.failed(error)

    async def _gather(self) -> list[EventT[Any]]:
        if not self.queue:
            self._arrived.clear()
            try:
                await asyncio.wait_for(self._arrived.wait(), IDLE_SECONDS)
            except TimeoutError:
                return []
        if len(self.queue) < BATCH:
            await asyncio.sleep(GATHER_SECONDS)
        return [self.queue.popleft() for _ in range(min(BATCH, len(self.queue)))]

    async def _turn(self, events: list[EventT[Any]]) -> None:
        read = [pair for event in events if (pair := await self._read(event)) is not None]
        records = [record for _, record in read]
        try:
            with self._stage.lock:
                if records:
                    self.state.apply(records)
                else:
                    self.state.tick()
        except Exception:
            if not records:
                raise
            log.exception("a batch failed; trying its records one by one")
            await self._one_by_one(events)
        else:
            await self._commit(events)

    async def _read(self, event: EventT[Any]) -> Read | None:
        try:
            return event, decode_record(event.message.value or b"")
        except BadRecord as error:
            await self._stage.bury(event, error.reason, str(error))
            return None

    async def _one_by_one(self, events: list[EventT[Any]]) -> None:
        self._reload()
        for event in events:
            found = await self._read(event)
            try:
                with self._stage.lock:
                    if found is not None:
                        self.state.apply([found[1]])
            except Exception as error:
                log.exception("a record cannot be counted")
                self._reload()
                await self._stage.bury(event, "internal_error", repr(error)[:200], count=False)
                again = decode_record(event.message.value or b"")
                with self._stage.lock:
                    self.state.give_up(again.source)
            await self._commit([event])

    def _reload(self) -> None:
        """Back to what the last step has made durable; the ledger stays."""
        rows = self._stage.table.by_partition().get(self.tp.partition, [])
        _, recovered = Ledger.recover(self.tp.partition, self.generation, rows)
        state = self._stage.build()
        state.load(recovered.rows, recovered.head)
        with self._stage.lock:
            self.state = state

    async def _commit(self, events: list[EventT[Any]]) -> None:
        if events:
            self.position = events[-1].message.offset + 1
        if self.state.changed:
            await self._step()
        for event in events:
            await self._stage.ack(event)

    async def _step(self) -> None:
        stage, ledger, partition = self._stage, self.ledger, self.tp.partition
        with stage.lock:
            step = self.state.step()
        self._check_owned()
        await stage.table.write(partition, ledger.begin(step.rows))
        self._check_owned()
        await stage.table.write(partition, [ledger.marker(step.head)])
        if not await commit_in(stage.app, self.generation, self.tp, self.position, FENCE_SECONDS):
            raise _Lost
        ledger.done()
        stage.steps += 1
        if step.transitions:
            stage.announced()

    def _check_owned(self) -> None:
        app = self._stage.app
        if app.consumer_generation_id != self.generation:
            raise _Lost


class AggregateStage:
    """All partitions of the scores that this worker owns. `build` makes an empty state."""

    def __init__(
        self,
        app: faust.App,
        table: StateTable,
        topic: str,
        dead: DeadTopic,
        counters: Counters,
        *,
        build: Callable[[], PartitionState],
        failed: Callable[[BaseException], Awaitable[object]],
        announced: Callable[[], None] = lambda: None,
    ) -> None:
        self.app = app
        self.table = table
        self.topic = topic
        self.build = build
        self.failed = failed
        self.announced = announced
        self.lock = threading.RLock()
        """Held while a state changes; renderings in other threads hold it to read."""
        self.owners: dict[int, Owner] = {}
        self.steps = 0
        self._dead = dead
        self._counters = counters
        self._stream: StreamT[Any] | None = None

    # Partitions ---------------------------------------------------------------------------------

    def take_over(self, generation: int, partitions: set[int]) -> None:
        """Load the states of these partitions from the table, and no others."""
        self.release()
        started = time.monotonic()
        rows = self.table.by_partition()
        owners = {
            partition: Owner(self, partition, generation, rows.get(partition, []))
            for partition in partitions
        }
        with self.lock:
            self.owners = owners
        numbers = ", ".join(map(str, sorted(partitions))) or "none"
        seconds = time.monotonic() - started
        log.info("generation %d owns partitions %s (%.2f s)", generation, numbers, seconds)

    def taken_over(self, generation: int) -> None:
        for owner in self.owners.values():
            if owner.generation == generation:
                committed = self.app.consumer._committed_offset[owner.tp]  # type: ignore[attr-defined]
                owner.start(committed or 0)

    def release(self) -> None:
        with self.lock:
            owners, self.owners = self.owners, {}
        for owner in owners.values():
            owner.close()

    def drop(self, owner: Owner) -> None:
        with self.lock:
            if self.owners.get(owner.tp.partition) is owner:
                del self.owners[owner.tp.partition]
        owner.queue.clear()

    # Records ------------------------------------------------------------------------------------

    async def agent(self, stream: StreamT[Any]) -> None:
        """The body of the Faust agent."""
        assert isinstance(stream, faust.Stream)
        stream = self._stream = stream.noack()
        gaps = NoGaps(self.topic)
        try:
            async for event in stream.events():
                message = event.message
                generation = message.generation_id or 0
                gaps.check(message.partition, generation, message.offset)
                owner = self.owners.get(message.partition)
                # what an older generation has left is delivered again to whoever owns it now
                if owner is not None and owner.generation == generation:
                    # a look now and then: the agent is the only one that waits here
                    while len(owner.queue) >= 2 * BATCH and self._owns(owner):  # noqa: ASYNC110
                        await asyncio.sleep(GATHER_SECONDS)
                    owner.put(event)
                del event, message, owner  # see `Owner.close`
        except asyncio.CancelledError:
            raise
        except BaseException as error:
            await self.failed(error)
            raise

    def _owns(self, owner: Owner) -> bool:
        return self.owners.get(owner.tp.partition) is owner

    async def ack(self, event: EventT[Any]) -> None:
        assert self._stream is not None
        await self._stream.ack(event)

    async def bury(self, event: EventT[Any], reason: str, why: str, *, count: bool = True) -> None:
        await self._dead.send(event, reason, (("", why),))
        if count:
            self._counters.inc("ragmeter_dead_letters_total", (("reason", reason),))

    @property
    def waiting(self) -> int:
        return sum(len(owner.queue) for owner in self.owners.values())
