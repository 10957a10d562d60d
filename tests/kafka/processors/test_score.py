"""A message is done with when its result is delivered, a record or a dead letter."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ragmeter.config.settings import Settings
from ragmeter.core.counters import Counters
from ragmeter.kafka.processors import score
from ragmeter.kafka.processors.delivery import ProcessorContext
from ragmeter.kafka.processors.score import ScoreProcessor
from ragmeter.kafka.score_records import MAX_BYTES, RecordTooLarge
from ragmeter.scoring.scorer import Scorer
from tests.traces import trace_line


class FakeProcessor:
    """A processor without a broker.

    `buried` are reasons of dead letters, `sent` what the broker has still to take.
    """

    def __init__(self) -> None:
        self.buried: list[str] = []
        self.sent: list[asyncio.Future[None]] = []
        self.counters = Counters()
        self.whole = ScoreProcessor(
            ProcessorContext(
                Settings(), cast(Any, SimpleNamespace(send=self._bury)), self.counters, self._fail
            ),
            cast(Any, SimpleNamespace(send=self._send)),
            cast(Any, SimpleNamespace(prepare=self._trace, publishable=lambda trace: trace)),
            cast(Any, SimpleNamespace(score_trace=self._scored)),
        )

    async def _trace(self, item: Any) -> Any:
        return item.trace

    async def _scored(self, trace: Any, timestamp: float) -> Any:
        return Scorer().score(trace).trace

    async def _send(self, **record: Any) -> asyncio.Future[None]:
        self.sent.append(asyncio.get_running_loop().create_future())
        return self.sent[-1]

    async def _bury(self, event: Any, reason: str, errors: Any) -> None:
        self.buried.append(reason)

    async def _fail(self, error: BaseException) -> None:
        raise error

    async def handle(self) -> None:
        message = SimpleNamespace(value=trace_line(1), partition=0, offset=5, timestamp=None)
        await self.whole._handle(cast(Any, SimpleNamespace(message=message)))


def test_a_message_is_not_done_with_before_the_broker_has_its_record() -> None:
    async def test() -> None:
        processor = FakeProcessor()
        handling = asyncio.create_task(processor.handle())
        while not processor.sent and not handling.done():  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.05)
        assert not handling.done()
        processor.sent[0].set_result(None)
        await handling

    asyncio.run(test())


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (RecordTooLarge(MAX_BYTES + 1, MAX_BYTES), "too_large"),
        (ValueError("ours"), "internal_error"),
    ],
)
def test_scores_that_cannot_be_written_are_a_dead_letter(
    monkeypatch: pytest.MonkeyPatch, error: ValueError, reason: str
) -> None:
    def fails(record: Any) -> bytes:
        raise error

    monkeypatch.setattr(score, "encode_score", fails)
    processor = FakeProcessor()
    asyncio.run(processor.handle())
    assert processor.buried == [reason]
    assert processor.counters.get("ragmeter_dead_letters_total", (("reason", reason),)) == 1
