"""Base of the stateful processors: the state of a partition is rows of a compacted topic.

A step writes the rows that changed, what is sent to other topics, and the offset of what was
counted, in one transaction (`ragmeter.kafka.transactions`).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar, cast

from aiokafka import TopicPartition

from ragmeter.kafka.consumer import StateGroup
from ragmeter.kafka.processors.delivery import DeadLetterTopic
from ragmeter.kafka.state.assembly import AssemblyState
from ragmeter.kafka.state.partition import PartitionState
from ragmeter.kafka.state.rows import StateStep
from ragmeter.kafka.transactions import (
    OutRecord,
    OwnerGroup,
    PartitionOwner,
    StateRefused,
    read_rows,
)

S = TypeVar("S", bound=PartitionState | AssemblyState)


class StatefulOwner(PartitionOwner, Generic[S]):
    """One partition of the topic of a stateful processor.

    `state` may be read while `processor.lock` is held.
    """

    # rows shrink to a fifth, and nothing needs to be installed for it
    compression = "gzip"

    def __init__(
        self, processor: StatefulProcessor[S], group: OwnerGroup, tp: TopicPartition
    ) -> None:
        super().__init__(group, tp)
        self.processor = processor
        self.state = processor.build()

    async def open(self, offset: int | None) -> None:
        """Load the state; raise `StateRefused` for an empty one beside committed offsets."""
        topic = self.processor.state_topic
        rows = await read_rows(self.group.kafka, topic, self.tp.partition)
        if offset and not rows:
            raise StateRefused(
                f"{self.tp.topic}/{self.tp.partition} is counted up to {offset}, but its state in"
                f" {topic} is empty: it was deleted, or is of the program before this one."
                f" {self.processor.remedy}"
            )
        state = self.processor.build()
        state.load(rows)
        with self.processor.lock:
            self.state = state

    async def commit_step(self, records: Sequence[OutRecord], position: int) -> None:
        """Commit the changes of the state, other records, and the offset."""
        processor, partition = self.processor, self.tp.partition
        with processor.lock:
            step = self.state.step()
        rows = [
            OutRecord(processor.state_topic, value, key, partition)
            for key, value in step.rows.items()
        ]
        await self.commit([*rows, *records], position)
        self.on_committed(step)

    def on_committed(self, step: StateStep) -> None:
        """React to a step that is durable."""


class StatefulProcessor(Generic[S]):
    """What the owners of a topic share.

    `group` is set when the app is made. `build` makes an empty state, `remedy` says what to do
    where one is missing. `lock` is held
    while a state changes, and by other threads that read one.
    """

    remedy = ""

    def __init__(
        self, topic: str, state_topic: str, dead: DeadLetterTopic, build: Callable[[], S]
    ) -> None:
        self.topic = topic
        self.state_topic = state_topic
        self.dead = dead
        self.build = build
        self.lock = threading.RLock()
        self.group: StateGroup | None = None

    @property
    def owners(self) -> dict[int, StatefulOwner[S]]:
        """The owners that have a state, by partition."""
        owners = list(self.group.owners.all.items()) if self.group else []
        return {
            tp.partition: cast(StatefulOwner[S], owner)
            for tp, owner in owners
            if tp.topic == self.topic and owner.loaded
        }

    @property
    def waiting(self) -> int:
        """Queued messages of all partitions."""
        return sum(len(owner.queue) for owner in self.owners.values())
