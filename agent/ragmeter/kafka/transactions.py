"""Partitions processed exactly once: outputs, state and offset of a batch in one Kafka transaction.

Each input partition has an owner with a transactional producer of its own, whose id names the
partition. Opening it fences the owner before, and completes or aborts the transaction that one had
begun; only then are the committed offset and the state read. So whoever commits has read all that
was committed before, whatever the consumer group says and however long a replaced worker lives on:
the group only decides who should own a partition. Whatever fails, an owner begins again from what
is committed.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.errors import (
    IllegalOperation,
    KafkaError,
    MessageSizeTooLargeError,
    ProducerFenced,
)

from ragmeter.config.kafka import KafkaSettings
from ragmeter.config.settings import Settings
from ragmeter.core.counters import Counters, GaugeSample
from ragmeter.core.errors import Unavailable, UnusableResource
from ragmeter.kafka.connection import aiokafka_options

log = logging.getLogger(__name__)

DELETED_UNREAD = "ragmeter_kafka_deleted_unread_total"
SEND_SECONDS = 45.0  # for a transaction; below the minute after which a coordinator aborts it
_TRANSACTION_MS = 60_000  # Kafka's default
BATCH_BYTES = 2**18  # of one partition in a request; well below the megabyte that brokers take
# Requests that are made while a transaction is under way share its latency, so none waits for more.
_LINGER_MS = 0
# Seconds before an owner begins again.
_FIRST_PAUSE = 0.5
_LONGEST_PAUSE = 15.0
# A fenced owner that still believes in its assignment learns of the new one by a heartbeat.
_FENCED_PAUSE = 5.0
_POLL_SECONDS = 0.05
_SEEK_SECONDS = 2.0  # between two seeks of a partition: until then its old messages may still come
_STOP_SECONDS = 2.0  # for connections to be closed, which may wait for a broker that is down
_MILLISECONDS = 1e11  # Unix times in seconds are below it for 3,000 years
_FETCH_BYTES = 4 * 2**20  # of a partition in a response
_READ_MS = 500  # longest wait of one read of a state topic
ENVELOPE = 64 * 1024  # headers and batch around the largest trace, which a dead letter repeats


# Errors of the brokers or of the way to them, and our own that say so: it is worth trying again.
PASSING = (Unavailable, KafkaError, OSError, TimeoutError)


class BeginAgain(Unavailable):
    """What an owner has done since its last commit is to be done again."""


class StateRefused(UnusableResource):
    """The state of a partition does not fit the offsets that are committed beside it."""


class RecordsRefused(BeginAgain):
    """Topics do not take some of the records of a transaction, which are too large for them.

    Attributes:
        numbers: Their places among the records.
    """

    def __init__(self, numbers: Sequence[int]) -> None:
        super().__init__("a topic refuses a record as too large")
        self.numbers = tuple(numbers)


class OutRecord(NamedTuple):
    """A record to send; a value of None is a tombstone."""

    topic: str
    value: bytes | None
    key: bytes | None = None
    partition: int | None = None
    headers: Mapping[str, bytes] = {}


def milliseconds(message: Any) -> float:
    """Return when a message was written; Faust gives seconds, aiokafka milliseconds."""
    at = float(message.timestamp or 0)
    return at if at > _MILLISECONDS else 1000 * at


def make_producer(
    kafka: KafkaSettings,
    largest: int,
    transactional_id: str,
    compression: str | None = None,
) -> AIOKafkaProducer:
    """Make a transactional producer of records up to `largest` bytes."""
    return AIOKafkaProducer(
        bootstrap_servers=list(kafka.bootstrap_servers),
        client_id=kafka.group,
        linger_ms=_LINGER_MS,
        max_batch_size=BATCH_BYTES,
        max_request_size=largest + ENVELOPE,
        compression_type=compression,
        request_timeout_ms=int(SEND_SECONDS * 1000),
        transactional_id=transactional_id,
        transaction_timeout_ms=_TRANSACTION_MS,
        **aiokafka_options(kafka),
    )


def make_consumer(kafka: KafkaSettings, *topics: str, **options: Any) -> AIOKafkaConsumer:
    """Make a consumer of committed messages, which commits nothing."""
    defaults: dict[str, Any] = {
        "bootstrap_servers": list(kafka.bootstrap_servers),
        "client_id": kafka.group,
        "group_id": None,
        "enable_auto_commit": False,
        "auto_offset_reset": "earliest",
        "isolation_level": "read_committed",
        **aiokafka_options(kafka),
    }
    return AIOKafkaConsumer(*topics, **defaults | options)


async def read_rows(kafka: KafkaSettings, topic: str, partition: int) -> dict[bytes, bytes]:
    """Return the last committed value of each key of a partition, without deleted ones."""
    rows: dict[bytes, bytes] = {}
    tp = TopicPartition(topic, partition)
    consumer = make_consumer(kafka, max_partition_fetch_bytes=_FETCH_BYTES)
    await consumer.start()
    try:
        consumer.assign([tp])
        end = (await consumer.end_offsets([tp]))[tp]
        while await consumer.position(tp) < end:
            for records in (await consumer.getmany(tp, timeout_ms=_READ_MS)).values():
                for record in records:
                    if record.value is None:
                        rows.pop(record.key, None)
                    else:
                        rows[record.key] = record.value
    finally:
        await consumer.stop()
    return rows


class KnownOffsets(NamedTuple):
    """The offsets of a partition.

    Args:
        committed: The committed one, None without any.
        first: The oldest that the retention has left.
        end: That of the next message.
    """

    committed: int | None
    first: int
    end: int


class OwnerGroup(ABC):
    """A consumer group that deals partitions to owners and delivers their messages.

    `build` makes the owner of a partition, `fail` ends the worker. An owner outlives rebalances
    that leave its partition here: were it fenced meanwhile, its next commit would fail, and it
    would begin again.
    """

    def __init__(
        self,
        settings: Settings,
        name: str,
        build: Callable[[OwnerGroup, TopicPartition], PartitionOwner],
        counters: Counters,
        fail: Callable[[BaseException], Coroutine[Any, Any, None]],
    ) -> None:
        self.kafka = settings.kafka
        self.largest = settings.limits.trace_bytes
        self.name = name
        self.owners: dict[TopicPartition, PartitionOwner] = {}
        self.fail = fail
        self.counters = counters
        self.answered_at = time.monotonic()  # when the brokers last did
        self._build = build
        self._dealt = False

    async def assign(self, tps: Iterable[TopicPartition]) -> None:
        """Own these partitions and no others."""
        wanted = {TopicPartition(*tp) for tp in tps}
        gone = [self.owners.pop(tp) for tp in list(self.owners) if tp not in wanted]
        await asyncio.gather(*(owner.close() for owner in gone))
        for tp in sorted(wanted - self.owners.keys()):
            self.owners[tp] = self._build(self, tp)
            self.owners[tp].start()
        self._dealt = True

    async def drain(self) -> None:
        """Let all owners commit what they have begun."""
        await asyncio.gather(*(owner.drain() for owner in list(self.owners.values())))

    async def close(self) -> None:
        """Give up all partitions."""
        await self.assign(())
        self._dealt = False

    @property
    def ready(self) -> bool:
        """Whether partitions were assigned and all their owners work."""
        return self._dealt and all(owner.ready for owner in list(self.owners.values()))

    async def offsets(self, tp: TopicPartition) -> KnownOffsets:
        """Return the offsets of a partition.

        By a connection of its own: a broker answers none of a consumer's requests while it holds
        back one for messages, up to half a second each.
        """
        consumer = make_consumer(self.kafka, group_id=self.name)
        await consumer.start()
        try:
            return KnownOffsets(
                committed=await consumer.committed(tp),
                first=(await consumer.beginning_offsets([tp]))[tp],
                end=(await consumer.end_offsets([tp]))[tp],
            )
        finally:
            await consumer.stop()

    @abstractmethod
    async def seek(self, tp: TopicPartition, offset: int) -> None:
        """Deliver the messages of an assigned partition from an offset on."""

    @abstractmethod
    async def reached(self, tps: Sequence[TopicPartition]) -> dict[TopicPartition, tuple[int, int]]:
        """Return how far partitions were read, and their ends, of those that are assigned."""

    async def measure(self) -> None:
        """Measure how far the owners are behind."""
        for tp, (read, end) in (await self.reached(list(self.owners))).items():
            owner = self.owners.get(tp)
            if owner is not None and owner.ready:
                owner.measure(read, end)

    def waiting(self, topic: str) -> int:
        """Return how many messages of a topic wait in the partitions that are owned."""
        return sum(owner.lag for tp, owner in list(self.owners.items()) if tp.topic == topic)

    def gauges(self) -> list[GaugeSample]:
        """Return the lag of each topic, and for how long its oldest message waits."""
        oldest: dict[str, float] = {}
        for tp, owner in list(self.owners.items()):
            oldest[tp.topic] = max(oldest.get(tp.topic, 0.0), owner.lag_seconds)
        samples: list[GaugeSample] = []
        for topic, seconds in oldest.items():
            label = (("topic", topic),)
            waiting = float(self.waiting(topic))
            samples.append(("ragmeter_kafka_lag_messages", label, waiting))
            samples.append(("ragmeter_kafka_lag_seconds", label, seconds))
        return samples


class PartitionOwner(ABC):
    """One input partition, from its assignment until it is given to another worker.

    `position` is the offset that is committed, `expected` that of the next message to queue, and
    `lag` how many offsets are not committed, as of the last `measure`. `ready` says whether the
    owner works, `loaded` whether it has what `open` loads, as it does while the brokers are away.
    `batch` and `batch_bytes` bound what `take` returns, and twice as much is queued.
    """

    compression: str | None = None
    batch = 500
    batch_bytes = 4 * 2**20

    def __init__(self, group: OwnerGroup, tp: TopicPartition) -> None:
        self.group = group
        self.tp = tp
        self.position = 0
        self.ready = self.loaded = self.draining = False
        self.lag = 0
        self.queue: deque[Any] = deque()
        self._written: deque[tuple[int, float]] = deque()  # offset and time of what is here
        self.expected = 0
        self._seek_at = 0.0  # earliest time of the next seek
        self._queued_bytes = 0
        self._arrived = asyncio.Event()
        self._producer: AIOKafkaProducer | None = None
        self._task: asyncio.Task[None] | None = None

    @abstractmethod
    async def open(self, offset: int | None) -> int | None:
        """Load what belongs to the partition.

        Args:
            offset: The committed one, None without any.

        Returns:
            The offset from which on messages are not counted yet, None: all that there are.
        """

    def replace_lost_offset(self, position: int, offsets: KnownOffsets) -> int:
        """Return where to begin though the topic ends before `position`.

        Brokers have lost its end, or it was made anew.
        """
        log.error(
            "%s/%d: offset %d is committed, but the topic ends at %d: its end was lost, or it was"
            " made anew. It is read again from %d on; traces that were counted are known by their"
            " ids",
            *self.tp,
            position,
            offsets.end,
            offsets.first,
        )
        return offsets.first

    @abstractmethod
    async def work(self) -> None:
        """Take messages and commit what comes of them, without end."""

    def start(self) -> None:
        """Begin to own the partition."""
        self._task = asyncio.create_task(self._run())

    @property
    def busy(self) -> bool:
        """Whether something was begun that is not committed."""
        return False

    async def drain(self) -> None:
        """Take nothing more, and return when what was begun is committed."""
        self.draining = True
        self._arrived.set()
        while self.ready and self.busy:  # noqa: ASYNC110
            await asyncio.sleep(_POLL_SECONDS)

    async def close(self) -> None:
        """Give the partition up; what is not committed is done again by the next owner."""
        self.ready = self.loaded = False
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})
        await self._close_producer()

    async def _run(self) -> None:
        pause = _FIRST_PAUSE
        last = ""
        while True:
            try:
                await self._begin()
                pause = _FIRST_PAUSE
                last = ""
                await self.work()
            except ProducerFenced:
                log.warning("%s/%d was given to another worker", *self.tp)
                self.loaded = False
                pause = _FENCED_PAUSE
            except PASSING as error:
                if repr(error) != last:  # not every 15 s of an outage
                    log.warning("%s/%d begins again in %.1f s: %r", *self.tp, pause, error)
                last = repr(error)
            except Exception as error:
                await self.group.fail(error)
                return
            self.ready = False
            await self._close_producer()
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)

    async def _begin(self) -> None:
        started = time.monotonic()
        name = f"{self.group.name}-{self.tp.topic}-{self.tp.partition}"
        self._producer = make_producer(self.group.kafka, self.group.largest, name, self.compression)
        await self._producer.start()
        offsets = await self.group.offsets(self.tp)
        first = offsets.first
        start = await self.open(offsets.committed)
        if start is not None and start > offsets.end:
            start = self.replace_lost_offset(start, offsets)
        self.position = max(start or 0, first)
        if self.position != offsets.committed:
            # so that the group reads on from here, and nobody counts again what was lost
            await self.commit_step([], self.position)
        if start is not None and start < first:
            text = "%s/%d: offsets %d to %d were deleted before they were read (retention)"
            log.error(text, *self.tp, start, first - 1)
            self.group.counters.inc(DELETED_UNREAD, (("topic", self.tp.topic),), first - start)
        self.queue.clear()
        self._written.clear()
        self._queued_bytes = 0
        self.expected = self.position
        await self.group.seek(self.tp, self.position)
        self.ready = self.loaded = True
        log.info("owns %s/%d from %d (%.2f s)", *self.tp, self.position, time.monotonic() - started)

    async def _close_producer(self) -> None:
        producer, self._producer = self._producer, None
        if producer is not None:
            with contextlib.suppress(Exception):
                await asyncio.wait_for(producer.stop(), _STOP_SECONDS)

    def put(self, message: Any, since: int) -> None:
        """Queue a message; `since` is an offset from which on nothing lies before it."""
        if not self.ready or message.offset < self.expected:
            return
        if since > self.expected:  # messages were dropped on the way here: read them again
            if time.monotonic() >= self._seek_at:
                self._seek_at = time.monotonic() + _SEEK_SECONDS
                log.warning("%s/%d: reads again from %d on", *self.tp, self.expected)
                self._seek_task = asyncio.create_task(self.group.seek(self.tp, self.expected))
            return
        self.expected = message.offset + 1
        self.queue.append(message)
        self._written.append((message.offset, milliseconds(message)))
        self._queued_bytes += len(message.value or b"")
        self._arrived.set()

    @property
    def mark(self) -> object | None:
        """A value that changes while the owner gets on; None while it has nothing to do."""
        return (self.position, self.expected) if self.ready and self.lag else None

    def measure(self, read: int, end: int) -> None:
        """Note how far the partition was read, and its end."""
        # the mark of a transaction at the end is read over and never committed
        done = read >= end and self.position >= self.expected
        self.lag = 0 if done else max(0, end - self.position)

    @property
    def lag_seconds(self) -> float:
        """Seconds since the oldest message was written that is here and not committed."""
        first = self._written[0][1] if self._written else None
        return max(0.0, time.time() - first / 1000) if first else 0.0

    @property
    def full(self) -> bool:
        """Whether the queue holds two batches."""
        return len(self.queue) >= 2 * self.batch or self._queued_bytes >= 2 * self.batch_bytes

    async def wait_for_room(self) -> None:
        """Wait while the queue is full and the owner works."""
        while self.ready and self.full:  # noqa: ASYNC110
            await asyncio.sleep(_POLL_SECONDS)

    async def take(self, wait: float | None = None, gather: float = 0.0) -> list[Any]:
        """Return up to a batch of messages, waiting `wait` seconds for the first of them.

        `gather` are seconds to wait for more where they are fewer than a batch. There are none
        once the owner drains.
        """
        if not self.queue and not self.draining:
            self._arrived.clear()
            try:
                await asyncio.wait_for(self._arrived.wait(), wait)
            except TimeoutError:
                return []
        if self.draining:
            await asyncio.sleep(_POLL_SECONDS)
            return []
        if gather and len(self.queue) < self.batch and self._queued_bytes < self.batch_bytes:
            await asyncio.sleep(gather)
        messages: list[Any] = []
        taken = 0
        while self.queue and len(messages) < self.batch:
            size = len(self.queue[0].value or b"")
            if messages and taken + size > self.batch_bytes:
                break
            taken += size
            messages.append(self.queue.popleft())
        self._queued_bytes -= taken
        return messages

    async def commit_step(self, records: Sequence[OutRecord], position: int) -> None:
        """Commit records, the offset, and what changed of the owner's state, if it has one."""
        await self.commit(records, position)

    async def commit(self, records: Iterable[OutRecord], position: int) -> None:
        """Send records and commit the offset, both or neither.

        Raises:
            ProducerFenced: Another worker owns the partition by now.
            BeginAgain: The transaction has ended by itself.
            RecordsRefused: Topics do not take some of the records.
        """
        try:
            await self._commit_transaction(records, position)
        except IllegalOperation as error:
            # The client has ended the transaction by itself: the process was frozen for longer than
            # its timeout, and another worker may own the partition.
            raise BeginAgain(f"the transaction has ended meanwhile: {error}") from error
        self.group.answered_at = time.monotonic()
        self.position = position
        while self._written and self._written[0][0] < position:
            self._written.popleft()

    async def _commit_transaction(self, records: Iterable[OutRecord], position: int) -> None:
        producer = self._producer
        if producer is None:
            raise RuntimeError("producer is missing")
        async with asyncio.timeout(SEND_SECONDS):
            await producer.begin_transaction()
            sent: list[asyncio.Future[Any]] = []
            for number, record in enumerate(records):
                try:
                    sending = await producer.send(
                        record.topic,
                        # a record without key and value is refused; one with an empty key is not
                        record.value,
                        b"" if record.key is None and not record.value else record.key,
                        record.partition,
                        headers=list(record.headers.items()),
                    )
                except MessageSizeTooLargeError:  # too large for the client already
                    raise RecordsRefused([number]) from None
                sent.append(sending)
            await producer.send_offsets_to_transaction({self.tp: position}, self.group.name)
            outcomes = await asyncio.gather(*sent, return_exceptions=True)
            _raise_refusals(outcomes)
            await producer.commit_transaction()


def _raise_refusals(outcomes: Sequence[object]) -> None:
    """Raise `RecordsRefused` for records that brokers find too large, or else the first failure."""
    refused = [
        number for number, one in enumerate(outcomes) if isinstance(one, MessageSizeTooLargeError)
    ]
    if refused:
        raise RecordsRefused(refused)
    for one in outcomes:
        if isinstance(one, BaseException):
            raise one
