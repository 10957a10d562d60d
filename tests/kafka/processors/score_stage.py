"""A score owner on a group without brokers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, cast

from aiokafka import TopicPartition
from ragmeter.aggregate.outputs import AgentOutputs
from ragmeter.app.parts import PARTS, AgentSettings
from ragmeter.config.kafka import KafkaSettings
from ragmeter.core.counters import Counters
from ragmeter.kafka.origins import Origin, read_origin
from ragmeter.kafka.owners import KnownOffsets, OutRecord
from ragmeter.kafka.processors.delivery import DeadLetterTopic, TracePreparer
from ragmeter.kafka.processors.otlp import OtlpSplitter
from ragmeter.kafka.processors.score import MessageProcessor, ScoreOwner
from ragmeter.scoring.inline_tiers import InlineTiers

from tests.kafka.messages import message
from tests.kafka.test_transactions import TP, until

__all__ = ["DEAD", "Group", "feed", "run_owner"]

DEAD = "rag.dead"


class Group:
    """As a score group, with the offset and note that it has committed, and all that was `sent`.

    Of each request whose error is next in `fails`, half is written.
    """

    kafka = KafkaSettings()
    largest = 2**20
    name = "g"

    def __init__(self, committed: int | None = 0, note: str = "1", end: int = 1_000_000) -> None:
        self.committed = committed
        self.note = note
        self.end = end
        self.fails: list[Exception] = []
        self.sent: list[OutRecord] = []
        self.requests = 0
        self.begun = 0
        self.rebalances = 0  # so many commits are refused
        self.answered_at = 0.0
        self.failed: list[BaseException] = []
        self.counters = Counters()
        self.events: list[str] = []

    def refuses(self, record: OutRecord) -> bool:
        return False

    async def offsets(self, tp: TopicPartition) -> KnownOffsets:
        return KnownOffsets(self.committed, self.note, 0, self.end)

    async def commit(self, tp: TopicPartition, position: int, note: str) -> bool:
        if self.rebalances:
            self.rebalances -= 1
            return False
        self.committed = position
        self.note = note
        return True

    async def seek(self, tp: TopicPartition, offset: int) -> None:
        self.begun += 1

    async def send(self, records: Sequence[OutRecord]) -> set[int]:
        self.requests += 1
        await asyncio.sleep(0)
        if self.fails:
            self.sent += records[: len(records) // 2]
            raise self.fails.pop(0)
        refused = {number for number, one in enumerate(records) if self.refuses(one)}
        self.sent += [one for number, one in enumerate(records) if number not in refused]
        self.events.append("sent")
        return refused

    async def fail(self, error: BaseException) -> None:
        self.failed.append(error)

    @property
    def origins(self) -> list[Origin | None]:
        """Those of all records but dead letters."""
        return [read_origin(one.headers.items()) for one in self.sent if one.topic != DEAD]


async def feed(owner: ScoreOwner, values: Sequence[bytes], first: int = 0) -> None:
    """Deliver messages, once the owner is ready, and wait until they are done."""
    await until(lambda: owner.ready)
    for offset, value in enumerate(values, first):
        owner.put(message(value, offset))
    await until(lambda: owner.position >= first + len(values))


def run_owner(
    group: Group,
    story: Callable[[ScoreOwner], Coroutine[Any, Any, None]],
    *,
    settings: Any = None,
    counters: Counters | None = None,
    outputs: AgentOutputs = AgentOutputs(),  # noqa: B008
) -> None:
    """Tell the story of an owner from its start to its end."""
    settings = settings or AgentSettings()
    counters = counters or Counters()

    async def go() -> None:
        async with (
            TracePreparer(settings, counters) as preparer,
            InlineTiers(settings, counters) as tiers,
        ):
            processor = MessageProcessor(
                settings,
                DeadLetterTopic(DEAD, preparer, counters),
                counters,
                preparer,
                tiers,
                otlp=OtlpSplitter(settings, preparer.redactor, counters),
                outputs=outputs,
                parts=PARTS,
            )
            owner = ScoreOwner(processor, cast(Any, group), TP)
            owner.start()
            await story(owner)
            await owner.close()

    asyncio.run(go())
