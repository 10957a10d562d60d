"""One side of a comparison: the estimate of a mean with what a test needs of it."""

from __future__ import annotations

import math
from typing import NamedTuple

from agent.windows.estimators import VARIANCE_PRIOR, with_missing
from agent.windows.exact import WEIGHT_ONE
from agent.windows.intervals import interval_of
from agent.windows.stratified import History, stratified_spread
from agent.windows.sums import Cell
from agent.windows.units import unit_variance

__all__ = ["LEAST", "Kind", "Sample", "sample_of"]

LEAST = 20
"""Effective samples below which a side is too few to be compared. The tests hold from 10 on
(docs/segments.md); 20 because a share of fewer has steps of more than .05."""


class Kind(NamedTuple):
    """What a series is: a rate of yes or no or a mean, within which limits, and whether cheap
    scores help its estimate."""

    ratio: bool
    low: float | None
    high: float | None
    helped: bool = False


class Sample(NamedTuple):
    """`lower` and `upper` are the 95 % interval, `least` and `most` the point whatever the values
    that are missing would have been. `variance` is that of one effective sample, `size` the traffic
    that the metric applies to."""

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
        """Whether it may be compared."""
        return self.effective >= LEAST


def sample_of(cell: Cell | None, kind: Kind, history: History) -> Sample | None:
    """None where nothing was scored."""
    if cell is None or not cell.scored:
        return None
    interval = interval_of(cell, kind.ratio, kind.low, kind.high, history, kind.helped)
    value, effective = interval.value, interval.effective
    if kind.ratio:
        # a rate of no failures is not a rate that can have none: one success, one failure more
        smooth = (value * effective + 1) / (effective + 2)
        variance, freedom = smooth * (1 - smooth), math.inf
    elif cell.strata:
        spread = stratified_spread(cell, kind.low, kind.high, history, kind.helped)
        variance, freedom = spread.error * spread.effective, max(1.0, spread.freedom)
    else:
        own = (cell.n - 1) * unit_variance(cell.n, cell.y, cell.yy)
        variance = (own + VARIANCE_PRIOR * history.variance) / (cell.n - 1 + VARIANCE_PRIOR)
        freedom = max(1.0, cell.n - 1)
    lost = (cell.unscored_share() or 0.0) if cell.unscored or cell.shed else 0.0
    low, high = (0.0, 1.0) if kind.ratio else (kind.low, kind.high)
    bounded = with_missing(interval, lost, low, high)
    return Sample(
        value=value,
        lower=bounded.lower,
        upper=bounded.upper,
        least=value if low is None else (1 - lost) * value + lost * low,
        most=value if high is None else (1 - lost) * value + lost * high,
        effective=effective,
        variance=variance,
        freedom=freedom,
        size=sum(sums[0] for sums in cell.sums().values()) / WEIGHT_ONE,
        scored=cell.scored,
        ratio=kind.ratio,
    )
