"""Base of the stateless processors: many messages in flight, acknowledged strictly in offset order.

The ordered-ack window: many slow handlers at once, acknowledged strictly in offset order.

It makes two promises. An offset is acknowledged only when it and all before it in its partition
are finished: a redelivery after a crash then brings every unfinished one. And the handler of
offset m does not begin before all up to m - K are finished: what a handler sends downstream can
then be told from a repetition by a window of K offsets (`ragmeter.kafka.state.duplicates`).

Both are promises per consumer generation. After a rebalance the same offset may come again while
its old handler still runs; the old one then belongs to a closed book and is never acknowledged.

A stage without a state: each message is handled, many at a time, and acknowledged in order.

What a subclass makes of a message is delivered before it returns. What nobody expected (a broker
that refuses, a mistake of ours, a gap in the offsets) ends the worker, and nothing is lost by that.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from faust import Stream
from faust.types import EventT, StreamT

from ragmeter.core.counters import Counters
from ragmeter.kafka.consumer import GapDetector, check_gap, discard_messages
from ragmeter.kafka.processors.delivery import DeadLetterTopic

T = TypeVar("T")


@dataclass(slots=True, eq=False)
class AckTicket(Generic[T]):
    """An item that its handler may begin with."""

    offset: int
    item: T
    page: _PartitionWindow[T]
    finished: bool = False


@dataclass(slots=True, eq=False)
class _PartitionWindow(Generic[T]):
    """One partition in one generation: what waits, what is under way or behind one that is."""

    newest: int = -1
    waiting: deque[tuple[int, T]] = field(default_factory=deque)
    begun: deque[AckTicket[T]] = field(default_factory=deque)
    closed: bool = False


class AckBook(Generic[T]):
    """The bookkeeping alone: no clock, no loop. `most` is K.

    At most K handlers are under way, and in each partition the newest that has begun is less than
    K offsets after the oldest that is not acknowledged. A partition that is held up by a slow
    handler does not hold up the others.
    """

    def __init__(self, most: int) -> None:
        if most < 1:
            raise ValueError("at least one handler must be allowed")
        self.most = most
        self.running = 0
        """Handlers under way, those of closed pages as well: they take memory and sockets, too."""
        self.waiting = 0
        self._generation = -1
        self._held = -2
        self._pages: dict[int, _PartitionWindow[T]] = {}

    def put(self, partition: int, generation: int, offset: int, item: T) -> bool:
        """Queue what was delivered. False for what an older generation has left in a buffer: it is
        delivered again to whoever owns the partition now, and must be neither handled nor acked.
        """
        if generation < self._generation or generation == self._held:
            return False
        if generation > self._generation:
            self._generation = generation
            self.close(list(self._pages))
        page = self._pages.get(partition)
        # an offset that goes back within a generation was sought anew: all before it is acked
        if page is None or offset <= page.newest:
            self.close([partition])
            page = self._pages[partition] = _PartitionWindow()
        page.newest = offset
        page.waiting.append((offset, item))
        self.waiting += 1
        return True

    def take(self) -> list[AckTicket[T]]:
        """What may begin now; one of each partition in turn."""
        found: list[AckTicket[T]] = []
        moved = True
        while moved and self.running < self.most:
            moved = False
            for partition, page in list(self._pages.items()):
                if self.running < self.most and self._fits(page):
                    # to the end of the round: a busy partition must not take every free place
                    self._pages[partition] = self._pages.pop(partition)
                    offset, item = page.waiting.popleft()
                    ticket = AckTicket(offset, item, page)
                    page.begun.append(ticket)
                    self.waiting -= 1
                    self.running += 1
                    found.append(ticket)
                    moved = True
        return found

    def _fits(self, page: _PartitionWindow[T]) -> bool:
        if not page.waiting:
            return False
        return not page.begun or page.waiting[0][0] - page.begun[0].offset < self.most

    def finish(self, ticket: AckTicket[T]) -> list[T]:
        """The handler has done all it had to. What may be acknowledged by that, in this order."""
        self.running -= 1
        ticket.finished = True
        begun = ticket.page.begun
        done: list[T] = []
        while not ticket.page.closed and begun and begun[0].finished:
            done.append(begun.popleft().item)
        return done

    def fail(self, ticket: AckTicket[T]) -> None:
        """The handler has ended without having done it: nothing behind it is ever acknowledged."""
        self.running -= 1

    def hold(self) -> list[T]:
        """The group is about to form anew: what is under way is still to be acknowledged, what
        waits is dropped (and returned), and in this generation nothing more is taken."""
        self._held = self._generation
        dropped = [item for page in self._pages.values() for _, item in page.waiting]
        for page in self._pages.values():
            page.waiting.clear()
        self.waiting = 0
        return dropped

    def close(self, partitions: Iterable[int]) -> None:
        """These are no longer ours: what waits is dropped, what is under way is never acked."""
        for partition in partitions:
            page = self._pages.pop(partition, None)
            if page is not None:
                page.closed = True
                self.waiting -= len(page.waiting)
                page.waiting.clear()

    def oldest(self) -> dict[int, int]:
        """The oldest offset of each partition that is not acknowledged; for a diagnosis."""
        return {
            partition: page.begun[0].offset if page.begun else page.waiting[0][0]
            for partition, page in self._pages.items()
            if page.begun or page.waiting
        }


class OrderedAcks(Generic[T]):
    """The book with handlers as tasks of the running loop.

    `ack` is called one at a time, in order. The first exception of a handler or of `ack` ends all:
    `failed` is told once, nothing is acknowledged any more, and `submit` raises it.
    """

    def __init__(
        self,
        most: int,
        handle: Callable[[T], Awaitable[None]],
        ack: Callable[[T], Awaitable[object]],
        failed: Callable[[BaseException], Awaitable[object]],
    ) -> None:
        self.book: AckBook[T] = AckBook(most)
        self._handle = handle
        self._ack = ack
        self._failed = failed
        self._moved = asyncio.Event()
        self._done: deque[tuple[AckTicket[T], T]] = deque()
        self._acking = False
        self._tasks: set[asyncio.Task[None]] = set()
        self.error: BaseException | None = None

    async def submit(self, partition: int, generation: int, offset: int, item: T) -> bool:
        """Take an item in; waits while K others wait for their turn. False: see `AckBook.put`."""
        while self.book.waiting >= self.book.most and self.error is None:
            await self._wait()
        if self.error is not None:
            raise self.error
        taken = self.book.put(partition, generation, offset, item)
        self._begin()
        return taken

    def hold(self) -> list[T]:
        """See `AckBook.hold`."""
        dropped = self.book.hold()
        self._moved.set()
        return dropped

    def close(self, partitions: Iterable[int]) -> None:
        """These partitions were revoked."""
        self.book.close(partitions)
        self._moved.set()

    async def idle(self) -> None:
        """Return when nothing waits and nothing is under way, or something has failed."""
        while (self.book.running or self.book.waiting or self._acking) and self.error is None:
            await self._wait()

    async def stop(self) -> None:
        """Cancel what is under way; nothing of it is acknowledged."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _wait(self) -> None:
        self._moved.clear()
        await self._moved.wait()

    def _begin(self) -> None:
        if self.error is None:
            for ticket in self.book.take():
                task = asyncio.ensure_future(self._run(ticket))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)

    async def _run(self, ticket: AckTicket[T]) -> None:
        try:
            await self._handle(ticket.item)
        except BaseException as error:  # a cancelled handler has not done its work either
            self.book.fail(ticket)
            await self._fail(error)
            return
        self._done.extend((ticket, item) for item in self.book.finish(ticket))
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
                if not ticket.page.closed:
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


_LOG_APPEND = 1  # a message's time is that of the broker


def arrival_time(message: Any, now: float) -> float | None:
    """When a message came to the broker: by its clock and not by ours, for whoever scores it again
    should find the same. Where the time is the producer's, whose clock may be that of the trace, it
    cannot be later than now."""
    if not message.timestamp:
        return None
    found = float(message.timestamp)
    return found if message.timestamp_type == _LOG_APPEND else min(found, now)


class AckedProcessor(ABC):
    """`in_flight` is K of `ragmeter.kafka.processors.acknowledged`. `failed` ends the worker."""

    def __init__(
        self,
        dead: DeadLetterTopic,
        counters: Counters,
        *,
        in_flight: int,
        failed: Callable[[BaseException], Awaitable[object]],
    ) -> None:
        self._dead = dead
        self._counters = counters
        self._in_flight = in_flight
        self._failed = failed
        self._acks: OrderedAcks[EventT[Any]] | None = None

    @abstractmethod
    async def _handle(self, event: EventT[Any]) -> None:
        """Returns when what came of the message is delivered."""

    async def agent(self, stream: StreamT[Any]) -> None:
        """The body of the Faust agent: one actor, own acks."""
        assert isinstance(stream, Stream)
        stream = stream.noack()
        acks = self._acks = OrderedAcks(self._in_flight, self._handle, stream.ack, self._failed)
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
            await self._failed(error)
            raise

    def hold(self) -> None:
        """The group is about to form anew, and waits for what is under way: not for what waits for
        a place behind that, which could take as long again."""
        if self._acks is not None:
            for event in self._acks.hold():
                discard_messages(event.app, [event.message])

    def release(self) -> None:
        """All partitions were revoked."""
        if self._acks is not None:
            self._acks.close(list(self._acks.book.oldest()))

    @property
    def waiting(self) -> int:
        return self._acks.book.waiting + self._acks.book.running if self._acks else 0

    async def _send_dead_letter(
        self, event: EventT[Any], reason: str, errors: tuple[tuple[str, str], ...]
    ) -> None:
        await self._dead.send(event, reason, errors)
        self._counters.inc("ragmeter_dead_letters_total", (("reason", reason),))
