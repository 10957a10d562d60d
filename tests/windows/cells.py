"""Sums and estimates made of lists of values."""

from __future__ import annotations

from collections.abc import Sequence

from ragmeter.core.arithmetic import value_units
from ragmeter.windows.contrasts import MeanSample, SeriesKind, estimate_sample
from ragmeter.windows.sums import ScoreSums

__all__ = ["MEAN", "RATE", "cell", "rate", "sample"]

RATE = SeriesKind(True, 0.0, 1.0)
MEAN = SeriesKind(False, 0.0, 1.0)


def cell(values: Sequence[float], unscored: int = 0) -> ScoreSums:
    y = [value_units(value) for value in values]
    return ScoreSums([0, 0, unscored, 0, len(y), sum(y), sum(one * one for one in y)], None)


def rate(good: int, number: int) -> list[float]:
    """So many of `number` are 1."""
    return [1.0] * good + [0.0] * (number - good)


def sample(values: Sequence[float], kind: SeriesKind = RATE, unscored: int = 0) -> MeanSample:
    found = estimate_sample(cell(values, unscored), kind)
    assert found is not None
    return found
