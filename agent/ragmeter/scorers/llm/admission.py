"""Admission of attempts to a server: adaptive concurrency, a circuit breaker, and its queue.

Every endpoint of a judge has one `AdmissionControl`.
"""

from __future__ import annotations

import asyncio
import heapq
import math
from collections import deque
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from dataclasses import dataclass
from itertools import islice
from typing import TypeVar

from ragmeter.core.retries import backoff_seconds
from ragmeter.scorers.llm.billing import AttemptOutcome
from ragmeter.scorers.llm.replies import FailedAttempt

# Fewer attempts than this open nothing: one trace alone makes about 16 calls.
MIN_ATTEMPTS = 10

# Older results do not describe the server as it is now.
_MAX_AGE_SECONDS = 600.0

# Seconds before the first trial, and at most between trials that fail.
FIRST_PAUSE = 5.0
LONGEST_PAUSE = 60.0

# Seconds of outage that are worth waiting for: a restart or a new version of a server takes less,
# and traces that wait for longer hold up all others.
PATIENCE = 60.0

# Seconds after an answer in which key and address of a server are taken to be right.
_TRUSTED_SECONDS = 60.0

TRANSIENT_OUTCOMES: frozenset[AttemptOutcome] = frozenset(
    {"timeout", "rate_limited", "server_error", "connection"}
)
_OVERLOAD_OUTCOMES: frozenset[AttemptOutcome] = frozenset({"timeout", "rate_limited"})
_OVERLOAD_STATUSES = frozenset({503, 529})  # 529: overloaded, at Anthropic

# Attempts in flight that any server is trusted with at first.
START_SLOTS = 16

# Slots that a success adds, so a quarter more a round: seven rounds from 16 to 64. Of a round that
# goes too far at most a fifth is refused, which the retry budget can pay for.
_FAST_GROWTH = 0.25
# Slots that a round of successes adds near the size that failed last, from this share of it on: an
# attempt in a thousand is refused where the server takes 24.
_SLOW_GROWTH = 0.1
_NEAR_FAILED = 0.75

# Answers that take half as long again mean that they wait for one another: Gradient2's default.
_LATENCY_TOLERANCE = 1.5
# Answers that the latency with few attempts in flight is an average of.
_LATENCY_MEMORY = 50

# When the trace began that attempts are made for: the oldest is finished first. Else a trace would
# queue behind all others with each of its rounds of questions.
TRACE_BEGUN: ContextVar[float] = ContextVar("trace_begun", default=0.0)

R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Slot:
    """A place among the attempts in flight: the limiter's round, and how many there were."""

    round: int
    load: int


class LatencyRise:
    """The rise of the latency of answers over that with few attempts in flight.

    Latencies are compared with those of the same kind of question, as logarithms: one slow answer
    does not count for many.
    """

    def __init__(self) -> None:
        self._quiet: dict[str, tuple[float, int]] = {}  # by kind: mean logarithm, samples
        self._last = 0.0  # logarithm of the rise of the last round
        self.reset()

    def reset(self) -> None:
        """Begin another round."""
        self._sum = 0.0
        self.samples = 0

    def add(self, kind: str, seconds: float, *, quiet: bool) -> None:
        """Take in an answer; `quiet`: it was sent while few attempts were in flight."""
        value = math.log(max(seconds, 1e-6))
        known = self._quiet.get(kind)
        if known is None:
            # first seen under load: what it would have taken without
            self._quiet[kind] = (value - (0.0 if quiet else self._last), 1)
        elif quiet:
            mean, count = known
            count = min(count + 1, _LATENCY_MEMORY)
            self._quiet[kind] = (mean + (value - mean) / count, count)
        else:
            self._sum += value - known[0]
            self.samples += 1

    def close_round(self) -> float:
        """Return the factor of the round, a geometric mean, and begin another."""
        self._last = self._sum / self.samples
        self.reset()
        return math.exp(self._last)


class ConcurrencyLimiter:
    """A semaphore of adaptive size, which serves the oldest trace first.

    It has `START_SLOTS` at first and looks for as many as the server takes, at most `ceiling`.
    While it is full, a success adds a part of a slot; near the size that failed last hardly any, as
    CUBIC lingers below the window that lost a packet (RFC 9438). An overload halves the size once a
    round: attempts sent before the last cut carry no new information. Where answers take longer
    than they did with few attempts in flight, the size falls in proportion, as in Gradient2 of
    Netflix's concurrency-limits, but not below `START_SLOTS`: a judge that is slow for other
    reasons keeps these.
    """

    def __init__(self, ceiling: int) -> None:
        self._ceiling = ceiling
        self._start = float(min(START_SLOTS, ceiling))
        self._size = self._start
        self._failed = 0.0  # the size that failed last
        self._rise = LatencyRise()
        self._in_flight = 0
        self._waiters: list[tuple[float, int, asyncio.Future[None]]] = []  # a heap
        self._arrivals = 0
        self._round = 0

    @property
    def size(self) -> int:
        """Attempts that may be in flight now."""
        return int(self._size)

    @property
    def capacity_share(self) -> float:
        """The share of the ceiling that the server is thought to take: all, or what failed last."""
        return self._failed / self._ceiling if self._size <= self._failed else 1.0

    @property
    def in_flight(self) -> int:
        """Attempts in flight."""
        return self._in_flight

    @property
    def waiting(self) -> int:
        """Callers that wait for a slot."""
        return len(self._waiters)

    async def acquire(self, rank: float = 0.0) -> Slot:
        """Wait for a slot; those of the lowest rank go first, then the first to come."""
        if self._in_flight < self.size and not self._waiters:
            self._in_flight += 1
            return Slot(self._round, self._in_flight)
        self._arrivals += 1
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        waiter = (rank, self._arrivals, future)
        heapq.heappush(self._waiters, waiter)
        try:
            await future
        except asyncio.CancelledError:
            if future.done() and not future.cancelled():
                self.release()  # the slot was granted already
            elif waiter in self._waiters:  # `_wake` may have removed it first
                self._waiters.remove(waiter)
                heapq.heapify(self._waiters)
            raise
        return Slot(self._round, self._in_flight)

    def release(self) -> None:
        """Give a slot back."""
        self._in_flight -= 1
        self._wake()

    def succeeded(self, slot: Slot, kind: str = "", seconds: float = 0.0) -> None:
        """Grow after a success, if the limiter is full and answers take no longer for it.

        `seconds` passed from sending to answer; they are compared with others of the same `kind`.
        """
        if slot.round == self._round:
            self._rise.add(kind, seconds, quiet=slot.load <= START_SLOTS)
            if self._rise.samples >= self.size:
                factor = self._rise.close_round()
                if factor > _LATENCY_TOLERANCE:
                    self._fall(max(self._start, self._size / factor))
                    return
        if self._in_flight >= self.size and self._size < self._ceiling:
            near = _NEAR_FAILED * self._failed <= self._size <= self._failed
            step = _SLOW_GROWTH / self._size if near else _FAST_GROWTH
            self._size = min(self._size + step, float(self._ceiling))
            self._wake()

    def overloaded(self, slot: Slot) -> None:
        """Halve the size, unless an attempt of the same round has done so."""
        if slot.round == self._round:
            self._fall(max(1.0, self._size / 2))

    def _fall(self, size: float) -> None:
        self._failed = self._size
        self._size = size
        self._round += 1
        self._rise.reset()

    def _wake(self) -> None:
        while self._waiters and self._in_flight < self.size:
            _, _, future = heapq.heappop(self._waiters)
            if not future.done():
                self._in_flight += 1
                future.set_result(None)


@dataclass(frozen=True, slots=True)
class BreakerPolicy:
    """The conditions under which a breaker opens, and how long it stays open.

    Args:
        streak: Attempts in a row without a success that open it.
        window: Last attempts of which half must fail to open it; 0: the streak alone opens it.
        first_pause: Seconds before the first trial.
        longest_pause: Most seconds between trials that fail.
        patience: Seconds of outage after which the server counts as lost.
    """

    streak: int
    window: int = 0
    first_pause: float = FIRST_PAUSE
    longest_pause: float = LONGEST_PAUSE
    patience: float = float("inf")

    @classmethod
    def for_concurrency(cls, concurrency: int) -> BreakerPolicy:
        """Return the policy of a server that takes so many attempts at a time."""
        return cls(
            streak=max(MIN_ATTEMPTS, 2 * concurrency),
            window=max(2 * MIN_ATTEMPTS, 4 * concurrency),
            patience=PATIENCE,
        )


class CircuitBreaker:
    """A breaker that is closed, open, or half open with one trial at a time.

    It opens where half of the last attempts failed, at least `MIN_ATTEMPTS` of them, or where no
    attempt of a streak succeeded. Only the streak counts "too many requests" as a failure. After a
    pause one trial is let through: its success closes the breaker, its failure doubles the pause.
    The server is lost where a trial fails after `patience` seconds, which no pause oversleeps, or
    where a failure is hopeless.

    An attempt needs a ticket of `enter` and gives it back with its result. Results of attempts
    from before the breaker opened or closed are ignored.
    """

    def __init__(self, policy: BreakerPolicy, monotonic: Callable[[], float]) -> None:
        self._policy = policy
        self._monotonic = monotonic
        self._results: deque[tuple[float, str]] = deque()
        self._counts = {"ok": 0, "failed": 0, "limited": 0}
        self._generation = 0
        self._open_until: float | None = None
        self._opened = 0.0
        self._failed_trials = 0
        self._lost = False
        self._trial = False

    @property
    def refuses(self) -> bool:
        """Whether an attempt would be turned away now."""
        if self._open_until is None:
            return False
        return self._trial or self._monotonic() < self._open_until

    @property
    def is_open(self) -> bool:
        """Whether the server counts as down, trials or not."""
        return self._open_until is not None

    @property
    def lost(self) -> bool:
        """Whether the server is down and not worth waiting for."""
        return self._lost

    @property
    def until_trial(self) -> float | None:
        """Seconds until a trial may begin, at least 0; None: closed, or a trial is under way."""
        if self._open_until is None or self._trial:
            return None
        return max(0.0, self._open_until - self._monotonic())

    def enter(self) -> int | None:
        """Return a ticket for one attempt, or None where the breaker refuses it."""
        if self.refuses:
            return None
        self._trial = self._open_until is not None
        return self._generation

    def succeeded(self, ticket: int) -> None:
        """Record a success."""
        if ticket != self._generation:
            return
        if self._open_until is None:
            self._record("ok")
            return
        self._open_until = None
        self._lost = self._trial = False
        self._generation += 1
        self._results.clear()
        self._counts = dict.fromkeys(self._counts, 0)

    def failed(self, ticket: int) -> bool:
        """Record a failure; return whether it opened the breaker."""
        return self._record_failure(ticket, "failed")

    def rate_limited(self, ticket: int) -> bool:
        """Record "too many requests"; return whether it opened the breaker."""
        return self._record_failure(ticket, "limited")

    def failed_for_all(self, ticket: int) -> bool:
        """Open at once after a failure that every call will meet; return whether it did."""
        if ticket != self._generation:
            return False
        self._open()
        self._lost = True
        return True

    def abandoned(self, ticket: int) -> None:
        """Record that the attempt ended without a result."""
        if ticket == self._generation:
            self._trial = False

    def _record_failure(self, ticket: int, kind: str) -> bool:
        if ticket != self._generation:
            return False
        if self._open_until is not None:
            return self._open()
        self._record(kind)
        policy = self._policy
        ok = self._counts["ok"]
        failed = self._counts["failed"]
        half = bool(policy.window) and ok + failed >= MIN_ATTEMPTS and failed >= ok
        last = list(islice(reversed(self._results), policy.streak))
        streak = len(last) == policy.streak and all(kind != "ok" for _, kind in last)
        return self._open() if half or streak else False

    def _record(self, kind: str) -> None:
        now = self._monotonic()
        self._results.append((now, kind))
        self._counts[kind] += 1
        most = max(self._policy.window, self._policy.streak)
        oldest = now - _MAX_AGE_SECONDS
        while len(self._results) > most or self._results[0][0] < oldest:
            self._counts[self._results.popleft()[1]] -= 1

    def _open(self) -> bool:
        now = self._monotonic()
        policy = self._policy
        if self._open_until is None:
            self._failed_trials = 0
            self._opened = now
        pause = backoff_seconds(self._failed_trials, None, policy.first_pause, policy.longest_pause)
        self._open_until = now + pause
        end = self._opened + policy.patience
        if now >= end:
            self._lost = True
        elif not self._lost:
            self._open_until = min(self._open_until, end)  # one more trial before it is given up
        self._failed_trials += 1
        self._trial = False
        self._generation += 1
        return True


class BreakerQueue:
    """Calls that wait while the breaker is open, in the order of their arrival.

    All of them share one sleep until the next trial. A call that wakes looks again: the first one
    makes the trial, the others go on waiting.
    """

    def __init__(self, breaker: CircuitBreaker, sleep: Callable[[float], Awaitable[None]]) -> None:
        self._breaker = breaker
        self._sleep = sleep
        self._waiters: dict[asyncio.Future[None], None] = {}  # an ordered set
        self._timer: asyncio.Task[None] | None = None

    async def wait(self) -> bool:
        """Wait until an attempt may begin; return False where the server is lost."""
        while self._breaker.refuses:
            if self._breaker.lost:
                return False
            loop = asyncio.get_running_loop()
            waiter: asyncio.Future[None] = loop.create_future()
            self._waiters[waiter] = None
            seconds = self._breaker.until_trial
            # None: a trial is under way, and `notify` follows its end
            if self._timer is None and seconds is not None:
                self._timer = loop.create_task(self._ring(seconds))
            try:
                await waiter
            finally:
                self._waiters.pop(waiter, None)
                if not self._waiters:
                    self._stop_timer()
        return True

    def notify(self) -> None:
        """Let every waiting call look again, as the breaker has got a result."""
        if not self._waiters:
            return
        self._stop_timer()
        waiters, self._waiters = self._waiters, {}
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    async def _ring(self, seconds: float) -> None:
        await self._sleep(seconds)
        self._timer = None
        self.notify()


@dataclass(frozen=True, slots=True)
class AttemptPermit:
    """Permission for one attempt: the breaker's ticket, the slot, and when it was given."""

    ticket: int
    slot: Slot
    begun: float


class AdmissionControl:
    """Limiter, breaker and queue of one server, for at most `concurrency` attempts at a time."""

    def __init__(
        self,
        concurrency: int,
        monotonic: Callable[[], float],
        sleep: Callable[[float], Awaitable[None]],
    ) -> None:
        self._monotonic = monotonic
        self._sleep = sleep
        self.limiter = ConcurrencyLimiter(concurrency)
        # by the slots at the start: a server that hangs must not fail 128 times before it is left
        policy = BreakerPolicy.for_concurrency(self.limiter.size)
        self.breaker = CircuitBreaker(policy, monotonic)
        self.queue = BreakerQueue(self.breaker, sleep)
        self._hold_until = float("-inf")
        self._last_success = float("-inf")

    @property
    def takes_trial(self) -> bool:
        """Whether the server is down and a call would find out now if it still is."""
        return self.breaker.is_open and not self.breaker.refuses

    async def run(self, attempt: Callable[[AttemptPermit], Awaitable[R]]) -> R | None:
        """Run `attempt` when it is admitted; it reports `succeeded` or `failed`.

        Returns:
            What `attempt` returns; None where the server is lost and nothing was sent.
        """
        while await self.queue.wait():
            slot = await self.limiter.acquire(TRACE_BEGUN.get())
            try:
                while not self.breaker.refuses:
                    hold = self._hold_until - self._monotonic()
                    if hold <= 0:
                        break
                    await self._sleep(hold)
                ticket = self.breaker.enter()
                if ticket is not None:
                    permit = AttemptPermit(ticket, slot, self._monotonic())
                    return await self._run_attempt(attempt, permit)
            finally:
                self.limiter.release()
        return None

    async def _run_attempt(
        self, attempt: Callable[[AttemptPermit], Awaitable[R]], permit: AttemptPermit
    ) -> R:
        try:
            return await attempt(permit)
        except BaseException:
            self.breaker.abandoned(permit.ticket)
            raise
        finally:
            self.queue.notify()

    def succeeded(self, permit: AttemptPermit, kind: str = "", *, trusted: bool = True) -> None:
        """Record that the server did its work.

        Latencies are compared by `kind` of question. A `trusted` reply proves that key and address
        are right.
        """
        now = self._monotonic()
        self.breaker.succeeded(permit.ticket)
        self.limiter.succeeded(permit.slot, kind, now - permit.begun)
        if trusted:
            self._last_success = now

    def failed(self, permit: AttemptPermit, failure: FailedAttempt) -> bool:
        """Record a failure; return whether it opened the breaker."""
        now = self._monotonic()
        if failure.outcome in _OVERLOAD_OUTCOMES or failure.status in _OVERLOAD_STATUSES:
            self.limiter.overloaded(permit.slot)
        if failure.retry_after is not None and failure.status in (429, 503):
            self._hold_until = max(self._hold_until, now + failure.retry_after)
        # a firewall may answer 403 or 404 to the text of one trace; a key is wrong for all
        recent = now - self._last_success < _TRUSTED_SECONDS
        about_text = recent and failure.status not in (401, 402, 429)
        if failure.hopeless and not about_text:
            return self.breaker.failed_for_all(permit.ticket)
        if failure.outcome == "rate_limited":
            return self.breaker.rate_limited(permit.ticket)
        return self.breaker.failed(permit.ticket)
