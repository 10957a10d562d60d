"""Control records from the aggregate to the score processors, over a compacted topic.

Any worker may score a trace, but only the worker that aggregates a service learns which of its
segments and versions are low, new or rare. Each partition of the state has a key in `rag.control`
whose last value is its record (`ragmeter.sampling.control`), sent in the transaction of the step
that changed it, and every worker reads all of them, from the beginning when it starts. A record
that is late or missing changes which traces are drawn and no estimate, because each draw carries
its probability. So nothing waits for this topic.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import TypeAdapter

from ragmeter.config.kafka import KafkaSettings
from ragmeter.kafka.owners import make_consumer
from ragmeter.sampling.control import SamplingControl

log = logging.getLogger(__name__)

VERSION = 1
BATCH = 500


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


async def follow_control_topic(
    kafka: KafkaSettings, records: ControlRecords, apply: Callable[[SamplingControl], None]
) -> None:
    """Read the topic into `records` and call `apply` with each change, until cancelled.

    Every worker reads everything: without a group. Where the topic cannot be read, the last
    records stay in force, and whoever runs this begins again.
    """
    consumer = make_consumer(kafka, kafka.topics.control)
    try:
        await consumer.start()
        while True:
            batch = await consumer.getmany(timeout_ms=1000, max_records=BATCH)
            _take_in(records, [message for found in batch.values() for message in found], apply)
    finally:
        await consumer.stop()


def _take_in(
    records: ControlRecords, messages: list[Any], apply: Callable[[SamplingControl], None]
) -> None:
    accepted = [records.put(message.key, message.value) for message in messages]
    if not all(accepted):
        log.warning("%d messages are no control records; left out", accepted.count(False))
    if any(accepted):
        apply(records.control)
