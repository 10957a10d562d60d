"""The demand of a service (arrival rate, cost of a trace) and the fair division of a budget."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from ragmeter.core.tiers import ScoringCost

RESOURCES = ("requests", "tokens", "usd", "seconds")
CAPACITY_INDEX = 3  # `seconds` is no budget but our own slots or cores

CostVector = tuple[float, float, float, float]  # in the order of RESOURCES

# Cost of a trace with five passages and as many citations, until the first is settled.
JUDGE_PRIOR = ScoringCost(requests=10, input_tokens=8_000, output_tokens=600, seconds=15.0)
MODEL_PRIOR = ScoringCost(seconds=0.5)

# Arrivals to average over: a spread of 1/sqrt(2 * 64) = 9 % for random arrivals.
_MEMORY_ARRIVALS = 64.0

# Bounds of the averaging time in seconds. Traces come in batches of 0.2 s (see the worker), so
# below 2 s the batches themselves would be followed.
_FASTEST, _SLOWEST = 2.0, 60.0

# Page's two-sided CUSUM (1954) for a step: arrivals short of 0.7 times, or in excess of 1.5 times
# the expected ones are added up, and at 14 a step is assumed. It began where the sum was last 0.
# Poisson arrivals at a steady rate raise it falsely less than once in 10,000 arrivals, and a false
# one only shortens the memory for a while.
_DOWN, _UP, _STEP_SUM = 0.7, 1.5, 14.0

# Settled traces that the cost of one trace of a service is averaged over.
_SERVICE_MEMORY = 32

# Weight of a trace in the mean rate, which moves with the mix of strata.
_RATE_WEIGHT = 1 / 64

# Arrivals a second below which a service is gone: some ten minutes after the last.
_IDLE_RATE = 1e-4


def cost_vector(cost: ScoringCost) -> CostVector:
    """Return a cost in the order of `RESOURCES`."""
    tokens = float(cost.input_tokens + cost.output_tokens)
    return float(cost.requests), tokens, cost.usd, cost.seconds


def blend_costs(old: CostVector, new: CostVector, part: float) -> CostVector:
    """Return `part` (0..1) of the new cost and the rest of the old one."""
    a, b, c, d = (x + part * (y - x) for x, y in zip(old, new, strict=True))
    return a, b, c, d


def parse_cost(saved: Any) -> CostVector:
    """Restore a cost vector from JSON; raises ValueError or TypeError if it is none."""
    a, b, c, d = map(float, saved)
    if not all(math.isfinite(x) and x >= 0 for x in (a, b, c, d)):
        raise ValueError("a cost must be finite and not negative")
    return a, b, c, d


class _CusumSide:
    """One side of the CUSUM: its sum, and arrivals and seconds since it was last 0."""

    __slots__ = ("arrivals", "seconds", "sum")

    def __init__(self) -> None:
        self.sum = self.arrivals = self.seconds = 0.0

    def add(self, difference: float, arrivals: int, seconds: float) -> bool:
        """Add a step; return whether the sum shows a change of the rate."""
        self.sum += difference
        if self.sum <= 0:
            self.sum = self.arrivals = self.seconds = 0.0
            return False
        self.arrivals += arrivals
        self.seconds += seconds
        return self.sum > _STEP_SUM


class ArrivalRate:
    """An exponential average of arrivals per second, begun anew at each step of the rate.

    `rate` is arrivals a second as of the last update; the owner counts arrivals in `count`.
    """

    __slots__ = ("_down", "_since", "_up", "_updated", "count", "rate")

    def __init__(self, now: float) -> None:
        self.rate = 0.0
        self.count = 0
        self._since = self._updated = now
        self._down, self._up = _CusumSide(), _CusumSide()

    def update(self, now: float, least: float) -> None:
        """Take in what was counted since the last update.

        Args:
            now: Unix seconds.
            least: Least seconds of any average.
        """
        passed = max(0.0, now - self._updated)
        expected = self.rate * passed
        memory = min(
            _SLOWEST, max(_FASTEST, _MEMORY_ARRIVALS / self.rate if self.rate > 0 else _SLOWEST)
        )
        # Per second: of a long step the part that its memory retains, of a short one 1/memory.
        gain = -math.expm1(-passed / memory) / passed if passed > 1e-6 * memory else 1 / memory
        gain = max(gain, 1 / max(least, now - self._since))  # a plain average in the beginning
        self.rate = self.rate * max(0.0, 1 - gain * passed) + gain * self.count
        fell = self._down.add(_DOWN * expected - self.count, self.count, passed)
        rose = self._up.add(self.count - _UP * expected, self.count, passed)
        if fell or rose:
            side = self._down if fell else self._up
            seconds = max(least, side.seconds)
            self.rate = side.arrivals / seconds
            self._since = now - seconds
            self._down, self._up = _CusumSide(), _CusumSide()
        self.count = 0
        self._updated = max(now, self._updated)

    def resume(self, now: float) -> None:
        """Go on from `now` with the same rate, after a restart or a clock that was set back."""
        self._updated = now
        self._since = min(self._since, now)


class ServiceDemand:
    """Arrivals of a service, the cost of its traces, and what is under way.

    `rate` is the mean sampling rate over the last traces, `scale` the scale in force, `pending`
    the number of drawn traces not yet settled, `seconds` of income what one draw costs of the
    scarcest resource.
    """

    __slots__ = ("_has_rate", "arrivals", "cost", "pending", "rate", "scale", "seconds", "settled")

    def __init__(self, now: float, cost: CostVector) -> None:
        self.arrivals = ArrivalRate(now)
        self.cost = cost
        self.settled = 0
        self.pending = 0
        self.rate = 1.0
        self._has_rate = False
        self.scale = 1.0
        self.seconds = 0.0

    def count_arrival(self, rate: float) -> None:
        """Count a trace with a sampling rate, which counts above 1 only as far as the scale."""
        self.arrivals.count += 1
        weight = _RATE_WEIGHT if self._has_rate else 1.0
        self.rate += (min(rate, 1 / self.scale) - self.rate) * weight
        self._has_rate = True

    def settle(self, cost: CostVector) -> None:
        """Take in the cost of a drawn trace that is done."""
        self.settled += 1
        self.cost = blend_costs(self.cost, cost, max(1 / (self.settled + 1), 1 / _SERVICE_MEMORY))
        self.pending = max(0, self.pending - 1)

    @property
    def gone(self) -> bool:
        """True if nothing has come for long, and nothing is under way."""
        return not self.pending and not self.arrivals.count and self.arrivals.rate < _IDLE_RATE

    def dump(self) -> dict[str, Any]:
        """Return the state for JSON."""
        return {
            "pending": self.pending,
            "cost": list(self.cost),
            "settled": self.settled,
            "arrivals": self.arrivals.rate,
        }

    @classmethod
    def load(cls, saved: Mapping[str, Any], now: float) -> ServiceDemand:
        """Restore what `dump` returned; raises ValueError, KeyError or TypeError otherwise."""
        service = cls(now, parse_cost(saved["cost"]))
        service.settled = int(saved["settled"])
        service.pending = int(saved["pending"])
        service.arrivals.rate = float(saved["arrivals"])
        return service


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
    left = total
    given = [0.0] * len(demands)
    rising = sorted(range(len(demands)), key=demands.__getitem__)
    for position, index in enumerate(rising):
        level = left / (len(rising) - position)
        given[index] = min(demands[index], level)
        left -= given[index]
    return given
