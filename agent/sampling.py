"""Which traces a tier scores, and with what probability.

The decision is a keyed hash of the trace id: the same everywhere and for every metric of a tier.
The key is our own. A hash shared with an upstream head sampler at 10 % turned a nominal 5 % into
50 % of what arrived, because both kept the same ids.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from hashlib import blake2b
from typing import NamedTuple

from agent.budget.controller import BudgetController
from agent.config import Rates, Sampling
from agent.tiers import TIERS, Tier
from agent.trace import Trace

__all__ = ["FLOOR", "Draw", "Sampler", "uniform"]


FLOOR = 0.002
"""The scale never falls below this: whatever the budget, no stratum is without any draw for long,
and no weight above 500 times the usual one owns an estimate."""


def _key(salt: bytes) -> blake2b:
    return blake2b(key=salt, digest_size=8)


def _fraction(trace_id: str, key: blake2b) -> float:
    digest = key.copy()  # with the key already taken in: half the time
    digest.update(trace_id.encode("utf-8", "surrogatepass"))
    return int.from_bytes(digest.digest(), "big") / 2**64


def uniform(trace_id: str, salt: bytes) -> float:
    """A number in [0, 1), fixed by trace id and salt (at most 64 bytes), uniform over ids."""
    return _fraction(trace_id, _key(salt))


class Draw(NamedTuple):
    """`probability` is pi for this tier: our rate times the upstream probability."""

    taken: bool
    probability: float


class Sampler:
    """Draws by service and tier.

    A tier that has a controller in `controllers` is drawn, while `paced`, at its configured rate
    times the scale that the controller allows at that moment; the others at their configured rate.
    `clock` gives Unix seconds and is what the controllers live by. Draws of tiers with a controller
    depend on what was drawn before: draw each trace once, in the order of arrival, and keep the
    result.
    """

    def __init__(
        self,
        settings: Sampling,
        controllers: Mapping[Tier, BudgetController] | None = None,
        clock: Callable[[], float] | None = None,
    ) -> None:
        if controllers and clock is None:
            raise ValueError("controllers need a clock")
        self._controllers = dict(controllers or {})
        self._clock = clock
        self.paced = True
        """Whether the controllers hold. A replay is drawn by its rates alone: so its draws depend
        on the traces and not on when they are read."""
        self.update(settings)

    def update(self, settings: Sampling) -> None:
        """Other rates, or another salt, from the next draw on. No estimate jumps: each draw
        carries the probability that held, and its weight is the inverse. Any thread may call."""
        # blake2b keys are at most 64 bytes: a longer salt is folded, not cut
        keys = {tier: _key(blake2b(f"{tier}:{settings.salt}".encode()).digest()) for tier in TIERS}
        services: dict[str, Rates] = settings.services
        # in one step: another thread may be drawing
        self._plan: dict[Tier, tuple[blake2b, float, dict[str, float]]] = {
            "model": (keys["model"], settings.model, {n: r.model for n, r in services.items()}),
            "judge": (keys["judge"], settings.judge, {n: r.judge for n, r in services.items()}),
        }

    def admits_canary(self, tier: Tier) -> bool:
        """Whether a canary may ask `tier` now: no draw by chance, but the canaries' part of the
        budget. Where it may, its cost must be settled with the controller as a canary's."""
        controller = self._controllers.get(tier)
        if controller is None or self._clock is None or not self.paced:
            return True
        return controller.admit_canary(self._clock())

    def draw(self, trace: Trace, tier: Tier, ratio: float = 1.0) -> Draw:
        """Whether `tier` scores `trace`, which is drawn `ratio` times as often as the rest. Where
        it does, the expected cost is committed and must be settled with the controller when it is
        done."""
        service = trace.service
        key, default, rates = self._plan[tier]
        rate = rates.get(service, default) * ratio
        controller = self._controllers.get(tier)
        if controller is None or self._clock is None or not self.paced:
            rate = min(1.0, rate)
            taken = rate >= 1 or _fraction(trace.trace_id, key) < rate
            return Draw(taken, rate * trace.probability)
        now = self._clock()
        rate = min(1.0, rate * max(FLOOR, controller.offer(service, now, rate)))
        taken = rate >= 1 or _fraction(trace.trace_id, key) < rate
        if taken:
            controller.reserve(service, now)
        return Draw(taken, rate * trace.probability)
