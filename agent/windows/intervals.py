"""Estimate a series from its sums, stratified or not, with the help of the cheap score or without.

The estimate that joins a judge's values with the built-in scores of all traces is a series of its
own, `umbrela+builtin` beside `umbrela`, of the same sums: nothing more is stored for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ragmeter.windows.estimators import (
    VARIANCE_PRIOR,
    WILSON_BELOW,
    Interval,
    MeanSpread,
    StratumMoments,
    mean_interval,
    mean_spread,
    rate_interval,
    sample_variance,
    shrink_slope,
    stratum_moments,
    unit_mean_interval,
    unit_rate_interval,
    unit_variance,
)
from ragmeter.windows.sums import (
    CHEAP_FIELDS,
    RATE_CLASS_SEPARATOR,
    ScoreSums,
    add_sums,
    split_stratum,
)

# Ends the scorer's name (before its version) of a prediction-powered series.
ASSISTED_SUFFIX = "+builtin"

# A probability class with fewer scored traces joins its neighbour. Under a budget that follows
# bursts, intervals cover .93 with 10, .96 with 5; with 3 they cover .98 and are needlessly wide.
_MIN_STRATUM_SCORED = 5


def assisted_scorer(scorer: str) -> str:
    """Return the name of a scorer's assisted series: `umbrela+builtin@3f2a` of `umbrela@3f2a`."""
    name, at, version = scorer.partition("@")
    return f"{name}{ASSISTED_SUFFIX}{at}{version}"


def is_assisted(scorer: str) -> bool:
    """Return whether a scorer's name is that of an assisted series."""
    return scorer.partition("@")[0].endswith(ASSISTED_SUFFIX)


def unassisted_scorer(scorer: str) -> str:
    """Return the scorer that gave the values of a series, assisted or not."""
    name, at, version = scorer.partition("@")
    return f"{name.removesuffix(ASSISTED_SUFFIX)}{at}{version}"


@dataclass(frozen=True, slots=True)
class SeriesHistory:
    """Variance of one score, overall and by stratum, and slope on the cheap score.

    A shorter window borrows them from the longest one.
    """

    variance: float = 0.0
    slope: float = 0.0
    by_stratum: Mapping[str, float] = field(default_factory=dict)


def estimate_history(cell: ScoreSums, uniform: float | None) -> SeriesHistory:
    """Estimate what the sums of a long window tell about single scores.

    Args:
        cell: The sums of the long window.
        uniform: Variance of one pseudo-observation, None for a score without bounds. It keeps a
            few equal scores from claiming that the score never varies.
    """
    if not cell.strata:
        variance = unit_variance(cell.n, cell.y, cell.yy)
        return SeriesHistory(_add_uniform(variance, cell.n if cell.n > 1 else 0, uniform))
    by_class = _sums_by_stratum(cell, True)
    strata = stratum_moments(list(by_class.values()))
    overall = _add_uniform(*sample_variance(strata), uniform)
    classes: dict[str, list[StratumMoments]] = {}
    for name, moments in zip(by_class, strata, strict=True):
        classes.setdefault(split_stratum(name)[0], []).append(moments)
    by_stratum = {
        # a stratum with few scores is taken to vary as the others do, by pseudo-observations
        name: (own * number + overall * VARIANCE_PRIOR) / (number + VARIANCE_PRIOR)
        for name, moments_of_stratum in classes.items()
        for own, number in [sample_variance(moments_of_stratum)]
    }
    return SeriesHistory(overall, shrink_slope(strata), by_stratum)


def _add_uniform(variance: float, number: int, uniform: float | None) -> float:
    return variance if uniform is None else (variance * number + uniform) / (number + 1)


def estimate_interval(
    cell: ScoreSums,
    ratio: bool,
    low: float | None,
    high: float | None,
    history: SeriesHistory,
    assisted: bool = False,
) -> Interval:
    """Estimate the mean of a series over all traffic.

    The estimate is of what was scored; `estimators.widen_for_missing` widens it by what was not.

    Args:
        cell: Sums with at least one scored trace, with strata or without.
        ratio: Whether the scores are 0 or 1.
        low: Least possible value of a graded score, None if unbounded.
        high: Greatest possible value of a graded score, None if unbounded.
        history: What the longest window tells about single scores.
        assisted: Use the cheap scores, from `WILSON_BELOW` scored traces on. The slope is found
            anew each time and shrunk, so a cheap score without information costs almost nothing.
    """
    if not cell.strata:
        if ratio:
            return unit_rate_interval(cell.n, cell.y)
        return unit_mean_interval(cell.n, cell.y, cell.yy, history.variance, low, high)
    strata, variances, slope = _moments_with_history(cell, history, assisted)
    if ratio:
        return rate_interval(strata, slope or 0.0)
    return mean_interval(strata, variances, low, high, slope_history=slope)


def stratified_spread(
    cell: ScoreSums, low: float | None, high: float | None, history: SeriesHistory, assisted: bool
) -> MeanSpread:
    """Return the mean of a graded score with what its interval is made of.

    The arguments are those of `estimate_interval`; `cell` has strata.
    """
    strata, variances, slope = _moments_with_history(cell, history, assisted)
    return mean_spread(strata, variances, low, high, slope_history=slope)


def _moments_with_history(
    cell: ScoreSums, history: SeriesHistory, assisted: bool
) -> tuple[list[StratumMoments], list[float], float | None]:
    """Return moments and historical variance by stratum, and the slope if cheap scores are used."""
    assisted = assisted and cell.scored >= WILSON_BELOW
    by_class = _sums_by_stratum(cell, assisted)
    variances = [
        history.by_stratum.get(split_stratum(name)[0], history.variance) for name in by_class
    ]
    return stratum_moments(list(by_class.values())), variances, history.slope if assisted else None


def _sums_by_stratum(cell: ScoreSums, assisted: bool) -> dict[str, list[int]]:
    """Return sums by stratum and class, each with enough scored traces.

    Classes with few scored traces join the next one. A stratum without any is taken to be like the
    one before it (the first like the one after), which is scaled up to its traffic.
    """
    strata: dict[str, list[tuple[int, list[int]]]] = {}
    for name, sums in cell.sums().items():
        if not assisted:
            for index in CHEAP_FIELDS:
                sums[index] = 0
        stratum, octave = split_stratum(name)
        strata.setdefault(stratum, []).append((octave, sums))
    by_class: dict[str, list[int]] = {}
    size = 0
    last: list[int] | None = None
    for stratum, classes in strata.items():
        for number, sums in enumerate(_join_sparse_classes([sums for _, sums in sorted(classes)])):
            if not sums[2]:
                if last is None:
                    size += sums[0]
                else:
                    _scale_traffic(last, sums[0])
                continue
            if size:
                _scale_traffic(sums, size)
                size = 0
            by_class[f"{stratum}{RATE_CLASS_SEPARATOR}{number}"] = last = sums
    return by_class


def _join_sparse_classes(classes: list[list[int]]) -> list[list[int]]:
    joined: list[list[int]] = []
    for sums in classes:
        if joined and (joined[-1][2] < _MIN_STRATUM_SCORED or sums[2] == 0):
            joined[-1] = add_sums(joined[-1], sums)
        else:
            joined.append(sums)
    if len(joined) > 1 and joined[-1][2] < _MIN_STRATUM_SCORED:
        last = joined.pop()
        joined[-1] = add_sums(joined[-1], last)
    return joined


def _scale_traffic(sums: list[int], added: int) -> None:
    """Add traces (N, in weight units) with the same mean cheap score, in place."""
    size = sums[0] or 1
    sums[1] = sums[1] * (size + added) // size
    sums[0] += added
