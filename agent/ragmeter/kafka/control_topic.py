"""Control records from the aggregate to the score processors, over a compacted topic.

Any worker may score a trace, but only the worker that aggregates a service learns which of its
segments and versions are low, new or rare. Each partition of the state has a key in `rag.control`
whose last value is its record (`ragmeter.sampling.control`), sent in the transaction of the step
that changed it, and every worker reads all of them, from the beginning when it starts. A record
that is late or missing changes which traces are drawn and no estimate, because each draw carries
its probability. So nothing waits for this topic, and a client that reads it over is good enough: it
also reads records of steps that were not committed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from faust import App
from pydantic import TypeAdapter

from ragmeter.config.kafka import KafkaSettings
from ragmeter.core.errors import Unavailable
from ragmeter.kafka.connection import faust_options
from ragmeter.sampling.control import SamplingControl

log = logging.getLogger(__name__)

VERSION = 1
CONTROL_PARTITION = 0  # the topic has one, and Faust's client mode reads no other
BATCH = 500
_GATHER_SECONDS = 0.1
_LOOK_SECONDS = 0.5
_LEAVE_SECONDS = 3.0


@dataclass(slots=True)
class _ControlWire:
    v: int
    control: SamplingControl


_WIRE = TypeAdapter(_ControlWire)


def encode_control(control: SamplingControl) -> bytes:
    """Return a record as the value of a message."""
    return _WIRE.dump_json(_ControlWire(VERSION, control))


class ControlRecords:
    """The last control record of each partition of the state, and all of them merged."""

    def __init__(self, partitions: int) -> None:
        self._partitions = partitions
        self._records: dict[int, SamplingControl] = {}

    def put(self, key: bytes | None, value: bytes | None) -> bool:
        """Take in a message of the topic; return False for one that is no control record."""
        try:
            partition = int(key or b"")
            wire = None if value is None else _WIRE.validate_json(value)
        except ValueError:  # of the validation, too
            return False
        if not 0 <= partition < self._partitions or (wire and wire.v != VERSION):
            return False
        if wire is None:
            self._records.pop(partition, None)
        else:
            self._records[partition] = wire.control
        return True

    @property
    def control(self) -> SamplingControl:
        """All records as one: a service is counted in one partition, so they cannot disagree."""
        low: dict[str, Mapping[str, float]] = {}
        first: dict[str, Mapping[str, float]] = {}
        rare: dict[str, Sequence[str]] = {}
        for _, record in sorted(self._records.items()):
            low.update(record.low)
            first.update(record.first)
            rare.update(record.rare)
        version = sum(record.version for record in self._records.values())
        return SamplingControl(version, low, first, rare)


class ControlListener:
    """Reads the topic, whole and without a group: the part of a worker that Faust runs.

    Faust's client mode is made for it: every client reads the one partition of a topic from the
    beginning, commits nothing, and connects again by itself.

    Args:
        kafka: Brokers and topic.
        records: Where the records go.
        apply: What is called with each change.
        datadir: A folder for Faust, which makes it though there are no tables.
    """

    def __init__(
        self,
        kafka: KafkaSettings,
        records: ControlRecords,
        apply: Callable[[SamplingControl], None],
        datadir: Path,
    ) -> None:
        self._kafka = kafka
        self._records = records
        self._apply = apply
        self._datadir = datadir

    async def run(self) -> None:
        """Read until cancelled.

        Where the topic cannot be read, the last records stay in force, and whoever runs this begins
        again.
        """
        app = self._make_app()
        topic = app.topic(
            self._kafka.topics.control,
            # a message of bytes is always decoded; one of a type would be left out
            key_type=bytes,
            value_type=bytes,
            key_serializer="raw",
            value_serializer="raw",
            acks=False,
        )
        listening = asyncio.create_task(self._listen(topic.stream()))
        try:
            await asyncio.sleep(0)  # a client reads what is listened to at its start
            await app.start_client()
            while not (app.should_stop or listening.done()):  # noqa: ASYNC110
                await asyncio.sleep(_LOOK_SECONDS)
            if listening.done():
                listening.result()
            raise Unavailable(f"Faust has stopped: {app.crash_reason!r}")
        finally:
            listening.cancel()
            stopping = asyncio.create_task(app.stop())
            await asyncio.wait({listening, stopping}, timeout=_LEAVE_SECONDS)

    def _make_app(self) -> App:
        return App(
            self._kafka.group,
            **faust_options(self._kafka),
            loop=asyncio.get_running_loop(),
            datadir=self._datadir,
            store="memory://",
            topic_allow_declare=False,  # `ragmeter kafka init` makes topics
            topic_disable_leader=True,
            consumer_auto_offset_reset="earliest",
            web_enabled=False,  # ours is served instead; Faust's shows tables to anybody
        )

    async def _listen(self, stream: Any) -> None:
        async for events in stream.take_events(BATCH, within=_GATHER_SECONDS):
            _take_in(self._records, [event.message for event in events], self._apply)


def _take_in(
    records: ControlRecords, messages: list[Any], apply: Callable[[SamplingControl], None]
) -> None:
    accepted = [records.put(message.key, message.value) for message in messages]
    if not all(accepted):
        log.warning("%d messages are no control records; left out", accepted.count(False))
    if any(accepted):
        apply(records.control)
