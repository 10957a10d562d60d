"""When a notification may leave: not before the step that it came with is durable."""

from __future__ import annotations

import asyncio
import json
from types import SimpleNamespace
from typing import Any, cast

from aiokafka import TopicPartition
from ragmeter.aggregate.outputs import AgentOutputs
from ragmeter.config.settings import Settings
from ragmeter.kafka.processors.aggregate import AggregateOwner
from ragmeter.kafka.state.partition import PartitionState

from tests.kafka.state.partition import Owned, apply, commit, record, reloaded, state_of
from tests.traces import START


def test_a_sender_that_looks_while_the_step_is_written_sees_no_notification() -> None:
    """A worker that dies there does the step again, and may then fire at another time."""
    state = state_of()
    seen: list[int] = []
    announced: list[int] = []
    outputs = AgentOutputs(
        on_notifications=lambda: announced.append(len(state.outbox.due(START, 10)))
    )
    parts: Any = SimpleNamespace(outputs=outputs, settings=Settings(), kinds=())

    class Owner(AggregateOwner):
        def new_state(self) -> PartitionState:
            return state

    async def test() -> None:
        owner = Owner(parts, cast(Any, Owned()), TopicPartition("rag.scores", 0))

        async def look(records: Any, position: int) -> None:
            seen.append(len(state.outbox.due(START, 10)))

        owner.commit = look  # type: ignore[method-assign]
        apply(state, [record(n, status="error") for n in range(200)])
        await owner.commit_step([], 200)

    asyncio.run(test())
    assert (seen, announced) == ([0], [1])


def test_the_rows_are_those_of_the_version_before() -> None:
    """Workers are replaced one after another: each version reads what the other writes."""
    state = state_of()
    rows = dict[bytes, bytes]()
    apply(state, [record(n, status="error") for n in range(200)])
    commit(state, rows)
    ((key, row),) = [(key, row) for key, row in rows.items() if key.startswith(b'["o"')]
    number, alert, body, created = json.loads(row)
    assert (number, created) == (1, START)
    assert isinstance(json.loads(body), list)
    assert json.loads(key) == ["o", f"{alert}-open"]
    rows[b'["o","later"]'] = json.dumps([7, "other", "{}", 2.0]).encode()
    state = reloaded(rows)
    assert [one.id for one in state.outbox.due(START, 9)] == [f"{alert}-open", "later"]
    state.outbox.done("later")
    apply(state, [record(n) for n in range(200, 3000, 6)])
    commit(state, rows)
    assert b'["o","later"]' not in rows
    assert json.loads(rows[f'["o","{alert}-over"]'.encode()])[0] == 8
