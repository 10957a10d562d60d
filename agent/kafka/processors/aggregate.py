"""Count batches of score records in the state of their partition."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

import faust
from faust.types import EventT

from ragmeter.core.counters import Counters
from ragmeter.core.errors import is_item_fault
from ragmeter.embedded.intake import StateUnavailable
from ragmeter.kafka.processors.delivery import DeadLetterTopic
from ragmeter.kafka.processors.durable import (
    ChangelogRows,
    DurableProcessor,
    DurableStep,
    PartitionOwner,
)
from ragmeter.kafka.score_records import BadRecord, decode_scores_message
from ragmeter.kafka.state.partition import PartitionState, PartitionStep, ScoresRecord
from ragmeter.kafka.tables import StateTable
from ragmeter.sampling.control import SamplingControl

log = logging.getLogger("ragmeter.kafka")

IDLE_SECONDS = 1.0  # how often event time moves on while nothing arrives

ControlSink = Callable[[int, SamplingControl], None]


class AggregateOwner(PartitionOwner[PartitionState]):
    """`announced` is told that alerts have moved, and `learned` what the score halves should know,
    when that is durable."""

    idle_seconds = IDLE_SECONDS

    def __init__(
        self,
        stage: AggregateProcessor,
        partition: int,
        generation: int,
        rows: ChangelogRows,
        announced: Callable[[], None],
        learned: ControlSink,
    ) -> None:
        super().__init__(stage, partition, generation, rows)
        self._announced = announced
        self._learned = learned
        self._orders: list[tuple[PartitionState, int, asyncio.Future[None]]] = []

    def start(self, position: int) -> None:
        super().start(position)
        self._learned(self.tp.partition, self.state.control)  # the owner before may have died first

    async def process(self, events: list[EventT[Any]]) -> None:
        read = [(event, await self._read(event)) for event in events]
        records = [record for _, record in read if record is not None]
        try:
            with self.durable.lock:
                if records:
                    self.state.apply(records)
                else:
                    self.state.tick()
        except Exception as error:
            if not records or not is_item_fault(error):
                raise
            log.exception("a batch failed; trying its records one by one")
            await self._one_by_one([(event, record is not None) for event, record in read])
        else:
            await self.commit(events)

    def on_committed(self, step: DurableStep) -> None:
        with self.durable.lock:
            self.state.outbox.settled()
        assert isinstance(step, PartitionStep)
        if step.transitions:
            self._announced()
        self._learned(self.tp.partition, self.state.control)
        waiting, self._orders = self._orders, []
        for state, number, durable in waiting:
            if state is not self.state or number > step.promotions:
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
        self._orders.append((self.state, self.state.promotions, durable))
        return found, durable

    async def _read(self, event: EventT[Any]) -> ScoresRecord | None:
        """None: it was buried."""
        try:
            return decode_scores_message(event.message.value or b"")
        except BadRecord as error:
            await self.durable.send_dead_letter(event, error.reason, str(error))
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
                durable.set_exception(StateUnavailable("the group forms anew: ask again"))

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
                forsaken = self.state.give_up_feedback(
                    decode_scores_message(event.message.value or b"")
                )
            error = self._failure(event) if forsaken else error
        if error is not None:
            await self.durable.send_dead_letter(
                event, "internal_error", repr(error)[:200], count=False
            )
            with self.durable.lock:
                self.state.give_up(decode_scores_message(event.message.value or b""))

    def _failure(self, event: EventT[Any]) -> Exception | None:
        """Why a record cannot be counted: the state is then what it was before. None: it is."""
        record = decode_scores_message(
            event.message.value or b""
        )  # what is applied becomes the state's own
        try:
            with self.durable.lock:
                self.state.apply([record])
        except Exception as error:
            if not is_item_fault(error):
                raise
            log.exception("a record cannot be counted")
            self.reload()
            return error
        return None


class AggregateProcessor(DurableProcessor[PartitionState]):
    """All partitions of the scores that this worker owns."""

    def __init__(
        self,
        app: faust.App,
        table: StateTable,
        topic: str,
        dead: DeadLetterTopic,
        counters: Counters,
        *,
        build: Callable[[], PartitionState],
        failed: Callable[[BaseException], Awaitable[object]],
        announced: Callable[[], None] = lambda: None,
        learned: ControlSink = lambda partition, control: None,
    ) -> None:
        super().__init__(app, table, topic, dead, counters, build=build, failed=failed)
        self._announced = announced
        self._learned = learned

    def make_owner(self, partition: int, generation: int, rows: ChangelogRows) -> AggregateOwner:
        return AggregateOwner(self, partition, generation, rows, self._announced, self._learned)
