"""The group of the score stage, without brokers."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest
from aiokafka import TopicPartition
from aiokafka.errors import CommitFailedError, KafkaConnectionError, MessageSizeTooLargeError
from ragmeter.core.counters import Counters
from ragmeter.kafka.owners import OutRecord
from ragmeter.kafka.score_group import ScoreGroup

from tests.kafka.settings import settings_of

ONE, TWO = TopicPartition("rag.traces", 0), TopicPartition("rag.traces", 1)


class Consumer:
    """Refuses the next commits, and fails the next reads."""

    def __init__(self) -> None:
        self.refusals: list[Exception] = []
        self.failures: list[Exception] = []
        self.read: list[tuple[TopicPartition, ...]] = []
        self.sought: dict[TopicPartition, int] = {}

    def assignment(self) -> set[TopicPartition]:
        return {ONE, TWO}

    def seek(self, tp: TopicPartition, offset: int) -> None:
        self.sought[tp] = offset

    async def commit(self, offsets: Any) -> None:
        if self.refusals:
            raise self.refusals.pop(0)

    async def getmany(self, *tps: TopicPartition, **_: Any) -> dict[TopicPartition, list[Any]]:
        self.read.append(tps)
        if self.failures:
            raise self.failures.pop(0)
        return {}


def group_of(consumer: Consumer) -> ScoreGroup:
    group = ScoreGroup(settings_of(), ["rag.traces"], cast(Any, None), Counters(), cast(Any, None))
    group.consumer = consumer
    return group


def test_a_commit_that_the_group_refuses_is_none() -> None:
    consumer = Consumer()
    consumer.refusals = [CommitFailedError()]
    group = group_of(consumer)
    assert asyncio.run(group.commit(ONE, 5, "1")) is False
    assert asyncio.run(group.commit(ONE, 5, "1")) is True


def test_what_a_failed_read_had_of_all_partitions_is_read_again() -> None:
    consumer = Consumer()
    consumer.failures = [ValueError("corrupt")]
    group = group_of(consumer)
    group.owners = {
        tp: cast(Any, SimpleNamespace(ready=True, full=False, expected=expected))
        for tp, expected in ((ONE, 7), (TWO, 9))
    }

    async def go() -> None:
        await group._deliver()
        assert consumer.read == [(ONE, TWO)]
        consumer.failures = [ValueError("corrupt")]
        await group._read_alone(ONE)
        await group._read([TWO])

    asyncio.run(go())
    assert consumer.sought == {ONE: 7, TWO: 9}
    assert "rag.traces/0 cannot be read from 7 on" in group.unreadable[ONE]


def test_a_send_tells_what_is_too_large_and_fails_for_all_else() -> None:
    outcomes: list[Exception | None] = [None, MessageSizeTooLargeError()]

    class Producer:
        async def send_and_wait(self, *_: Any, headers: Any) -> None:
            if error := outcomes.pop(0):
                raise error

    group = group_of(Consumer())
    group._producer = Producer()
    records = [OutRecord("rag.scores", b"1"), OutRecord("rag.scores", b"2")]
    assert asyncio.run(group.send(records)) == {1}
    outcomes[:] = [KafkaConnectionError("away"), MessageSizeTooLargeError()]
    with pytest.raises(KafkaConnectionError):
        asyncio.run(group.send(records))


class Owner:
    """Says what becomes of it; its end takes until `ended` is set."""

    def __init__(self, said: list[str], ended: asyncio.Event) -> None:
        self.said = said
        self.ended = ended
        self.ready = False

    def start(self) -> None:
        self.said.append("start")

    async def close(self) -> None:
        await self.ended.wait()
        self.said.append("close")


def test_a_group_that_is_closed_owns_nothing_that_it_is_assigned() -> None:
    """Its client waits for the end of a rebalance when it leaves."""
    said: list[str] = []

    async def go() -> None:
        ended = asyncio.Event()
        group = ScoreGroup(
            settings_of(),
            ["rag.traces"],
            lambda *_: cast(Any, Owner(said, ended)),
            Counters(),
            cast(Any, None),
        )
        await group.on_partitions_assigned([ONE])
        assert said == ["start"]
        rebalance = asyncio.create_task(group.on_partitions_assigned([TWO]))
        await asyncio.sleep(0)  # it waits for the end of the first owner
        closing = asyncio.create_task(group.close())
        await asyncio.sleep(0)
        ended.set()
        await asyncio.gather(rebalance, closing)
        await group.on_partitions_assigned([ONE, TWO])
        assert said == ["start", "close"]
        assert not group.owners
        assert not group.ready
        group.open()  # as when its job begins again
        await group.on_partitions_assigned([TWO])
        assert said == ["start", "close", "start"]

    asyncio.run(go())
