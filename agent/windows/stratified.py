"""From the sums of a series with sampling strata to its interval, with the help of the cheap score
or without it, and the names of the two.

The estimate that joins the judge's values with the built-in scores of all traces is a series of
its own, `umbrela+builtin` beside `umbrela`, of the same sums: nothing more is stored for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from agent.windows.estimators import (
    VARIANCE_PRIOR,
    WILSON_BELOW,
    Interval,
    Moments,
    Spread,
    mean_interval,
    mean_spread,
    moments,
    past_slope,
    rate_interval,
    sample_variance,
)
from agent.windows.sums import OCTAVE, OF_CHEAP, Cell, add_up, split
from agent.windows.units import unit_variance

__all__ = [
    "HELP",
    "History",
    "assisted",
    "history_of",
    "is_assisted",
    "stratified",
    "stratified_spread",
    "without_help",
]

HELP = "+builtin"
"""Ends the scorer's name (before its version) of a prediction-powered series."""


def assisted(scorer: str) -> str:
    """`umbrela@3f2a` -> `umbrela+builtin@3f2a`."""
    name, at, version = scorer.partition("@")
    return f"{name}{HELP}{at}{version}"


def is_assisted(scorer: str) -> bool:
    return scorer.partition("@")[0].endswith(HELP)


def without_help(scorer: str) -> str:
    """The scorer whose values they are."""
    name, at, version = scorer.partition("@")
    return f"{name.removesuffix(HELP)}{at}{version}"


@dataclass(frozen=True, slots=True)
class History:
    """What the longest window knows: the variance of one score, all over and by stratum, and the
    slope of the scores on the cheap ones."""

    variance: float = 0.0
    slope: float = 0.0
    by_stratum: Mapping[str, float] = field(default_factory=dict)


def history_of(cell: Cell, uniform: float | None) -> History:
    """`uniform` is the variance of one pseudo-observation, None for a score without bounds."""
    if not cell.strata:
        number = cell.n if cell.n > 1 else 0
        return History(_with(unit_variance(cell.n, cell.y, cell.yy), number, uniform))
    found = _named(cell, True)
    strata = moments(list(found.values()))
    overall = _with(*sample_variance(strata), uniform)
    parts: dict[str, list[Moments]] = {}
    for name, s in zip(found, strata, strict=True):
        parts.setdefault(split(name)[0], []).append(s)
    by_stratum = {
        # a stratum of few is taken to vary as the others do, by as many pseudo-observations
        name: (own * number + overall * VARIANCE_PRIOR) / (number + VARIANCE_PRIOR)
        for name, part in parts.items()
        for own, number in [sample_variance(part)]
    }
    return History(overall, past_slope(strata), by_stratum)


_FEW = 5
"""At least so many scored make a class of probability a stratum of its own. With 10 the intervals
under a budget that follows bursts cover .93, with 5 .96, with 3 .98 and are wider than need be."""


def _with(variance: float, number: int, uniform: float | None) -> float:
    return variance if uniform is None else (variance * number + uniform) / (number + 1)


def stratified(
    cell: Cell,
    ratio: bool,
    low: float | None,
    high: float | None,
    history: History,
    helped: bool,
) -> Interval:
    """The estimate of a cell that has scored traces. `helped`: with the cheap scores, from 50
    scored traces on; the slope is found anew each time and shrunk, so that a cheap score that
    knows nothing costs next to nothing."""
    helped = helped and cell.scored >= WILSON_BELOW
    slope = history.slope if helped else None
    strata, variances = _strata(cell, history, helped)
    if ratio:
        return rate_interval(strata, slope or 0.0)
    return mean_interval(strata, variances, low, high, slope_history=slope)


def stratified_spread(
    cell: Cell, low: float | None, high: float | None, history: History, helped: bool
) -> Spread:
    """What the interval of a graded score is made of, of a cell that has scored traces."""
    helped = helped and cell.scored >= WILSON_BELOW
    strata, variances = _strata(cell, history, helped)
    return mean_spread(
        strata, variances, low, high, slope_history=history.slope if helped else None
    )


def _strata(cell: Cell, history: History, helped: bool) -> tuple[list[Moments], list[float]]:
    """The moments of each stratum, and the variance that the longest window knows of it."""
    found = _named(cell, helped)
    variances = [history.by_stratum.get(split(name)[0], history.variance) for name in found]
    return moments(list(found.values())), variances


def _named(cell: Cell, helped: bool) -> dict[str, list[int]]:
    """Sums by stratum. The classes of probability of a stratum in which less than five were scored
    join the next one; strata in which nothing was scored are added to the one before (the first
    to the one after): they are taken to be like it."""
    groups: dict[str, list[tuple[int, list[int]]]] = {}
    for name, sums in cell.sums().items():
        if not helped:
            for place in OF_CHEAP:
                sums[place] = 0
        stratum, octave = split(name)
        groups.setdefault(stratum, []).append((octave, sums))
    found: dict[str, list[int]] = {}
    size = 0
    last: list[int] | None = None
    for stratum, classes in groups.items():
        for number, sums in enumerate(_joined([sums for _, sums in sorted(classes)])):
            if not sums[2]:
                if last is None:
                    size += sums[0]
                else:
                    _grow(last, sums[0])
                continue
            if size:
                _grow(sums, size)
                size = 0
            found[f"{stratum}{OCTAVE}{number}"] = last = sums
    return found


def _joined(classes: list[list[int]]) -> list[list[int]]:
    """Neighbours together until each has `_FEW` scored; what is left over joins the last."""
    found: list[list[int]] = []
    for sums in classes:
        if found and (found[-1][2] < _FEW or sums[2] == 0):
            found[-1] = add_up(found[-1], sums)
        else:
            found.append(sums)
    if len(found) > 1 and found[-1][2] < _FEW:
        last = found.pop()
        found[-1] = add_up(found[-1], last)
    return found


def _grow(sums: list[int], by: int) -> None:
    """More traces with the same mean cheap score."""
    size = sums[0] or 1
    sums[1] = sums[1] * (size + by) // size
    sums[0] += by
