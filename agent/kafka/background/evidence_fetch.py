"""The texts of the worst traces: read again from the topic of the traces, where they lie as sent.

Which traces are the worst is known when they are counted, on another worker perhaps than the one
that scored them; what crosses the topic of the scores has no texts. So the one that counts reads
them at their place, redacts them as before a scoring, and keeps what the embedded agent would. It
is bounded in rate and memory, and nothing that is counted waits for it.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Protocol

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import OffsetOutOfRangeError

from agent.evidence import evidence_body
from agent.ingest.native import Good, decode_one
from agent.kafka.messages.records import MAX_BYTES, ScoreRecord
from agent.kafka.security import aiokafka_options
from agent.kafka.stages.aggregate_stage import AggregateStage
from agent.kafka.stages.preparing import Preparing
from agent.kafka.state.kept_evidence import TraceKey
from agent.settings import Settings
from agent.settings.kafka import Kafka

__all__ = ["MOST", "EvidenceFetcher", "Reader", "TopicReader"]

log = logging.getLogger("ragmeter.kafka")

MOST = 64
"""Traces in a turn. New worst traces come by the hundred when a service is new, and seldom later:
each has to be worse than all before it in some window."""

TURN_SECONDS = 1.0
REST = 9  # or so many times what a turn took: on a machine that is busy, counting goes first
READ_SECONDS = 10.0
REST_SECONDS = 60.0  # before what could not be read is tried again
FETCH_BYTES = 64 * 2**10  # around the one that is wanted; a larger one comes all the same


class Reader(Protocol):
    async def read(self, partition: int, offset: int) -> bytes | None:
        """The message there; None where it is no longer. Raises where that cannot be known now."""

    async def close(self) -> None: ...


class TopicReader:
    """Single messages of a topic, each by its offset."""

    def __init__(self, kafka: Kafka, topic: str, seconds: float = READ_SECONDS) -> None:
        self._kafka = kafka
        self._topic = topic
        self._seconds = seconds
        self._consumer: AIOKafkaConsumer | None = None

    async def read(self, partition: int, offset: int) -> bytes | None:
        try:
            return await self._read(TopicPartition(self._topic, partition), offset)
        except BaseException:
            await self.close()  # the next one begins with a new connection
            raise

    async def _read(self, part: TopicPartition, offset: int) -> bytes | None:
        async with asyncio.timeout(2 * self._seconds):
            consumer = await self._open()
            known = consumer.partitions_for_topic(self._topic)
            if known is not None and part.partition not in known:
                return None
            if consumer.assignment() != {part}:
                consumer.assign([part])
            consumer.seek(part, offset)
            consumer.resume(part)
            try:
                async with asyncio.timeout(self._seconds):
                    record = await consumer.getone(part)
            except OffsetOutOfRangeError:
                return None
            except TimeoutError:
                # waiting for one that is yet to come: the topic was made anew
                if (await consumer.end_offsets([part]))[part] <= offset:
                    return None
                raise
            finally:
                consumer.pause(part)  # else it reads on
            return record.value if record.offset == offset else None

    async def _open(self) -> AIOKafkaConsumer:
        if self._consumer is None:
            kafka = self._kafka
            self._consumer = AIOKafkaConsumer(
                bootstrap_servers=list(kafka.bootstrap_servers),
                client_id=kafka.client_id,
                group_id=None,
                enable_auto_commit=False,
                auto_offset_reset="none",
                max_partition_fetch_bytes=FETCH_BYTES,
                **aiokafka_options(kafka),
            )
            await self._consumer.start()
            # without a topic to follow it would not know of any partition
            await self._consumer.topics()
        return self._consumer

    async def close(self) -> None:
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            await consumer.stop()


class EvidenceFetcher:
    """Fetches what the states of `stage` want. `most` in a turn bounds the rate, one at a time the
    memory."""

    def __init__(
        self,
        settings: Settings,
        stage: AggregateStage,
        preparing: Preparing,
        reader: Reader,
        *,
        most: int = MOST,
        pause: float = TURN_SECONDS,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._stage = stage
        self._preparing = preparing
        self._reader = reader
        self._epoch = settings.kafka.traces_epoch
        self._largest = settings.limits.trace_bytes
        self._limit = min(settings.limits.evidence_bytes, MAX_BYTES)  # it is to be a row
        self._most = most
        self._pause = pause
        self._monotonic = monotonic
        self._resting: dict[TraceKey, float] = {}  # until when

    async def run(self) -> None:
        """Until cancelled."""
        try:
            while True:
                begun = self._monotonic()
                await self.turn()
                await asyncio.sleep(max(self._pause, REST * (self._monotonic() - begun)))
        finally:
            await self._reader.close()

    async def turn(self) -> int:
        """Fetch what is wanted now, up to the bound; how many."""
        done = 0
        for partition, key, record in self._wanted():
            try:
                body = await self._body(key, record)
            except Exception as error:
                log.warning("cannot read a worst trace again, later: %r", error)
                self._resting[key] = self._monotonic() + REST_SECONDS
                return done
            with self._stage.lock:
                owner = self._stage.owners.get(partition)
                if owner is not None:  # whichever it is: a trace that it does not keep is left out
                    owner.state.keep_text(key, body)
            done += 1
        return done

    def _wanted(self) -> list[tuple[int, TraceKey, ScoreRecord]]:
        now = self._monotonic()
        self._resting = {key: until for key, until in self._resting.items() if until > now}
        with self._stage.lock:
            owners = list(self._stage.owners.items())
            share = max(1, self._most // max(1, len(owners)))
            found = [
                (partition, key, record)
                for partition, owner in owners
                for key, record in owner.state.wanted(share, self._resting)
            ]
        return sorted(found, key=lambda item: item[2].source or (0, 0, 0))[: self._most]

    async def _body(self, key: TraceKey, record: ScoreRecord) -> bytes | None:
        source = record.source
        if source is None or source.epoch != self._epoch:
            return None  # the topic was made anew since
        raw = await self._reader.read(source.partition, source.offset)
        if raw is None:
            return None
        item = await asyncio.to_thread(decode_one, raw, self._largest)
        # another one at its place: the topic was made anew, and nobody has said so
        if not isinstance(item, Good) or item.trace.trace_id != key[1]:
            return None
        trace = await self._preparing.trace(item, again=True)
        content = self._preparing.content
        return await asyncio.to_thread(
            evidence_body, trace, record.scored, self._limit, (), content
        )
