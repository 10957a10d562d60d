"""Documents that Faust's agents send on, without brokers."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka.errors import KafkaConnectionError, MessageSizeTooLargeError
from faust.exceptions import ConsumerNotStarted
from faust.types import TP
from ragmeter.app.parts import PARTS, AgentSettings
from ragmeter.core.counters import Counters
from ragmeter.kafka import document_streams
from ragmeter.kafka.document_streams import DocumentStreams
from ragmeter.kafka.processors.delivery import DeadLetterTopic, TracePreparer
from ragmeter.kafka.processors.score import MessageProcessor
from ragmeter.kafka.scores_topic import DocumentRecord, decode_scores_message
from ragmeter.parts.collection import document_kinds
from ragmeter.scoring.inline_tiers import InlineTiers

from tests.kafka.test_transactions import until
from tests.traces import START

FEEDBACK = "rag.feedback"
SCORES = "rag.scores"
DEAD = "rag.dead"


def label(number: int) -> bytes:
    item = {"trace_id": f"t{number}", "service": "bot", "timestamp": START + number}
    return json.dumps({**item, "answer": {"helpful": True}}).encode()


class Brokers:
    """What an app of Faust sends, and what it hears: errors, each for one record, in turn."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, bytes | None, bytes | None]] = []
        self.fails: list[Exception | None] = []
        self.app: App | None = None


class Topic:
    def __init__(self, brokers: Brokers, name: str) -> None:
        self._brokers = brokers
        self._name = name

    async def send(self, key: Any, value: Any, headers: Any) -> asyncio.Future[None]:
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        error = self._brokers.fails.pop(0) if self._brokers.fails else None
        if error is None:
            self._brokers.sent.append((self._name, key, value))
            done.set_result(None)
        else:
            done.set_exception(error)
        return done


class Consumer:
    def __init__(self) -> None:
        self.unacked: set[int] = set()
        self.read = 0
        self.end = 0
        self.started = True

    def assignment(self) -> set[TP]:
        if not self.started:
            raise ConsumerNotStarted
        return {TP(FEEDBACK, 0)}

    async def highwaters(self, *tps: TP) -> dict[TP, int]:
        return dict.fromkeys(tps, self.end)

    async def position(self, tp: TP) -> int:
        return self.read


class App:
    """As `faust.App`, as far as it is used."""

    def __init__(self, brokers: Brokers) -> None:
        self._brokers = brokers
        self.consumer = Consumer()
        self.bodies: dict[str, Callable[[Any], Coroutine[Any, Any, None]]] = {}
        self.started = self.should_stop = self.stopped = False
        self.crash_reason: Exception | None = None

    def topic(self, name: str, **_: Any) -> Topic:
        return Topic(self._brokers, name)

    def agent(self, topic: Topic, name: str) -> Callable[[Any], None]:
        return lambda body: self.bodies.update({name: body})

    async def start(self) -> None:
        self.started = True

    async def stop(self) -> None:
        self.stopped = True


class Stream:
    """One batch of events."""

    def __init__(self, values: list[bytes], first: int) -> None:
        self._values = values
        self._first = first

    async def take_events(self, number: int, within: float) -> AsyncIterator[list[Any]]:
        yield [
            SimpleNamespace(
                message=SimpleNamespace(
                    topic=FEEDBACK,
                    partition=0,
                    offset=offset,
                    key=None,
                    value=value,
                    headers=(),
                    timestamp=START + 60.0,
                    timestamp_type=1,
                )
            )
            for offset, value in enumerate(self._values, self._first)
        ]


class Place:
    """Streams on an app that is started, and what they count."""

    def __init__(self, streams: DocumentStreams, brokers: Brokers, counters: Counters) -> None:
        self.streams = streams
        self.brokers = brokers
        self.counters = counters

    @property
    def app(self) -> App:
        assert self.brokers.app is not None
        return self.brokers.app

    async def deliver(self, *values: bytes, first: int = 0) -> None:
        await self.app.bodies[FEEDBACK](Stream(list(values), first))

    @property
    def lag(self) -> list[float]:
        return [value for _, _, value in self.streams.gauges()]


def tell(
    monkeypatch: pytest.MonkeyPatch,
    folder: Path,
    story: Callable[[Place], Coroutine[Any, Any, None]],
) -> None:
    """Tell a story of streams from their start to their end."""
    settings, counters, brokers = AgentSettings(), Counters(), Brokers()

    def make(*_: Any, **options: Any) -> App:
        assert options["topic_allow_declare"] is False
        brokers.app = App(brokers)
        return brokers.app

    monkeypatch.setattr(document_streams, "App", make)
    monkeypatch.setattr(document_streams, "_RETRY_SECONDS", 0.0)
    monkeypatch.setattr(document_streams, "_LOOK_SECONDS", 0.0)

    async def go() -> None:
        async with (
            TracePreparer(settings, counters) as preparer,
            InlineTiers(settings, counters) as tiers,
        ):
            dead = DeadLetterTopic(DEAD, preparer, counters)
            processor = MessageProcessor(settings, dead, counters, preparer, tiers, parts=PARTS)
            streams = DocumentStreams(settings, processor, [FEEDBACK], folder)
            running = asyncio.create_task(streams.run())
            place = Place(streams, brokers, counters)
            await until(lambda: brokers.app is not None and brokers.app.started)
            try:
                await story(place)
            finally:
                running.cancel()
                await asyncio.gather(running, return_exceptions=True)
            assert place.app.stopped

    asyncio.run(go())


def test_labels_go_to_the_partition_of_their_service(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    async def story(place: Place) -> None:
        await place.deliver(label(0), b"{nonsense", label(1))
        kinds = document_kinds(PARTS, AgentSettings())
        found = [
            decode_scores_message(value or b"", kinds)
            for topic, key, value in place.brokers.sent
            if (topic, key) == (SCORES, b"bot")
        ]
        assert [type(one) for one in found] == [DocumentRecord] * 2
        assert [value for topic, _, value in place.brokers.sent if topic == DEAD] == [b"{nonsense"]
        assert len(place.brokers.sent) == 3

    tell(monkeypatch, tmp_path, story)


def test_what_the_brokers_do_not_take_is_sent_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    async def story(place: Place) -> None:
        place.brokers.fails = [None, KafkaConnectionError("away"), KafkaConnectionError("away")]
        await place.deliver(label(0), label(1))
        assert len(set(place.brokers.sent)) == 2

    tell(monkeypatch, tmp_path, story)


def test_a_label_that_is_refused_as_too_large_is_a_dead_letter(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    async def story(place: Place) -> None:
        place.brokers.fails = [MessageSizeTooLargeError(), None, MessageSizeTooLargeError()]
        await place.deliver(label(0), label(1))
        topics = [topic for topic, _, _ in place.brokers.sent]
        assert topics == [SCORES, DEAD]
        assert not place.brokers.sent[-1][2], "its body was refused as well"

    tell(monkeypatch, tmp_path, story)


def test_a_defect_is_raised_and_nothing_is_acknowledged(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    async def story(place: Place) -> None:
        place.brokers.fails = [ZeroDivisionError()]
        with pytest.raises(ZeroDivisionError):
            await place.deliver(label(0))

    tell(monkeypatch, tmp_path, story)


def test_the_lag_is_what_is_not_sent_on_and_the_mark_of_a_transaction_is_none(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    async def story(place: Place) -> None:
        consumer = place.app.consumer
        consumer.read, consumer.end = 2, 7
        consumer.started = False
        await place.streams.measure()
        assert place.lag[0] == 0, "not known yet"
        consumer.started = True
        await place.streams.measure()
        assert place.lag[0] == 5
        consumer.read = 7
        consumer.unacked = {1}
        await place.deliver(label(2), label(3), first=2)
        await place.streams.measure()
        assert place.lag[0] == 3
        consumer.unacked = set()
        await place.streams.measure()
        assert place.lag == [0, 0]

    tell(monkeypatch, tmp_path, story)


def test_where_faust_has_stopped_whoever_runs_it_begins_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    async def story(place: Place) -> None:
        place.app.should_stop = True
        place.app.crash_reason = ValueError("broken")
        await until(lambda: place.app.stopped)

    tell(monkeypatch, tmp_path, story)
