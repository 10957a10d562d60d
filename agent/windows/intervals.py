"""Estimate a series from its stratified sums, with the help of the cheap score where it explains variance.

From the sums of a series with sampling strata to its interval, with the help of the cheap score
or without it, and the names of the two.

The estimate that joins the judge's values with the built-in scores of all traces is a series of
its own, `umbrela+builtin` beside `umbrela`, of the same sums: nothing more is stored for it.
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

ASSISTED_SUFFIX = "+builtin"
"""Ends the scorer's name (before its version) of a prediction-powered series."""


def assisted_scorer(scorer: str) -> str:
    """`umbrela@3f2a` -> `umbrela+builtin@3f2a`."""
    name, at, version = scorer.partition("@")
    return f"{name}{ASSISTED_SUFFIX}{at}{version}"


def is_assisted(scorer: str) -> bool:
    return scorer.partition("@")[0].endswith(ASSISTED_SUFFIX)


def unassisted_scorer(scorer: str) -> str:
    """The scorer whose values they are."""
    name, at, version = scorer.partition("@")
    return f"{name.removesuffix(ASSISTED_SUFFIX)}{at}{version}"


@dataclass(frozen=True, slots=True)
class SeriesHistory:
    """What the longest window knows: the variance of one score, all over and by stratum, and the
    slope of the scores on the cheap ones."""

    variance: float = 0.0
    slope: float = 0.0
    by_stratum: Mapping[str, float] = field(default_factory=dict)


def estimate_history(cell: ScoreSums, uniform: float | None) -> SeriesHistory:
    """`uniform` is the variance of one pseudo-observation, None for a score without bounds."""
    if not cell.strata:
        number = cell.n if cell.n > 1 else 0
        return SeriesHistory(
            _with_prior_variance(unit_variance(cell.n, cell.y, cell.yy), number, uniform)
        )
    found = _sums_by_stratum(cell, True)
    strata = stratum_moments(list(found.values()))
    overall = _with_prior_variance(*sample_variance(strata), uniform)
    parts: dict[str, list[StratumMoments]] = {}
    for name, s in zip(found, strata, strict=True):
        parts.setdefault(split_stratum(name)[0], []).append(s)
    by_stratum = {
        # a stratum of few is taken to vary as the others do, by as many pseudo-observations
        name: (own * number + overall * VARIANCE_PRIOR) / (number + VARIANCE_PRIOR)
        for name, part in parts.items()
        for own, number in [sample_variance(part)]
    }
    return SeriesHistory(overall, shrink_slope(strata), by_stratum)


_MIN_STRATUM_SCORED = 5
"""At least so many scored make a class of probability a stratum of its own. With 10 the intervals
under a budget that follows bursts cover .93, with 5 .96, with 3 .98 and are wider than need be."""


def _with_prior_variance(variance: float, number: int, uniform: float | None) -> float:
    return variance if uniform is None else (variance * number + uniform) / (number + 1)


def _stratified_interval(
    cell: ScoreSums,
    ratio: bool,
    low: float | None,
    high: float | None,
    history: SeriesHistory,
    helped: bool,
) -> Interval:
    """The estimate of a cell that has scored traces. `helped`: with the cheap scores, from 50
    scored traces on; the slope is found anew each time and shrunk, so that a cheap score that
    knows nothing costs next to nothing."""
    helped = helped and cell.scored >= WILSON_BELOW
    slope = history.slope if helped else None
    strata, variances = _moments_with_history(cell, history, helped)
    if ratio:
        return rate_interval(strata, slope or 0.0)
    return mean_interval(strata, variances, low, high, slope_history=slope)


def stratified_spread(
    cell: ScoreSums, low: float | None, high: float | None, history: SeriesHistory, helped: bool
) -> MeanSpread:
    """What the interval of a graded score is made of, of a cell that has scored traces."""
    helped = helped and cell.scored >= WILSON_BELOW
    strata, variances = _moments_with_history(cell, history, helped)
    return mean_spread(
        strata, variances, low, high, slope_history=history.slope if helped else None
    )


def _moments_with_history(
    cell: ScoreSums, history: SeriesHistory, helped: bool
) -> tuple[list[StratumMoments], list[float]]:
    """The moments of each stratum, and the variance that the longest window knows of it."""
    found = _sums_by_stratum(cell, helped)
    variances = [history.by_stratum.get(split_stratum(name)[0], history.variance) for name in found]
    return stratum_moments(list(found.values())), variances


def _sums_by_stratum(cell: ScoreSums, helped: bool) -> dict[str, list[int]]:
    """Sums by stratum. The classes of probability of a stratum in which less than five were scored
    join the next one; strata in which nothing was scored are added to the one before (the first
    to the one after): they are taken to be like it."""
    groups: dict[str, list[tuple[int, list[int]]]] = {}
    for name, sums in cell.sums().items():
        if not helped:
            for place in CHEAP_FIELDS:
                sums[place] = 0
        stratum, octave = split_stratum(name)
        groups.setdefault(stratum, []).append((octave, sums))
    found: dict[str, list[int]] = {}
    size = 0
    last: list[int] | None = None
    for stratum, classes in groups.items():
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
            found[f"{stratum}{RATE_CLASS_SEPARATOR}{number}"] = last = sums
    return found


def _join_sparse_classes(classes: list[list[int]]) -> list[list[int]]:
    """Neighbours together until each has `_FEW` scored; what is left over joins the last."""
    found: list[list[int]] = []
    for sums in classes:
        if found and (found[-1][2] < _MIN_STRATUM_SCORED or sums[2] == 0):
            found[-1] = add_sums(found[-1], sums)
        else:
            found.append(sums)
    if len(found) > 1 and found[-1][2] < _MIN_STRATUM_SCORED:
        last = found.pop()
        found[-1] = add_sums(found[-1], last)
    return found


def _scale_traffic(sums: list[int], by: int) -> None:
    """More traces with the same mean cheap score."""
    size = sums[0] or 1
    sums[1] = sums[1] * (size + by) // size
    sums[0] += by


def estimate_interval(
    cell: ScoreSums,
    ratio: bool,
    low: float | None,
    high: float | None,
    history: SeriesHistory,
    helped: bool = False,
) -> Interval:
    """The estimate of a cell that has scored traces, with strata or without. It is of what was
    scored alone; `estimators.with_missing` widens it by what was not."""
    if cell.strata:
        return _stratified_interval(cell, ratio, low, high, history, helped)
    if ratio:
        return unit_rate_interval(cell.n, cell.y)
    return unit_mean_interval(cell.n, cell.y, cell.yy, history.variance, low, high)
