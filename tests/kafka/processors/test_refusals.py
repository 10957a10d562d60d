"""Impossible times, and records that a topic refuses; without a broker."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import faust
from aiokafka.errors import MessageSizeTooLargeError
from faust.types import TP

from ragmeter.config.settings import Settings
from ragmeter.core.counters import Counters
from ragmeter.ingest.assembler import CloseReason, ClosingTrace
from ragmeter.kafka.processors import durable, otlp
from ragmeter.kafka.processors.acknowledged import arrival_time
from ragmeter.kafka.processors.delivery import ProcessorContext
from ragmeter.kafka.processors.durable import DurableProcessor
from ragmeter.kafka.processors.otlp import AssembleProcessor
from ragmeter.kafka.processors.score import ScoreProcessor
from ragmeter.kafka.span_records import ENCODING_HEADER


def message(**fields: Any) -> Any:
    told = {"value": b"", "headers": None, "timestamp": 5000.0, "timestamp_type": 0}
    place = {"topic": "t", "partition": 0, "offset": 7, "tp": TP("t", 0), "generation_id": 3}
    return SimpleNamespace(**{**told, **place, **fields})


def test_a_producer_does_not_say_that_its_trace_came_tomorrow() -> None:
    assert arrival_time(message(), 100.0) == 100.0, "its clock, as that of the trace"
    assert arrival_time(message(), 9000.0) == 5000.0
    assert arrival_time(message(timestamp_type=1), 100.0) == 5000.0, "the clock of the broker"
    assert arrival_time(message(timestamp=None), 100.0) is None


class DeadLetters:
    """Collects (reason, body) of dead letters."""

    def __init__(self) -> None:
        self.buried: list[tuple[str, bytes]] = []
        self.context = ProcessorContext(Settings(), cast(Any, self), Counters(), cast(Any, None))

    async def send(self, event: Any, reason: str, errors: Any) -> None:
        self.buried.append((reason, event.message.value))

    async def put(self, key: Any, raw: bytes, reason: str, errors: Any, source: Any) -> None:
        self.buried.append((reason, raw))


NONE: Any = None


def test_a_request_that_the_topic_of_the_spans_refuses_is_a_dead_letter() -> None:
    async def refuse(*told: Any) -> None:
        raise MessageSizeTooLargeError

    dead = DeadLetters()
    otlp: Any = SimpleNamespace(split_request=refuse)
    processor = ScoreProcessor(dead.context, NONE, NONE, NONE, otlp)
    event: Any = SimpleNamespace(
        message=message(value=b"\n1", headers={ENCODING_HEADER: b"otlp_proto"})
    )
    asyncio.run(processor._handle(event))
    assert dead.buried == [("too_large", b"\n1")]


def test_a_trace_that_its_topic_refuses_is_a_dead_letter(monkeypatch: Any) -> None:
    async def send(key: bytes, body: bytes) -> None:
        if body == b"large":
            raise MessageSizeTooLargeError

    found: Any = ([(b"a", b"small"), (b"b", b"large")], [], {})
    monkeypatch.setattr(otlp, "extract_traces", lambda *told: found)
    dead = DeadLetters()
    processor = AssembleProcessor(dead.context, NONE, NONE, "t", NONE, send)
    closing = ClosingTrace(b"\1" * 16, CloseReason.ROOT, 10)
    counts = asyncio.run(processor.hand_on(closing, [], {}))
    assert dead.buried == [("too_large", b"large")]
    assert counts == {("ragmeter_dead_letters_total", (("reason", "too_large"),)): 1}


class Stream(faust.Stream[Any]):
    """Gives one event."""

    def __init__(self, event: Any) -> None:
        self.event = event

    def __del__(self) -> None: ...

    def noack(self) -> Any:
        return self

    async def events(self) -> Any:
        yield self.event


class Unacked(list[Any]):
    """As Faust's set of messages."""

    def __init__(self, *messages: Any) -> None:
        super().__init__(messages)

    def discard(self, message: Any) -> None:
        self[:] = [one for one in self if one is not message]


def test_an_owner_that_was_dropped_is_given_nothing_more(monkeypatch: Any) -> None:
    """A rebalance waits for every message that anybody still holds."""

    async def fine(*told: Any) -> None: ...

    monkeypatch.setattr(durable, "check_gap", fine)
    given: list[Any] = []
    owner: Any = SimpleNamespace(tp=TP("t", 0), generation=3, full=True, put=given.append)

    one = message()
    app: Any = SimpleNamespace(consumer=SimpleNamespace(unacked=Unacked(one)))

    async def test() -> None:
        processor = DurableProcessor[Any](DeadLetters().context, app, NONE, "t", NONE)
        processor.owners[0] = owner
        asyncio.get_running_loop().call_later(0.05, processor.owners.clear)
        await processor.agent(Stream(SimpleNamespace(message=one)))

    asyncio.run(test())
    assert given == []
    assert app.consumer.unacked == []


def test_what_an_owner_that_has_lost_was_given_is_not_waited_for() -> None:
    lost, other = message(), message(tp=TP("t", 1))
    app: Any = SimpleNamespace(consumer=SimpleNamespace(unacked=Unacked(lost, other)))
    owner: Any = SimpleNamespace(tp=TP("t", 0), queue=[lost])
    DurableProcessor[Any](DeadLetters().context, app, NONE, "t", NONE).drop_owner(owner)
    assert app.consumer.unacked == [other]
