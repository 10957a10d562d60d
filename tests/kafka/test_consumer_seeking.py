"""Where a consumer stands when the states are loaded."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any, cast

from aiokafka import TopicPartition
from faust.types import TP

from ragmeter.kafka.consumer import _CommittedConsumerThread

TRACES, SCORES, STATE = (TopicPartition(name, 0) for name in ("traces", "scores", "state"))


class Consumer:
    """As aiokafka's: records were read, and dropped, while the states were loaded."""

    def __init__(self) -> None:
        self.committed = {TRACES: None, SCORES: 7, STATE: None}
        self.position = {TRACES: 500, SCORES: 500, STATE: 90}

    async def seek_to_committed(self) -> dict[TopicPartition, int | None]:
        for tp, offset in self.committed.items():
            if offset and offset > 0:
                self.seek(tp, offset)
        return dict(self.committed)

    def seek(self, tp: TopicPartition, offset: int) -> None:
        self.position[tp] = offset


class Thread:
    """As much of one as a seek needs."""

    _seek = _CommittedConsumerThread._seek

    def __init__(self) -> None:
        self.read = Consumer()
        self.consumer = SimpleNamespace(_is_changelog_tp=lambda tp: tp == TP("state", 0))

    def _ensure_consumer(self) -> Consumer:
        return self.read

    async def call_thread(self, call: Callable[[], Awaitable[Any]]) -> Any:
        return await call()


def test_what_was_never_committed_is_read_from_the_beginning() -> None:
    thread = Thread()
    found = asyncio.run(_CommittedConsumerThread.seek_to_committed(cast(Any, thread)))
    assert found == {TRACES: None, SCORES: 7, STATE: None}
    assert thread.read.position == {TRACES: 0, SCORES: 7, STATE: 90}
