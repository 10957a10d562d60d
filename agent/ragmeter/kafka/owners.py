"""The owners of partitions, and the consumer groups that deal partitions to them.

A group decides who should own a partition, and nothing more: no count depends on it, nor on how
long a replaced worker lives on. Whatever fails, an owner begins again from what is committed.
Owners with a state commit in transactions (`ragmeter.kafka.transactions`); those of the score stage
send at least once, and who counts recognises repetitions (`ragmeter.kafka.origins`).
"""

from __future__ import annotations

import asyncio
import logging
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import KafkaError, ProducerFenced

from ragmeter.config.kafka import KafkaSettings
from ragmeter.config.settings import Settings
from ragmeter.core.counters import Counters, GaugeSample
from ragmeter.core.errors import Unavailable
from ragmeter.core.process import end_if_cancelled, end_tasks
from ragmeter.kafka.connection import aiokafka_options
from ragmeter.kafka.rights import missing_right

log = logging.getLogger(__name__)

DELETED_UNREAD = "ragmeter_kafka_deleted_unread_total"
SEND_SECONDS = 45.0  # for the records of a commit
BATCH_BYTES = 2**18  # of one partition in a request; well below the megabyte that brokers take
# Whoever sends has a batch and waits for its end, so none waits for more.
_LINGER_MS = 0
# Seconds before an owner begins again.
_FIRST_PAUSE = 0.5
_LONGEST_PAUSE = 15.0
# A fenced owner that still believes in its assignment learns of the new one by a heartbeat.
_FENCED_PAUSE = 5.0
_POLL_SECONDS = 0.05
STOP_SECONDS = 2.0  # for connections to be closed, which may wait for a broker that is down
ENVELOPE = 64 * 1024  # headers and batch around the largest trace, which a dead letter repeats


# Errors of the brokers or of the way to them, and our own that say so: it is worth trying again.
PASSING = (Unavailable, KafkaError, OSError, TimeoutError)


class BeginAgain(Unavailable):
    """What an owner has done since its last commit is to be done again."""


class OutRecord(NamedTuple):
    """A record to send; a value of None is a tombstone."""

    topic: str
    value: bytes | None
    key: bytes | None = None
    partition: int | None = None
    headers: Mapping[str, bytes] = {}

    @property
    def arguments(self) -> tuple[str, bytes | None, bytes | None, int | None]:
        """Those of a producer: a record without key and value is refused, not with an empty key."""
        key = b"" if self.key is None and not self.value else self.key
        return self.topic, self.value, key, self.partition


def make_producer(kafka: KafkaSettings, largest: int, **options: Any) -> AIOKafkaProducer:
    """Make a producer of records up to `largest` bytes, which all replicas acknowledge."""
    return AIOKafkaProducer(
        bootstrap_servers=list(kafka.bootstrap_servers),
        client_id=kafka.group,
        acks="all",
        linger_ms=_LINGER_MS,
        max_batch_size=BATCH_BYTES,
        max_request_size=largest + ENVELOPE,
        request_timeout_ms=int(SEND_SECONDS * 1000),
        **aiokafka_options(kafka),
        **options,
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


class KnownOffsets(NamedTuple):
    """The offsets of a partition.

    Args:
        committed: The committed one, None without any.
        note: The text that was committed with it.
        first: The oldest that the retention has left.
        end: That of the next message.
    """

    committed: int | None
    note: str
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
        self.refused = ""  # a right that is missing
        self._build = build
        self._dealt = False
        self._closed = False

    def open(self) -> None:
        """Own what is assigned from now on."""
        self._closed = False

    async def assign(self, tps: Iterable[TopicPartition]) -> None:
        """Own these partitions and no others; none once the group is closed."""
        wanted = {TopicPartition(*tp) for tp in tps}
        gone = [self.owners.pop(tp) for tp in list(self.owners) if tp not in wanted]
        await asyncio.gather(*(owner.close() for owner in gone))
        if self._closed:
            return
        for tp in sorted(wanted - self.owners.keys()):
            self.owners[tp] = self._build(self, tp)
            self.owners[tp].start()
        self._dealt = True

    async def drain(self) -> None:
        """Let all owners commit what they have begun."""
        await asyncio.gather(*(owner.drain() for owner in list(self.owners.values())))

    async def close(self) -> None:
        """Give up all partitions.

        A client that leaves during a rebalance waits for its end, and is assigned partitions once
        more: nobody would end their owners.
        """
        self._closed = True
        self._dealt = False
        await self.assign(())

    @property
    def ready(self) -> bool:
        """Whether partitions were assigned and all their owners work."""
        return self._dealt and all(owner.ready for owner in list(self.owners.values()))

    @property
    def refusals(self) -> list[str]:
        """The rights that are missing, each once."""
        found = [self.refused, *(owner.refused for owner in list(self.owners.values()))]
        return [text for text in dict.fromkeys(found) if text]

    async def offsets(self, tp: TopicPartition) -> KnownOffsets:
        """Return the offsets of a partition.

        By a connection of its own: a broker answers none of a consumer's requests while it holds
        back one for messages, up to half a second each.
        """
        consumer = make_consumer(self.kafka)
        groups = AIOKafkaAdminClient(
            bootstrap_servers=list(self.kafka.bootstrap_servers),
            client_id=self.kafka.group,
            **aiokafka_options(self.kafka),
        )
        try:
            await consumer.start()
            await groups.start()
            known = await groups.list_consumer_group_offsets(self.name, partitions=[tp])
            # The client passes over some errors, as of a coordinator that loads: an offset that
            # was never committed is in the answer.
            if tp not in known:
                raise BeginAgain(f"the group {self.name} does not say what is committed")
            committed, note = known[tp]
            return KnownOffsets(
                committed=committed if committed >= 0 else None,
                note=note,
                first=(await consumer.beginning_offsets([tp]))[tp],
                end=(await consumer.end_offsets([tp]))[tp],
            )
        finally:
            await groups.close()
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

    batch = 500
    batch_bytes = 4 * 2**20

    def __init__(self, group: OwnerGroup, tp: TopicPartition) -> None:
        self.group = group
        self.tp = tp
        self.position = 0
        self.ready = self.loaded = self.draining = False
        self.lag = 0
        self.refused = ""  # a right that is missing
        self.queue: deque[Any] = deque()
        self._written: deque[tuple[int, float]] = deque()  # offset and time of what is here
        self.expected = 0
        self._queued_bytes = 0
        self._arrived = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def connect(self) -> None:  # noqa: B027
        """Open connections of its own, before it reads what is committed."""

    async def disconnect(self) -> None:  # noqa: B027
        """Close them."""

    @property
    def note(self) -> str:
        """A text to commit with the offset; the next owner is told."""
        return ""

    @abstractmethod
    async def open(self, offsets: KnownOffsets) -> int | None:
        """Load what belongs to the partition.

        Args:
            offsets: Those of the group.

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
            await end_tasks([self._task])
        await self.disconnect()

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
                self.refused = missing_right(error)
                why = self.refused or repr(error)
                if why != last:  # not every 15 s of an outage
                    log.warning("%s/%d begins again in %.1f s: %s", *self.tp, pause, why)
                last = why
            except Exception as error:
                await self.group.fail(error)
                return
            self.ready = False
            await self.disconnect()
            end_if_cancelled()
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)

    async def _begin(self) -> None:
        started = time.monotonic()
        await self.connect()
        offsets = await self.group.offsets(self.tp)
        first = offsets.first
        start = await self.open(offsets)
        if start is not None and start > offsets.end:
            start = self.replace_lost_offset(start, offsets)
        self.position = max(start or 0, first)
        if (self.position, self.note) != (offsets.committed, offsets.note):
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
        end_if_cancelled()
        self.ready = self.loaded = True
        log.info("owns %s/%d from %d (%.2f s)", *self.tp, self.position, time.monotonic() - started)

    def put(self, message: Any) -> None:
        """Queue a message, unless it was before."""
        if not self.ready or message.offset < self.expected:
            return
        self.expected = message.offset + 1
        self.queue.append(message)
        self._written.append((message.offset, float(message.timestamp or 0)))
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
        if not self.lag:
            self.refused = ""

    @property
    def lag_seconds(self) -> float:
        """Seconds since the oldest message was written that is here and not committed."""
        first = self._written[0][1] if self._written else None
        return max(0.0, time.time() - first / 1000) if first else 0.0

    @property
    def full(self) -> bool:
        """Whether the queue holds two batches."""
        return len(self.queue) >= 2 * self.batch or self._queued_bytes >= 2 * self.batch_bytes

    async def take(self, wait: float | None = None, gather: float = 0.0) -> list[Any]:
        """Return up to a batch of messages, waiting `wait` seconds for the first of them.

        `gather` are seconds to wait for more where they are fewer than a batch. There are none
        once the owner drains.
        """
        if not self.queue and not self.draining:
            self._arrived.clear()
            try:
                async with asyncio.timeout(wait):
                    await self._arrived.wait()
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

    @abstractmethod
    async def commit(self, records: Iterable[OutRecord], position: int) -> None:
        """Send records, and then make `position` the one from which the next owner begins."""

    def advance(self, position: int) -> None:
        """Note that all before `position` is done."""
        self.group.answered_at = time.monotonic()
        self.position = position
        self.refused = ""
        while self._written and self._written[0][0] < position:
            self._written.popleft()
