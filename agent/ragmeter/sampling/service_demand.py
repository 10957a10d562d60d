"""The demand of a service (load, cost of a trace) and the fair division of a budget."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from ragmeter.core.tiers import ScoringCost

RESOURCES = ("requests", "tokens", "usd", "seconds")
USD_INDEX = 2
CAPACITY_INDEX = 3  # `seconds` is no budget but our own slots or cores

CostVector = tuple[float, float, float, float]  # in the order of RESOURCES

# Cost of a trace with five passages and as many citations, until the first is settled.
JUDGE_PRIOR = ScoringCost(requests=10, input_tokens=8_000, output_tokens=600, seconds=15.0)
MODEL_PRIOR = ScoringCost(seconds=0.5)

# Memory of the load in seconds: an hour makes it the mean over the bursts of a service that has
# them and lets it follow the time of day.
_LOAD_SECONDS = 3600.0

# Seconds that the first average is taken over at least: the first traces of a service say little.
_LEAST_SECONDS = 900.0

# Memory of the recent load in seconds: bursts are seen within it, and no batch (of 0.2 s, see the
# worker) is one.
_RECENT_SECONDS = 10.0

# Settled traces that the cost of one trace of a service is averaged over.
_SERVICE_MEMORY = 32

# Recent load below which a service is gone: some three minutes after the last trace.
_IDLE_LOAD = 1e-8


def cost_vector(cost: ScoringCost) -> CostVector:
    """Return a cost in the order of `RESOURCES`."""
    tokens = float(cost.input_tokens + cost.output_tokens)
    return float(cost.requests), tokens, cost.usd, cost.seconds


def blend_costs(old: CostVector, new: CostVector, part: float) -> CostVector:
    """Return `part` (0..1) of the new cost and the rest of the old one."""
    a, b, c, d = [x + part * (y - x) for x, y in zip(old, new, strict=True)]
    return a, b, c, d


def parse_cost(saved: Any) -> CostVector:
    """Restore a cost vector from JSON; raises ValueError or TypeError if it is none."""
    a, b, c, d = map(float, saved)
    if not all(math.isfinite(x) and x >= 0 for x in (a, b, c, d)):
        raise ValueError("a cost must be finite and not negative")
    return a, b, c, d


class ServiceDemand:
    """Load of a service, the cost of its traces, and what is under way.

    A load is the traces a second that a scale of 1 would draw: `load` over the last hour, `recent`
    over the last seconds. `scale` is the scale in force, `pending` the number of drawn traces not
    yet settled.
    """

    __slots__ = (
        "_begun",
        "_count",
        "_updated",
        "cost",
        "load",
        "pending",
        "recent",
        "scale",
        "settled",
    )

    def __init__(self, now: float, cost: CostVector) -> None:
        self.load = self.recent = 0.0
        self.cost = cost
        self.settled = 0
        self.pending = 0
        self.scale = 1.0
        self._count = 0.0
        self._begun = self._updated = now

    def count_arrival(self, rate: float) -> None:
        """Count a trace with a sampling rate, which counts above 1 only as far as the scale."""
        self._count += min(rate, 1 / self.scale) if self.scale else rate

    def update(self, now: float) -> None:
        """Take in what was counted since the last update.

        Both loads are exponential averages. Until it has seen its memory, the long one is the plain
        average, over at least `_LEAST_SECONDS`.
        """
        passed = max(0.0, now - self._updated)
        known = max(_LEAST_SECONDS, now - self._begun)
        self.load = _average(self.load, self._count, passed, min(_LOAD_SECONDS, known))
        self.recent = _average(self.recent, self._count, passed, _RECENT_SECONDS)
        self._count = 0.0
        self._updated = max(now, self._updated)

    def resume(self, now: float) -> None:
        """Go on from `now` with the same loads, after a restart or a clock that was set back."""
        self._begun += now - self._updated
        self._updated = now

    def settle(self, cost: CostVector) -> None:
        """Take in the cost of a drawn trace that is done."""
        self.settled += 1
        self.cost = blend_costs(self.cost, cost, max(1 / (self.settled + 1), 1 / _SERVICE_MEMORY))
        self.pending = max(0, self.pending - 1)

    @property
    def gone(self) -> bool:
        """True if nothing has come for long, and nothing is under way."""
        return not self.pending and not self._count and self.recent < _IDLE_LOAD

    def dump(self) -> dict[str, Any]:
        """Return the state for JSON."""
        return {
            "pending": self.pending,
            "cost": list(self.cost),
            "settled": self.settled,
            "load": self.load,
            "seconds": self._updated - self._begun,
        }

    @classmethod
    def restore(cls, saved: Mapping[str, Any], now: float) -> ServiceDemand:
        """Restore what `dump` returned; raises ValueError, KeyError or TypeError otherwise."""
        service = cls.restore_cost(saved, now)
        service.pending = int(saved["pending"])
        service.load = float(saved["load"])
        service._begun = now - float(saved["seconds"])
        return service

    @classmethod
    def restore_cost(cls, saved: Mapping[str, Any], now: float = 0.0) -> ServiceDemand:
        """Restore the cost alone; raises as `restore`."""
        service = cls(now, parse_cost(saved["cost"]))
        service.settled = int(saved["settled"])
        return service


def _average(mean: float, count: float, passed: float, memory: float) -> float:
    """Return the exponential average of a rate after `count` more in the seconds `passed`."""
    gain = -math.expm1(-passed / memory)
    # per second: of a long step the part that the memory retains, of a short one 1 / memory
    return mean * (1 - gain) + count * (gain / passed if passed > 1e-6 * memory else 1 / memory)


def divide_fairly(total: float, demands: Sequence[float]) -> list[float]:
    """Divide a total by water-filling (Bertsekas and Gallager, Data Networks, 6.5.2, one link).

    Whoever demands less than an equal part gets it all, and what it leaves is divided among the
    others. No demand can lower what another one below the common level gets. O(n log n).

    Args:
        total: Units to divide.
        demands: Units that each one asks for.

    Returns:
        What each demand gets, in the same order.
    """
    if len(demands) == 1:  # most agents have one service, and divide with each few traces
        return [min(demands[0], total)]
    left = total
    given = [0.0] * len(demands)
    rising = sorted(range(len(demands)), key=demands.__getitem__)
    for position, index in enumerate(rising):
        level = left / (len(rising) - position)
        given[index] = min(demands[index], level)
        left -= given[index]
    return given
