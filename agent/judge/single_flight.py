"""Equal requests at the same time share one call."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from agent.tiers import Cost

__all__ = ["SingleFlight"]

V = TypeVar("V")


@dataclass(slots=True)
class _Flight(Generic[V]):
    cost: Cost = field(default_factory=Cost)
    task: asyncio.Task[V] | None = None
    waiters: int = 0
    paid: bool = False


class SingleFlight(Generic[V]):
    """Runs work once a key at a time; a failure is shared like a result.

    The call belongs to none of those who wait for it: it goes on while one of them does, and is
    cancelled with the last. The first that is still there when it ends pays.
    """

    def __init__(self) -> None:
        self._flights: dict[bytes, _Flight[V]] = {}

    def __len__(self) -> int:
        return len(self._flights)

    async def run(
        self, key: bytes, work: Callable[[Cost], Awaitable[V]], cost: Cost
    ) -> tuple[V, bool]:
        """What the work for this key gives, and whether the call was another's."""
        flight = self._flights.get(key)
        joined = flight is not None
        if flight is None:
            flight = self._flights[key] = _Flight()
            flight.task = asyncio.get_running_loop().create_task(self._work(key, flight, work))
        task = flight.task
        assert task is not None
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
                self._forget(key, flight)  # before it ends: nobody may join what is cancelled
                task.cancel()

    async def _work(
        self, key: bytes, flight: _Flight[V], work: Callable[[Cost], Awaitable[V]]
    ) -> V:
        try:
            return await work(flight.cost)
        finally:
            self._forget(key, flight)

    def _forget(self, key: bytes, flight: _Flight[V]) -> None:
        if self._flights.get(key) is flight:
            del self._flights[key]
