"""Fixed-point units for exact sums, and cosine similarity.

Whole numbers instead of floats: why every sum of the windows is exact.

A float sum depends on its order, and a running total from which old buckets are subtracted
drifts. So each value and each weight is rounded once to a whole number of small units, and all
that follows (products, sums, merging, subtraction) is integer arithmetic, which Python does
without overflow. Hence: merging is free of order, a window's running total is bit for bit the
sum of its buckets, totals recomputed after a crash are those from before it, and a replay gives
the same bytes whatever the batches. Variances come from exact differences too: equal values
have a variance of exactly 0.

Floats on a fixed grid would be exact only below 2**53 units; the squares of token counts pass
that within minutes, while the squares of costs of 0.0003 dollars vanish below a coarse grid.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from operator import mul

VALUE_BITS = 30
"""Values in units of 2**-30 (1e-9): a thousandth of a per cent of a cost of 0.0001 dollars."""

WEIGHT_BITS = 24
"""Weights in units of 2**-24 (6e-8, relative to a weight that is never below 1)."""

VALUE_ONE = 1 << VALUE_BITS
WEIGHT_ONE = 1 << WEIGHT_BITS

MAX_VALUE = 1e15
"""Beyond it a value is no measurement, and the mean of a window could overflow a float."""

MAX_WEIGHT = 1e9
"""A probability comes from outside: below 1e-9 it says nothing but would own every estimate."""


def value_units(value: float) -> int:
    """`value` in units of 2**-30, to the nearest. Raises for NaN and infinity."""
    return round(value * VALUE_ONE)


def weight_units(probability: float) -> int:
    """1/probability in units of 2**-24, at most `MAX_WEIGHT`. `probability` in (0, 1]."""
    return round(min(1.0 / probability, MAX_WEIGHT) * WEIGHT_ONE)


def cosine_similarity(
    one: Sequence[float], other: Sequence[float], size: float | None = None
) -> float | None:
    """Within 0 and 1: opposite meanings are no nearer than none. None where there is no angle.
    `size`: the product of their lengths, where it is known."""
    if len(one) != len(other):
        return None
    if size is None:
        size = math.hypot(*one) * math.hypot(*other)
    found = sum(map(mul, one, other)) / size if size else math.nan
    return min(max(found, 0.0), 1.0) if math.isfinite(found) else None
