"""The processor that counts records of the scores topic in the state of their partition."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import faust
from faust.types import EventT

from ragmeter.aggregate.aggregator import IDLE_SECONDS
from ragmeter.core.errors import is_item_fault
from ragmeter.embedded.intake import StateUnavailable
from ragmeter.kafka.processors.delivery import ProcessorContext
from ragmeter.kafka.processors.durable import DurableProcessor, PartitionOwner
from ragmeter.kafka.score_records import BadRecord, decode_scores_message
from ragmeter.kafka.state.partition import PartitionState, ScoresRecord
from ragmeter.kafka.state.rows import StateStep
from ragmeter.kafka.tables import StateTable
from ragmeter.sampling.control import SamplingControl

log = logging.getLogger(__name__)


class AggregateOwner(PartitionOwner[PartitionState]):
    """One partition of the scores topic in one generation."""

    processor: AggregateProcessor
    idle_seconds = IDLE_SECONDS

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._promotions: list[tuple[PartitionState, int, asyncio.Future[None]]] = []

    def start(self, position: int) -> None:
        """Begin to process at an offset, and publish the control record."""
        super().start(position)
        self._publish_control()  # the owner before may have died first

    async def process(self, events: list[EventT[Any]]) -> None:
        """Count the records of the events, or move event time on without events."""
        decoded = [(event, await self._decode(event)) for event in events]
        records = [record for _, record in decoded if record is not None]
        try:
            with self.processor.lock:
                if records:
                    self.state.apply(records)
                else:
                    self.state.tick()
        except Exception as error:
            if not records or not is_item_fault(error):
                raise
            log.exception("a batch failed; trying its records one by one")
            await self._process_singly([(event, record is not None) for event, record in decoded])
        else:
            await self.commit(events)

    def on_committed(self, step: StateStep) -> None:
        """Release notifications, publish the control record, and answer durable promotions."""
        with self.processor.lock:
            self.state.outbox.settled()
        if step.transitions:
            self.processor.announced()
        self._publish_control()
        waiting, self._promotions = self._promotions, []
        for state, number, durable in waiting:
            if state is not self.state or number > step.promotions:
                self._promotions.append((state, number, durable))
            elif not durable.done():  # the caller may have given up
                durable.set_result(None)

    def promote(self, service: str | None) -> tuple[dict[str, Any], asyncio.Future[None]] | None:
        """Make new drift baselines, as `Aggregator.promote`.

        The future ends when they are durable, or with `StateUnavailable` if the partition is lost.
        """
        with self.processor.lock:
            promoted = self.state.promote(service)
        if promoted is None:
            return None
        durable: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._promotions.append((self.state, self.state.promotions, durable))
        return promoted, durable

    def close(self) -> None:
        """Stop, and refuse promotions that are not durable."""
        super().close()
        self._refuse_promotions()

    def reload(self) -> None:
        """Restore the last durable state, and refuse promotions that it lacks."""
        super().reload()
        self._refuse_promotions()

    def _refuse_promotions(self) -> None:
        waiting, self._promotions = self._promotions, []
        for _, _, durable in waiting:
            if not durable.done():
                durable.set_exception(StateUnavailable("the group rebalances: ask again"))

    def _publish_control(self) -> None:
        self.processor.learned(self.tp.partition, self.state.control)

    async def _decode(self, event: EventT[Any]) -> ScoresRecord | None:
        """None: the message became a dead letter."""
        try:
            return _record_of(event)
        except BadRecord as error:
            await self.processor.send_dead_letter(event, error.reason, str(error))
            return None

    async def _process_singly(self, events: list[tuple[EventT[Any], bool]]) -> None:
        """Count each event that is a record by itself; the others are dead letters already."""
        self.reload()
        for event, is_record in events:
            if is_record:
                await self._process_one(event)
            await self.commit([event])

    async def _process_one(self, event: EventT[Any]) -> None:
        error = self._apply_one(event)
        if error is not None:
            with self.processor.lock:
                given_up = self.state.give_up_feedback(_record_of(event))
            error = self._apply_one(event) if given_up else error
        if error is not None:
            text = repr(error)[:200]
            await self.processor.send_dead_letter(event, "internal_error", text, count=False)
            with self.processor.lock:
                self.state.give_up(_record_of(event))

    def _apply_one(self, event: EventT[Any]) -> Exception | None:
        """Count a record; the exception if that fails, with the state as it was before."""
        record = _record_of(event)  # decoded anew: what is applied becomes the state's own
        try:
            with self.processor.lock:
                self.state.apply([record])
        except Exception as error:
            if not is_item_fault(error):
                raise
            log.exception("a record cannot be counted")
            self.reload()
            return error
        return None


def _record_of(event: EventT[Any]) -> ScoresRecord:
    return decode_scores_message(event.message.value or b"")


class AggregateProcessor(DurableProcessor[PartitionState]):
    """The partitions of the scores topic that this worker owns.

    `announced` is called when alert transitions are durable, and `learned` with each durable
    control record.
    """

    owner_type = AggregateOwner

    def __init__(
        self,
        context: ProcessorContext,
        app: faust.App,
        table: StateTable,
        topic: str,
        build: Callable[[], PartitionState],
        *,
        announced: Callable[[], None],
        learned: Callable[[int, SamplingControl], None],
    ) -> None:
        super().__init__(context, app, table, topic, build)
        self.announced = announced
        self.learned = learned
