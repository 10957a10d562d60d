"""Consume committed messages without unnoticed gaps, and report what the consumer is assigned and how far it has read.

Hands a message from Faust's consumer to its stream without four tasks for it.

Faust 0.15 runs the callback of every message as a task beside three others that wait for the flow
to be suspended, the consumer to stop, or to crash: some 100 us a message, more than the rest of the
way. The callback of a message nearly always ends at once, for it only puts the message into a queue
with room. So it is begun in place, and only where it does wait are the tasks made, with what is
left of it.

A consumer that delivers what is committed, and tells what lies between its messages.

Offsets of a topic have holes: each transaction of a producer ends in a mark that takes an offset
and is delivered to nobody, and what was aborted is not delivered either. A hole must not look like
a lost message, for the worker would end at it, read it again and end again, for ever; and a lost
message must not look like a hole (`ragmeter.kafka.consumer`).

Nothing outside of the client can tell them apart by the numbers. The client can: it walks through
every batch that the broker sends and knows what it has passed over. So each record carries, in a
field that the protocol has given up, the first offset from which on there was nothing before it.
That is a fact about the log and not about the reader: whatever is dropped later, by a rebalance
or by a mistake of Faust, the next record's claim does not reach back over it.

aiokafka has no hook for this: its class of parsed batches is replaced by one that adds the claim.
Should a version of aiokafka not use it, there are no claims, and each hole ends the worker.

Messages that a rebalance need not wait for.

Before a rebalance Faust waits, without a limit, until each message that a stream has given out is
acknowledged or forgotten by everybody. A stream itself remembers the last one that it has given
out. So what is dropped, to be delivered again, must be taken off its list.

Tells whether messages of a topic that is not compacted were passed over.

Each message says from which offset on there was nothing before it
(`ragmeter.kafka.consumer`): marks of transactions and what was aborted leave holes that
are none. A hole that remains is either Faust's (it has dropped messages at a rebalance, and would
commit past them: a restart reads them again), or the topic's: what was older than its retention is
gone, restart or not. The second is counted and passed over, or the worker would end at it for ever.

What `ragmeter.core.process` is shown of a worker: its partitions, each by itself.

States make steps of their own while nothing is read, and one partition may stand still among others
that go on. Restarts are harmless, so the worker ends and says what its consumer looked like. Faust
itself only logs that a stream is slow, for ever.
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


class _WaitResults(NamedTuple):
    """As Faust's `WaitResults`, which it does not give away."""

    done: list[Any]
    results: list[Any]
    stopped: bool


class DirectHandover(Service):
    """Of a consumer; to be mixed in before Faust's class."""

    async def wait_first(self, *coros: Any, timeout: Any = None) -> Any:  # noqa: ASYNC109
        first = coros[0]
        if timeout is not None or not isinstance(first, Coroutine) or self.should_stop:
            return await super().wait_first(*coros, timeout=timeout)
        try:
            blocked = first.send(None)
        except StopIteration as end:
            for other in coros[1:]:
                if isinstance(other, Coroutine):
                    other.close()
            return _WaitResults([first], [end.value], False)
        except BaseException:
            for other in coros[1:]:
                if isinstance(other, Coroutine):
                    other.close()
            raise
        return await super().wait_first(_rest(first, blocked), *coros[1:])


async def _rest(begun: Coroutine[Any, Any, Any], blocked: Any) -> Any:
    """What is left of a coroutine that waits for `blocked`."""
    return await _driven(begun, blocked)


@types.coroutine
def _driven(begun: Coroutine[Any, Any, Any], blocked: Any) -> Generator[Any, Any, Any]:
    while True:
        error, value = None, None
        try:
            value = yield blocked
        except BaseException as raised:
            error = raised
        try:
            blocked = begun.send(value) if error is None else begun.throw(error)
        except StopIteration as end:
            return end.value


_PartitionRecords: Any = fetcher.PartitionRecords


class OffsetGap(RuntimeError):
    """Offsets are missing: committing past them would lose what they held."""


class ContiguousFrom(int):
    """From here up to the message that carries it there is nothing else to deliver."""


class ContiguousRecords(_PartitionRecords):  # type: ignore[misc]
    """The batches of one answer to a fetch. `_ends` joins them: of each partition and isolation
    the run of nothing with which the last answer ended, as [first, end)."""

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


class _CommittedConsumerThread(AIOKafkaConsumerThread):
    def __post_init__(self) -> None:
        super().__post_init__()
        self.newest: dict[TP, int] = {}

    def _create_worker_consumer(self, transport: Any) -> AIOKafkaConsumer:
        fetcher.PartitionRecords = ContiguousRecords
        consumer = super()._create_worker_consumer(transport)
        # Faust reads so in its own transactions only; what was aborted is not to be counted
        consumer._isolation_level = "read_committed"
        return consumer

    async def seek_to_committed(self) -> Mapping[TP, int]:
        found: Mapping[TP, int] = await self.call_thread(self._seek)
        return found

    async def _seek(self) -> Mapping[TP, int]:
        """aiokafka leaves a partition without a commit where it stands: behind what was read, and
        dropped, while the states were loaded. All of them begin at the beginning."""
        consumer = self._ensure_consumer()
        found: Mapping[TP, int] = await consumer.seek_to_committed()
        for tp, offset in found.items():
            if not offset and not self.consumer._is_changelog_tp(TP(*tp)):
                consumer.seek(tp, 0)  # where that was deleted, at the oldest that is there
        return found

    async def _fetch_records(self, *args: Any, **options: Any) -> Any:
        found = await super()._fetch_records(*args, **options)
        for tp, records in found.items():
            self.newest[TP(*tp)] = records[-1].offset
        return found


class CommittedConsumer(DirectHandover, Consumer):
    """Faust's consumer with such records."""

    _thread: _CommittedConsumerThread

    def _new_consumer_thread(self) -> AIOKafkaConsumerThread:
        own = uvloop.new_event_loop()  # as the worker has: `ragmeter.cli.kafka`
        thread = _CommittedConsumerThread(self, loop=self.loop, thread_loop=own, beacon=self.beacon)
        thread._close_thread_loop_on_stop = True  # nobody else will
        return thread

    def done_and_end(self, tp: TP) -> tuple[int | None, int | None]:
        """Up to where nothing is left to do, and up to where there is something to read.

        With nothing delivered that is not committed, all up to the position is done: a mark at the
        end of the log is never committed, nor is what was deleted. What an open transaction holds
        back cannot be read yet.
        """
        done = self._committed_offset[tp]
        subscription = self._thread._ensure_consumer()._subscription.subscription
        assignment = subscription.assignment if subscription is not None else None
        state = assignment.state_value(TopicPartition(*tp)) if assignment is not None else None
        if state is None:  # the group forms anew
            return done, None
        newest = self._thread.newest.get(tp)
        if state.has_valid_position and (newest is None or newest < (done or 0)):
            done = max(done or 0, state.position)
        return done, state.lso if state.lso is not None else state.highwater


def discard_messages(app: AppT, messages: Iterable[Any]) -> None:
    """Nothing comes of these messages here."""
    unacked = cast(Any, app.consumer).unacked
    for message in list(messages):
        unacked.discard(message)


log = logging.getLogger("ragmeter.kafka")

DELETED_UNREAD = "ragmeter_kafka_deleted_unread_total"


class GapDetector:
    """By partition and generation. A generation begins at what was committed, or at the beginning;
    an offset may go back, for whatever is not committed may be sought anew."""

    def __init__(self) -> None:
        self._last: dict[int, tuple[int, int]] = {}

    def missing_offsets(
        self, partition: int, generation: int, offset: int, since: int, committed: int | None
    ) -> range:
        """The offsets that should have come before `offset`: `since` up to it there are none."""
        last = self._last.get(partition)
        if last is not None and generation < last[0]:
            return range(0)  # left in a buffer by the generation before
        expected = committed or 0
        if last is not None and generation == last[0]:
            expected = last[1] + 1
        self._last[partition] = (generation, offset)
        return range(expected, max(expected, since))


async def check_gap(app: AppT, gaps: GapDetector, message: Any, counters: Counters) -> None:
    """Raises `Gap` for messages that are still there and were not delivered."""
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
            f"{tp.topic}/{tp.partition}: offset {offset} came, and of those from {missing.start} on"
            " none did; a restart reads again from what was committed"
        )
    if committed is None and missing.start == 0:
        return  # of a group that is new, or whose offsets are gone: nobody was to read them
    log.error(
        "%s/%d: offsets %d to %d were deleted before they were read (retention)",
        *(tp.topic, tp.partition, missing.start, missing.stop - 1),
    )
    counters.inc(DELETED_UNREAD, (("topic", tp.topic),), len(missing))


SHARE_POLL_SECONDS = 1.0


def _assigned_share(app: AppT, topic: str) -> float:
    """The part of the partitions of `topic` that is assigned to this worker; 0 while the group
    forms."""
    owned = sum(tp.topic == topic for tp in app.consumer.assignment())
    total = app.consumer.topic_partitions(topic) or owned
    return owned / total if total else 0.0


async def follow_assigned_share(app: AppT, topic: str, own: Callable[[float], None]) -> None:
    """Tell `own` of each other part. Until cancelled."""
    last = -1.0
    while True:
        part = _assigned_share(app, topic)
        if part != last:
            own(part)
            last = part
        await asyncio.sleep(SHARE_POLL_SECONDS)


OffsetMark = tuple[int | None, int | None]
"""Offsets of a partition: read, and done (committed, or with nothing to do)."""


def recovery_progress(app: faust.App) -> object:
    """Of a rebalance, and of the states that are read after it."""
    read = cast(Any, app.tables).recovery.active_offsets
    return app.consumer_generation_id, sum(offset or 0 for offset in read.values())


def offset_mark(end: int | None, read: int | None, done: int | None) -> OffsetMark | None:
    """None where nothing waits before the `end` of what can be read."""
    return (read, done) if end is not None and end > (done or 0) else None


def offset_marks(app: faust.App, topics: Collection[str]) -> dict[TP, OffsetMark | None]:
    consumer: Any = app.consumer
    found: dict[TP, OffsetMark | None] = {}
    for tp in consumer.assignment():
        if tp.topic in topics:
            done, end = consumer.done_and_end(tp)
            found[tp] = offset_mark(end, consumer._read_offset[tp], done)
    return found


def describe_consumer(app: faust.App) -> str:
    """The consumer's state, for a log that somebody reads after the restart."""
    consumer: Any = app.consumer

    def names(tps: Iterable[TP]) -> list[str]:
        return sorted(map(_partition_name, tps))

    found = {
        "generation": app.consumer_generation_id,
        "rebalancing": app.rebalancing,
        "flow": consumer.flow_active,
        "unacked": len(consumer._unacked_messages),
        "acked": {_partition_name(tp): acked[:4] for tp, acked in consumer._acked.items() if acked},
        "committed": {
            _partition_name(tp): offset for tp, offset in consumer._committed_offset.items()
        },
        "read": {_partition_name(tp): offset for tp, offset in consumer._read_offset.items()},
        "active": names(consumer._active_partitions or ()),
        "paused": names(consumer._paused_partitions),
        "assigned": names(consumer.assignment()),
    }
    return json.dumps(found)


def _partition_name(tp: TP) -> str:
    return f"{tp.topic}/{tp.partition}"
