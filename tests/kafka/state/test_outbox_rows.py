"""When a notification may leave: not before the step that it came with is durable."""

from __future__ import annotations

import asyncio
import threading
from types import SimpleNamespace
from typing import Any, cast

from aiokafka import TopicPartition

from ragmeter.kafka.processors.aggregate import AggregateOwner
from tests.kafka.state.partition import apply, record, state_of
from tests.traces import START


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
