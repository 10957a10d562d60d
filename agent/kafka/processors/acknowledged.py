"""Base of the stateless processors: many messages in flight, acknowledged strictly in offset order.

Two promises hold in each generation of the consumer group. An offset is acknowledged only when it
and all before it in its partition are finished, so a redelivery after a crash brings every
unfinished one. And the handler of offset m does not begin before all up to m - K are finished, so a
window of K offsets (`ragmeter.kafka.state.duplicates`) recognises what a handler sends twice.
"""

from __future__ import annotations

import asyncio
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from aiokafka.errors import MessageSizeTooLargeError
from faust import Stream
from faust.types import EventT, StreamT, TopicT

from ragmeter.kafka.consumer import GapDetector, check_gap, discard_messages
from ragmeter.kafka.processors.delivery import ErrorPairs, ProcessorContext, deliver

T = TypeVar("T")

_LOG_APPEND = 1  # timestamp type of a message that carries the broker's time


@dataclass(slots=True, eq=False)
class AckTicket(Generic[T]):
    """An item whose handler may begin."""

    offset: int
    item: T
    window: _PartitionWindow[T]
    finished: bool = False


@dataclass(slots=True, eq=False)
class _PartitionWindow(Generic[T]):
    """One partition in one generation. `begun`: under way, or finished behind one that is."""

    newest: int = -1
    waiting: deque[tuple[int, T]] = field(default_factory=deque)
    begun: deque[AckTicket[T]] = field(default_factory=deque)
    closed: bool = False


class AckTracker(Generic[T]):
    """The bookkeeping of offsets, without a clock or an event loop.

    At most `most` (K) handlers are under way, and in each partition the newest that has begun is
    less than K offsets after the oldest that is not acknowledged. A partition that a slow handler
    holds up does not hold up the others. `running` includes the handlers of closed partitions,
    because they take memory and sockets, too.
    """

    def __init__(self, most: int) -> None:
        if most < 1:
            raise ValueError("at least one handler must be allowed")
        self.most = most
        self.running = 0
        self.waiting = 0
        self._generation = -1
        self._held_generation = -2
        self._windows: dict[int, _PartitionWindow[T]] = {}

    def put(self, partition: int, generation: int, offset: int, item: T) -> bool:
        """Queue a delivered item.

        Returns False for an item that an older generation left in a buffer: it is delivered again
        to the present owner of the partition, and must be neither handled nor acknowledged here.
        """
        if generation < self._generation or generation == self._held_generation:
            return False
        if generation > self._generation:
            self._generation = generation
            self.close(list(self._windows))
        window = self._windows.get(partition)
        # an offset that goes back within a generation was sought anew: all before it is acked
        if window is None or offset <= window.newest:
            self.close([partition])
            window = self._windows[partition] = _PartitionWindow()
        window.newest = offset
        window.waiting.append((offset, item))
        self.waiting += 1
        return True

    def take(self) -> list[AckTicket[T]]:
        """Return the tickets that may begin now, one of each partition in turn."""
        tickets: list[AckTicket[T]] = []
        moved = True
        while moved and self.running < self.most:
            moved = False
            for partition, window in list(self._windows.items()):
                if self.running < self.most and self._may_begin(window):
                    # to the end of the round: a busy partition must not take every free slot
                    self._windows[partition] = self._windows.pop(partition)
                    offset, item = window.waiting.popleft()
                    ticket = AckTicket(offset, item, window)
                    window.begun.append(ticket)
                    self.waiting -= 1
                    self.running += 1
                    tickets.append(ticket)
                    moved = True
        return tickets

    def _may_begin(self, window: _PartitionWindow[T]) -> bool:
        if not window.waiting:
            return False
        return not window.begun or window.waiting[0][0] - window.begun[0].offset < self.most

    def finish(self, ticket: AckTicket[T]) -> list[T]:
        """Note that a handler has succeeded; return the items to acknowledge now, in order."""
        self.running -= 1
        ticket.finished = True
        begun = ticket.window.begun
        done: list[T] = []
        while not ticket.window.closed and begun and begun[0].finished:
            done.append(begun.popleft().item)
        return done

    def fail(self, ticket: AckTicket[T]) -> None:
        """Note that a handler has failed: nothing behind it is ever acknowledged."""
        self.running -= 1

    def hold(self) -> list[T]:
        """Prepare for a rebalance: drop and return what waits, and accept nothing more.

        What is under way is still to be acknowledged.
        """
        self._held_generation = self._generation
        dropped = [item for window in self._windows.values() for _, item in window.waiting]
        for window in self._windows.values():
            window.waiting.clear()
        self.waiting = 0
        return dropped

    def close(self, partitions: Iterable[int]) -> None:
        """Give up partitions: what waits is dropped, what is under way is never acknowledged."""
        for partition in partitions:
            window = self._windows.pop(partition, None)
            if window is not None:
                window.closed = True
                self.waiting -= len(window.waiting)
                window.waiting.clear()

    def oldest(self) -> dict[int, int]:
        """Return the oldest offset of each partition that is not acknowledged."""
        return {
            partition: window.begun[0].offset if window.begun else window.waiting[0][0]
            for partition, window in self._windows.items()
            if window.begun or window.waiting
        }


class OrderedAcks(Generic[T]):
    """Runs handlers as tasks, and acknowledges their items in order.

    `ack` is called one at a time. The first exception of a handler or of `ack` ends everything:
    `failed` is called once, nothing more is acknowledged, and `submit` raises it.
    """

    def __init__(
        self,
        most: int,
        handle: Callable[[T], Awaitable[None]],
        ack: Callable[[T], Awaitable[object]],
        failed: Callable[[BaseException], Awaitable[object]],
    ) -> None:
        self.tracker: AckTracker[T] = AckTracker(most)
        self.error: BaseException | None = None
        self._handle = handle
        self._ack = ack
        self._failed = failed
        self._moved = asyncio.Event()
        self._done: deque[tuple[AckTicket[T], T]] = deque()
        self._acking = False
        self._tasks: set[asyncio.Task[None]] = set()

    async def submit(self, partition: int, generation: int, offset: int, item: T) -> bool:
        """Take an item in, waiting while K others wait; the result is that of `AckTracker.put`."""
        while self.tracker.waiting >= self.tracker.most and self.error is None:
            self._moved.clear()
            await self._moved.wait()
        if self.error is not None:
            raise self.error
        accepted = self.tracker.put(partition, generation, offset, item)
        self._begin()
        return accepted

    def hold(self) -> list[T]:
        """Prepare for a rebalance, as `AckTracker.hold`."""
        dropped = self.tracker.hold()
        self._moved.set()
        return dropped

    def close(self, partitions: Iterable[int]) -> None:
        """Give up revoked partitions."""
        self.tracker.close(partitions)
        self._moved.set()

    def _begin(self) -> None:
        if self.error is None:
            for ticket in self.tracker.take():
                task = asyncio.ensure_future(self._run(ticket))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)

    async def _run(self, ticket: AckTicket[T]) -> None:
        try:
            await self._handle(ticket.item)
        except BaseException as error:  # a cancelled handler has not done its work either
            self.tracker.fail(ticket)
            await self._fail(error)
            return
        self._done.extend((ticket, item) for item in self.tracker.finish(ticket))
        self._begin()
        self._moved.set()
        await self._ack_all()

    async def _ack_all(self) -> None:
        if self._acking:  # two at once could overtake each other
            return
        self._acking = True
        try:
            while self._done and self.error is None:
                ticket, item = self._done.popleft()
                if not ticket.window.closed:
                    await self._ack(item)
        except BaseException as error:
            await self._fail(error)
        finally:
            self._acking = False
            self._moved.set()

    async def _fail(self, error: BaseException) -> None:
        first, self.error = self.error is None, self.error or error
        self._moved.set()
        if first and not isinstance(error, asyncio.CancelledError):
            await self._failed(error)


def arrival_time(message: Any, now: float) -> float | None:
    """Return when a message came to the broker, in Unix seconds, if the message says so.

    The broker's clock counts and not ours, so that a second scoring finds the same time. Where the
    time is the producer's, whose clock may be that of the trace, it is at most `now`.
    """
    if not message.timestamp:
        return None
    timestamp = float(message.timestamp)
    return timestamp if message.timestamp_type == _LOG_APPEND else min(timestamp, now)


class AckedProcessor(ABC):
    """A processor without state: handles messages, many at a time, and acknowledges in order.

    A subclass delivers the results of a message before `_handle` returns. An unexpected exception
    (a broker that refuses, a defect of ours, a gap in the offsets) ends the worker without loss.
    """

    def __init__(self, context: ProcessorContext) -> None:
        self._context = context
        self._settings = context.settings
        self._counters = context.counters
        self._acks: OrderedAcks[EventT[Any]] | None = None

    @abstractmethod
    async def _handle(self, event: EventT[Any]) -> None:
        """Return when the results of the message are delivered."""

    async def agent(self, stream: StreamT[Any]) -> None:
        """Process the stream; this is the body of the Faust agent."""
        assert isinstance(stream, Stream)
        stream = stream.noack()
        most, fail = self._settings.kafka.in_flight, self._context.fail
        acks = self._acks = OrderedAcks(most, self._handle, stream.ack, fail)
        gaps = GapDetector()
        try:
            async for event in stream.events():
                message = event.message
                generation = message.generation_id or 0
                await check_gap(stream.app, gaps, message, self._counters)
                if not await acks.submit(message.partition, generation, message.offset, event):
                    discard_messages(stream.app, [message])
        except asyncio.CancelledError:
            raise
        except BaseException as error:  # an exception that leaves an agent acknowledges its event
            await fail(error)
            raise

    def hold(self) -> None:
        """Prepare for a rebalance, which waits for what is under way but not for what is queued."""
        if self._acks is not None:
            for event in self._acks.hold():
                discard_messages(event.app, [event.message])

    def release(self) -> None:
        """Give up all partitions."""
        if self._acks is not None:
            self._acks.close(list(self._acks.tracker.oldest()))

    def _limit_time(self, message: Any, timestamp: float) -> float:
        """Replace a timestamp that lies too far after the arrival by the time of arrival."""
        arrived = arrival_time(message, time.time())
        if arrived is None or timestamp <= arrived + self._settings.limits.future_seconds:
            return timestamp
        return arrived

    async def _deliver(
        self, event: EventT[Any], topic: TopicT, service: str, value: bytes, too_large: str
    ) -> bool:
        """Send a record by service; one that its topic does not take becomes a dead letter."""
        try:
            await deliver(topic, service.encode("utf-8", "replace"), value)
        except MessageSizeTooLargeError:  # the topic was not made by `ragmeter kafka init`
            await self._send_dead_letter(event, "too_large", (("", too_large),))
            return False
        return True

    async def _send_dead_letter(self, event: EventT[Any], reason: str, errors: ErrorPairs) -> None:
        await self._context.dead.send(event, reason, errors)
        self._context.count_dead_letter(reason)
