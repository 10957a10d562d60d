"""Records that a topic refuses as too large: their messages become dead letters, no other does."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from aiokafka.errors import MessageSizeTooLargeError
from ragmeter.app.parts import AgentSettings
from ragmeter.core.counters import Counters
from ragmeter.kafka import transactions
from ragmeter.kafka.processors.delivery import DeadLetterTopic, TracePreparer
from ragmeter.kafka.processors.score import MessageProcessor, ScoreOwner
from ragmeter.kafka.score_records import decode_scores
from ragmeter.scoring.inline_tiers import InlineTiers

from tests.kafka.messages import message
from tests.kafka.test_transactions import TP, Group, Producer, until
from tests.traces import trace_line

DEAD = "rag.dead"
MESSAGES = 40
FAT = b"fat"  # a trace with it in its id has scores that are refused, at the broker or before


class Refusing(Producer):
    """A producer of a broker that refuses scores of fat traces, and letters of `largest` bytes."""

    def __init__(self, log: list[Any], *, at_once: bool, largest: int) -> None:
        super().__init__(log, [])
        self.at_once = at_once
        self.largest = largest

    async def send(self, topic: str, value: Any, *rest: Any, **more: Any) -> Any:
        sent = await super().send(topic, value, *rest, **more)
        refused = len(value) > self.largest if topic == DEAD else FAT in value
        if not refused:
            return sent
        if self.at_once:
            raise MessageSizeTooLargeError
        failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        failed.set_exception(MessageSizeTooLargeError())
        return failed


@pytest.mark.parametrize("at_once", [True, False])
def test_a_refused_record_blames_itself_and_not_its_batch(
    monkeypatch: pytest.MonkeyPatch, at_once: bool
) -> None:
    log: list[Any] = []
    begun: list[Refusing] = []

    def make(*_: Any) -> Refusing:
        begun.append(Refusing(log, at_once=at_once, largest=100_000))
        return begun[-1]

    monkeypatch.setattr(transactions, "make_producer", make)
    monkeypatch.setattr(transactions, "_FIRST_PAUSE", 0.01)
    values = [trace_line(number, service="ab"[number % 2]) for number in range(MESSAGES)]
    values[7] = trace_line(7, trace_id="fat 7", service="b")
    values[8] = trace_line(8, trace_id="fat 8", service="a")
    values[9] = b"{" + b"x" * 200_000  # its letter is refused until it has no body
    counters = Counters()

    async def run() -> None:
        settings = AgentSettings()
        async with (
            TracePreparer(settings, counters) as preparer,
            InlineTiers(settings, counters) as tiers,
        ):
            dead = DeadLetterTopic(DEAD, preparer, counters)
            group: Any = Group(log, 0)
            processor = MessageProcessor(settings, dead, counters, preparer, tiers)
            owner = ScoreOwner(processor, group, TP)
            owner.start()
            fed = 0
            while owner.position < MESSAGES:
                await until(lambda: len(group.sought) > fed or owner.position == MESSAGES)  # noqa: B023
                if owner.position < MESSAGES:
                    fed = len(group.sought)
                    await until(lambda: owner.ready)
                    for offset, value in enumerate(values):
                        owner.put(message(value, offset), 0)
            await owner.close()

    asyncio.run(run())
    commits = [entry for entry in log if isinstance(entry, tuple)]
    sent = [record for records, _ in commits for record in records]
    letters = [value for topic, value in sent if topic == DEAD]
    assert sorted(letters) == sorted([b"", *values[7:9]])
    scored = {
        one.scored.trace_id
        for topic, value in sent
        if topic != DEAD
        for one in decode_scores(value)
    }
    assert scored == {f"t{number}" for number in range(MESSAGES)} - {"t7", "t8", "t9"}
    assert counters.get("ragmeter_dead_letters_total", (("reason", "too_large"),)) == 2
    assert counters.get("ragmeter_dead_letters_total", (("reason", "invalid_json"),)) == 1
    # once for the records that are refused together and once for those that are parted of others;
    # where the client refuses each by itself, once for each of those
    assert len(begun) <= (8 if at_once else 4)
