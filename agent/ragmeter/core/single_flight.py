"""One call for all that ask for the same at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from ragmeter.core.tiers import ScoringCost

V = TypeVar("V")


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
