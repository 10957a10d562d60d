"""The fetcher of evidence: texts of the worst traces, read again from their topic."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable

from aiokafka import AIOKafkaConsumer, TopicPartition

from ragmeter.aggregate.evidence import EVIDENCE_BYTES, EvidenceKey, encode_evidence
from ragmeter.config.kafka import KafkaSettings
from ragmeter.config.settings import Settings
from ragmeter.ingest.native import DecodedTrace, decode_trace
from ragmeter.kafka.owners import make_consumer
from ragmeter.kafka.processors.delivery import TracePreparer
from ragmeter.kafka.score_records import MAX_BYTES, ScoreRecord
from ragmeter.kafka.state.partition import PartitionState
from ragmeter.kafka.state_group import StateGroup

log = logging.getLogger(__name__)

# Traces in a turn. New worst traces come by the hundred when a service is new, and seldom later:
# each has to be worse than all before it in some window.
_MAX_PER_TURN = 64
_TURN_SECONDS = 1.0
REST = 9  # or so many times what a turn took: on a machine that is busy, counting goes first
_READ_SECONDS = 10.0
_REST_SECONDS = 60.0  # before a failed read is repeated
_FETCH_BYTES = 64 * 2**10  # around the wanted message; a larger one comes all the same


class TraceTopicReader:
    """Reads single messages of a topic by their offsets, each within `seconds`."""

    def __init__(self, kafka: KafkaSettings, topic: str, seconds: float = _READ_SECONDS) -> None:
        self._kafka = kafka
        self._topic = topic
        self._seconds = seconds
        self._consumer: AIOKafkaConsumer | None = None

    async def read(self, partition: int, offset: int) -> bytes | None:
        """Return a message, or None if it is gone; raise if that cannot be told now."""
        part = TopicPartition(self._topic, partition)
        try:
            async with asyncio.timeout(self._seconds):
                consumer = await self._open()
                if partition not in (consumer.partitions_for_topic(self._topic) or (partition,)):
                    return None
                first = await consumer.beginning_offsets([part])
                end = await consumer.end_offsets([part])
                if not first[part] <= offset < end[part]:  # or yet to come: it was made anew
                    return None
                consumer.assign([part])
                consumer.seek(part, offset)
                record = await consumer.getone(part)
                consumer.pause(part)  # else it reads on
                return record.value if record.offset == offset else None
        except BaseException:
            await self.close()  # the next call begins with a new connection
            raise

    async def _open(self) -> AIOKafkaConsumer:
        if self._consumer is None:
            # other requests wait for one for messages that has nothing to answer
            options = {"max_partition_fetch_bytes": _FETCH_BYTES, "fetch_max_wait_ms": 10}
            self._consumer = make_consumer(self._kafka, **options)
            await self._consumer.start()
            # without a topic to follow it would not know of any partition
            await self._consumer.topics()
        return self._consumer

    async def close(self) -> None:
        """Close the connection."""
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            await consumer.stop()


class EvidenceFetcher:
    """Reads the texts of the worst traces again from the topic of the traces.

    Only the worker that counts a trace knows that it is one of the worst, but the scores topic
    carries no texts. So that worker reads the message, redacts it as before scoring, and keeps what
    the embedded agent would. `most` traces a turn bound the rate, one at a time the memory, and
    counting does not wait. `pause` is in seconds.
    """

    def __init__(
        self,
        settings: Settings,
        group: StateGroup,
        preparer: TracePreparer,
        reader: TraceTopicReader,
        *,
        most: int = _MAX_PER_TURN,
        pause: float = _TURN_SECONDS,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._group = group
        self._preparer = preparer
        self._reader = reader
        self._largest = settings.limits.trace_bytes
        self._limit = min(EVIDENCE_BYTES, MAX_BYTES)  # it becomes a row
        self._most = most
        self._pause = pause
        self._monotonic = monotonic
        self._postponed: dict[EvidenceKey, float] = {}  # until when

    async def run(self) -> None:
        """Fetch texts until cancelled."""
        try:
            while True:
                begun = self._monotonic()
                await self.run_once()
                await asyncio.sleep(max(self._pause, REST * (self._monotonic() - begun)))
        finally:
            await self._reader.close()

    async def run_once(self) -> int:
        """Fetch missing texts up to the bound, and return how many."""
        done = 0
        for partition, key, record in self._missing_texts():
            try:
                body = await self._fetch(key, record)
            except Exception as error:
                log.warning("cannot read a worst trace again; retried later: %r", error)
                self._postponed[key] = self._monotonic() + _REST_SECONDS
                return done
            with self._group.lock:
                # the present owner, whichever it is, ignores a trace that it does not keep
                state = self._group.states(PartitionState).get(partition)
                if state is not None:
                    state.evidence.save_text(key, body)
            done += 1
        return done

    def _missing_texts(self) -> list[tuple[int, EvidenceKey, ScoreRecord]]:
        now = self._monotonic()
        self._postponed = {key: until for key, until in self._postponed.items() if until > now}
        with self._group.lock:
            states = self._group.states(PartitionState)
            share = max(1, self._most // max(1, len(states)))
            missing = [
                (partition, key, record)
                for partition, state in states.items()
                for key, record in state.evidence.missing_texts(share, self._postponed)
            ]
        return sorted(missing, key=lambda item: item[2].source or (0, 0))[: self._most]

    async def _fetch(self, key: EvidenceKey, record: ScoreRecord) -> bytes | None:
        source = record.source
        if source is None:
            return None
        raw = await self._reader.read(source.partition, source.offset)
        if raw is None:
            return None
        item = await asyncio.to_thread(decode_trace, raw, self._largest)
        # another trace at this offset: the topic was made anew
        if not isinstance(item, DecodedTrace) or item.trace.trace_id != key[1]:
            return None
        trace = await self._preparer.prepare(item, again=True)
        content = self._preparer.content
        return await asyncio.to_thread(
            encode_evidence, trace, record.scored, self._limit, (), content
        )
