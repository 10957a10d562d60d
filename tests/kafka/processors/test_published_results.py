"""When scores are handed on: after the transaction that sent them, and not before."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from aiokafka.errors import KafkaConnectionError
from ragmeter.aggregate.outputs import AgentOutputs
from ragmeter.app.parts import AgentSettings
from ragmeter.core.counters import Counters
from ragmeter.kafka import transactions
from ragmeter.kafka.processors.delivery import DeadLetterTopic, TracePreparer
from ragmeter.kafka.processors.score import MessageProcessor, ScoreOwner
from ragmeter.scoring.inline_tiers import InlineTiers

from tests.kafka.messages import message
from tests.kafka.test_transactions import TP, Group, Producer, until
from tests.traces import trace_line


def test_scores_are_handed_on_after_their_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    log: list[Any] = []
    fails: list[Exception] = [KafkaConnectionError()]
    monkeypatch.setattr(transactions, "make_producer", lambda *_: Producer(log, fails))
    monkeypatch.setattr(transactions, "_FIRST_PAUSE", 0.01)
    outputs = AgentOutputs(
        on_results=lambda done: log.append([trace.trace_id for trace, _ in done]),
        on_scores=lambda traces: log.append([trace.trace_id for trace in traces]),
    )

    async def run() -> None:
        settings, counters = AgentSettings(), Counters()
        async with (
            TracePreparer(settings, counters) as preparer,
            InlineTiers(settings, counters) as tiers,
        ):
            dead = DeadLetterTopic("rag.dead", preparer, counters)
            processor = MessageProcessor(
                settings, dead, counters, preparer, tiers=tiers, outputs=outputs
            )
            group: Any = Group(log, 5)
            owner = ScoreOwner(processor, group, TP)
            owner.start()
            for turn in (1, 2):  # the first commit fails: all is read and scored again
                await until(lambda: owner.ready and len(group.sought) == turn)  # noqa: B023
                owner.put(message(trace_line(1), 5), 5)
                owner.put(message(b"garbage", 6), 6)
            await until(lambda: owner.position == 7)
            await until(lambda: len(log) > 5)
            await owner.close()

    asyncio.run(run())
    (records, position), *published = log[-3:]
    assert (len(records), position) == (2, 7)
    assert published == [["t1"], ["t1"]]
    assert log.count(["t1"]) == 2
