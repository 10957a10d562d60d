"""Feedback from its topic: to the partition of its service, or a dead letter with its reason."""

from __future__ import annotations

import asyncio
import json
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ragmeter.aggregate.feedback_records import trace_key
from ragmeter.core.counters import Counters
from ragmeter.kafka.processors.delivery import ProcessorContext
from ragmeter.kafka.processors.score import FeedbackProcessor
from ragmeter.kafka.score_records import FeedbackRecord, SourceOffset, decode_scores_message
from tests.kafka.settings import settings_of
from tests.traces import START

LABEL = {
    "trace_id": "t1",
    "service": "bot",
    "timestamp": START,
    "answer": {"helpful": True},
    "passages": {"kb-1": {"misleading": False}},
}


def line(**changes: Any) -> bytes:
    return json.dumps({k: v for k, v in {**LABEL, **changes}.items() if v is not None}).encode()


class FakeProcessor:
    """A processor without a broker; `late`: sends end when `taken` is set."""

    def __init__(self, late: bool = False, **kafka: Any) -> None:
        self.buried: list[tuple[str, Any]] = []
        self.records: list[tuple[bytes, bytes]] = []
        self.counters = Counters()
        self._late = late
        self.taken: asyncio.Future[None] | None = None
        self.whole = FeedbackProcessor(
            ProcessorContext(
                settings_of(kafka=kafka),
                cast(Any, SimpleNamespace(send=self._bury)),
                self.counters,
                self._fail,
            ),
            cast(Any, SimpleNamespace(send=self._send)),
        )

    async def _send(self, **record: Any) -> asyncio.Future[None]:
        self.records.append((record["key"], record["value"]))
        self.taken = asyncio.get_running_loop().create_future()
        if not self._late:
            self.taken.set_result(None)
        return self.taken

    async def _bury(self, event: Any, reason: str, errors: Any) -> None:
        self.buried.append((reason, errors))

    async def _fail(self, error: BaseException) -> None:
        raise error

    async def handle(self, value: bytes, arrived: float | None = None) -> None:
        message = SimpleNamespace(
            value=value, partition=3, offset=5, timestamp=arrived, timestamp_type=1, headers=()
        )
        await self.whole._handle(cast(Any, SimpleNamespace(message=message)))

    def take(self, value: bytes, arrived: float | None = None) -> FeedbackRecord:
        asyncio.run(self.handle(value, arrived))
        found = decode_scores_message(self.records[-1][1])
        assert isinstance(found, FeedbackRecord)
        return found


def test_it_goes_to_the_partition_of_its_service_without_ids_in_it() -> None:
    processor = FakeProcessor(feedback_epoch=2)
    found = processor.take(line())
    assert found.source == SourceOffset(2, 3, 5)
    row = found.row
    assert (row.trace, row.service, row.scorer, row.since) == (
        *(trace_key("t1"), "bot", "human"),
        START,
    )
    ((key, value),) = processor.records
    assert key == b"bot"
    assert b"t1" not in value
    assert b"kb-1" not in value


def test_a_label_from_the_future_is_one_of_its_arrival() -> None:
    """Of two words the later holds: one wrong clock must not have the last word for years."""
    assert FakeProcessor().take(line(timestamp=START + 9e6), arrived=START).row.since == START
    assert FakeProcessor().take(line(), arrived=START + 50).row.since == START


def test_who_names_no_service_is_told_so_unless_there_is_only_one() -> None:
    processor = FakeProcessor()
    asyncio.run(processor.handle(line(service=None)))
    ((reason, errors),) = processor.buried
    assert reason == "invalid_feedback"
    assert errors[0][0] == "service"
    assert processor.records == []
    found = FakeProcessor(feedback_service="shop").take(line(service=None))
    assert found.row.service == "shop"
    assert FakeProcessor(feedback_service="shop").take(line()).row.service == "bot"


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (b"", "invalid_json"),
        (b"{nonsense", "invalid_json"),
        (b"[" + line() + b"]", "invalid_feedback"),
        (line(answer={}, passages={}), "invalid_feedback"),
        (line(scorer="judge"), "invalid_feedback"),
        (b" " * (2**20 + 1), "too_large"),
    ],
)
def test_what_cannot_be_read_is_a_dead_letter(value: bytes, reason: str) -> None:
    processor = FakeProcessor()
    asyncio.run(processor.handle(value))
    assert [found for found, _ in processor.buried] == [reason]
    assert processor.counters.get("ragmeter_dead_letters_total", (("reason", reason),)) == 1
    assert processor.records == []


def test_a_message_is_not_done_with_before_the_broker_has_its_record() -> None:
    async def test() -> None:
        processor = FakeProcessor(late=True)
        handling = asyncio.create_task(processor.handle(line()))
        while processor.taken is None:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.05)
        assert not handling.done()
        processor.taken.set_result(None)
        await handling

    asyncio.run(test())
