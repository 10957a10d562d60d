"""Drift baselines of the services that a worker counts, for its port: shown, and promoted."""

from __future__ import annotations

import asyncio
from typing import Any

from agent.intake import Unavailable
from agent.kafka.stages.aggregate_stage import AggregateOwner, AggregateStage
from agent.orders import PATIENCE, UnknownService

__all__ = ["OwnedBaselines"]


class OwnedBaselines:
    """`agent.sources.baselines.Baselines` of a worker; its methods are called in threads. To be
    made in the loop of the stage."""

    def __init__(self) -> None:
        self.stage: AggregateStage | None = None
        """Set when the app is made."""
        self._loop = asyncio.get_running_loop()

    def baselines(self) -> list[dict[str, Any]]:
        stage = self.stage
        if stage is None:
            return []
        with stage.lock:
            return [
                row
                for _, owner in sorted(stage.owners.items())
                for row in owner.state.aggregator.drift.baselines()
            ]

    def promote(self, service: str | None) -> dict[str, Any]:
        """Of a service that this worker counts, or of all of those. Raises `UnknownService` and
        `Unavailable`."""
        return asyncio.run_coroutine_threadsafe(self._promote(service), self._loop).result()

    async def _promote(self, service: str | None) -> dict[str, Any]:
        stage = self.stage
        if stage is None or not stage.owners:
            raise Unavailable("this worker owns no services now")
        orders = [
            found
            for owner in stage.owners.values()
            if isinstance(owner, AggregateOwner) and (found := owner.promote(service))
        ]
        if not orders:
            raise UnknownService(f"no service {service!r} is watched for drift {self._here()}")
        try:
            async with asyncio.timeout(PATIENCE):
                await asyncio.gather(*(durable for _, durable in orders))
        except TimeoutError:
            raise Unavailable("applied, but Kafka does not take it yet") from None
        services = {name: done for found, _ in orders for name, done in found["services"].items()}
        times = [found["at"] for found, _ in orders if found["at"] is not None]
        return {"at": max(times, default=None), "services": services}

    def _here(self) -> str:
        names = sorted({row["service"] for row in self.baselines()})
        return f"here, but {', '.join(names) or 'none'}: ask the other workers"
