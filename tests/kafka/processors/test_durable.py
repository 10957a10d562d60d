"""A step is written, marked, fenced and acknowledged in this order, or not at all."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest
from aiokafka.errors import IllegalGenerationError

from ragmeter.kafka.processors.durable import PartitionLost, PartitionOwner
from ragmeter.kafka.state.ledger import Ledger, LogRecord
from tests.kafka.coordinator import App, Coordinator

GENERATION = 7


class State:
    """One row, the last number that was given."""

    def __init__(self) -> None:
        self.number = b""
        self.changed = False

    def take(self, number: int) -> None:
        self.number, self.changed = b"%d" % number, True

    def step(self) -> Any:
        self.changed = False
        return SimpleNamespace(rows={b"row": self.number}, head=self.number)

    def load(self, rows: Mapping[bytes, bytes], head: bytes | None) -> None:
        self.number = rows.get(b"row", b"")


class Group(Coordinator):
    def __init__(self, said: list[str], *answers: BaseException | None) -> None:
        super().__init__(*answers, generation=GENERATION)
        self.said = said

    async def _do_commit_offsets(self, assignment: object, offsets: Any) -> None:
        ((_, found),) = offsets.items()
        self.said.append(f"commit {found.offset}")
        await super()._do_commit_offsets(assignment, offsets)


class FakeProcessor:
    """`said` is what was done, in order; a write takes its time, as to a broker."""

    topic = "rag.scores"
    build = State

    def __init__(self, *answers: BaseException | None) -> None:
        self.said: list[str] = []
        self.log: list[LogRecord] = []
        self.lock = threading.RLock()
        self.table = self
        self.app = App(Group(self.said, *answers))
        self.formed_anew_after = ""

    async def write(self, partition: int, writes: Sequence[LogRecord]) -> None:
        what = "marker" if all(b"/m/" in write.key for write in writes) else "rows"
        self.said.append(f"{what} begun")
        await asyncio.sleep(0.01)
        self.log += writes
        self.said.append(what)
        if what == self.formed_anew_after:
            self.app.consumer_generation_id += 1

    async def ack(self, event: Any) -> None:
        self.said.append(f"ack {event.message.offset}")


class OneOwner(PartitionOwner[State]):
    idle_seconds = 1.0

    async def process(self, events: Any) -> None:
        raise NotImplementedError


def step(processor: FakeProcessor, number: int = 5, owner: OneOwner | None = None) -> OneOwner:
    """Event `number` into the state, and committed."""
    owner = owner or OneOwner(cast(Any, processor), 0, GENERATION, [])
    owner.state.take(number)
    event: Any = SimpleNamespace(message=SimpleNamespace(offset=number))
    asyncio.run(owner.commit([event]))
    return owner


def found(processor: FakeProcessor) -> bytes:
    """What the next owner finds."""
    return Ledger.recover(0, GENERATION + 1, processor.log)[1].rows.get(b"row", b"")


def test_a_step_is_acknowledged_when_the_fence_was_passed_behind_its_marker() -> None:
    processor = FakeProcessor(None, None)
    owner = step(processor)
    assert processor.said == ["rows begun", "rows", "marker begun", "marker", "commit 6", "ack 5"]
    assert found(processor) == b"5"
    step(processor, 6, owner)
    assert processor.said[6:] == [*processor.said[:4], "commit 7", "ack 6"]
    assert found(processor) == b"6"


def test_whom_the_group_refuses_acknowledges_nothing_and_writes_no_other_step() -> None:
    processor = FakeProcessor(IllegalGenerationError())
    with pytest.raises(PartitionLost):
        step(processor)
    assert processor.said[-1] == "commit 6"


@pytest.mark.parametrize(
    ("after", "said"),
    [
        ("", []),
        ("rows", ["rows begun", "rows"]),
    ],
)
def test_who_sees_that_the_group_has_formed_anew_writes_no_more(
    after: str, said: list[str]
) -> None:
    processor = FakeProcessor(None)
    processor.formed_anew_after = after
    if not after:
        processor.app.consumer_generation_id += 1
    with pytest.raises(PartitionLost):
        step(processor)
    assert processor.said == said
    assert found(processor) == b""
