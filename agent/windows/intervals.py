"""From the sums of a series to the interval of its mean, whatever the sums are."""

from __future__ import annotations

from agent.windows.estimators import Interval
from agent.windows.stratified import History, stratified
from agent.windows.sums import Cell
from agent.windows.units import unit_mean, unit_rate

__all__ = ["interval_of"]


def interval_of(
    cell: Cell,
    ratio: bool,
    low: float | None,
    high: float | None,
    history: History,
    helped: bool = False,
) -> Interval:
    """The estimate of a cell that has scored traces, with strata or without. It is of what was
    scored alone; `estimators.with_missing` widens it by what was not."""
    if cell.strata:
        return stratified(cell, ratio, low, high, history, helped)
    if ratio:
        return unit_rate(cell.n, cell.y)
    return unit_mean(cell.n, cell.y, cell.yy, history.variance, low, high)
