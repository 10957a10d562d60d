"""When a server may be asked: adaptive concurrency limit, circuit breaker and the queue in front of it.

When a server may be asked again, and what attempts say of it: concurrency, breaker, the pauses
that it asks for. One for each endpoint; a judge's and that of embeddings are the same.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeVar

from ragmeter.scorers.llm.billing import AttemptOutcome
from ragmeter.scorers.llm.exchange import FailedAttempt


class ConcurrencyLimiter:
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


_BreakerTicket = int
"""Permission for one attempt; its result is reported with it."""

# Fewer attempts than this open nothing: one trace alone makes about 16 calls.
MIN_ATTEMPTS = 10

# Older results say nothing of now.
_MAX_AGE = 600.0

# Seconds before the first trial, and at most between trials that fail.
FIRST_PAUSE, LONGEST_PAUSE = 5.0, 60.0

# So many seconds of outage are worth waiting for: a restart or a new version of a server takes
# less, and traces that wait for longer hold up all others.
PATIENCE = 60.0


class CircuitBreaker:
    """Closed, open, or half open with one trial at a time.

    It opens where half of the last attempts failed (as many attempts as four rounds of everything
    in flight, at least 10), or where none of the last two rounds succeeded; the second rule counts
    answers of "too many requests" as well, which are no failures otherwise. After a pause one
    trial is let through: its success closes the breaker, its failure doubles the pause. A judge is
    given up where a trial fails after `PATIENCE` seconds, which are never slept through, or where
    a failure is hopeless.
    """

    def __init__(self, concurrency: int, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._window = max(2 * MIN_ATTEMPTS, 4 * concurrency)
        self._barren = max(MIN_ATTEMPTS, 2 * concurrency)
        self._results: deque[tuple[float, str]] = deque()
        self._counts = {"ok": 0, "failed": 0, "limited": 0}
        self._generation = 0
        self._open_until: float | None = None
        self._opened = 0.0
        self._lost = False
        self._patience = PATIENCE
        self._pause = FIRST_PAUSE
        self._trial = False

    @property
    def refuses(self) -> bool:
        """Whether an attempt would be turned away now."""
        if self._open_until is None:
            return False
        return self._trial or self._monotonic() < self._open_until

    @property
    def is_open(self) -> bool:
        """Whether the judge counts as down, trials or not."""
        return self._open_until is not None

    @property
    def lost(self) -> bool:
        """Whether the judge is down and not worth waiting for."""
        return self._lost

    @property
    def until_trial(self) -> float | None:
        """Seconds until a trial may be made, at least 0; none where nobody needs to wait for that
        time: the breaker is closed, or a trial is out."""
        if self._open_until is None or self._trial:
            return None
        return max(0.0, self._open_until - self._monotonic())

    def enter(self) -> _BreakerTicket | None:
        """A ticket for one attempt, to be given back by one of the methods below; none: refused."""
        if self.refuses:
            return None
        if self._open_until is not None:
            self._trial = True
        return self._generation

    def succeeded(self, ticket: _BreakerTicket) -> None:
        if ticket != self._generation:
            return  # an attempt from before the breaker opened: it says nothing of now
        if self._open_until is not None:
            self._close()
        else:
            self._add("ok")

    def failed(self, ticket: _BreakerTicket) -> bool:
        """Whether this opened the breaker."""
        return self._bad(ticket, "failed")

    def rate_limited(self, ticket: _BreakerTicket) -> bool:
        """Told to come back later. Whether this opened the breaker."""
        return self._bad(ticket, "limited")

    def failed_for_all(self, ticket: _BreakerTicket) -> bool:
        """A failure that every call will meet: opens at once."""
        if ticket != self._generation:
            return False
        self._open()
        self._lost = True
        return True

    def abandoned(self, ticket: _BreakerTicket) -> None:
        """The attempt ended without a result."""
        if ticket == self._generation:
            self._trial = False

    def _bad(self, ticket: _BreakerTicket, kind: str) -> bool:
        if ticket != self._generation:
            return False
        if self._open_until is not None:
            return self._open()
        self._add(kind)
        ok, failed = self._counts["ok"], self._counts["failed"]
        rate = ok + failed >= MIN_ATTEMPTS and failed >= ok
        barren = not any(kind == "ok" for kind in self._last(self._barren))
        return self._open() if rate or barren else False

    def _last(self, number: int) -> list[str]:
        if len(self._results) < number:
            return ["ok"]  # not enough to judge by
        return [self._results[-i][1] for i in range(1, number + 1)]

    def _add(self, kind: str) -> None:
        now = self._monotonic()
        self._results.append((now, kind))
        self._counts[kind] += 1
        while len(self._results) > self._window or self._results[0][0] < now - _MAX_AGE:
            self._counts[self._results.popleft()[1]] -= 1

    def _open(self) -> bool:
        now = self._monotonic()
        if self._open_until is None:
            self._pause, self._opened = FIRST_PAUSE, now
        end = self._opened + self._patience
        self._open_until = now + self._pause
        if now >= end:
            self._lost = True
        elif not self._lost:
            self._open_until = min(self._open_until, end)  # one more before it is given up
        self._pause = min(self._pause * 2, LONGEST_PAUSE)
        self._trial = False
        self._generation += 1
        return True

    def _close(self) -> None:
        self._open_until = None
        self._lost = False
        self._trial = False
        self._generation += 1
        self._results.clear()
        self._counts = dict.fromkeys(self._counts, 0)


class BreakerQueue:
    """Where calls wait while the breaker is open, in the order in which they came.

    One sleep until the next trial is shared by all. Who is woken looks again: the first that gets
    a slot makes the trial, the others go on waiting. `sleep` takes seconds.
    """

    def __init__(self, breaker: CircuitBreaker, sleep: Callable[[float], Awaitable[None]]) -> None:
        self._breaker = breaker
        self._sleep = sleep
        self._waiters: dict[asyncio.Future[None], None] = {}  # a set that keeps the order
        self._timer: asyncio.Task[None] | None = None

    async def wait(self) -> bool:
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

    def notify(self) -> None:
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
        self.notify()


R = TypeVar("R")

TRANSIENT_OUTCOMES: frozenset[AttemptOutcome] = frozenset(
    {"timeout", "rate_limited", "server_error", "connection"}
)
_OVERLOAD_OUTCOMES: frozenset[AttemptOutcome] = frozenset({"timeout", "rate_limited"})

# So long after an answer, key and address of a server are taken to be right.
_TRUSTED_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class AttemptPermit:
    """One attempt's: of the breaker, and of the limiter."""

    ticket: _BreakerTicket
    round: int


class AdmissionControl:
    """`concurrency` attempts at most at a time. Clocks in seconds."""

    def __init__(
        self,
        concurrency: int,
        monotonic: Callable[[], float],
        sleep: Callable[[float], Awaitable[None]],
    ) -> None:
        self._monotonic = monotonic
        self._sleep = sleep
        self.limiter = ConcurrencyLimiter(concurrency)
        self.breaker = CircuitBreaker(concurrency, monotonic)
        self.gate = BreakerQueue(self.breaker, sleep)
        self._hold_until = float("-inf")
        self._worked = float("-inf")

    @property
    def is_down(self) -> bool:
        """Whether the circuit breaker is open."""
        return self.breaker.is_open

    @property
    def takes_trial(self) -> bool:
        """Whether the server is down and a call would find out now if it still is."""
        return self.breaker.is_open and not self.breaker.refuses

    async def run(self, attempt: Callable[[AttemptPermit], Awaitable[R]]) -> R | None:
        """What `attempt` returns, when it is its turn; it says `succeeded` or `missed`. None: the
        server is given up, and nothing was sent."""
        while await self.gate.wait():
            round_ = await self.limiter.acquire()
            try:
                while not self.breaker.refuses and (wait := self._hold_seconds()) > 0:
                    await self._sleep(wait)
                ticket = self.breaker.enter()
                if ticket is not None:
                    return await self._run_attempt(attempt, AttemptPermit(ticket, round_))
            finally:
                self.limiter.release()
        return None

    def _hold_seconds(self) -> float:
        return self._hold_until - self._monotonic()

    async def _run_attempt(
        self, attempt: Callable[[AttemptPermit], Awaitable[R]], turn: AttemptPermit
    ) -> R:
        try:
            return await attempt(turn)
        except BaseException:
            self.breaker.abandoned(turn.ticket)
            raise
        finally:
            self.gate.notify()

    def succeeded(self, turn: AttemptPermit, *, trusted: bool = True) -> None:
        """The server did its work. `trusted`: it shows that key and address are right."""
        self.breaker.succeeded(turn.ticket)
        self.limiter.succeeded()
        if trusted:
            self._worked = self._monotonic()

    def failed(self, turn: AttemptPermit, miss: FailedAttempt) -> bool:
        """Whether the breaker opens now."""
        now = self._monotonic()
        if miss.outcome in _OVERLOAD_OUTCOMES:
            self.limiter.overloaded(turn.round)
        if miss.retry_after is not None and miss.status in (429, 503):
            self._hold_until = max(self._hold_until, now + miss.retry_after)
        # a firewall may answer 403 or 404 to the text of one trace, a key is wrong for all
        by_text = miss.status not in (401, 402, 429) and now - self._worked < _TRUSTED_SECONDS
        if miss.hopeless and not by_text:
            return self.breaker.failed_for_all(turn.ticket)
        if miss.outcome == "rate_limited":
            return self.breaker.rate_limited(turn.ticket)
        return self.breaker.failed(turn.ticket)
