"""How near two embeddings are: pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from operator import mul

__all__ = ["cosine"]


def cosine(one: Sequence[float], other: Sequence[float], size: float | None = None) -> float | None:
    """Within 0 and 1: opposite meanings are no nearer than none. None where there is no angle.
    `size`: the product of their lengths, where it is known."""
    if len(one) != len(other):
        return None
    if size is None:
        size = math.hypot(*one) * math.hypot(*other)
    found = sum(map(mul, one, other)) / size if size else math.nan
    return min(max(found, 0.0), 1.0) if math.isfinite(found) else None
