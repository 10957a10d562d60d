"""What the answers to all remembered questions come to: means over questions, with an interval."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from agent.metrics.consistency import SIMILARITIES, Spread
from agent.windows.estimators import t975

__all__ = ["Agreement", "Compared", "agreements"]

UNIFORM = 1 / 12
"""Variance of a value of which only the range 0..1 is known. One such observation is added, as the
windows do: five equal values do not make a mean that is known exactly."""


class Agreement(NamedTuple):
    """Over `queries` questions with answers to compare: the mean of their mean similarities with
    its 95 % interval, and the means of their variances and coefficients of variation, of those that
    have any (a question with two answers has neither)."""

    queries: int
    mean: float
    lower: float
    upper: float
    variance: float | None
    variation: float | None


class Compared(NamedTuple):
    """Remembered questions with one answer in a window, and with several; by similarity what those
    say."""

    single: int
    several: int
    by: dict[str, Agreement]


def agreements(found: Sequence[Mapping[str, Spread]], min_samples: int) -> dict[str, Agreement]:
    """By similarity, from what each question has; one that too few questions have is left out."""
    out: dict[str, Agreement] = {}
    for name in SIMILARITIES:
        values = [spreads[name] for spreads in found if name in spreads]
        if len(values) >= min_samples:
            out[name] = _agreement(values)
    return out


def _agreement(found: Sequence[Spread]) -> Agreement:
    number = len(found)
    mean = math.fsum(one.mean for one in found) / number
    squares = math.fsum((one.mean - mean) ** 2 for one in found) + UNIFORM
    half = t975(number - 1) * math.sqrt(squares / number / number)
    variances = [one.variance for one in found if isinstance(one.variance, float)]
    variations = [one.variation for one in found if isinstance(one.variation, float)]
    return Agreement(
        number,
        mean,
        max(0.0, mean - half),
        min(1.0, mean + half),
        _mean(variances),
        _mean(variations),
    )


def _mean(values: Sequence[float]) -> float | None:
    return math.fsum(values) / len(values) if values else None
