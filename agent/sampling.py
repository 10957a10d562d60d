"""Which traces a tier scores, and with what probability.

The decision is a keyed hash of the trace id: the same everywhere and for every metric of a tier.
The key is our own. A hash shared with an upstream head sampler at 10 % turned a nominal 5 % into
50 % of what arrived, because both kept the same ids.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b

from agent.config import Rates, Sampling
from agent.trace import Trace

__all__ = ["Draw", "Sampler", "uniform"]


def uniform(trace_id: str, salt: bytes) -> float:
    """A number in [0, 1), fixed by trace id and salt (at most 64 bytes), uniform over ids."""
    digest = blake2b(trace_id.encode("utf-8", "surrogatepass"), key=salt, digest_size=8).digest()
    return int.from_bytes(digest, "big") / 2**64


@dataclass(frozen=True, slots=True)
class Draw:
    """`probability` is pi for this tier: our rate times the upstream probability."""

    taken: bool
    probability: float


class Sampler:
    """Draws by service and tier (`model` or `judge`)."""

    def __init__(self, settings: Sampling) -> None:
        # blake2b keys are at most 64 bytes: a longer salt is folded, not cut
        self._salts = {
            tier: blake2b(f"{tier}:{settings.salt}".encode()).digest()
            for tier in ("model", "judge")
        }
        self._default: Rates = settings
        self._services = settings.services

    def draw(self, trace: Trace, tier: str) -> Draw:
        rate: float = getattr(self._services.get(trace.service, self._default), tier)
        taken = rate >= 1 or uniform(trace.trace_id, self._salts[tier]) < rate
        return Draw(taken, rate * trace.probability)
