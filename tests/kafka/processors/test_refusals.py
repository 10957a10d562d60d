"""What a stage does with times that cannot be, and with what a topic does not take; no broker."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import faust
from aiokafka.errors import MessageSizeTooLargeError
from faust.types import TP

from ragmeter.core.counters import Counters
from ragmeter.ingest.assembler import CloseReason, ClosingTrace
from ragmeter.kafka.processors import durable, otlp
from ragmeter.kafka.processors.acknowledged import arrival_time
from ragmeter.kafka.processors.durable import DurableProcessor
from ragmeter.kafka.processors.otlp import AssembleProcessor
from ragmeter.kafka.processors.score import ScoreProcessor


def message(**fields: Any) -> Any:
    told = {"value": b"", "headers": None, "timestamp": 5000.0, "timestamp_type": 0}
    place = {"topic": "t", "partition": 0, "offset": 7, "tp": TP("t", 0), "generation_id": 3}
    return SimpleNamespace(**{**told, **place, **fields})


def test_a_producer_does_not_say_that_its_trace_came_tomorrow() -> None:
    assert arrival_time(message(), 100.0) == 100.0, "its clock, as that of the trace"
    assert arrival_time(message(), 9000.0) == 5000.0
    assert arrival_time(message(timestamp_type=1), 100.0) == 5000.0, "the clock of the broker"
    assert arrival_time(message(timestamp=None), 100.0) is None


class Stage:
    """Of a stage what a test needs of it."""

    def __init__(self) -> None:
        self.buried: list[tuple[str, bytes]] = []
        self.dead = self

    async def _bury(self, event: Any, reason: str, errors: Any) -> None:
        self.buried.append((reason, event.message.value))

    async def put(self, key: Any, raw: bytes, reason: str, errors: Any, where: Any) -> None:
        self.buried.append((reason, raw))


def test_a_request_that_the_topic_of_the_spans_refuses_is_a_dead_letter() -> None:
    async def refuse(*told: Any) -> None:
        raise MessageSizeTooLargeError

    stage: Any = Stage()
    stage._otlp, stage._encoding, stage._epoch = (
        SimpleNamespace(split_request=refuse),
        "otlp_proto",
        0,
    )
    event: Any = SimpleNamespace(message=message(value=b"\n1"))
    asyncio.run(ScoreProcessor._handle(stage, event))
    assert stage.buried == [("too_large", b"\n1")]


def test_a_trace_that_its_topic_refuses_is_a_dead_letter(monkeypatch: Any) -> None:
    async def send(key: bytes, body: bytes) -> None:
        if body == b"large":
            raise MessageSizeTooLargeError

    found: Any = ([(b"a", b"small"), (b"b", b"large")], [], {})
    monkeypatch.setattr(otlp, "extract_traces", lambda *told: found)
    stage: Any = Stage()
    stage._send, stage._otlp, stage._limit = send, None, 0
    stage._send_one = lambda key, body: AssembleProcessor._send_one(stage, key, body)
    closing = ClosingTrace(b"\1" * 16, CloseReason.ROOT, 10)
    counts = asyncio.run(AssembleProcessor.hand_on(stage, closing, [], {}))
    assert stage.buried == [("too_large", b"large")]
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


class Here(DurableProcessor[Any]):
    def make_owner(self, *told: Any) -> Any: ...


def test_an_owner_that_was_dropped_is_given_nothing_more(monkeypatch: Any) -> None:
    """A rebalance waits for every message that anybody still holds."""

    async def fine(*told: Any) -> None: ...

    monkeypatch.setattr(durable, "check_gap", fine)
    given: list[Any] = []
    owner: Any = SimpleNamespace(tp=TP("t", 0), generation=3, full=True, put=given.append)
    none: Any = None

    one = message()
    app: Any = SimpleNamespace(consumer=SimpleNamespace(unacked=Unacked(one)))

    async def test() -> None:
        stage = Here(app, none, "t", none, Counters(), build=none, failed=fine)
        stage.owners[0] = owner
        asyncio.get_running_loop().call_later(0.05, stage.owners.clear)
        await stage.agent(Stream(SimpleNamespace(message=one)))

    asyncio.run(test())
    assert given == []
    assert app.consumer.unacked == []


def test_what_an_owner_that_has_lost_was_given_is_not_waited_for() -> None:
    lost, other = message(), message(tp=TP("t", 1))
    app: Any = SimpleNamespace(consumer=SimpleNamespace(unacked=Unacked(lost, other)))
    none: Any = None
    owner: Any = SimpleNamespace(tp=TP("t", 0), queue=[lost])
    Here(app, none, "t", none, Counters(), build=none, failed=none).drop_owner(owner)
    assert app.consumer.unacked == [other]
