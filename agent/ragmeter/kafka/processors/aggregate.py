"""The owners that count records of the scores topic, and the base of those with a state.

The state of a partition is rows of a compacted topic. A step writes the rows that changed, what is
sent to other topics, and the offset of what was counted, in one transaction
(`ragmeter.kafka.transactions`).
"""

from __future__ import annotations

import asyncio
import logging
import time
from abc import abstractmethod
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar, cast

from aiokafka import TopicPartition

from ragmeter.aggregate.outputs import AgentOutputs
from ragmeter.aggregate.service_state import IDLE_SECONDS
from ragmeter.alerts.rules import AlertRule
from ragmeter.config.scoring import SamplingSettings
from ragmeter.config.settings import Settings
from ragmeter.core.errors import UnusableResource
from ragmeter.core.isolation import is_item_fault
from ragmeter.core.tiers import MetricScorer
from ragmeter.ingest.live_inspection import LiveInspection
from ragmeter.ingest.native import DecodeFailure
from ragmeter.ingest.redaction import Redactor
from ragmeter.kafka.control_topic import CONTROL_PARTITION, encode_control
from ragmeter.kafka.origins import read_origin
from ragmeter.kafka.owners import BeginAgain, KnownOffsets, OutRecord
from ragmeter.kafka.processors.delivery import DeadLetterTopic
from ragmeter.kafka.score_records import MAX_BYTES, START_ANEW, ScoreRecord, encode_score
from ragmeter.kafka.scores_topic import decode_scores_message
from ragmeter.kafka.state.assembly import AssemblyState
from ragmeter.kafka.state.partition import PartitionState, ScoresRecord
from ragmeter.kafka.state_group import StateGroup
from ragmeter.kafka.topics import state_topic
from ragmeter.kafka.transactions import TransactionalOwner, read_rows
from ragmeter.kafka.wire import BadRecord
from ragmeter.parts.collection import PartKinds, document_kinds

log = logging.getLogger(__name__)

# Records are counted as they come. Their rows are written after so many seconds, or at once where
# an alert moves: a service has some eight rows in a step, however many of its records it has.
# Longer steps write less (230 bytes of state a trace, 540 where times are out of order by up to 15
# minutes), and leave a worker longer in doubt whether a partition is still its own.
STEP_SECONDS = 10.0
_GATHER_SECONDS = 0.2

# The key of the row with the offset up to which a state has counted, written in the transaction
# that writes the rest.
_POSITION = b"position"


S = TypeVar("S", bound=PartitionState | AssemblyState)


@dataclass(eq=False)
class StateParts:
    """What the states of a worker are made of, and where else their owners write.

    `redactor` redacts traces that were made of spans. `sampling` are the settings by which traces
    are drawn now. `inspection` gets what was read of spans. `kinds` are the features of a service.
    """

    settings: Settings
    rules: Sequence[AlertRule]
    expected: Sequence[MetricScorer]
    dead: DeadLetterTopic
    redactor: Redactor
    outputs: AgentOutputs
    sampling: SamplingSettings
    inspection: LiveInspection
    kinds: PartKinds = ()


class StateRefused(UnusableResource):
    """The state of a partition does not fit the offsets that are committed beside it."""


class StatefulOwner(TransactionalOwner, Generic[S]):
    """One partition of a topic whose owners have a state, in a topic of its own.

    `state` may be read while `group.lock` is held. `remedy` says what to do where one is missing.
    """

    # rows shrink to a ninth; gzip takes a fifth more room and several times the processor
    compression = "zstd"
    remedy = ""
    group: StateGroup

    def __init__(self, parts: StateParts, group: StateGroup, tp: TopicPartition) -> None:
        super().__init__(group, tp)
        self.parts = parts
        self.state = self.new_state()

    @property
    @abstractmethod
    def state_topic(self) -> str:
        """The topic of the state."""

    @abstractmethod
    def new_state(self) -> S:
        """Return an empty state."""

    async def open(self, offsets: KnownOffsets) -> int | None:
        """Load the state, which knows up to where it has counted.

        The group's offset may differ: a coordinator answers with an earlier one for a moment after
        a transaction, and groups are deleted and reset.

        Raises:
            StateRefused: The state is empty beside a committed offset.
        """
        offset = offsets.committed
        rows = await read_rows(self.group.kafka, self.state_topic, self.tp.partition)
        counted = rows.pop(_POSITION, None)
        if offset and not rows and counted is None:
            raise StateRefused(
                f"{self.tp.topic}/{self.tp.partition} is counted up to {offset}, but its state in"
                f" {self.state_topic} is empty: it was deleted, or is of the program before this"
                f" one. {self.remedy}"
            )
        state = self.new_state()
        state.load(rows)
        with self.group.lock:
            self.state = state
        if counted is None:
            return offset
        position = int(counted)
        if position != offset:
            log.warning(
                "%s/%d: the offset of the group %s is %s, but its state has counted up to %d:"
                " it goes on from there",
                *self.tp,
                self.group.name,
                offset,
                position,
            )
        return position

    def replace_lost_offset(self, position: int, offsets: KnownOffsets) -> int:
        """Refuse to go on: what was counted is no longer what the topic holds."""
        raise StateRefused(
            f"{self.tp.topic}/{self.tp.partition} is counted up to {position}, but the topic ends"
            f" at {offsets.end}: its end was lost, or it was made anew. {self.remedy}"
        )

    async def commit_step(self, records: Sequence[OutRecord], position: int) -> None:
        """Commit the changes of the state, other records, and the offset."""
        with self.group.lock:
            step = self.state.step()
        topic = self.state_topic
        partition = self.tp.partition
        rows = [OutRecord(topic, value, key, partition) for key, value in step.items()]
        rows.append(OutRecord(topic, b"%d" % position, _POSITION, partition))
        await self.commit([*rows, *records], position)


class RecordFailed(BeginAgain):
    """A record has left the state half changed."""


class AggregateOwner(StatefulOwner[PartitionState]):
    """One partition of the scores topic."""

    remedy = (
        "`ragmeter kafka rebuild` counts anew what the topic still holds; after an upgrade, "
        f"{START_ANEW}"
    )

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._kinds = document_kinds(self.parts.kinds, self.parts.settings)
        # the error by offset, and number in it, of a record that fails
        self._failures: dict[Hashable, str] = {}
        self._uncommitted = False
        self._published = 0  # version of the control record that was sent

    @property
    def state_topic(self) -> str:
        """The topic of the state."""
        return state_topic(self.parts.settings)

    def new_state(self) -> PartitionState:
        """Return an empty state."""
        parts = self.parts
        state = PartitionState(
            parts.settings,
            parts.rules,
            parts.expected,
            dedupe=parts.settings.limits.dedupe_hours * 3600,
            clock=time.time,
            monotonic=time.monotonic,
            notify=parts.outputs.make_notifications,
            parts=parts.kinds,
        )
        state.resample(parts.sampling)
        return state

    @property
    def busy(self) -> bool:
        """Whether records are counted that are not committed."""
        return self._uncommitted

    async def open(self, offsets: KnownOffsets) -> int | None:
        """Load the state."""
        self._published = 0
        return await super().open(offsets)

    async def work(self) -> None:
        """Count records, and commit a step every few seconds."""
        position = self.position
        letters = list[OutRecord]()
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
                with self.group.lock:
                    self.state.tick()
            self._uncommitted = position > self.position or self.state.changed
            if time.monotonic() >= due or letters or self.state.moved or self.draining:
                if position > self.position or self.state.changed:
                    await self.commit_step([*letters, *self._control_record()], position)
                    letters = []
                self._uncommitted = False
                due = time.monotonic() + STEP_SECONDS

    async def commit_step(self, records: Sequence[OutRecord], position: int) -> None:
        """Commit the changes, then release what waits for that: notifications, promotions."""
        with self.group.lock:
            moved = bool(self.state.transitions)
        await super().commit_step(records, position)
        with self.group.lock:
            self.state.committed()
        if moved:
            self.parts.outputs.on_notifications()

    async def _count(self, messages: list[Any]) -> list[OutRecord]:
        """Count the records of messages; return the dead letters among them."""
        letters: list[OutRecord] = []
        for message in messages:
            try:
                found = decode_scores_message(message.value or b"", self._kinds)
            except BadRecord as error:
                letters.append(self.parts.dead.of_message(message, error.failure))
                continue
            with self.group.lock:
                records = self.state.take_new(found, read_origin(message.headers))
            whole = message.offset
            if len(records) > 1 and whole not in self._failures:
                self._apply(whole, cast(list[ScoreRecord], records))
                records = []
            for number, record in enumerate(records):
                key = message.offset, number
                if key in self._failures:
                    letters.append(self._give_up(message, record, self._failures[key]))
                else:
                    self._apply(key, record)
            await asyncio.sleep(0)  # a scrape may hold the lock in between
        with self.group.lock:
            self.state.settle()
        return letters

    def _apply(self, key: Hashable, record: ScoresRecord | list[ScoreRecord]) -> None:
        """Count a record, or raise so that the state is loaded anew where it fails.

        Of traces that fail together, each is then counted alone.
        """
        try:
            with self.group.lock:
                if isinstance(record, list):
                    self.state.apply_all(record)
                else:
                    self.state.apply(record)
        except Exception as error:
            if not is_item_fault(error):
                raise
            self._failures[key] = repr(error)[:200]
            log.exception("a record cannot be counted; the state is loaded anew without it")
            raise RecordFailed from error

    def _give_up(self, message: Any, record: ScoresRecord, error: str) -> OutRecord:
        with self.group.lock:
            self.state.give_up(record)
        failure = DecodeFailure.of_whole("internal_error", error, b"")
        letter = self.parts.dead.of_message(message, failure, count=False)
        if isinstance(record, ScoreRecord) and letter.value:
            letter = letter._replace(value=encode_score(record))
        return letter

    def _control_record(self) -> list[OutRecord]:
        """Return what the score processors should know, where that is new."""
        with self.group.lock:
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
        topic = self.parts.settings.kafka.topics.control
        return [OutRecord(topic, value, b"%d" % self.tp.partition, CONTROL_PARTITION)]
