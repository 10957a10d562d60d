"""A stage whose partitions each have an owner: who owns which, and the way of a message to it."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from typing import Any, Generic, cast

import faust
from faust.types import TP, EventT, StreamT

from agent.counters import Counters
from agent.kafka.client.settled import let_go
from agent.kafka.client.state_table import StateTable
from agent.kafka.stages.gaps import NoGaps, check
from agent.kafka.stages.owner import Log, Owner, S
from agent.kafka.stages.sending import DeadTopic

__all__ = ["DurableStage"]

log = logging.getLogger("ragmeter.kafka")

LOOK_SECONDS = 0.02  # between two looks whether a full queue has room again


class DurableStage(ABC, Generic[S]):
    """All partitions of a topic that this worker owns. `build` makes an empty state."""

    def __init__(
        self,
        app: faust.App,
        table: StateTable,
        topic: str,
        dead: DeadTopic,
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
        self.owners: dict[int, Owner[S]] = {}
        self._stream: StreamT[Any] | None = None

    @abstractmethod
    def own(self, partition: int, generation: int, rows: Log) -> Owner[S]:
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
            partition: self.own(partition, generation, rows.get(partition, []))
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

    def drop(self, owner: Owner[S]) -> None:
        with self.lock:
            if self.owners.get(owner.tp.partition) is owner:
                del self.owners[owner.tp.partition]
        owner.queue.clear()
        unacked = list(cast(Any, self.app.consumer).unacked)
        let_go(self.app, [message for message in unacked if message.tp == owner.tp])

    # Records ------------------------------------------------------------------------------------

    async def agent(self, stream: StreamT[Any]) -> None:
        """The body of the Faust agent."""
        assert isinstance(stream, faust.Stream)
        stream = self._stream = stream.noack()
        gaps = NoGaps()
        try:
            async for event in stream.events():
                message = event.message
                generation = message.generation_id or 0
                await check(self.app, gaps, message, self.counters)
                owner = self.owners.get(message.partition)
                # what an older generation has left is delivered again to whoever owns it now
                if owner is not None and owner.generation == generation:
                    # a look now and then: the agent is the only one that waits here
                    while owner.full and self._owns(owner):  # noqa: ASYNC110
                        await asyncio.sleep(LOOK_SECONDS)
                if owner is None or owner.generation != generation or not self._owns(owner):
                    let_go(self.app, [message])
                else:
                    owner.put(event)
                del event, message, owner  # see `Owner.close`
        except asyncio.CancelledError:
            raise
        except BaseException as error:
            await self.failed(error)
            raise

    def _owns(self, owner: Owner[S]) -> bool:
        return self.owners.get(owner.tp.partition) is owner

    async def ack(self, event: EventT[Any]) -> None:
        assert self._stream is not None
        await self._stream.ack(event)

    async def bury(self, event: EventT[Any], reason: str, why: str, *, count: bool = True) -> None:
        await self.dead.send(event, reason, (("", why),))
        if count:
            self.counters.inc("ragmeter_dead_letters_total", (("reason", reason),))

    @property
    def waiting(self) -> int:
        return sum(len(owner.queue) for owner in list(self.owners.values()))
