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
from ragmeter.kafka.origins import ORIGIN_HEADER, Origin
from ragmeter.kafka.owners import OutRecord
from ragmeter.kafka.processors import aggregate
from ragmeter.kafka.processors.aggregate import AggregateOwner, RecordFailed, StateRefused
from ragmeter.kafka.processors.delivery import DeadLetterTopic, TracePreparer
from ragmeter.kafka.score_records import ScoreRecord, decode_score, encode_scores
from ragmeter.kafka.state.partition import PartitionState

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

    def count(self, *values: bytes, **fields: Any) -> list[OutRecord]:
        """As the loop of an owner: what fails begins again with the state as it was."""
        while True:
            self.begin()
            try:
                messages = [message(value, 9 + n, **fields) for n, value in enumerate(values)]
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


def test_what_the_score_stage_sends_again_counts_once_though_some_of_it_fails() -> None:
    broken = Broken(KeyError("x"))
    headers = [(ORIGIN_HEADER, Origin("rag.traces", 0, 1, 0, 0).encode())]
    letters = broken.count(*log(), *log(), headers=headers)
    assert len(letters) == 1
    assert broken.state.aggregator.windows.count_traces("bot", "", "24h") == 3
    duplicates = "ragmeter_traces_duplicate_total", (("source", "kafka"),)
    assert broken.state.aggregator.counters.get(*duplicates) == 0


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


class Kept:
    """The rows of a state and its commits, which outlive owners.

    Args:
        monkeypatch: Replaces the topic of the state.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.rows: dict[bytes, bytes] = {}
        self.committed: list[int] = []
        monkeypatch.setattr(transactions, "make_producer", lambda *_, **options: Producer([], []))
        monkeypatch.setattr(aggregate, "read_rows", self._read)

    async def _read(self, *_: object) -> dict[bytes, bytes]:
        return dict(self.rows)

    async def _commit(self, records: Iterable[OutRecord], position: int) -> None:
        self.rows |= {one.key or b"": one.value or b"" for one in records}
        self.committed.append(position)

    def begin(self, group: Group) -> int:
        """Let an owner begin, and return from which offset on it counts."""

        async def begin() -> int:
            group.lock = threading.RLock()  # type: ignore[attr-defined]
            parts = SimpleNamespace(settings=settings_of(), kinds=())
            owner = Owner(cast(Any, parts), cast(Any, group), TopicPartition("rag.scores", 0))
            owner.commit = self._commit  # type: ignore[method-assign]
            await owner._begin()
            return owner.position

        return asyncio.run(begin())


def test_a_partition_whose_records_have_all_expired_has_a_state_nevertheless(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """After `kafka rebuild`, say: the next owner would take none for one that was lost."""
    kept = Kept(monkeypatch)
    assert kept.begin(Group([], None, first=14460)) == 14460
    assert kept.begin(Group([], 14460, first=14460)) == 14460
    assert kept.committed == [14460]


@pytest.mark.parametrize("offset", [None, 3, 20, 5000])
def test_a_state_goes_on_from_where_it_has_counted(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, offset: int | None
) -> None:
    """The group was deleted, or its coordinator is behind, or somebody has moved its offset."""
    kept = Kept(monkeypatch)
    kept.begin(Group([], None, first=10))
    assert kept.begin(Group([], offset, first=0, end=30)) == 10
    assert "its state has counted up to 10: it goes on from there" in caplog.text
    assert kept.committed == [10, 10], "the group learns of it"


def test_a_state_of_what_the_topic_no_longer_holds_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kept = Kept(monkeypatch)
    kept.begin(Group([], None, first=10))
    with pytest.raises(StateRefused, match="is counted up to 10, but the topic ends at 4"):
        kept.begin(Group([], 10, end=4))
    kept.rows.clear()
    with pytest.raises(StateRefused, match=r"its state in \S+ is empty"):
        kept.begin(Group([], 10))
