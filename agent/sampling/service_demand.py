"""The demand of a service: arrival rate, cost of a trace, and the fair division of a budget among services."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from ragmeter.core.tiers import ScoringCost

RESOURCES = ("requests", "tokens", "usd", "seconds")
CAPACITY_INDEX = 3  # the place of what is not a budget but our own slots or cores

JUDGE_PRIOR = ScoringCost(requests=10, input_tokens=8_000, output_tokens=600, seconds=15.0)
"""Of a trace with five passages and as many citations, until the first is settled."""

MODEL_PRIOR = ScoringCost(seconds=0.5)

CostVector = tuple[float, float, float, float]


def cost_vector(cost: ScoringCost) -> CostVector:
    """In the order of `RESOURCES`."""
    return (
        float(cost.requests),
        float(cost.input_tokens + cost.output_tokens),
        cost.usd,
        cost.seconds,
    )


def blend_costs(old: CostVector, new: CostVector, part: float) -> CostVector:
    """`part` of the new, in [0, 1]; the rest of the old."""
    a, b, c, d = (x + part * (y - x) for x, y in zip(old, new, strict=True))
    return a, b, c, d


def parse_cost(saved: Any) -> CostVector:
    """What JSON has kept of a vector. Raises ValueError or TypeError where it is none."""
    a, b, c, d = map(float, saved)
    if not all(math.isfinite(x) and x >= 0 for x in (a, b, c, d)):
        raise ValueError("a cost must be finite and not negative")
    return a, b, c, d


_MEMORY_ARRIVALS = 64.0
"""Arrivals to average over: a spread of 1/sqrt(2 * 64) = 9 % for random arrivals."""

_FASTEST, _SLOWEST = 2.0, 60.0
"""Bounds of the averaging time in seconds. Traces come in batches of 0.2 s (see the worker), so
below 2 s the batches themselves would be followed."""

_DOWN, _UP, _ALARM = 0.7, 1.5, 14.0
"""Page's two-sided CUSUM (1954) for a step: arrivals short of 0.7 times, or in excess of 1.5
times the expected ones are added up, and at 14 a step counts as seen. It began where the sum was
last 0. Poisson arrivals at a steady rate raise it falsely less than once in 10,000 arrivals, and
all that a false one does is to shorten the memory for a while."""


class _CusumSide:
    """One side of the CUSUM: its sum, and arrivals and seconds since it was last 0."""

    __slots__ = ("arrivals", "seconds", "sum")

    def __init__(self) -> None:
        self.sum = self.arrivals = self.seconds = 0.0

    def add(self, difference: float, arrivals: int, seconds: float) -> bool:
        self.sum += difference
        if self.sum <= 0:
            self.sum = self.arrivals = self.seconds = 0.0
            return False
        self.arrivals += arrivals
        self.seconds += seconds
        return self.sum > _ALARM


class ArrivalRate:
    """An exponential average whose memory holds some 64 arrivals, begun anew at each step seen."""

    __slots__ = ("_down", "_since", "_up", "_updated", "count", "rate")

    def __init__(self, now: float) -> None:
        self.rate = 0.0
        """Arrivals a second, as of the last update."""
        self.count = 0
        """Arrivals since the last update; the owner counts them up."""
        self._since = self._updated = now
        self._down, self._up = _CusumSide(), _CusumSide()

    def update(self, now: float, least: float) -> None:
        """Take in what was counted; any average is over at least `least` seconds."""
        passed = max(0.0, now - self._updated)
        expected = self.rate * passed
        memory = min(
            _SLOWEST, max(_FASTEST, _MEMORY_ARRIVALS / self.rate if self.rate > 0 else _SLOWEST)
        )
        # Per second: of a long step the part that its memory keeps, of a short one 1/memory.
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
        """Go on from `now` with the rate as it is: the clock was set back, or a restart has left
        a gap of which nothing is known."""
        self._updated = now
        self._since = min(self._since, now)


_SERVICE_MEMORY = 32
"""Settled traces that the cost of one trace is averaged over."""

_RATE_WEIGHT = 1 / 64
"""Of each trace in the mean rate, which moves with the mix of strata."""

_IDLE_RATE = 1e-4
"""Arrivals a second below which a service is gone: some ten minutes after the last."""


class ServiceDemand:
    """Arrivals, the cost of a trace, and what is under way."""

    __slots__ = ("arrivals", "cost", "pending", "rate", "rated", "scale", "seconds", "settled")

    def __init__(self, now: float, cost: CostVector) -> None:
        self.arrivals = ArrivalRate(now)
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
        part = _RATE_WEIGHT if self.rated else 1.0
        self.rate += (min(rate, 1 / self.scale) - self.rate) * part
        self.rated = True

    def settle(self, cost: CostVector) -> None:
        """A drawn trace is done, and has taken this."""
        self.settled += 1
        self.cost = blend_costs(self.cost, cost, max(1 / (self.settled + 1), 1 / _SERVICE_MEMORY))
        self.pending = max(0, self.pending - 1)

    @property
    def gone(self) -> bool:
        """Whether nothing has come for long, and nothing is under way."""
        return not self.pending and not self.arrivals.count and self.arrivals.rate < _IDLE_RATE

    def dump(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "pending": self.pending,
            "cost": list(self.cost),
            "settled": self.settled,
            "arrivals": self.arrivals.rate,
        }

    @classmethod
    def load(cls, saved: Mapping[str, Any], now: float) -> ServiceDemand:
        """What `dump` gave. Raises ValueError, KeyError or TypeError for anything else."""
        service = cls(now, parse_cost(saved["cost"]))
        service.settled = int(saved["settled"])
        service.pending = int(saved["pending"])
        service.arrivals.rate = float(saved["arrivals"])
        return service


def divide_fairly(total: float, demands: Sequence[float]) -> list[float]:
    """What each demand gets: all of it up to a common level, which is as high as `total` allows.

    Water-filling (Bertsekas and Gallager, Data Networks, 6.5.2, for a single link): whoever asks
    for less than an equal part gets it all, and what it leaves is divided among the others. No
    demand can lower what another one below the level gets. O(n log n).
    """
    left = total
    given = [0.0] * len(demands)
    order = sorted(range(len(demands)), key=demands.__getitem__)
    for position, index in enumerate(order):
        level = left / (len(order) - position)
        given[index] = min(demands[index], level)
        left -= given[index]
    return given
