"""Documents that have a topic of their own, such as labels: Faust's agents send them on.

A label needs no exact position: one that is sent on twice, because a worker was killed, changes no
window. So these are plain Faust, by its public interface: an agent for each topic takes what has
come in batches, and Faust commits what they have done with.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from aiokafka.errors import MessageSizeTooLargeError
from faust import App
from faust.exceptions import ConsumerNotStarted
from faust.types import TP

from ragmeter.config.settings import Settings
from ragmeter.core.counters import GaugeSample
from ragmeter.core.errors import Unavailable
from ragmeter.kafka.connection import HEARTBEAT_SECONDS, REBALANCE_SECONDS, faust_options
from ragmeter.kafka.owners import ENVELOPE, PASSING, OutRecord
from ragmeter.kafka.processors.score import MessageProcessor, RecordOfMessages

log = logging.getLogger(__name__)

_BATCH = 500
_GATHER_SECONDS = 0.1
_RETRY_SECONDS = 1.0
_LOOK_SECONDS = 0.5
_COMMIT_SECONDS = 0.5  # between two commits of offsets: so much is sent on again after a kill
_LEAVE_SECONDS = 3.0


class _Arrived(NamedTuple):
    """A message as aiokafka would give it; Faust has seconds where Kafka has milliseconds."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: Any
    timestamp: float
    timestamp_type: int

    @classmethod
    def of(cls, message: Any) -> _Arrived:
        return cls(
            topic=message.topic,
            partition=message.partition,
            offset=message.offset,
            key=message.key,
            value=message.value,
            headers=message.headers,
            timestamp=1000 * (message.timestamp or 0),
            timestamp_type=message.timestamp_type,
        )


class DocumentStreams:
    """The part of a worker that Faust runs.

    Args:
        settings: Brokers, group and topics.
        processor: Says what comes of a message.
        topics: Those of the documents.
        datadir: A folder for Faust, which makes it though there are no tables.
    """

    def __init__(
        self, settings: Settings, processor: MessageProcessor, topics: Iterable[str], datadir: Path
    ) -> None:
        self._settings = settings
        self._processor = processor
        self._topics = tuple(topics)
        self._datadir = datadir
        self._app: Any = None
        self._channels: dict[str, Any] = {}
        self._next: dict[TP, int] = {}  # what is not sent on yet
        self._lag: dict[str, int] = dict.fromkeys(self._topics, 0)
        self._behind_since: dict[str, float] = {}

    async def run(self) -> None:
        """Send documents on until cancelled; where Faust stops, whoever runs this begins again."""
        app = self._app = self._make_app()
        try:
            await app.start()
            while not app.should_stop:  # noqa: ASYNC110
                await asyncio.sleep(_LOOK_SECONDS)
            raise Unavailable(f"Faust has stopped: {app.crash_reason!r}")
        finally:
            self._app = None
            stopping = asyncio.create_task(app.stop())
            await asyncio.wait({stopping}, timeout=_LEAVE_SECONDS)

    def _make_app(self) -> App:
        kafka = self._settings.kafka
        app = App(
            kafka.documents_group,
            **faust_options(kafka),
            loop=asyncio.get_running_loop(),
            datadir=self._datadir,
            store="memory://",
            # topics are made by `ragmeter kafka init`, with the right partitions and retention
            topic_allow_declare=False,
            topic_disable_leader=True,
            topic_partitions=kafka.partitions,
            stream_recovery_delay=0.0,
            broker_session_timeout=kafka.session_seconds,
            broker_commit_interval=_COMMIT_SECONDS,
            broker_heartbeat_interval=HEARTBEAT_SECONDS,
            broker_rebalance_timeout=REBALANCE_SECONDS,
            consumer_auto_offset_reset="earliest",
            producer_acks=-1,
            producer_max_request_size=self._settings.limits.trace_bytes + ENVELOPE,
            web_enabled=False,  # ours is served instead; Faust's shows tables to anybody
        )
        raw: Any = {"key_type": bytes, "value_type": bytes}
        raw |= {"key_serializer": "raw", "value_serializer": "raw"}
        # a message of bytes is always decoded; one of a type would be acknowledged unread
        for topic in self._topics:
            app.agent(app.topic(topic, **raw), name=topic)(self._send_on)
        names = (self._processor.scores_topic, self._processor.dead.topic)
        self._channels = {name: app.topic(name, **raw) for name in names}
        return app

    async def _send_on(self, stream: Any) -> None:
        """Send on what has come; the body of the agents."""
        async for events in stream.take_events(_BATCH, within=_GATHER_SECONDS):
            messages = [_Arrived.of(event.message) for event in events]
            records = [one for message in messages for one in await self._records(message)]
            sent: list[OutRecord] = []
            while records:
                refused = await self._send(records)
                sent += [one.record for one in records if one not in refused]
                records = self._processor.replace(refused)
            self._processor.publish([], sent)
            for message in messages:
                self._next[TP(message.topic, message.partition)] = message.offset + 1

    async def _records(self, message: _Arrived) -> list[RecordOfMessages]:
        try:
            outcome = self._processor.handle(message)
            found: Any = await outcome if asyncio.iscoroutine(outcome) else outcome
        except Exception as error:
            found = self._processor.give_up(message, error)
        return [RecordOfMessages(record, [message], part) for part, record in enumerate(found)]

    async def _send(self, records: list[RecordOfMessages]) -> list[RecordOfMessages]:
        """Send records, however long it takes; return those that topics refuse as too large."""
        while True:
            outcomes = await asyncio.gather(
                *(self._send_one(one.record) for one in records), return_exceptions=True
            )
            refused = [
                one
                for one, outcome in zip(records, outcomes, strict=True)
                if isinstance(outcome, MessageSizeTooLargeError)
            ]
            failures = [
                one
                for one in outcomes
                if isinstance(one, BaseException) and not isinstance(one, MessageSizeTooLargeError)
            ]
            if not failures:
                return refused
            if not isinstance(failures[0], PASSING):
                raise failures[0]
            log.warning("documents are sent again: %r", failures[0])
            await asyncio.sleep(_RETRY_SECONDS)

    async def _send_one(self, record: OutRecord) -> None:
        sending = await self._channels[record.topic].send(
            key=record.arguments[2], value=record.value, headers=dict(record.headers)
        )
        await sending

    async def measure(self) -> None:
        """Measure how far the agents are behind."""
        if self._app is None or not self._app.started:
            return
        consumer = self._app.consumer
        try:
            here = [tp for tp in consumer.assignment() if tp.topic in self._lag]
        except ConsumerNotStarted:  # its thread starts later than the app
            return
        self._next = {tp: offset for tp, offset in self._next.items() if tp in here}
        ends = await consumer.highwaters(*here) if here else {}
        waiting = dict.fromkeys(self._topics, 0)
        for tp, end in ends.items():
            read = await consumer.position(tp) or 0
            # the mark of a transaction at the end is read over and never sent on
            if read < end or consumer.unacked:
                waiting[tp.topic] += max(0, end - self._next.get(tp, read))
        now = time.monotonic()
        for topic, number in waiting.items():
            self._lag[topic] = number
            if number:
                self._behind_since.setdefault(topic, now)
            else:
                self._behind_since.pop(topic, None)

    def gauges(self) -> list[GaugeSample]:
        """Return the lag of each topic, and for how long there has been one."""
        samples: list[GaugeSample] = []
        now = time.monotonic()
        for topic, waiting in self._lag.items():
            label = (("topic", topic),)
            samples.append(("ragmeter_kafka_lag_messages", label, float(waiting)))
            since = now - self._behind_since.get(topic, now)
            samples.append(("ragmeter_kafka_lag_seconds", label, since))
        return samples
