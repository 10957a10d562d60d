"""Stage 1: what becomes of a message whose scores cannot cross the topic."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from agent.config import Limits
from agent.counters import Counters
from agent.kafka.messages.records import MAX_BYTES, TooLarge
from agent.kafka.stages import score_stage
from agent.kafka.stages.score_stage import ScoreStage
from tests.traces import trace_line


@pytest.mark.parametrize(
    ("error", "reason"),
    [(TooLarge(MAX_BYTES + 1, MAX_BYTES), "too_large"), (ValueError("ours"), "internal_error")],
)
def test_scores_that_cannot_be_written_are_a_dead_letter(
    monkeypatch: pytest.MonkeyPatch, error: ValueError, reason: str
) -> None:
    buried: list[str] = []

    def fails(record: Any) -> bytes:
        raise error

    async def trace(item: Any) -> Any:
        return item.trace

    async def whole(trace: Any, timestamp: float) -> Any:
        return SimpleNamespace(trace=trace)

    async def send(event: Any, reason: str, errors: Any) -> None:
        buried.append(reason)

    async def failed(error: BaseException) -> None:
        raise error

    monkeypatch.setattr(score_stage, "encode_record", fails)
    stage = ScoreStage(
        Limits(),
        cast(Any, SimpleNamespace(trace=trace, sent=lambda trace: trace)),
        None,
        cast(Any, SimpleNamespace(whole=whole)),
        cast(Any, None),
        cast(Any, SimpleNamespace(send=send)),
        counters := Counters(),
        encoding="native",
        epoch=0,
        in_flight=1,
        failed=failed,
    )
    message = SimpleNamespace(value=trace_line(1), partition=0, offset=5, timestamp=None)
    asyncio.run(stage._handle(cast(Any, SimpleNamespace(message=message))))
    assert buried == [reason]
    assert counters.get("ragmeter_dead_letters_total", (("reason", reason),)) == 1
