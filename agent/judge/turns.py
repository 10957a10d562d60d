"""When a server may be asked again, and what attempts say of it: concurrency, breaker, the pauses
that it asks for. One for each endpoint; a judge's and that of embeddings are the same."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

from agent.judge.attempt import Outcome
from agent.judge.breaker import Breaker, Ticket
from agent.judge.exchange import Miss
from agent.judge.gate import Gate
from agent.judge.limiter import Limiter

__all__ = ["TRANSIENT", "Turn", "Turns"]

R = TypeVar("R")

TRANSIENT: frozenset[Outcome] = frozenset({"timeout", "rate_limited", "server_error", "connection"})
OVERLOAD: frozenset[Outcome] = frozenset({"timeout", "rate_limited"})

# So long after an answer, key and address of a server are taken to be right.
TRUSTED_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Turn:
    """One attempt's: of the breaker, and of the limiter."""

    ticket: Ticket
    round: int


class Turns:
    """`concurrency` attempts at most at a time. Clocks in seconds."""

    def __init__(
        self,
        concurrency: int,
        monotonic: Callable[[], float],
        sleep: Callable[[float], Awaitable[None]],
    ) -> None:
        self._monotonic = monotonic
        self._sleep = sleep
        self.limiter = Limiter(concurrency)
        self.breaker = Breaker(concurrency, monotonic)
        self.gate = Gate(self.breaker, sleep)
        self._held_until = float("-inf")
        self._worked = float("-inf")

    @property
    def is_down(self) -> bool:
        """Whether the circuit breaker is open."""
        return self.breaker.is_open

    @property
    def takes_trial(self) -> bool:
        """Whether the server is down and a call would find out now if it still is."""
        return self.breaker.is_open and not self.breaker.refuses

    async def take(self, attempt: Callable[[Turn], Awaitable[R]]) -> R | None:
        """What `attempt` returns, when it is its turn; it says `succeeded` or `missed`. None: the
        server is given up, and nothing was sent."""
        while await self.gate.passed():
            round_ = await self.limiter.acquire()
            try:
                while not self.breaker.refuses and (wait := self._held()) > 0:
                    await self._sleep(wait)
                ticket = self.breaker.enter()
                if ticket is not None:
                    return await self._entered(attempt, Turn(ticket, round_))
            finally:
                self.limiter.release()
        return None

    def _held(self) -> float:
        return self._held_until - self._monotonic()

    async def _entered(self, attempt: Callable[[Turn], Awaitable[R]], turn: Turn) -> R:
        try:
            return await attempt(turn)
        except BaseException:
            self.breaker.abandoned(turn.ticket)
            raise
        finally:
            self.gate.changed()

    def succeeded(self, turn: Turn, *, trusted: bool = True) -> None:
        """The server did its work. `trusted`: it shows that key and address are right."""
        self.breaker.succeeded(turn.ticket)
        self.limiter.succeeded()
        if trusted:
            self._worked = self._monotonic()

    def missed(self, turn: Turn, miss: Miss) -> bool:
        """Whether the breaker opens now."""
        now = self._monotonic()
        if miss.outcome in OVERLOAD:
            self.limiter.overloaded(turn.round)
        if miss.retry_after is not None and miss.status in (429, 503):
            self._held_until = max(self._held_until, now + miss.retry_after)
        # a firewall may answer 403 or 404 to the text of one trace, a key is wrong for all
        by_text = miss.status not in (401, 402, 429) and now - self._worked < TRUSTED_SECONDS
        if miss.hopeless and not by_text:
            return self.breaker.hopeless(turn.ticket)
        if miss.outcome == "rate_limited":
            return self.breaker.limited(turn.ticket)
        return self.breaker.failed(turn.ticket)
