"""Which traces a tier scores, and with what probability.

The decision is a keyed hash of the trace id: the same everywhere and for every metric of a tier.
The key is our own. A hash shared with an upstream head sampler at 10 % turned a nominal 5 % into
50 % of what arrived, because both kept the same ids.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from hashlib import blake2b
from typing import NamedTuple

from agent.budget import BudgetController
from agent.config import Rates, Sampling
from agent.tiers import TIERS, Tier
from agent.trace import Trace

__all__ = ["Draw", "Sampler", "uniform"]


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
        # blake2b keys are at most 64 bytes: a longer salt is folded, not cut
        self._keys = {
            tier: _key(blake2b(f"{tier}:{settings.salt}".encode()).digest()) for tier in TIERS
        }
        services: dict[str, Rates] = settings.services
        self._rates: dict[Tier, tuple[float, dict[str, float]]] = {
            "model": (settings.model, {name: r.model for name, r in services.items()}),
            "judge": (settings.judge, {name: r.judge for name, r in services.items()}),
        }
        self._controllers = dict(controllers or {})
        self._clock = clock
        self.paced = True
        """Whether the controllers hold. A replay is drawn by its rates alone: so its draws depend
        on the traces and not on when they are read."""

    def draw(self, trace: Trace, tier: Tier) -> Draw:
        """Whether `tier` scores `trace`. Where it does, the expected cost is committed and must
        be settled with the controller when it is done."""
        service = trace.service
        default, rates = self._rates[tier]
        rate = rates.get(service, default)
        controller = self._controllers.get(tier)
        if controller is None or self._clock is None or not self.paced:
            taken = rate >= 1 or _fraction(trace.trace_id, self._keys[tier]) < rate
            return Draw(taken, rate * trace.probability)
        now = self._clock()
        rate *= controller.offer(service, now, rate)
        taken = rate >= 1 or _fraction(trace.trace_id, self._keys[tier]) < rate
        if taken:
            controller.reserve(service, now)
        return Draw(taken, rate * trace.probability)
