"""A record that cannot be counted costs itself, and nothing else costs a record."""

from __future__ import annotations

import asyncio
import threading
from types import SimpleNamespace
from typing import Any, cast

import pytest
from faust.types import TP, EventT

from ragmeter.kafka.processors.aggregate import AggregateOwner
from ragmeter.kafka.score_records import decode_scores_message, encode_score
from tests.aggregate.test_feedback_join import said
from tests.kafka.state.partition import commit, record, reloaded, state_of
from tests.kafka.state.test_feedback import counted as outcomes
from tests.kafka.state.test_feedback import label, trace


class Broken(AggregateOwner):
    """Without a ledger and a broker; the trace `t2` fails with `error`."""

    def __init__(self, error: Exception) -> None:
        self.error = error
        self.buried: list[str] = []
        self.committed: list[int] = []
        self.tp, self._promotions = TP("rag.scores", 0), []
        self.processor = cast(
            Any, SimpleNamespace(lock=threading.RLock(), send_dead_letter=self._bury)
        )
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


class Labelled(Broken):
    """A label waits for `t2`."""

    def reload(self) -> None:
        rows: dict[bytes, bytes] = {}
        state = state_of()
        state.apply([decode_scores_message(label(1, said(2)))])
        self.state = reloaded(rows, commit(state, rows))


def event(offset: int, value: bytes) -> Any:
    return SimpleNamespace(message=SimpleNamespace(value=value, offset=offset))


def events() -> list[Any]:
    return [event(n, encode_score(record(n))) for n in range(4)]


def test_a_record_that_fails_alone_is_buried_and_the_others_count() -> None:
    owner = Broken(KeyError("x"))
    asyncio.run(owner.process(events()))
    assert owner.buried == ["2 internal_error"]
    assert owner.committed == [0, 1, 2, 3]


def test_what_is_no_record_is_buried_once_whatever_happens_to_its_batch() -> None:
    owner = Broken(KeyError("x"))
    batch = events()
    batch[1].message.value = b"no record"
    asyncio.run(owner.process(batch))
    assert owner.buried == ["1 invalid_json", "2 internal_error"]
    assert owner.committed == [0, 1, 2, 3]


def test_a_label_that_cannot_be_counted_takes_no_trace_along(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fails(*_: Any) -> Any:
        raise ZeroDivisionError

    owner = Labelled(KeyError("not raised"))
    monkeypatch.setattr("ragmeter.aggregate.feedback_join.label_scores", fails)
    asyncio.run(owner.process([event(9, trace(2))]))
    assert (owner.buried, owner.committed) == ([], [9])
    assert outcomes(owner.state) == {"internal_error": 1}
    assert owner.state.aggregator.windows.count_traces("bot", "", "24h") == 1


@pytest.mark.parametrize("error", [MemoryError(), OSError("no threads")])
def test_what_no_record_is_to_blame_for_ends_the_worker(error: Exception) -> None:
    owner = Broken(error)
    with pytest.raises(type(error)):
        asyncio.run(owner.process(events()))
    assert owner.buried == []
    assert owner.committed == []
