"""The ordered-ack window: many slow handlers at once, acknowledged strictly in offset order.

It makes two promises. An offset is acknowledged only when it and all before it in its partition
are finished: a redelivery after a crash then brings every unfinished one. And the handler of
offset m does not begin before all up to m - K are finished: what a handler sends downstream can
then be told from a repetition by a window of K offsets (`agent.kafka.state.replay_guard`).

Both are promises per consumer generation. After a rebalance the same offset may come again while
its old handler still runs; the old one then belongs to a closed book and is never acknowledged.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

__all__ = ["AckBook", "OrderedAcks", "Ticket"]

T = TypeVar("T")


@dataclass(slots=True, eq=False)
class Ticket(Generic[T]):
    """An item that its handler may begin with."""

    offset: int
    item: T
    page: _Page[T]
    finished: bool = False


@dataclass(slots=True, eq=False)
class _Page(Generic[T]):
    """One partition in one generation: what waits, what is under way or behind one that is."""

    newest: int = -1
    waiting: deque[tuple[int, T]] = field(default_factory=deque)
    begun: deque[Ticket[T]] = field(default_factory=deque)
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
        self._pages: dict[int, _Page[T]] = {}

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
            page = self._pages[partition] = _Page()
        page.newest = offset
        page.waiting.append((offset, item))
        self.waiting += 1
        return True

    def take(self) -> list[Ticket[T]]:
        """What may begin now; one of each partition in turn."""
        found: list[Ticket[T]] = []
        moved = True
        while moved and self.running < self.most:
            moved = False
            for partition, page in list(self._pages.items()):
                if self.running < self.most and self._fits(page):
                    # to the end of the round: a busy partition must not take every free place
                    self._pages[partition] = self._pages.pop(partition)
                    offset, item = page.waiting.popleft()
                    ticket = Ticket(offset, item, page)
                    page.begun.append(ticket)
                    self.waiting -= 1
                    self.running += 1
                    found.append(ticket)
                    moved = True
        return found

    def _fits(self, page: _Page[T]) -> bool:
        if not page.waiting:
            return False
        return not page.begun or page.waiting[0][0] - page.begun[0].offset < self.most

    def finish(self, ticket: Ticket[T]) -> list[T]:
        """The handler has done all it had to. What may be acknowledged by that, in this order."""
        self.running -= 1
        ticket.finished = True
        begun = ticket.page.begun
        done: list[T] = []
        while not ticket.page.closed and begun and begun[0].finished:
            done.append(begun.popleft().item)
        return done

    def fail(self, ticket: Ticket[T]) -> None:
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
        self._done: deque[tuple[Ticket[T], T]] = deque()
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

    async def _run(self, ticket: Ticket[T]) -> None:
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
