"""Fixed-point units for exact sums.

A float sum depends on its order, and a running total from which old buckets are subtracted drifts.
So each value and each weight is rounded once to a whole number of small units; all that follows
(products, sums, merging, subtraction) is integer arithmetic, which Python does without overflow.
Merging is therefore independent of order, a window's running total equals the sum of its buckets
bit for bit, totals recomputed after a crash match those from before it, and a replay gives the same
bytes whatever the batches. Variances come from exact differences too: equal values have a variance
of exactly 0.

Floats on a fixed grid would be exact only below 2**53 units; the squares of token counts pass
that within minutes, while the squares of costs of 0.0003 dollars vanish below a coarse grid.
"""

from __future__ import annotations

# Values in units of 2**-30 (1e-9): a thousandth of a per cent of a cost of 0.0001 dollars.
VALUE_BITS = 30
# Weights in units of 2**-24 (6e-8, relative to a weight that is never below 1).
WEIGHT_BITS = 24

VALUE_ONE = 1 << VALUE_BITS
WEIGHT_ONE = 1 << WEIGHT_BITS

# A larger value is no measurement, and the mean of a window could overflow a float.
MAX_VALUE = 1e15
# Probabilities come from outside: one below 1e-9 carries no information but would dominate every
# estimate.
MAX_WEIGHT = 1e9


def value_units(value: float) -> int:
    """Convert a finite value to units of 2**-30, rounded to the nearest."""
    return round(value * VALUE_ONE)


def weight_units(probability: float) -> int:
    """Convert 1/probability to units of 2**-24, at most `MAX_WEIGHT`.

    Args:
        probability: Inclusion probability in (0, 1].
    """
    return round(min(1.0 / probability, MAX_WEIGHT) * WEIGHT_ONE)
