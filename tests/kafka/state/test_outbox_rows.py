"""When a notification may leave: not before the step that it came with is durable."""

from __future__ import annotations

import asyncio
import threading
from types import SimpleNamespace
from typing import Any, cast

from aiokafka import TopicPartition

from ragmeter.kafka.processors.aggregate import AggregateOwner
from ragmeter.kafka.state.rows import OutboxRows, split_row_key
from ragmeter.store.rows import OutboxItem
from tests.kafka.state.partition import apply, record, state_of
from tests.traces import START


def item(name: str, key: str = "k") -> OutboxItem:
    return OutboxItem(name, key, "{}", 1.0)


def test_nothing_is_due_before_its_step_is_durable() -> None:
    outbox = OutboxRows()
    outbox.add([item("a"), item("b", "other")])
    rows = [(split_row_key(key)[1], data) for key, data in outbox.drain().items() if data]
    assert outbox.due(2.0, 10) == []
    outbox.settled()
    assert [one.id for one in outbox.due(2.0, 10)] == ["a", "b"]
    outbox.add([item("c")])
    assert [one.id for one in outbox.due(2.0, 10)] == ["a", "b"]
    again = OutboxRows()
    again.load(rows)
    assert [one.id for one in again.due(2.0, 10)] == ["a", "b"]


def test_a_sender_that_looks_while_the_step_is_written_sees_no_notification() -> None:
    """A worker that dies there does the step again, and may then fire at another time."""
    state = state_of()
    seen: list[int] = []
    announced: list[int] = []
    processor: Any = SimpleNamespace(
        topic="rag.scores",
        state_topic="state",
        build=lambda: state,
        lock=threading.RLock(),
        announced=lambda: announced.append(len(state.outbox.due(START, 10))),
        control_topic="rag.control",
    )

    async def test() -> None:
        owner = AggregateOwner(processor, cast(Any, None), TopicPartition("rag.scores", 0))

        async def look(records: Any, position: int) -> None:
            seen.append(len(state.outbox.due(START, 10)))

        owner.commit = look  # type: ignore[method-assign]
        apply(state, [record(n, status="error") for n in range(200)])
        await owner.commit_step([], 200)

    asyncio.run(test())
    assert (seen, announced) == ([0], [1])
