"""Samples of a mean, differences between them with p values, and the contribution of a segment.

The interval of a difference is made of the intervals that are shown beside it, and is lopsided if
they are (`estimators.join_limits`).

The p value is the larger of two: with the variance that each side has of its own, and with the
one that they have together. Where values are skewed or rates near 0 or 1 and one side is small,
each of the two alone has p at most .001 ten times as often as it should, on opposite sides, and
small p values are what many comparisons need; the larger one does not (docs/drift.md).

The contribution of a segment: with shares p and means m of the segments of a tag, before (0) and
now (1), and the level c halfway between the two overall means:

    added = p1 (m1 - c) - p0 (m0 - c) = (p0 + p1) / 2 (m1 - m0) + (p1 - p0) ((m0 + m1) / 2 - c)

The first term is the rate effect: its own mean has moved. The second is the mix effect: it has
become more or less of the traffic, and is better or worse than the rest. Summed over the segments
of a tag this is Kitagawa's decomposition (1955, J. Am. Stat. Assoc. 50: 1168), which has no
interaction term and is symmetric in the two periods. Subtracting c changes no sum, since shares
add up to 1, and attributes the mix effect to a segment.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from ragmeter.core.arithmetic import WEIGHT_ONE
from ragmeter.core.metric_specs import find_spec
from ragmeter.metrics.registry import metric_specs
from ragmeter.windows.estimators import (
    Z_95,
    join_limits,
    student_p_value,
    widen_for_missing,
)
from ragmeter.windows.intervals import estimate_interval
from ragmeter.windows.sums import ScoreSums

# Effective samples below which a side is not compared. The tests hold from 10 on
# (docs/drift.md); 20 because a share of fewer has steps of more than .05.
MIN_SAMPLES = 20


class SeriesKind(NamedTuple):
    """A rate of yes or no (`ratio`) or a mean, and its limits."""

    ratio: bool
    low: float | None
    high: float | None


SHARE = SeriesKind(True, 0.0, 1.0)

CellPair = tuple[ScoreSums | None, ScoreSums | None]
"""Sums of traffic (before, now)."""


def series_kind(metric: str, scorer: str) -> SeriesKind:
    """Return the kind of a series; a metric without a spec is an unbounded mean."""
    spec = find_spec(metric_specs(), metric)
    if spec is None:
        return SeriesKind(False, None, None)
    return SeriesKind(spec.kind == "ratio", spec.low, spec.high)


class MeanSample(NamedTuple):
    """An estimated mean.

    Args:
        value: The mean, with its 95 % interval `lower` to `upper`.
        least: The lowest mean that the missing values leave possible; `most` is the highest.
        effective: The effective number of samples.
        variance: The variance of one effective sample, with `freedom` degrees of freedom.
        size: The traffic that the metric applies to.
        scored: The number of scored traces.
    """

    value: float
    lower: float
    upper: float
    least: float
    most: float
    effective: float
    variance: float
    freedom: float
    size: float
    scored: int
    ratio: bool

    @property
    def enough(self) -> bool:
        """Whether it has enough samples to be compared."""
        return self.effective >= MIN_SAMPLES


def estimate_sample(
    cell: ScoreSums | None, kind: SeriesKind, dependence: float = 1.0
) -> MeanSample | None:
    """Estimate the mean of a cell, of the process behind its traffic; None without a score.

    Args:
        cell: The sums.
        kind: The kind of the series.
        dependence: How many scores are worth one independent one.
    """
    if cell is None or not cell.scored:
        return None
    low, high = (0.0, 1.0) if kind.ratio else (kind.low, kind.high)
    interval = estimate_interval(cell, low, high, process=True, dependence=dependence)
    value = interval.value
    effective = interval.effective
    if kind.ratio:
        # a rate of no failures is not a rate that can have none: one success, one failure more
        smooth = (value * effective + 1) / (effective + 2)
        variance = smooth * (1 - smooth)
        freedom = math.inf
    else:
        error = (interval.upper - interval.lower) / (2 * Z_95)
        variance = error * error * effective
        freedom = max(1.0, cell.scored - 1)
    lost = cell.unscored_share() or 0.0
    bounded = widen_for_missing(interval, lost, low, high)
    return MeanSample(
        value=value,
        lower=bounded.lower,
        upper=bounded.upper,
        least=value if low is None else (1 - lost) * value + lost * low,
        most=value if high is None else (1 - lost) * value + lost * high,
        effective=effective,
        variance=variance,
        freedom=freedom,
        size=sum(sums.size for sums in cell.sums().values()) / WEIGHT_ONE,
        scored=cell.scored,
        ratio=kind.ratio,
    )


class Contrast(NamedTuple):
    """A difference with its 95 % interval; `p` is the p value of no difference."""

    value: float
    lower: float
    upper: float
    p: float


class MeanChange(NamedTuple):
    """The means of one series before and now, and their difference."""

    before: MeanSample
    now: MeanSample
    change: Contrast


def estimate_change(cells: CellPair, kind: SeriesKind) -> MeanChange | None:
    """Estimate how a mean has changed; None with too few samples, before or now."""
    before, now = (estimate_sample(cell, kind) for cell in cells)
    if before is None or now is None or not (before.enough and now.enough):
        return None
    return MeanChange(before, now, compare_means((now, before)))


_SamplePair = tuple[MeanSample, MeanSample]


def compare_means(one: _SamplePair, other: _SamplePair | None = None) -> Contrast:
    """Return `one[0]` - `one[1]`, less `other[0]` - `other[1]` if there is another pair."""
    value, lower, upper = join_limits(
        [
            (factor, *sample[:3])
            for sign, pair in _signed_pairs(one, other)
            for factor, sample in zip((sign, -sign), pair, strict=True)
        ]
    )
    return Contrast(value, lower, upper, max(p_values(one, other)))


def p_values(one: _SamplePair, other: _SamplePair | None = None) -> tuple[float, float]:
    """Return the p values with the variance of each side and with their common variance.

    If values are missing, the difference that is tested is the smallest that they leave: a
    judge that fails never makes a finding.
    """
    least = most = 0.0
    own: list[tuple[float, float]] = []
    pooled: list[tuple[float, float]] = []
    for sign, (a, b) in _signed_pairs(one, other):
        ends = (a.least - b.most, a.most - b.least)
        least += ends[0] if sign > 0 else -ends[1]
        most += ends[1] if sign > 0 else -ends[0]
        own += [(a.variance / a.effective, a.freedom), (b.variance / b.effective, b.freedom)]
        inverse = 1 / a.effective + 1 / b.effective
        pooled.append((_pooled_variance(a, b) * inverse, a.freedom + b.freedom))
    distance = max(0.0, least, -most)
    if not distance:
        return 1.0, 1.0
    return _welch_p_value(distance, own), _welch_p_value(distance, pooled)


def _signed_pairs(one: _SamplePair, other: _SamplePair | None) -> list[tuple[float, _SamplePair]]:
    return [(1.0, one)] if other is None else [(1.0, one), (-1.0, other)]


def _pooled_variance(a: MeanSample, b: MeanSample) -> float:
    """Return the variance of one sample if both sides are alike."""
    n = a.effective + b.effective
    if a.ratio:
        share = (a.value * a.effective + b.value * b.effective) / n
        return share * (1 - share)
    return (a.variance * a.effective + b.variance * b.effective) / n


def _welch_p_value(distance: float, errors: Sequence[tuple[float, float]]) -> float:
    """Return the p value of a distance with (squared error, degrees of freedom) of its terms."""
    total = sum(error for error, _ in errors)
    if total <= 0.0:
        return 0.0
    # Welch and Satterthwaite
    freedom = sum(error * error / df for error, df in errors)
    return student_p_value(
        distance / math.sqrt(total), total * total / freedom if freedom else math.inf
    )


class Contribution(NamedTuple):
    """`value` = `rate` + `mix`, with the 95 % interval of `value` for shares as they were."""

    value: float
    lower: float
    upper: float
    rate: float
    mix: float


def contribution_to_change(
    now: MeanSample | None,
    before: MeanSample | None,
    rests: tuple[MeanSample | None, MeanSample | None],
    wholes: tuple[MeanSample, MeanSample],
) -> Contribution:
    """Return the contribution of a segment to the change of the mean.

    A side of None has no traffic: all is mix. `rests` and `wholes` are (now, before) of the other
    traffic and of all traffic.
    """
    whole1, whole0 = wholes
    level = (whole1.value + whole0.value) / 2
    p1 = now.size / whole1.size if now else 0.0
    p0 = before.size / whole0.size if before else 0.0
    value = (p1 * (now.value - level) if now else 0.0) - (
        p0 * (before.value - level) if before else 0.0
    )
    rate = (p0 + p1) / 2 * (now.value - before.value) if now and before else 0.0
    # the level is made of the segment and the rest itself, which its interval must know
    half = (p1 - p0) / 2
    terms = [
        (factor, *sample[:3])
        for factor, sample in (
            (p1 - half * p1, now),
            (-p0 - half * p0, before),
            (-half * (1 - p1), rests[0]),
            (-half * (1 - p0), rests[1]),
        )
        if sample is not None
    ]
    middle, lower, upper = join_limits(terms)
    return Contribution(
        value=value,
        lower=value + lower - middle,
        upper=value + upper - middle,
        rate=rate,
        mix=value - rate,
    )


def contribution_to_level(now: MeanSample, rest: MeanSample, whole: MeanSample) -> Contribution:
    """Return how far a segment pulls the mean of all away from that of the rest."""
    p = now.size / whole.size
    value, lower, upper = join_limits([(p * (1 - p), *now[:3]), (-p * (1 - p), *rest[:3])])
    return Contribution(value=value, lower=lower, upper=upper, rate=0.0, mix=value)
