"""Waiting for a judge that is down: nobody asks it meanwhile, and nobody gives up too soon."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from agent.judge.breaker import Breaker

__all__ = ["Gate"]


class Gate:
    """Where calls wait while the breaker is open, in the order in which they came.

    One sleep until the next trial is shared by all. Who is woken looks again: the first that gets
    a slot makes the trial, the others go on waiting. `sleep` takes seconds.
    """

    def __init__(self, breaker: Breaker, sleep: Callable[[float], Awaitable[None]]) -> None:
        self._breaker = breaker
        self._sleep = sleep
        self._waiters: dict[asyncio.Future[None], None] = {}  # a set that keeps the order
        self._timer: asyncio.Task[None] | None = None

    async def passed(self) -> bool:
        """Wait until an attempt may be made; false: the judge is down and given up."""
        while self._breaker.refuses:
            if self._breaker.lost:
                return False
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiters[waiter] = None
            self._set_timer()
            try:
                await waiter
            finally:
                self._waiters.pop(waiter, None)
                if not self._waiters:
                    self._stop_timer()
        return True

    def changed(self) -> None:
        """The breaker was told something: whoever waits looks again."""
        if not self._waiters:
            return
        self._stop_timer()
        waiters, self._waiters = self._waiters, {}
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    def _set_timer(self) -> None:
        seconds = self._breaker.until_trial
        # none: a trial is out, whose end is told by `changed`
        if self._timer is None and seconds is not None:
            self._timer = asyncio.get_running_loop().create_task(self._ring(seconds))

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    async def _ring(self, seconds: float) -> None:
        await self._sleep(seconds)
        self._timer = None
        self.changed()
