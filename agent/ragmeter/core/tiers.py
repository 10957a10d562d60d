"""The sampled scoring tiers: their names, scorer protocols, costs and shared work."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Generic, Literal, Protocol, TypeVar, runtime_checkable

from ragmeter.core.judging import JudgeUse
from ragmeter.core.score import Score
from ragmeter.trace import Trace

# `builtin` brings its results at once, `model` and `judge` later.
Tier = Literal["builtin", "model", "judge"]
TIERS: tuple[Tier, ...] = ("builtin", "model", "judge")

MetricScorer = tuple[str, str]  # (metric, scorer)

V = TypeVar("V")


@dataclass(slots=True)
class ScoringCost:
    """The cost of scoring a trace, failed attempts included.

    Args:
        usd: Price of the tokens in US dollars.
        seconds: Sum of the times that calls were in flight or cores were busy: two calls side by
            side for one second are two seconds.
        uses: What each judge was used for.
    """

    requests: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    usd: float = 0.0
    seconds: float = 0.0
    uses: dict[str, JudgeUse] = field(default_factory=dict, compare=False)

    def use(self, judge: str) -> JudgeUse:
        """Return what a judge was used for, to add to."""
        return self.uses.setdefault(judge, JudgeUse())

    def add(self, other: ScoringCost) -> None:
        """Add another cost to this one."""
        self.requests += other.requests
        self.input_tokens += other.input_tokens
        self.output_tokens += other.output_tokens
        self.usd += other.usd
        self.seconds += other.seconds
        for judge, use in other.uses.items():
            self.use(judge).add(use)


@dataclass(slots=True)
class _Flight(Generic[V]):
    cost: ScoringCost = field(default_factory=ScoringCost)
    task: asyncio.Task[V] | None = None
    waiters: int = 0
    paid: bool = False


class SingleFlight(Generic[V]):
    """Runs work for a key once at a time; waiters share a failure as they share a result.

    The work goes on while one of its waiters does and is cancelled with the last. The first waiter
    that is still there at its end pays.
    """

    def __init__(self) -> None:
        self._flights: dict[bytes, _Flight[V]] = {}

    def __len__(self) -> int:
        return len(self._flights)

    async def run(
        self, key: bytes, work: Callable[[ScoringCost], Awaitable[V]], cost: ScoringCost
    ) -> tuple[V, bool]:
        """Return the result of the work for a key, and whether another caller began it."""
        flight = self._flights.get(key)
        joined = flight is not None
        if flight is None:
            flight = self._flights[key] = _Flight()
            flight.task = asyncio.get_running_loop().create_task(self._work(key, flight, work))
        task = flight.task
        if task is None:
            raise RuntimeError("task is missing")
        flight.waiters += 1
        try:
            return await asyncio.shield(task), joined
        finally:
            flight.waiters -= 1
            if task.done():
                if not flight.paid:
                    flight.paid = True
                    cost.add(flight.cost)
            elif flight.waiters == 0:
                self._forget(key, flight)  # before it ends: nobody may join a cancelled flight
                task.cancel()

    async def _work(
        self, key: bytes, flight: _Flight[V], work: Callable[[ScoringCost], Awaitable[V]]
    ) -> V:
        try:
            return await work(flight.cost)
        finally:
            self._forget(key, flight)

    def _forget(self, key: bytes, flight: _Flight[V]) -> None:
        if self._flights.get(key) is flight:
            del self._flights[key]


class TierScorer(Protocol):
    """A scorer of the `model` or `judge` tier, given only the traces that its tier has drawn.

    It leaves inclusion probabilities to its caller. It may also be a `PausableScorer`.
    """

    @property
    def tier(self) -> Tier:
        """Its tier."""

    @property
    def pairs(self) -> Sequence[MetricScorer]:
        """The pairs that it scores."""

    async def score(self, trace: Trace, cost: ScoringCost) -> list[Score]:
        """Score a trace, many of them side by side, without blocking the event loop.

        The cost of the call is added to `cost`.

        Returns:
            At most one score for each pair. A pair that is left out, and every pair if it raises,
            is `unscored` with the reason `internal_error`.
        """


@runtime_checkable
class PausableScorer(Protocol):
    """A `TierScorer` that knows whether traces should wait for it."""

    @property
    def paused(self) -> bool:
        """Whether its server is down."""

    @property
    def trying(self) -> bool:
        """Whether it is paused, and one trace sent now would tell if its server is back."""


@runtime_checkable
class ReferenceMeasurer(Protocol):
    """A `TierScorer` that measures what the reference of a canary cannot say by itself."""

    async def measure(self, trace: Trace, cost: ScoringCost) -> Trace:
        """Return the trace with what was measured in its reference; other traces as they are."""
