"""A Faust consumer of committed messages, detection of gaps in what it delivers, and its progress.

Offsets of a topic have holes: the end of each transaction takes an offset that is delivered to
nobody, and aborted messages are not delivered either. A hole must not be taken for a lost message,
because the worker would stop there again after each restart, and a lost message must not be taken
for a hole. Only the client can tell them apart, because it walks through every batch of the broker.
So each record carries, in a field that the protocol no longer uses, the first offset from which on
the log held nothing before it. This is a fact about the log: whatever a rebalance or a defect of
Faust drops later, the next record does not cover it. aiokafka has no hook for this, so its class of
parsed batches is replaced. If a version of aiokafka did not use the replacement, the mark would be
missing and each hole would end the worker.
"""

from __future__ import annotations

import asyncio
import json
import logging
import types
from collections.abc import Callable, Collection, Coroutine, Generator, Iterable, Iterator, Mapping
from typing import Any, NamedTuple, cast

import faust
import uvloop
from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.consumer import fetcher
from faust import Service
from faust.transport.drivers.aiokafka import AIOKafkaConsumerThread, Consumer
from faust.types import TP, AppT

from ragmeter.core.counters import Counters
from ragmeter.core.errors import RagmeterError
from ragmeter.kafka.connection import FAUST_LOG

log = logging.getLogger(__name__)

DELETED_UNREAD = "ragmeter_kafka_deleted_unread_total"
SHARE_POLL_SECONDS = 1.0

OffsetMark = tuple[int | None, int | None]
"""Offsets of a partition: read, and done (committed, or with nothing to do)."""

_PartitionRecords: Any = fetcher.PartitionRecords


class OffsetGap(RagmeterError, RuntimeError):
    """Messages are missing; committing past them would lose them."""


class ContiguousFrom(int):
    """The offset from which on nothing else precedes the message that carries it."""


class ContiguousRecords(_PartitionRecords):  # type: ignore[misc]
    """The batches of one fetch response, with `ContiguousFrom` marks on their records."""

    # Joins responses: by partition and isolation level, the empty run [first, end) with which the
    # last response ended. aiokafka makes an object for each response, so the class holds it.
    _ends: dict[tuple[TopicPartition, int], tuple[int, int]] = {}  # noqa: RUF012

    def _unpack_records(self) -> Iterator[Any]:
        key = (self._tp, self._isolation_level)
        since: int = self.next_fetch_offset
        first, end = self._ends.get(key, (since, since))
        if end == since:
            since = first
        for record in super()._unpack_records():
            record.checksum = ContiguousFrom(since)  # None since message format 2
            since = record.offset + 1
            yield record
        self._ends[key] = (since, self.next_fetch_offset)


class _WaitResults(NamedTuple):
    """As Faust's `WaitResults`, which it does not export."""

    done: list[Any]
    results: list[Any]
    stopped: bool


class DirectHandover(Service):
    """Mix-in of a Faust consumer that runs the callback of a message in place.

    Faust 0.15 runs the callback as a task beside three others that wait for the flow to be
    suspended, the consumer to stop, or to crash: some 100 us a message, more than the rest of the
    way. The callback nearly always ends at once, because it only puts the message into a queue with
    room. Only a callback that does wait gets the tasks, for the rest of its work.
    """

    logger = FAUST_LOG

    async def wait_first(self, *coros: Any, timeout: Any = None) -> Any:  # noqa: ASYNC109
        """Wait for the first of `coros`, as Faust's method does, without tasks where possible."""
        first = coros[0]
        if timeout is not None or not isinstance(first, Coroutine) or self.should_stop:
            return await super().wait_first(*coros, timeout=timeout)
        try:
            awaited = first.send(None)
        except StopIteration as end:
            _close(coros[1:])
            return _WaitResults([first], [end.value], False)
        except BaseException:
            _close(coros[1:])
            raise
        return await super().wait_first(_resume(first, awaited), *coros[1:])


def _close(coros: Iterable[Any]) -> None:
    for coro in coros:
        if isinstance(coro, Coroutine):
            coro.close()


async def _resume(begun: Coroutine[Any, Any, Any], awaited: Any) -> Any:
    return await _drive(begun, awaited)


@types.coroutine
def _drive(begun: Coroutine[Any, Any, Any], awaited: Any) -> Generator[Any, Any, Any]:
    while True:
        error, value = None, None
        try:
            value = yield awaited
        except BaseException as raised:
            error = raised
        try:
            awaited = begun.send(value) if error is None else begun.throw(error)
        except StopIteration as end:
            return end.value


class _CommittedConsumerThread(AIOKafkaConsumerThread):
    logger = FAUST_LOG

    def __post_init__(self) -> None:
        super().__post_init__()
        self.newest: dict[TP, int] = {}

    def _create_worker_consumer(self, transport: Any) -> AIOKafkaConsumer:
        fetcher.PartitionRecords = ContiguousRecords
        consumer = super()._create_worker_consumer(transport)
        # Faust sets this in its own transactions only; aborted messages must not be counted
        consumer._isolation_level = "read_committed"
        return consumer

    async def seek_to_committed(self) -> Mapping[TP, int]:
        committed: Mapping[TP, int] = await self.call_thread(self._seek)
        return committed

    async def _seek(self) -> Mapping[TP, int]:
        """Seek to the committed offsets, or to the beginning where there is none.

        aiokafka leaves a partition without a commit where it stands: behind the messages that were
        read and dropped while the states were loaded.
        """
        consumer = self._ensure_consumer()
        committed: Mapping[TP, int] = await consumer.seek_to_committed()
        for tp, offset in committed.items():
            if not offset and not self.consumer._is_changelog_tp(TP(*tp)):
                consumer.seek(tp, 0)  # where that was deleted, at the oldest that is there
        return committed

    async def _fetch_records(self, *args: Any, **options: Any) -> Any:
        batches = await super()._fetch_records(*args, **options)
        for tp, records in batches.items():
            self.newest[TP(*tp)] = records[-1].offset
        return batches


class CommittedConsumer(DirectHandover, Consumer):
    """Faust's consumer, reading committed messages with `ContiguousFrom` marks."""

    _thread: _CommittedConsumerThread

    def _new_consumer_thread(self) -> AIOKafkaConsumerThread:
        own_loop = uvloop.new_event_loop()  # as the worker has: `ragmeter.cli.kafka`
        thread = _CommittedConsumerThread(
            self, loop=self.loop, thread_loop=own_loop, beacon=self.beacon
        )
        thread._close_thread_loop_on_stop = True  # nobody else will
        return thread

    def done_and_end(self, tp: TP) -> tuple[int | None, int | None]:
        """Return the offset up to which nothing is left to do, and the end of what can be read.

        Where every delivered message is committed, everything up to the position is done: the mark
        of a transaction at the end of the log is never committed, nor are deleted messages. What an
        open transaction holds back cannot be read yet.
        """
        done = self._committed_offset[tp]
        subscription = self._thread._ensure_consumer()._subscription.subscription
        assignment = subscription.assignment if subscription is not None else None
        state = assignment.state_value(TopicPartition(*tp)) if assignment is not None else None
        if state is None:  # the group is rebalancing
            return done, None
        newest = self._thread.newest.get(tp)
        if state.has_valid_position and (newest is None or newest < (done or 0)):
            done = max(done or 0, state.position)
        return done, state.lso if state.lso is not None else state.highwater


def discard_messages(app: AppT, messages: Iterable[Any]) -> None:
    """Take messages that will be delivered again off the list that a rebalance waits for.

    Before a rebalance Faust waits, without a limit, until each message that a stream has given out
    is acknowledged or forgotten by everybody.
    """
    unacked = cast(Any, app.consumer).unacked
    for message in list(messages):
        unacked.discard(message)


class GapDetector:
    """The last offset of each partition in the current generation of the group.

    A generation begins at the committed offset, or at the beginning of the topic. An offset may go
    back, because uncommitted messages may be sought anew.
    """

    def __init__(self) -> None:
        self._last: dict[int, tuple[int, int]] = {}

    def missing_offsets(
        self, partition: int, generation: int, offset: int, since: int, committed: int | None
    ) -> range:
        """Return the offsets that should have come before `offset`.

        The log holds nothing from `since` up to `offset`; `generation` is that of the message.
        """
        last = self._last.get(partition)
        if last is not None and generation < last[0]:
            return range(0)  # left in a buffer by the generation before
        expected = committed or 0
        if last is not None and generation == last[0]:
            expected = last[1] + 1
        self._last[partition] = (generation, offset)
        return range(expected, max(expected, since))


async def check_gap(app: AppT, gaps: GapDetector, message: Any, counters: Counters) -> None:
    """Check that no message before this one was skipped; count those that retention deleted.

    A gap is either a defect of Faust, which drops messages at a rebalance and would commit past
    them: `OffsetGap` is raised, and a restart reads them again. Or the retention deleted messages
    before they were read, and a restart would not help.
    """
    tp: TP = message.tp
    consumer = cast(Any, app.consumer)
    offset, since, committed = message.offset, message.checksum, consumer._committed_offset[tp]
    missing = gaps.missing_offsets(
        message.partition,
        message.generation_id or 0,
        offset,
        since if isinstance(since, ContiguousFrom) else offset,
        committed,
    )
    if not missing:
        return
    first = (await consumer.earliest_offsets(tp))[tp]
    if first < missing.stop:
        raise OffsetGap(
            f"{tp.topic}/{tp.partition}: offset {offset} was delivered without those from"
            f" {missing.start} on; a restart reads again from the committed offset"
        )
    if committed is None and missing.start == 0:
        return  # a new group, or one whose offsets expired: nobody was to read them
    log.error(
        "%s/%d: offsets %d to %d were deleted before they were read (retention)",
        *(tp.topic, tp.partition, missing.start, missing.stop - 1),
    )
    counters.inc(DELETED_UNREAD, (("topic", tp.topic),), len(missing))


async def follow_assigned_share(app: AppT, topic: str, update: Callable[[float], None]) -> None:
    """Call `update` with the worker's share of the partitions of a topic whenever it changes.

    The share is 0..1, and 0 while the group rebalances. Runs until cancelled.
    """
    last = -1.0
    while True:
        share = _assigned_share(app, topic)
        if share != last:
            update(share)
            last = share
        await asyncio.sleep(SHARE_POLL_SECONDS)


def _assigned_share(app: AppT, topic: str) -> float:
    owned = sum(tp.topic == topic for tp in app.consumer.assignment())
    total = app.consumer.topic_partitions(topic) or owned
    return owned / total if total else 0.0


def recovery_progress(app: faust.App) -> object:
    """Return a value that changes while a rebalance or the loading of the states moves on."""
    offsets = cast(Any, app.tables).recovery.active_offsets
    return app.consumer_generation_id, sum(offset or 0 for offset in offsets.values())


def offset_mark(end: int | None, read: int | None, done: int | None) -> OffsetMark | None:
    """Return the mark of a partition, or None where nothing waits before its `end`."""
    return (read, done) if end is not None and end > (done or 0) else None


def offset_marks(app: faust.App, topics: Collection[str]) -> dict[TP, OffsetMark | None]:
    """Return the mark of each assigned partition of `topics`, for `ragmeter.core.process.Watchdog`.

    Partitions are marked one by one: states commit steps of their own while nothing is read, and
    one partition may stand still among others that move.
    """
    consumer: Any = app.consumer
    marks: dict[TP, OffsetMark | None] = {}
    for tp in consumer.assignment():
        if tp.topic in topics:
            done, end = consumer.done_and_end(tp)
            marks[tp] = offset_mark(end, consumer._read_offset[tp], done)
    return marks


def describe_consumer(app: faust.App) -> str:
    """Return the consumer's state as JSON, for the log of a worker that stalls."""
    consumer: Any = app.consumer

    def names(tps: Iterable[TP]) -> list[str]:
        return sorted(map(_partition_name, tps))

    def by_name(values: Mapping[TP, Any]) -> dict[str, Any]:
        return {_partition_name(tp): value for tp, value in values.items()}

    state = {
        "generation": app.consumer_generation_id,
        "rebalancing": app.rebalancing,
        "flow": consumer.flow_active,
        "unacked": len(consumer._unacked_messages),
        "acked": by_name({tp: acked[:4] for tp, acked in consumer._acked.items() if acked}),
        "committed": by_name(consumer._committed_offset),
        "read": by_name(consumer._read_offset),
        "active": names(consumer._active_partitions or ()),
        "paused": names(consumer._paused_partitions),
        "assigned": names(consumer.assignment()),
    }
    return json.dumps(state)


def _partition_name(tp: TP) -> str:
    return f"{tp.topic}/{tp.partition}"
