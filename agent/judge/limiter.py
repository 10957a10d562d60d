"""How many attempts are in flight: at most a ceiling, fewer while the server is overloaded."""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import suppress

__all__ = ["Limiter"]


class Limiter:
    """A semaphore whose size adapts: additive increase, multiplicative decrease.

    A success of a full limiter adds 1 / size, one more slot a round; an overload halves the size,
    once a round: attempts that were sent before the last cut tell nothing new. Waiters are served
    in the order in which they came. It starts at the ceiling.
    """

    def __init__(self, ceiling: int) -> None:
        self._ceiling = ceiling
        self._size = float(ceiling)
        self._in_flight = 0
        self._waiters: deque[asyncio.Future[None]] = deque()
        self._round = 0

    @property
    def size(self) -> int:
        return int(self._size)

    @property
    def in_flight(self) -> int:
        return self._in_flight

    @property
    def waiting(self) -> int:
        return len(self._waiters)

    async def acquire(self) -> int:
        """Waits for a slot. Gives the round, which `overloaded` takes."""
        if self._in_flight < self.size and not self._waiters:
            self._in_flight += 1
            return self._round
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        try:
            await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled():
                self.release()  # the slot was ours already
            else:
                with suppress(ValueError):  # `_wake` may have met it first
                    self._waiters.remove(waiter)
            raise
        return self._round

    def release(self) -> None:
        self._in_flight -= 1
        self._wake()

    def succeeded(self) -> None:
        if self._in_flight >= self.size and self._size < self._ceiling:
            self._size = min(self._size + 1 / self._size, float(self._ceiling))
            self._wake()

    def overloaded(self, round_: int) -> None:
        if round_ == self._round:
            self._round += 1
            self._size = max(1.0, self._size / 2)

    def _wake(self) -> None:
        while self._waiters and self._in_flight < self.size:
            waiter = self._waiters.popleft()
            if not waiter.done():
                self._in_flight += 1
                waiter.set_result(None)
