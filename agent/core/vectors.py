"""Embedding vectors quantised to one byte a number, and the cosine of two of them.

Rounding to 127 steps of the largest number moves the cosine of two embeddings by less than 0.005,
also where some numbers are 20 times the others (tests/core/test_vectors.py), and saves seven of
eight bytes.
"""

from __future__ import annotations

import base64
import math
from array import array
from collections.abc import Sequence
from hashlib import blake2b
from typing import NamedTuple

from ragmeter.core.arithmetic import cosine_similarity

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
