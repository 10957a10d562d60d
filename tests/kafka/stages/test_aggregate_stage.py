"""A record that cannot be counted costs itself, and nothing else costs a record."""

from __future__ import annotations

import asyncio
import threading
from types import SimpleNamespace
from typing import Any, cast

import pytest
from faust.types import TP, EventT

from agent.kafka.messages.records import encode_record
from agent.kafka.stages.aggregate_stage import AggregateOwner
from tests.kafka.state.partition import record, state_of


class Broken(AggregateOwner):
    """Without a ledger and a broker; the trace `t2` fails with `error`."""

    def __init__(self, error: Exception) -> None:
        self.error = error
        self.buried: list[str] = []
        self.committed: list[int] = []
        self.tp, self._orders = TP("rag.scores", 0), []
        self.durable = cast(Any, SimpleNamespace(lock=threading.RLock(), bury=self._bury))
        self.reload()

    async def _bury(self, event: Any, reason: str, why: str, *, count: bool = True) -> None:
        self.buried.append(f"{event.message.offset} {reason}")

    def reload(self) -> None:
        self.state = state_of()
        apply = self.state.apply

        def broken(records: Any) -> None:
            if any(one.scored.trace_id == "t2" for one in records):
                raise self.error
            apply(records)

        self.state.apply = broken  # type: ignore[method-assign]

    async def commit(self, events: list[EventT[Any]]) -> None:
        self.committed += [event.message.offset for event in events]


def events() -> list[Any]:
    found = []
    for n in range(4):
        value = encode_record(record(n))
        found.append(SimpleNamespace(message=SimpleNamespace(value=value, offset=n)))
    return found


def test_a_record_that_fails_alone_is_buried_and_the_others_count() -> None:
    owner = Broken(KeyError("x"))
    asyncio.run(owner.turn(events()))
    assert owner.buried == ["2 internal_error"]
    assert owner.committed == [0, 1, 2, 3]


def test_what_is_no_record_is_buried_once_whatever_happens_to_its_batch() -> None:
    owner = Broken(KeyError("x"))
    batch = events()
    batch[1].message.value = b"no record"
    asyncio.run(owner.turn(batch))
    assert owner.buried == ["1 invalid_json", "2 internal_error"]
    assert owner.committed == [0, 1, 2, 3]


@pytest.mark.parametrize("error", [MemoryError(), OSError("no threads")])
def test_what_no_record_is_to_blame_for_ends_the_worker(error: Exception) -> None:
    owner = Broken(error)
    with pytest.raises(type(error)):
        asyncio.run(owner.turn(events()))
    assert owner.buried == []
    assert owner.committed == []
