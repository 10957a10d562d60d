"""Whole numbers instead of floats: why every sum of the windows is exact.

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

__all__ = [
    "MAX_VALUE",
    "MAX_WEIGHT",
    "VALUE_BITS",
    "VALUE_ONE",
    "WEIGHT_BITS",
    "WEIGHT_ONE",
    "units",
    "weight",
]

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


def units(value: float) -> int:
    """`value` in units of 2**-30, to the nearest. Raises for NaN and infinity."""
    return round(value * VALUE_ONE)


def weight(probability: float) -> int:
    """1/probability in units of 2**-24, at most `MAX_WEIGHT`. `probability` in (0, 1]."""
    return round(min(1.0 / probability, MAX_WEIGHT) * WEIGHT_ONE)
