"""kafka-python clients of the commands: open and close them, read records, and send traces."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import TYPE_CHECKING, Any, TypeVar

from ragmeter.config.kafka import KafkaSettings
from ragmeter.config.settings import Settings
from ragmeter.console.streams import escape_control
from ragmeter.core.errors import Unavailable, UnusableResource, UsageError
from ragmeter.core.pacing import Pace
from ragmeter.ingest.files import InputFile
from ragmeter.ingest.replay import (
    SLACK_SECONDS,
    ReplayReporter,
    ReplayState,
    TraceShift,
    read_traffic,
)
from ragmeter.kafka.broker_probe import probe_brokers
from ragmeter.kafka.connection import REACH_SECONDS, client_options
from ragmeter.kafka.rights import LACKING
from ragmeter.kafka.topics import describe_missing_topics

if TYPE_CHECKING:
    from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer

T = TypeVar("T")

RETRY_SECONDS = 0.5
QUIET_SECONDS = 30.0  # without a record although there are some: the broker is gone
SEND_SECONDS = 70.0  # to wait for an acknowledgement; more than the producer itself tries for
_CLOSE_SECONDS = 1.0  # for what a failed command has left to send: its brokers may be gone
_FETCH_BYTES = 8 * 2**20  # of a partition: more than the largest message, little for a process
_MAX_UNACKNOWLEDGED = 1_000  # sends under way; bounds the memory that a slow broker costs


class KafkaCommandError(UnusableResource):
    """The topics or workers are not as a command needs them; one line gives the cause."""


class KafkaFailed(Unavailable):
    """A client failed, or the brokers sent nothing more; one line gives the cause."""


@contextmanager
def guarded(kafka: KafkaSettings) -> Iterator[None]:
    """Check the connection, and turn the clients' exceptions into one-line errors.

    Raises:
        UsageError: The clients are not installed.
        ConfigError: A file of `kafka.security` cannot be used.
        BrokersUnreachable: No broker accepts a connection.
        KafkaFailed: A client failed within the block.
    """
    try:
        from kafka.errors import KafkaError
    except ImportError:
        raise UsageError(
            "this needs the extra: pip install '.[kafka]' in a clone of ragmeter"
        ) from None
    if not logging.getLogger().isEnabledFor(logging.DEBUG):
        for name in ("kafka", "aiokafka"):  # the one line has the cause; -v shows every attempt
            logging.getLogger(name).setLevel(logging.CRITICAL)
    try:
        asyncio.run(probe_brokers(kafka))
        yield
    except KafkaError as error:
        text = str(error).splitlines()[0] if str(error) else ""
        text = text[:500] or type(error).__name__
        # a producer and a wait for new topics wrap it in errors of other kinds
        if "AuthorizationFailed" in repr(error):
            text = f"{LACKING}: {text}"
        raise KafkaFailed(f"Kafka: {text}") from None


def admin(kafka: KafkaSettings) -> AbstractContextManager[KafkaAdminClient]:
    """Open an admin client for the block."""
    from kafka import KafkaAdminClient

    return _open(KafkaAdminClient, client_options(kafka))


def ask(
    kafka: KafkaSettings, call: Callable[[KafkaAdminClient], T], seconds: float = REACH_SECONDS
) -> T:
    """Return what `call` does with an admin client; it may be called again, with a new one.

    A new cluster may still be making its topic of the offsets, a group moves to another broker, and
    kafka-python (3.0) gives up at once on a controller that is not in its first metadata.
    """
    from kafka.errors import RetriableError, UnknownBrokerIdError

    deadline = time.monotonic() + seconds
    while True:
        try:
            with admin(kafka) as client:
                return call(client)
        except (RetriableError, UnknownBrokerIdError):
            if time.monotonic() > deadline:
                raise
            time.sleep(RETRY_SECONDS)


def consumer(kafka: KafkaSettings, **options: Any) -> AbstractContextManager[KafkaConsumer]:
    """Open a consumer for the block, without a group unless `options` name one, or auto-commit."""
    from kafka import KafkaConsumer

    defaults = {
        "enable_auto_commit": False,
        "auto_offset_reset": "earliest",
        "isolation_level": "read_committed",
        "max_partition_fetch_bytes": _FETCH_BYTES,
    }
    return _open(KafkaConsumer, client_options(kafka) | defaults | options)


def producer(
    kafka: KafkaSettings, largest: int, **own: Any
) -> AbstractContextManager[KafkaProducer]:
    """Open an idempotent producer for messages of up to `largest` bytes, acknowledged by all.

    `own` are further options.
    """
    from kafka import KafkaProducer

    options = {
        "acks": "all",
        "enable_idempotence": True,
        "max_request_size": largest + 64 * 2**10,
        "linger_ms": 20,  # larger batches: a command is in no hurry for a single message
        "max_block_ms": int(REACH_SECONDS * 1000),
        "delivery_timeout_ms": 60_000,
        "request_timeout_ms": 20_000,
    }
    return _open(KafkaProducer, client_options(kafka) | options | own, timeout=_CLOSE_SECONDS)


@contextmanager
def _open(kind: Callable[..., Any], options: dict[str, Any], **closing: Any) -> Iterator[Any]:
    from kafka.errors import KafkaTimeoutError

    client = kind(**options)
    try:
        yield client
    finally:
        # of a producer that still has messages then, as only a block that fails leaves any
        with suppress(KafkaTimeoutError):
            client.close(**closing)


def partitions_of(client: Any, kafka: KafkaSettings, topics: Iterable[str]) -> list[Any]:
    """Return the partitions of topics, in order; raise `KafkaCommandError` without a topic."""
    from kafka import TopicPartition

    partitions = []
    for topic in topics:
        numbers = client.partitions_for_topic(topic)
        if not numbers:
            raise KafkaCommandError(describe_missing_topics([topic], kafka.security))
        partitions += [TopicPartition(topic, number) for number in sorted(numbers)]
    return partitions


def records_between(
    reader: Any, partition: Any, start: int, end: int, quiet: float | None = None
) -> Iterator[Any]:
    """Yield the records from `start` to before `end` that are still there.

    Raises `KafkaFailed` if the broker sends nothing for `quiet` seconds, by default
    `QUIET_SECONDS`.
    """
    quiet = quiet or QUIET_SECONDS
    reader.assign([partition])
    reader.seek(partition, max(start, reader.beginning_offsets([partition])[partition]))
    received_at = time.monotonic()
    while reader.position(partition) < end:
        for record in reader.poll(timeout_ms=500).get(partition, ()):
            received_at = time.monotonic()
            if record.offset < end:
                yield record
        if time.monotonic() - received_at > quiet:
            raise KafkaFailed(f"{partition.topic}: nothing more was read for {quiet:g} s")


def escape_record(data: bytes | None, most: int) -> str:
    """Return up to `most` bytes as one line in which nothing can control a terminal."""
    if data is None:
        return ""
    text = escape_control(data[:most].decode("utf-8", "backslashreplace")).replace("\n", "\\n")
    return text if len(data) <= most else f"{text}... ({len(data)} bytes)"


def send_traces(
    source: InputFile,
    settings: Settings,
    say: Callable[[str], None],
    *,
    rate: float | None = None,
    moving: TraceShift | None = None,
    done: ReplayState | None = None,
) -> ReplayState:
    """Send the traces of a file to the topic of the traces, keyed by trace id.

    Args:
        source: The file; OSError is raised where it cannot be read.
        settings: Brokers, topic and size limit.
        say: Prints a line of progress.
        rate: Traces a second; None sends as fast as the brokers take them.
        moving: The shift of the traces' times.
        done: Kept up to date, for a caller that is interrupted.
    """
    done = done or ReplayState()
    reporter = ReplayReporter(source, done, say)
    topic = settings.kafka.topics.traces
    limit = settings.limits.trace_bytes
    unacknowledged: deque[tuple[Any, int]] = deque()

    def await_sends(most: int) -> None:
        """Wait until at most `most` sends are under way, and count those that are done."""
        while unacknowledged and (len(unacknowledged) > most or unacknowledged[0][0].is_done):
            future, position = unacknowledged.popleft()
            future.get(timeout=SEND_SECONDS)
            done.sent += 1
            done.position = position
        reporter.report_progress()

    pace = Pace(rate, time.monotonic, time.sleep, SLACK_SECONDS)
    # a producer would wait for the topic to appear, and a broker might even create it
    with consumer(settings.kafka) as reader:
        partitions_of(reader, settings.kafka, [topic])
    with producer(settings.kafka, limit) as client:
        items = read_traffic(
            source, limit, done, reporter, pace=pace, moving=moving or TraceShift()
        )
        for entry in items:
            if entry is not None:
                item, position = entry
                key = item.trace.trace_id.encode("utf-8", "replace")
                unacknowledged.append((client.send(topic, item.body, key), position))
            await_sends(_MAX_UNACKNOWLEDGED)
        client.flush(timeout=SEND_SECONDS)
        await_sends(0)
    done.finished = True
    return done
