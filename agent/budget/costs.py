"""What judging a trace costs, as a vector over the resources that a budget limits. Pure."""

from __future__ import annotations

import math
from typing import Any

from agent.tiers import Cost

__all__ = ["CAPACITY", "JUDGE_PRIOR", "MODEL_PRIOR", "RESOURCES", "Vector", "mix", "read", "vector"]

RESOURCES = ("requests", "tokens", "usd", "seconds")
CAPACITY = 3  # the place of what is not a budget but our own slots or cores

JUDGE_PRIOR = Cost(requests=10, input_tokens=8_000, output_tokens=600, seconds=15.0)
"""Of a trace with five passages and as many citations, until the first is settled."""

MODEL_PRIOR = Cost(seconds=0.5)

Vector = tuple[float, float, float, float]


def vector(cost: Cost) -> Vector:
    """In the order of `RESOURCES`."""
    return (
        float(cost.requests),
        float(cost.input_tokens + cost.output_tokens),
        cost.usd,
        cost.seconds,
    )


def mix(old: Vector, new: Vector, part: float) -> Vector:
    """`part` of the new, in [0, 1]; the rest of the old."""
    a, b, c, d = (x + part * (y - x) for x, y in zip(old, new, strict=True))
    return a, b, c, d


def read(saved: Any) -> Vector:
    """What JSON has kept of a vector. Raises ValueError or TypeError where it is none."""
    a, b, c, d = map(float, saved)
    if not all(math.isfinite(x) and x >= 0 for x in (a, b, c, d)):
        raise ValueError("a cost must be finite and not negative")
    return a, b, c, d
