"""Exchange control records between the aggregate and the score processors over a compacted topic.

A trace may be scored by any worker, and what is low, new or rare of its service is learned by the
one that counts the service. So each state partition has a key of its own in `rag.control`, whose
last value is its record (`ragmeter.sampling.control`); every worker reads all of them, from the beginning when
it starts. A record that is late, lost or comes twice changes what is drawn and no estimate: each
draw carries its probability. So nobody waits for any of this.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from aiokafka import AIOKafkaConsumer
from aiokafka.errors import MessageSizeTooLargeError
from pydantic import TypeAdapter, ValidationError

from ragmeter.config.kafka import KafkaSettings
from ragmeter.kafka.connection import aiokafka_options
from ragmeter.sampling.control import SamplingControl

log = logging.getLogger("ragmeter.kafka")

VERSION = 1
_PAUSE_SECONDS = 1.0  # between two values of a partition: a deploy shows many versions at once
_RETRY_SECONDS = 5.0
BATCH = 500


@dataclass(slots=True)
class _ControlWire:
    v: int
    control: SamplingControl


_WIRE = TypeAdapter(_ControlWire)


def encode_control(control: SamplingControl) -> bytes:
    document = {"v": VERSION, "control": control.to_dict()}
    return json.dumps(document, separators=(",", ":")).encode()


class ControlBoard:
    """The last record of each of `partitions` state partitions, and all of them as one. Pure."""

    def __init__(self, partitions: int) -> None:
        self._partitions = partitions
        self._records: dict[int, SamplingControl] = {}

    def put(self, key: bytes | None, value: bytes | None) -> bool:
        """A message of the topic; False for one that is none of ours, which changes nothing."""
        try:
            partition = int(key or b"")
        except ValueError:
            return False
        if not 0 <= partition < self._partitions:
            return False
        if value is None:
            self._records.pop(partition, None)
            return True
        try:
            found = _WIRE.validate_json(value)
        except ValidationError:
            return False
        if found.v != VERSION:
            return False
        self._records[partition] = found.control
        return True

    def version(self, partition: int) -> int:
        """Of the record that is known of a partition."""
        record = self._records.get(partition)
        return record.version if record is not None else 0

    @property
    def control(self) -> SamplingControl:
        """A service is counted in one partition, so there is nothing to decide between records."""
        low: dict[str, Mapping[str, float]] = {}
        first: dict[str, Mapping[str, float]] = {}
        rare: dict[str, Sequence[str]] = {}
        for _, record in sorted(self._records.items()):
            low.update(record.low)
            first.update(record.first)
            rare.update(record.rare)
        return SamplingControl(sum(one.version for one in self._records.values()), low, first, rare)


class ControlPublisher:
    """Sends what states have learned: the newest of each partition, some time after it was said."""

    def __init__(
        self,
        board: ControlBoard,
        send: Callable[[bytes, bytes], Awaitable[None]],
        *,
        pause: float = _PAUSE_SECONDS,
        retry: float = _RETRY_SECONDS,
    ) -> None:
        self._board = board
        self._send = send
        self._pause = pause
        self._retry = retry
        self._said: dict[int, int] = {}
        self._waiting: dict[int, SamplingControl] = {}
        self._news = asyncio.Event()

    def publish(self, partition: int, control: SamplingControl) -> None:
        """The record of a partition that this worker owns is durable. Cheap where it is no news."""
        if control.version == self._said.get(partition, 0):
            return
        if control.version == self._board.version(partition):  # by the owner before us
            return
        self._waiting[partition] = control
        self._news.set()

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await self._news.wait()
            self._news.clear()
            await asyncio.sleep(await self._turn())

    async def _turn(self) -> float:
        """Seconds until the next."""
        for partition, control in list(self._waiting.items()):
            try:
                await self._send(b"%d" % partition, encode_control(control))
            except MessageSizeTooLargeError:
                log.warning(
                    "what partition %d has learned is larger than a message: its traces are drawn"
                    " by older knowledge of services, versions and segments", partition,
                )  # fmt: skip
            except Exception as error:
                log.warning("cannot send to the topic of the control records: %r", error)
                self._news.set()
                return self._retry
            self._said[partition] = control.version
            if self._waiting.get(partition) is control:
                del self._waiting[partition]
        return self._pause


async def follow_control_topic(
    kafka: KafkaSettings,
    board: ControlBoard,
    learn: Callable[[SamplingControl], None],
    *,
    retry: float = _RETRY_SECONDS,
) -> None:
    """Put the whole topic on the board, then what comes; `learn` gets it. Until cancelled: where
    the topic cannot be read, what was learned holds on."""
    while True:
        consumer = AIOKafkaConsumer(
            kafka.topics.control,
            bootstrap_servers=list(kafka.bootstrap_servers),
            client_id=kafka.client_id,
            group_id=None,  # no group: every worker reads everything
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            **aiokafka_options(kafka),
        )
        try:
            await consumer.start()
            while True:
                batch = await consumer.getmany(timeout_ms=1000, max_records=BATCH)
                _read(board, [record for records in batch.values() for record in records], learn)
        except Exception as error:
            log.warning("cannot read the topic of the control records: %r", error)
        finally:
            await consumer.stop()
        await asyncio.sleep(retry)


def _read(
    board: ControlBoard, records: list[Any], learn: Callable[[SamplingControl], None]
) -> None:
    taken = [board.put(record.key, record.value) for record in records]
    if not all(taken):
        log.warning("%d messages are no control records; left out", taken.count(False))
    if any(taken):
        learn(board.control)
