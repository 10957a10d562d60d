"""A consumer that delivers what is committed, and tells what lies between its messages.

Offsets of a topic have holes: each transaction of a producer ends in a mark that takes an offset
and is delivered to nobody, and what was aborted is not delivered either. A hole must not look like
a lost message, for the worker would end at it, read it again and end again, for ever; and a lost
message must not look like a hole (`agent.kafka.stages.gaps`).

Nothing outside of the client can tell them apart by the numbers. The client can: it walks through
every batch that the broker sends and knows what it has passed over. So each record carries, in a
field that the protocol has given up, the first offset from which on there was nothing before it.
That is a fact about the log and not about the reader: whatever is dropped later, by a rebalance
or by a mistake of Faust, the next record's claim does not reach back over it.

aiokafka has no hook for this: its class of parsed batches is replaced by one that adds the claim.
Should a version of aiokafka not use it, there are no claims, and each hole ends the worker.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import uvloop
from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.consumer import fetcher
from faust.transport.drivers.aiokafka import AIOKafkaConsumerThread, Consumer
from faust.types import TP

from agent.kafka.client.handover import QuickHandover

__all__ = ["CommittedConsumer", "Gap", "Since", "TellingRecords"]

_Plain: Any = fetcher.PartitionRecords


class Gap(RuntimeError):
    """Offsets are missing: committing past them would lose what they held."""


class Since(int):
    """From here up to the message that carries it there is nothing else to deliver."""


class TellingRecords(_Plain):  # type: ignore[misc]
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
            record.checksum = Since(since)  # None since message format 2
            since = record.offset + 1
            yield record
        self._ends[key] = (since, self.next_fetch_offset)


class _Thread(AIOKafkaConsumerThread):
    def __post_init__(self) -> None:
        super().__post_init__()
        self.newest: dict[TP, int] = {}

    def _create_worker_consumer(self, transport: Any) -> AIOKafkaConsumer:
        fetcher.PartitionRecords = TellingRecords
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


class CommittedConsumer(QuickHandover, Consumer):
    """Faust's consumer with such records."""

    _thread: _Thread

    def _new_consumer_thread(self) -> AIOKafkaConsumerThread:
        own = uvloop.new_event_loop()  # as the worker has: `agent.kafka.worker_cli`
        thread = _Thread(self, loop=self.loop, thread_loop=own, beacon=self.beacon)
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
