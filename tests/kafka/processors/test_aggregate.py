"""A record that cannot be counted costs itself, and nothing else costs a record."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterable, Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest
from aiokafka import TopicPartition
from ragmeter.app.parts import PARTS
from ragmeter.core.counters import Counters
from ragmeter.kafka import transactions
from ragmeter.kafka.processors import aggregate
from ragmeter.kafka.processors.aggregate import AggregateOwner, RecordFailed
from ragmeter.kafka.processors.delivery import DeadLetterTopic, TracePreparer
from ragmeter.kafka.score_records import ScoreRecord, decode_score, encode_scores
from ragmeter.kafka.state.partition import PartitionState
from ragmeter.kafka.transactions import OutRecord

from tests.kafka.messages import message
from tests.kafka.settings import settings_of
from tests.kafka.state.partition import Owned, record, state_of
from tests.kafka.test_transactions import Group, Producer
from tests.parts.labels.samples import reported
from tests.parts.labels.test_partition import counted as outcomes
from tests.parts.labels.test_partition import label, trace


class Owner(AggregateOwner):
    def new_state(self) -> PartitionState:
        return state_of()


class Broken:
    """An owner without a broker; the trace `t2` fails with `error`."""

    def __init__(self, error: Exception, *before: bytes) -> None:
        self.error = error
        self.before = before
        counters = Counters()
        dead = DeadLetterTopic("rag.dead", TracePreparer(settings_of(), counters), counters)
        tp = TopicPartition("rag.scores", 0)
        parts = SimpleNamespace(dead=dead, kinds=PARTS, settings=settings_of())
        self.owner = Owner(cast(Any, parts), cast(Any, Owned()), tp)
        self.begins = 0

    @property
    def state(self) -> PartitionState:
        return self.owner.state

    def begin(self) -> None:
        self.begins += 1
        self.owner.state = state_of()
        if self.before:
            asyncio.run(self.owner._count([message(one, n) for n, one in enumerate(self.before)]))
        apply, apply_all = self.owner.state.apply, self.owner.state.apply_all

        def broken(record: Any) -> None:
            apply(record)  # half of it is in the state
            if isinstance(record, ScoreRecord) and record.scored.trace_id == "t2":
                raise self.error

        def broken_all(records: Sequence[ScoreRecord]) -> None:
            apply_all(records)
            if any(record.scored.trace_id == "t2" for record in records):
                raise self.error

        self.owner.state.apply = broken  # type: ignore[method-assign]
        self.owner.state.apply_all = broken_all  # type: ignore[method-assign]

    def count(self, *values: bytes) -> list[OutRecord]:
        """As the loop of an owner: what fails begins again with the state as it was."""
        while True:
            self.begin()
            try:
                messages = [message(value, 9 + n) for n, value in enumerate(values)]
                return asyncio.run(self.owner._count(messages))
            except RecordFailed:
                assert self.begins < 10


def log() -> list[bytes]:
    return encode_scores([record(n) for n in range(4)])


def test_a_record_that_fails_alone_is_buried_and_the_others_count() -> None:
    broken = Broken(KeyError("x"))
    (letter,) = broken.count(*log())
    assert letter.headers["reason"] == b"internal_error"
    assert decode_score(letter.value or b"").scored.trace_id == "t2"
    assert broken.state.aggregator.windows.count_traces("bot", "", "24h") == 3
    label = (("reason", "internal_error"),)
    assert broken.state.aggregator.counters.get("ragmeter_dead_letters_total", label) == 1


def test_what_is_no_record_is_buried_whatever_happens_to_its_batch() -> None:
    broken = Broken(KeyError("x"))
    letters = broken.count(b"no record", *log())
    assert [one.headers["reason"] for one in letters] == [b"invalid_json", b"internal_error"]
    assert broken.state.aggregator.windows.count_traces("bot", "", "24h") == 3


def test_a_label_that_cannot_be_counted_takes_no_trace_along(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fails(*_: Any) -> Any:
        raise ZeroDivisionError

    broken = Broken(KeyError("not raised"), label(1, reported(3)))
    monkeypatch.setattr("ragmeter.parts.labels.join.label_scores", fails)
    assert broken.count(trace(3)) == []
    assert outcomes(broken.state) == {"internal_error": 1}
    assert broken.state.aggregator.windows.count_traces("bot", "", "24h") == 1


@pytest.mark.parametrize("error", [MemoryError(), OSError("no threads")])
def test_what_no_record_is_to_blame_for_ends_the_worker(error: Exception) -> None:
    with pytest.raises(type(error)):
        Broken(error).count(*log())


def test_a_partition_whose_records_have_all_expired_has_a_state_nevertheless(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """After `kafka rebuild`, say: the next owner would take none for one that was lost."""
    rows: dict[bytes, bytes] = {}
    committed: list[int] = []

    class Keeps(Owner):
        async def commit(self, records: Iterable[OutRecord], position: int) -> None:
            rows.update({one.key or b"": one.value or b"" for one in records})
            committed.append(position)

    async def read(*_: object) -> dict[bytes, bytes]:
        return rows

    async def begin() -> None:
        group = Group([], committed[-1] if committed else None, first=14460)
        group.lock = threading.RLock()  # type: ignore[attr-defined]
        parts = SimpleNamespace(settings=settings_of(), kinds=())
        owner = Keeps(cast(Any, parts), cast(Any, group), TopicPartition("rag.scores", 0))
        await owner._begin()
        assert owner.position == 14460

    monkeypatch.setattr(transactions, "make_producer", lambda *_: Producer([], []))
    monkeypatch.setattr(aggregate, "read_rows", read)
    for _ in range(2):
        asyncio.run(begin())
    assert committed == [14460]
