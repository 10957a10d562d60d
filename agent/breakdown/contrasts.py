"""Differences of means, and differences of differences: interval and p value.

The interval is the MOVER (Zou and Donner 2008; for two rates it is Newcombe's tenth method, 1998):
it is made of the intervals that are shown beside it, and is lopsided where they are.

The p value is the larger of two: with the variance that each side has of its own, and with the
one that they have together. Where values are skewed or rates near 0 or 1 and one side is small,
each of the two alone has p at most .001 ten times as often as it should, on opposite sides, and
small p values are what many comparisons need; the larger one does not (docs/segments.md).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from agent.breakdown.sample import Sample

__all__ = ["Contrast", "Term", "contrast", "mover", "p_values", "tail"]


class Contrast(NamedTuple):
    """A difference with its 95 % interval; `p` of there being none."""

    value: float
    lower: float
    upper: float
    p: float


class Term(NamedTuple):
    """An estimate with its interval, times a factor."""

    factor: float
    value: float
    lower: float
    upper: float


def mover(terms: Sequence[Term]) -> tuple[float, float, float]:
    """(value, lower, upper) of a sum of independent estimates."""
    value = below = above = 0.0
    for factor, middle, lower, upper in terms:
        value += factor * middle
        down, up = factor * (middle - lower), factor * (upper - middle)
        if factor < 0:
            down, up = -up, -down
        below += down * down
        above += up * up
    return value, value - math.sqrt(below), value + math.sqrt(above)


def tail(t: float, freedom: float) -> float:
    """The two-sided p value of Student's t, by Wallace's normal deviate (1959): within 3 % of it
    from 10 degrees of freedom on, down to p = 0.0001."""
    z = abs(t)
    if math.isinf(z):
        return 0.0
    if freedom < 1e7:
        z = (8 * freedom + 1) / (8 * freedom + 3) * math.sqrt(freedom * math.log1p(t * t / freedom))
    return math.erfc(z / math.sqrt(2))


def contrast(one: tuple[Sample, Sample], other: tuple[Sample, Sample] | None = None) -> Contrast:
    """`one[0]` less `one[1]`; with `other`, by how much more than `other[0]` less `other[1]`."""
    value, lower, upper = mover(
        [
            Term(factor, *sample[:3])
            for sign, pair in _signed(one, other)
            for factor, sample in zip((sign, -sign), pair, strict=True)
        ]
    )
    return Contrast(value, lower, upper, max(p_values(one, other)))


def p_values(
    one: tuple[Sample, Sample], other: tuple[Sample, Sample] | None = None
) -> tuple[float, float]:
    """With the variance that each side has of its own, and with the one that they have together.

    Where values are missing, the difference that is tested is the smallest that they leave: a
    judge that fails never makes a finding.
    """
    least = most = 0.0
    own: list[tuple[float, float]] = []
    pooled: list[tuple[float, float]] = []
    for sign, (a, b) in _signed(one, other):
        ends = (a.least - b.most, a.most - b.least)
        least += ends[0] if sign > 0 else -ends[1]
        most += ends[1] if sign > 0 else -ends[0]
        own += [(a.variance / a.effective, a.freedom), (b.variance / b.effective, b.freedom)]
        inverse = 1 / a.effective + 1 / b.effective
        pooled.append((_together(a, b) * inverse, a.freedom + b.freedom))
    distance = max(0.0, least, -most)
    return (_p(distance, own), _p(distance, pooled)) if distance else (1.0, 1.0)


def _signed(
    one: tuple[Sample, Sample], other: tuple[Sample, Sample] | None
) -> list[tuple[float, tuple[Sample, Sample]]]:
    return [(1.0, one)] if other is None else [(1.0, one), (-1.0, other)]


def _together(a: Sample, b: Sample) -> float:
    """The variance of one sample if both sides are alike."""
    n = a.effective + b.effective
    if a.ratio:
        share = (a.value * a.effective + b.value * b.effective) / n
        return share * (1 - share)
    return (a.variance * a.effective + b.variance * b.effective) / n


def _p(distance: float, errors: Sequence[tuple[float, float]]) -> float:
    """With the squared errors and their degrees of freedom (Welch and Satterthwaite)."""
    total = sum(error for error, _ in errors)
    if total <= 0.0:
        return 0.0
    freedom = sum(error * error / df for error, df in errors)
    return tail(distance / math.sqrt(total), total * total / freedom if freedom else math.inf)
