"""Fixed-point units for exact sums, and quantised embedding vectors with their cosine.

A float sum depends on its order, and a running total from which old buckets are subtracted drifts.
So each value and each weight is rounded once to a whole number of small units; all that follows
(products, sums, merging, subtraction) is integer arithmetic, which Python does without overflow.
Merging is therefore independent of order, a window's running total equals the sum of its buckets
bit for bit, totals recomputed after a crash match those from before it, and a replay gives the same
bytes whatever the batches. Variances come from exact differences too: equal values have a variance
of exactly 0.

Floats on a fixed grid would be exact only below 2**53 units; the squares of token counts pass
that within minutes, while the squares of costs of 0.0003 dollars vanish below a coarse grid.

Embedding vectors keep one byte a number. Rounding to 127 steps of the largest number moves the
cosine of two embeddings by less than 0.005, also where some numbers are 20 times the others
(tests/core/test_vectors.py), and saves seven of eight bytes.
"""

from __future__ import annotations

import base64
import math
from array import array
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from operator import mul
from typing import Any, NamedTuple

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


def cosine_similarity(
    first: Sequence[float], second: Sequence[float], norms: float | None = None
) -> float | None:
    """Compute the cosine of two vectors, clipped to 0..1: opposite meanings are merely unrelated.

    `norms` is the product of their lengths, if known.

    Returns:
        The similarity, or None for vectors of different dimension or without a direction.
    """
    if len(first) != len(second):
        return None
    if norms is None:
        norms = math.hypot(*first) * math.hypot(*second)
    cosine = sum(map(mul, first, second)) / norms if norms else math.nan
    return min(max(cosine, 0.0), 1.0) if math.isfinite(cosine) else None


_QUANTIZATION_STEPS = 127
_SPACE = 8  # characters that identify the model: two of 100 models share them with probability 1e-6


class AnswerVectors(NamedTuple):
    """The packed vectors of a question and its answer."""

    question: str
    answer: str


def pack_vector(vector: Sequence[float], model: str) -> str:
    """Pack a vector that is not zero.

    The result begins with a hash of model and length, its space: vectors of different spaces
    cannot be compared.
    """
    largest = max(map(abs, vector))
    data = array("b", [round(value / largest * _QUANTIZATION_STEPS) for value in vector])
    space = blake2b(f"{len(vector)}:{model}".encode("utf-8", "surrogatepass"), digest_size=4)
    return space.hexdigest() + base64.b64encode(data.tobytes()).decode("ascii")


def is_packed_vector(text: str) -> bool:
    """Return whether a text has the form that `pack_vector` gives."""
    try:
        space, data = bytes.fromhex(text[:_SPACE]), base64.b64decode(text[_SPACE:], validate=True)
    except ValueError:  # binascii.Error is one
        return False
    return len(space) == _SPACE // 2 and bool(data)


def is_same_space(first: str, second: str) -> bool:
    """Return whether two packed vectors can be compared."""
    return first[:_SPACE] == second[:_SPACE]


class UnpackedVector:
    """A packed vector, decoded once for many comparisons."""

    __slots__ = ("numbers", "size", "space")

    def __init__(self, packed: str) -> None:
        self.space = packed[:_SPACE]
        self.numbers = array("b", base64.b64decode(packed[_SPACE:]))
        self.size = math.hypot(*self.numbers)

    def cosine(self, other: UnpackedVector) -> float | None:
        """Return the cosine in 0..1, None for vectors that cannot be compared."""
        if self.space != other.space:
            return None
        return cosine_similarity(self.numbers, other.numbers, self.size * other.size)


def packed_cosine(first: str, second: str) -> float | None:
    """Return the cosine of two packed vectors; None if one is empty or they differ in space."""
    if not first or not second:
        return None
    return UnpackedVector(first).cosine(UnpackedVector(second))


def finite_values(item: Mapping[str, Any]) -> dict[str, Any]:
    """Replace NaN and infinities, which JSON lacks, by None."""
    return {
        key: None if isinstance(value, float) and not math.isfinite(value) else value
        for key, value in item.items()
    }
