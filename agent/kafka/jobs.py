"""Background jobs of a worker: run and restart them, fetch the texts of the worst traces, and probe the judge.

The texts of the worst traces: read again from the topic of the traces, where they lie as sent.

Which traces are the worst is known when they are counted, on another worker perhaps than the one
that scored them; what crosses the topic of the scores has no texts. So the one that counts reads
them at their place, redacts them as before a scoring, and keeps what the embedded agent would. It
is bounded in rate and memory, and nothing that is counted waits for it.

Probes of the judge on the cluster: one worker asks, and one partition counts.

It is the worker that owns the state partition where their results are counted (`home`): there is
exactly one, and baseline and schedule are part of that partition's state, so that they survive it.
A run that a rebalance or a kill interrupts is not begun again elsewhere at once: what it would cost
is known to nobody, and the next is an hour away at most.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable
from dataclasses import replace
from typing import Any, Protocol

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import OffsetOutOfRangeError
from aiokafka.partitioner import murmur2

from ragmeter.aggregate.evidence import encode_evidence
from ragmeter.config.kafka import KafkaSettings
from ragmeter.config.settings import Settings
from ragmeter.core.tiers import ScoringCost
from ragmeter.ingest.native import DecodedTrace, decode_trace
from ragmeter.kafka.connection import aiokafka_options
from ragmeter.kafka.processors.aggregate import AggregateProcessor
from ragmeter.kafka.processors.delivery import TracePreparer
from ragmeter.kafka.score_records import MAX_BYTES, ScoreRecord, encode_score
from ragmeter.kafka.state.rows import TraceKey
from ragmeter.metrics.judge_agreement import PROBE_SERVICE
from ragmeter.scorers.judge.probes import RETRY_SECONDS, ProbeRunner

log = logging.getLogger("ragmeter.kafka")

_RESTART_SECONDS = 10.0
_END_SECONDS = 5.0  # for connections to be closed, which may wait for a broker that is down

Job = Callable[[], Coroutine[Any, Any, None]]


@contextlib.asynccontextmanager
async def run_jobs(
    jobs: Iterable[Job], again: float = _RESTART_SECONDS, end: float = _END_SECONDS
) -> AsyncIterator[None]:
    """Run the jobs until the end of the block; one that fails is told of and begins anew."""
    tasks = [asyncio.create_task(_restart_on_error(job, again)) for job in jobs]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=end)


async def _restart_on_error(job: Job, again: float) -> None:
    while True:
        try:
            await job()
            return
        except Exception:
            log.exception("a job beside the stages has failed; it begins anew in %.0f s", again)
        await asyncio.sleep(again)


_MAX_PER_TURN = 64
"""Traces in a turn. New worst traces come by the hundred when a service is new, and seldom later:
each has to be worse than all before it in some window."""

_TURN_SECONDS = 1.0
REST = 9  # or so many times what a turn took: on a machine that is busy, counting goes first
_READ_SECONDS = 10.0
_REST_SECONDS = 60.0  # before what could not be read is tried again
_FETCH_BYTES = 64 * 2**10  # around the one that is wanted; a larger one comes all the same


class OffsetReader(Protocol):
    async def read(self, partition: int, offset: int) -> bytes | None:
        """The message there; None where it is no longer. Raises where that cannot be known now."""

    async def close(self) -> None: ...


class TraceTopicReader:
    """Single messages of a topic, each by its offset."""

    def __init__(self, kafka: KafkaSettings, topic: str, seconds: float = _READ_SECONDS) -> None:
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
                max_partition_fetch_bytes=_FETCH_BYTES,
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
        stage: AggregateProcessor,
        preparing: TracePreparer,
        reader: OffsetReader,
        *,
        most: int = _MAX_PER_TURN,
        pause: float = _TURN_SECONDS,
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
                await self.run_once()
                await asyncio.sleep(max(self._pause, REST * (self._monotonic() - begun)))
        finally:
            await self._reader.close()

    async def run_once(self) -> int:
        """Fetch what is wanted now, up to the bound; how many."""
        done = 0
        for partition, key, record in self._wanted():
            try:
                body = await self._body(key, record)
            except Exception as error:
                log.warning("cannot read a worst trace again, later: %r", error)
                self._resting[key] = self._monotonic() + _REST_SECONDS
                return done
            with self._stage.lock:
                owner = self._stage.owners.get(partition)
                if owner is not None:  # whichever it is: a trace that it does not keep is left out
                    owner.state.save_text(key, body)
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
                for key, record in owner.state.missing_texts(share, self._resting)
            ]
        return sorted(found, key=lambda item: item[2].source or (0, 0, 0))[: self._most]

    async def _body(self, key: TraceKey, record: ScoreRecord) -> bytes | None:
        source = record.source
        if source is None or source.epoch != self._epoch:
            return None  # the topic was made anew since
        raw = await self._reader.read(source.partition, source.offset)
        if raw is None:
            return None
        item = await asyncio.to_thread(decode_trace, raw, self._largest)
        # another one at its place: the topic was made anew, and nobody has said so
        if not isinstance(item, DecodedTrace) or item.trace.trace_id != key[1]:
            return None
        trace = await self._preparing.prepare(item, again=True)
        content = self._preparing.content
        return await asyncio.to_thread(
            encode_evidence, trace, record.scored, self._limit, (), content
        )


PROBE_KEY = PROBE_SERVICE.encode()
_PROBE_NOTE = "probes"
PROBE_POLL_SECONDS = 5.0


def probe_partition(partitions: int) -> int:
    """Where a producer puts the key of the probes."""
    return int((murmur2(PROBE_KEY) & 0x7FFFFFFF) % partitions)


class ProbeBudget(Protocol):
    """The slow tiers in line."""

    newest: float | None
    """The newest event time of all traces that were read here."""

    def charge(self, service: str, cost: ScoringCost) -> None: ...


class ProbeJob:
    """`send` delivers a record to the partition `home` of the scores."""

    def __init__(
        self,
        runner: ProbeRunner,
        stage: AggregateProcessor,
        tiers: ProbeBudget,
        send: Callable[[bytes], Awaitable[object]],
        home: int,
        *,
        clock: Callable[[], float],
    ) -> None:
        self._runner = runner
        self._stage = stage
        self._tiers = tiers
        self._send = send
        self._home = home
        self._clock = clock
        self._loaded: object = None  # the owner whose note the runner has

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await self.run_once()
            await asyncio.sleep(PROBE_POLL_SECONDS)

    async def run_once(self) -> bool:
        """Ask if it is due and ours to ask; whether it was."""
        owner = self._stage.owners.get(self._home)
        if owner is None:
            return False
        if owner is not self._loaded:
            self._loaded = owner
            self._load(owner.state.note(_PROBE_NOTE))
        now = self._tiers.newest
        if now is None or not self._runner.due:  # without traffic there is nothing to compare with
            return False
        self._note({**self._runner.dump(), "next": self._clock() + RETRY_SECONDS})
        cost = ScoringCost()
        try:
            found = await self._runner.run(cost)
        finally:
            self._tiers.charge(PROBE_SERVICE, cost)
        for scored in found:
            await self._send(encode_score(ScoreRecord(replace(scored, timestamp=now), None)))
        self._note(self._runner.dump())
        return True

    def _load(self, note: Any) -> None:
        if note is None:
            return
        try:
            self._runner.load(note)
        except (ValueError, KeyError, TypeError) as error:
            log.warning("the probes of the judge begin anew: %r", error)

    def _note(self, dump: dict[str, Any]) -> None:
        with self._stage.lock:
            owner = self._stage.owners.get(self._home)
            if owner is not None and owner is self._loaded:
                owner.state.save_note(_PROBE_NOTE, dump)
