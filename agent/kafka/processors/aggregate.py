"""The processor that counts records of the scores topic in the state of their partition."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Hashable
from typing import Any

from ragmeter.aggregate.aggregator import IDLE_SECONDS
from ragmeter.config.settings import Settings
from ragmeter.core.errors import is_item_fault
from ragmeter.embedded.intake import StateUnavailable
from ragmeter.kafka.control_topic import encode_control
from ragmeter.kafka.processors.delivery import DeadLetterTopic
from ragmeter.kafka.processors.stateful import StatefulOwner, StatefulProcessor
from ragmeter.kafka.score_records import (
    MAX_BYTES,
    UPGRADE,
    BadRecord,
    ScoreRecord,
    decode_scores_message,
    encode_score,
)
from ragmeter.kafka.state.partition import PartitionState, ScoresRecord
from ragmeter.kafka.state.rows import StateStep
from ragmeter.kafka.topics import state_topic
from ragmeter.kafka.transactions import BeginAgain, OutRecord

log = logging.getLogger(__name__)

# Records are counted as they come. Their rows are written after so many seconds, or at once where
# an alert moves: a service has some eight rows in a step, however many of its records it has.
# Longer steps write less (times out of order: 650 bytes of state a trace in 5 s, 470 in 10), and
# leave a worker longer in doubt whether a partition is still its own.
STEP_SECONDS = 10.0
_GATHER_SECONDS = 0.2
_FEEDBACK_FIRST = 1  # failures of a trace after which feedback that waits for it is given up


class RecordFailed(BeginAgain):
    """A record has left the state half changed."""


class AggregateOwner(StatefulOwner[PartitionState]):
    """One partition of the scores topic."""

    processor: AggregateProcessor

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._promotions: list[tuple[PartitionState, int, asyncio.Future[None]]] = []
        # by offset, and number in it, of a record that fails: how often, and the last error
        self._failures: dict[Hashable, tuple[int, str]] = {}
        self._uncommitted = False
        self._published = 0  # version of the control record that was sent

    @property
    def busy(self) -> bool:
        """Whether records are counted that are not committed."""
        return self._uncommitted

    async def open(self, offset: int | None) -> None:
        """Load the state, and refuse promotions that it lacks."""
        self._refuse_promotions()
        await super().open(offset)
        self._published = 0

    async def work(self) -> None:
        """Count records, and commit a step every few seconds."""
        position, letters = self.position, list[OutRecord]()
        due = time.monotonic() + STEP_SECONDS
        while True:
            if self.state.spoiled:
                raise RecordFailed("a result of a probe cannot be counted")
            wait = min(IDLE_SECONDS, max(0.0, due - time.monotonic()))
            messages = await self.take(wait, _GATHER_SECONDS)
            if messages:
                letters += await self._count(messages)
                position = messages[-1].offset + 1
            else:
                with self.processor.lock:
                    self.state.tick()
            self._uncommitted = position > self.position or self.state.changed
            if time.monotonic() >= due or letters or self.state.moved or self.draining:
                if position > self.position or self.state.changed:
                    await self.commit_step([*letters, *self._control_record()], position)
                    letters = []
                self._uncommitted = False
                due = time.monotonic() + STEP_SECONDS

    async def _count(self, messages: list[Any]) -> list[OutRecord]:
        """Count the records of messages; return the dead letters among them."""
        letters: list[OutRecord] = []
        processor = self.processor
        for message in messages:
            try:
                records = decode_scores_message(message.value or b"")
            except BadRecord as error:
                errors = (("", str(error)),)
                letters.append(processor.dead.of_message(message, error.reason, errors))
                continue
            for number, record in enumerate(records if isinstance(records, list) else [records]):
                key = message.offset, number
                times, why = self._failures.get(key, (0, ""))
                if times > _FEEDBACK_FIRST or not self._apply(key, record):
                    letters.append(self._give_up(message, record, why))
            await asyncio.sleep(0)  # a scrape may hold the lock in between
        with processor.lock:
            self.state.settle()
        return letters

    def _apply(self, key: Hashable, record: ScoresRecord) -> bool:
        """Count a record, or raise so that the state is loaded anew where it fails."""
        try:
            with self.processor.lock:
                failed = key in self._failures
                # perhaps because of feedback that waits for it
                if failed and not self.state.give_up_feedback(record):
                    return False
                self.state.apply(record)
        except Exception as error:
            if not is_item_fault(error):
                raise
            times, _ = self._failures.get(key, (0, ""))
            self._failures[key] = times + 1, repr(error)[:200]
            log.exception("a record cannot be counted; the state is loaded anew without it")
            raise RecordFailed from error
        return True

    def _give_up(self, message: Any, record: ScoresRecord, error: str) -> OutRecord:
        with self.processor.lock:
            self.state.give_up(record)
        dead = self.processor.dead
        letter = dead.of_message(message, "internal_error", (("", error),), count=False)
        if isinstance(record, ScoreRecord) and letter.value:
            letter = letter._replace(value=encode_score(record))
        return letter

    def on_committed(self, step: StateStep) -> None:
        """Release notifications, and answer durable promotions."""
        with self.processor.lock:
            self.state.outbox.settled()
        if step.transitions:
            self.processor.announced()
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

    async def close(self) -> None:
        """Stop, and refuse promotions that are not durable."""
        await super().close()
        self._refuse_promotions()

    def _refuse_promotions(self) -> None:
        waiting, self._promotions = self._promotions, []
        for _, _, durable in waiting:
            if not durable.done():
                durable.set_exception(StateUnavailable("the group rebalances: ask again"))

    def _control_record(self) -> list[OutRecord]:
        """Return what the score processors should know, where that is new."""
        with self.processor.lock:
            control = self.state.control
        if control.version == self._published:
            return []
        self._published = control.version
        value = encode_control(control)
        if len(value) > MAX_BYTES:
            log.warning(
                "%s/%d: the control record is larger than a message: traces are drawn by older"
                " knowledge of services, versions and segments",
                *self.tp,
            )
            return []
        topic = self.processor.control_topic
        return [OutRecord(topic, value, b"%d" % self.tp.partition)]


class AggregateProcessor(StatefulProcessor[PartitionState]):
    """The partitions of the scores topic that this worker owns.

    `announced` is called when alert transitions are durable.
    """

    remedy = (
        "`ragmeter kafka rebuild` counts anew what the topic still holds; after an upgrade, "
        f"{UPGRADE}"
    )

    def __init__(
        self,
        settings: Settings,
        dead: DeadLetterTopic,
        build: Callable[[], PartitionState],
        announced: Callable[[], None],
    ) -> None:
        super().__init__(settings.kafka.topics.scores, state_topic(settings), dead, build)
        self.control_topic = settings.kafka.topics.control
        self.announced = announced
