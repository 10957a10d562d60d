"""Stage 2 on the cluster: batches of score records into the windows of their partition."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

import faust
from faust.types import EventT

from agent.control import Control
from agent.counters import Counters
from agent.intake import Unavailable
from agent.isolation import items_fault
from agent.kafka.client.state_table import StateTable
from agent.kafka.messages.bad_record import BadRecord
from agent.kafka.messages.records import decode_any
from agent.kafka.stages.durable_stage import DurableStage
from agent.kafka.stages.owner import DurableStep, Log, Owner
from agent.kafka.stages.sending import DeadTopic
from agent.kafka.state.partition_state import PartitionState, StageRecord, Step

__all__ = ["AggregateOwner", "AggregateStage"]

log = logging.getLogger("ragmeter.kafka")

IDLE_SECONDS = 1.0  # how often event time moves on while nothing arrives

Learned = Callable[[int, Control], None]


class AggregateOwner(Owner[PartitionState]):
    """`announced` is told that alerts have moved, and `learned` what the score halves should know,
    when that is durable."""

    idle_seconds = IDLE_SECONDS

    def __init__(
        self,
        stage: AggregateStage,
        partition: int,
        generation: int,
        rows: Log,
        announced: Callable[[], None],
        learned: Learned,
    ) -> None:
        super().__init__(stage, partition, generation, rows)
        self._announced = announced
        self._learned = learned
        self._orders: list[tuple[PartitionState, int, asyncio.Future[None]]] = []

    def start(self, position: int) -> None:
        super().start(position)
        self._learned(self.tp.partition, self.state.control)  # the owner before may have died first

    async def turn(self, events: list[EventT[Any]]) -> None:
        read = [(event, await self._read(event)) for event in events]
        records = [record for _, record in read if record is not None]
        try:
            with self.durable.lock:
                if records:
                    self.state.apply(records)
                else:
                    self.state.tick()
        except Exception as error:
            if not records or not items_fault(error):
                raise
            log.exception("a batch failed; trying its records one by one")
            await self._one_by_one([(event, record is not None) for event, record in read])
        else:
            await self.commit(events)

    def made_durable(self, step: DurableStep) -> None:
        with self.durable.lock:
            self.state.outbox.settled()
        assert isinstance(step, Step)
        if step.transitions:
            self._announced()
        self._learned(self.tp.partition, self.state.control)
        waiting, self._orders = self._orders, []
        for state, number, durable in waiting:
            if state is not self.state or number > step.orders:
                self._orders.append((state, number, durable))
            elif not durable.done():  # nobody may wait for it any more
                durable.set_result(None)

    def promote(self, service: str | None) -> tuple[dict[str, Any], asyncio.Future[None]] | None:
        """A new drift baseline, as `Aggregator.promote`, and what is done when it is durable; it
        raises `Unavailable` where nobody can say that it will be."""
        with self.durable.lock:
            found = self.state.promote(service)
        if found is None:
            return None
        durable: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._orders.append((self.state, self.state.orders, durable))
        return found, durable

    async def _read(self, event: EventT[Any]) -> StageRecord | None:
        """None: it was buried."""
        try:
            return decode_any(event.message.value or b"")
        except BadRecord as error:
            await self.durable.bury(event, error.reason, str(error))
            return None

    def close(self) -> None:
        super().close()
        self._refuse()

    def reload(self) -> None:
        super().reload()
        self._refuse()

    def _refuse(self) -> None:
        waiting, self._orders = self._orders, []
        for _, _, durable in waiting:
            if not durable.done():
                durable.set_exception(Unavailable("the group forms anew: ask again"))

    async def _one_by_one(self, events: list[tuple[EventT[Any], bool]]) -> None:
        """Events, and whether each is a record; those that are none were buried before."""
        self.reload()
        for event, sound in events:
            if sound:
                await self._try(event)
            await self.commit([event])

    async def _try(self, event: EventT[Any]) -> None:
        error = self._failure(event)
        if error is not None:
            with self.durable.lock:
                forsaken = self.state.forsake(decode_any(event.message.value or b""))
            error = self._failure(event) if forsaken else error
        if error is not None:
            await self.durable.bury(event, "internal_error", repr(error)[:200], count=False)
            with self.durable.lock:
                self.state.give_up(decode_any(event.message.value or b""))

    def _failure(self, event: EventT[Any]) -> Exception | None:
        """Why a record cannot be counted: the state is then what it was before. None: it is."""
        record = decode_any(event.message.value or b"")  # what is applied becomes the state's own
        try:
            with self.durable.lock:
                self.state.apply([record])
        except Exception as error:
            if not items_fault(error):
                raise
            log.exception("a record cannot be counted")
            self.reload()
            return error
        return None


class AggregateStage(DurableStage[PartitionState]):
    """All partitions of the scores that this worker owns."""

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
        learned: Learned = lambda partition, control: None,
    ) -> None:
        super().__init__(app, table, topic, dead, counters, build=build, failed=failed)
        self._announced = announced
        self._learned = learned

    def own(self, partition: int, generation: int, rows: Log) -> AggregateOwner:
        return AggregateOwner(self, partition, generation, rows, self._announced, self._learned)
