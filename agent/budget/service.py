"""What the controller knows of one service. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agent.budget.arrivals import Arrivals
from agent.budget.costs import Vector, mix, read

__all__ = ["Service"]

MEMORY = 32
"""Settled traces that the cost of one trace is averaged over."""

RATE_PART = 1 / 64
"""Of each trace in the mean rate, which moves with the mix of strata."""

IDLE_RATE = 1e-4
"""Arrivals a second below which a service is gone: some ten minutes after the last."""


class Service:
    """Arrivals, the cost of a trace, and what is under way."""

    __slots__ = ("arrivals", "cost", "pending", "rate", "rated", "scale", "seconds", "settled")

    def __init__(self, now: float, cost: Vector) -> None:
        self.arrivals = Arrivals(now)
        self.cost = cost
        self.settled = 0
        self.pending = 0
        self.rate = 1.0  # the mean over the last traces
        self.rated = False
        self.scale = 1.0
        self.seconds = 0.0  # of income that one draw costs, of the scarcest resource

    def arrived(self, rate: float) -> None:
        """A trace has come, with this sampling rate: above 1 it only counts as far as the scale
        lets it."""
        self.arrivals.count += 1
        part = RATE_PART if self.rated else 1.0
        self.rate += (min(rate, 1 / self.scale) - self.rate) * part
        self.rated = True

    def settle(self, cost: Vector) -> None:
        """A drawn trace is done, and has taken this."""
        self.settled += 1
        self.cost = mix(self.cost, cost, max(1 / (self.settled + 1), 1 / MEMORY))
        self.pending = max(0, self.pending - 1)

    @property
    def gone(self) -> bool:
        """Whether nothing has come for long, and nothing is under way."""
        return not self.pending and not self.arrivals.count and self.arrivals.rate < IDLE_RATE

    def dump(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "pending": self.pending,
            "cost": list(self.cost),
            "settled": self.settled,
            "arrivals": self.arrivals.rate,
        }

    @classmethod
    def load(cls, saved: Mapping[str, Any], now: float) -> Service:
        """What `dump` gave. Raises ValueError, KeyError or TypeError for anything else."""
        service = cls(now, read(saved["cost"]))
        service.settled = int(saved["settled"])
        service.pending = int(saved["pending"])
        service.arrivals.rate = float(saved["arrivals"])
        return service
