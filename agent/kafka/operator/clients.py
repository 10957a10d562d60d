"""Clients of kafka-python for the commands: read and show records, and send traces."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from ragmeter.config.kafka import KafkaSettings
from ragmeter.config.settings import Settings
from ragmeter.console.terminal import escape_control
from ragmeter.core.pacing import Pace
from ragmeter.ingest.files import InputFile
from ragmeter.kafka.connection import (
    BrokersUnreachable,
    KafkaSecurityError,
    check_brokers,
    client_options,
)
from ragmeter.offline.replay import (
    SLACK_SECONDS,
    ReplayReporter,
    ReplayState,
    TraceShift,
    read_traffic,
)

if TYPE_CHECKING:
    from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer

QUIET_SECONDS = 30.0  # without a record although there are some: the broker has gone


def dead_letter_partition(reader: Any, kafka: KafkaSettings) -> Any:
    parts = partitions_of(reader, [kafka.topics.dead])
    if len(parts) > 1:
        raise KafkaCommandError(f"{kafka.topics.dead} has {len(parts)} partitions; one is needed")
    return parts[0]


def records_between(reader: Any, part: Any, start: int, end: int) -> Iterator[Any]:
    """What is there of the offsets from `start` to before `end`."""
    reader.assign([part])
    reader.seek(part, max(start, reader.beginning_offsets([part])[part]))
    heard = time.monotonic()
    while reader.position(part) < end:
        for record in reader.poll(timeout_ms=500).get(part, ()):
            heard = time.monotonic()
            if record.offset < end:
                yield record
        if time.monotonic() - heard > QUIET_SECONDS:
            raise KafkaCommandError(f"{part.topic}: nothing more was read for {QUIET_SECONDS:g} s")


_FETCH_BYTES = 8 * 2**20  # of a partition: more than the largest message, little for a process


class KafkaCommandError(Exception):
    """What a command could not do, in one line."""


@contextmanager
def guarded(kafka: KafkaSettings) -> Iterator[None]:
    """The brokers let us in; what a client raises is one line. Raises `Failed`."""
    try:
        from kafka.errors import KafkaError
    except ImportError:
        raise KafkaCommandError(
            "the commands need the extra: pip install 'ragmeter[kafka]'"
        ) from None
    for name in ("kafka", "aiokafka"):
        # what they would tell is in the one line; only -v wants to know of every attempt
        if not logging.getLogger().isEnabledFor(logging.DEBUG):
            logging.getLogger(name).setLevel(logging.CRITICAL)
    try:
        check_brokers(kafka)
        yield
    except (BrokersUnreachable, KafkaSecurityError) as error:
        raise KafkaCommandError(str(error)) from None
    except KafkaError as error:
        text = str(error).splitlines()[0] if str(error) else ""
        raise KafkaCommandError(f"Kafka: {text[:500] or type(error).__name__}") from None


@contextmanager
def _open(kind: Callable[..., Any], options: dict[str, Any], **closing: Any) -> Iterator[Any]:
    client = kind(**options)
    try:
        yield client
    finally:
        client.close(**closing)


@contextmanager
def admin(kafka: KafkaSettings) -> Iterator[KafkaAdminClient]:
    from kafka import KafkaAdminClient

    with _open(KafkaAdminClient, client_options(kafka)) as client:
        yield client


@contextmanager
def consumer(kafka: KafkaSettings, **options: Any) -> Iterator[KafkaConsumer]:
    """Without a group, unless `options` name one; nothing is committed by itself."""
    from kafka import KafkaConsumer

    own = {
        "enable_auto_commit": False,
        "auto_offset_reset": "earliest",
        "max_partition_fetch_bytes": _FETCH_BYTES,
    }
    with _open(KafkaConsumer, client_options(kafka) | own | options) as client:
        yield client


@contextmanager
def producer(kafka: KafkaSettings, largest: int) -> Iterator[KafkaProducer]:
    """Idempotent, acknowledged by all replicas in sync; messages of `largest` bytes."""
    from kafka import KafkaProducer

    own = {
        "acks": "all",
        "enable_idempotence": True,
        "max_request_size": largest + 64 * 2**10,
        "linger_ms": 20,  # larger batches: a command is in no hurry for a single one
        "max_block_ms": int(kafka.timeout_seconds * 1000),
        "delivery_timeout_ms": 60_000,
        "request_timeout_ms": 20_000,
    }
    with _open(KafkaProducer, client_options(kafka) | own, timeout=0) as client:
        yield client


def partitions_of(client: Any, topics: Iterable[str]) -> list[Any]:
    """The partitions of topics, in order. Raises `Failed` for a topic that is not there."""
    from kafka import TopicPartition

    found = []
    for topic in topics:
        known = client.partitions_for_topic(topic)
        if not known:
            raise KafkaCommandError(f"there is no topic {topic}; `ragmeter kafka init` makes it")
        found += [TopicPartition(topic, number) for number in sorted(known)]
    return found


def escape_record(data: bytes | None, most: int) -> str:
    """On one line, at most `most` bytes of it: nothing in it can steer a terminal."""
    if data is None:
        return ""
    text = escape_control(data[:most].decode("utf-8", "backslashreplace")).replace("\n", "\\n")
    return text if len(data) <= most else f"{text}... ({len(data)} bytes)"


def read_record(kafka: KafkaSettings, topic: str, offset: int) -> Any:
    """Raises `Failed` where it is no longer, or not yet."""
    with consumer(kafka) as reader:
        part = dead_letter_partition(reader, kafka)
        first, end = reader.beginning_offsets([part])[part], reader.end_offsets([part])[part]
        for record in records_between(reader, part, offset, end):
            if record.offset == offset:
                return record
            break
    raise KafkaCommandError(
        f"{topic} has no record at offset {offset}; it has {first} to {end - 1}"
    )


def read_newest(
    kafka: KafkaSettings, topic: str, last: int, *, follow: bool = False
) -> Iterator[Any]:
    """The `last` records of each partition, in the order of their times, and then what comes."""
    with consumer(kafka) as reader:
        parts = partitions_of(reader, [topic])
        first, end = reader.beginning_offsets(parts), reader.end_offsets(parts)
        found = [
            record
            for part in parts
            for record in records_between(
                reader, part, max(first[part], end[part] - last), end[part]
            )
        ]
        yield from sorted(found, key=lambda record: record.timestamp)
        if follow:
            reader.assign(parts)
            for part in parts:
                reader.seek(part, end[part])
            while True:
                for records in reader.poll(timeout_ms=500).values():
                    yield from records


_WINDOW = 1_000  # sends that wait for their acknowledgement; bounds what a slow broker piles up
_SEND_SECONDS = 70.0  # more than the producer itself tries for


def send_traces(
    source: InputFile,
    settings: Settings,
    say: Callable[[str], None],
    *,
    rate: float | None = None,
    moving: TraceShift | None = None,
    done: ReplayState | None = None,
) -> ReplayState:
    """Send traces from `done.position` on. `done` is kept up to date, for whoever is interrupted.
    Raises OSError, `Failed`.
    """
    done = done or ReplayState()
    telling = ReplayReporter(source, done, say)
    topic, limit = settings.kafka.topics.traces, settings.limits.trace_bytes
    waiting: deque[tuple[Any, int]] = deque()

    def settle(most: int) -> None:
        """Until at most this many wait; also whatever has arrived meanwhile."""
        while waiting and (len(waiting) > most or waiting[0][0].is_done):
            future, position = waiting.popleft()
            future.get(timeout=_SEND_SECONDS)
            done.sent += 1
            done.position = position
        telling.report_progress()

    pace = Pace(rate, slack=SLACK_SECONDS)
    # a producer would wait for the topic to come, and a broker might even make it
    with consumer(settings.kafka) as reader:
        partitions_of(reader, [topic])
    with producer(settings.kafka, limit) as client:
        items = read_traffic(source, limit, done, telling, pace=pace, moving=moving or TraceShift())
        for found in items:
            if found is not None:
                item, position = found
                key = item.trace.trace_id.encode("utf-8", "replace")
                waiting.append((client.send(topic, item.body, key), position))
            settle(_WINDOW)
        client.flush(timeout=_SEND_SECONDS)
        settle(0)
    done.finished = True
    return done
