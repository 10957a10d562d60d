"""Sums and estimates made of lists of values, for the tests of breakdowns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from agent.breakdown.rows import Period
from agent.breakdown.sample import Kind, Sample, sample_of
from agent.windows.exact import units
from agent.windows.stratified import History
from agent.windows.sums import Cell

__all__ = ["MEAN", "RATE", "cell", "period", "rate", "sample"]

RATE = Kind(True, 0.0, 1.0)
MEAN = Kind(False, 0.0, 1.0)


def cell(values: Sequence[float], unscored: int = 0) -> Cell:
    y = [units(value) for value in values]
    return Cell([0, 0, unscored, 0, len(y), sum(y), sum(one * one for one in y)], None)


def rate(good: int, number: int) -> list[float]:
    """So many of `number` are 1."""
    return [1.0] * good + [0.0] * (number - good)


def sample(values: Sequence[float], kind: Kind = RATE, unscored: int = 0) -> Sample:
    found = sample_of(cell(values, unscored), kind, History(0.02))
    assert found is not None
    return found


def period(**segments: Sequence[float]) -> Period:
    """Values by segment, `tag_value` for tag=value; the whole service is their sum over the first
    tag, `whole` besides."""
    cells = {name.replace("_", "=", 1): cell(values) for name, values in segments.items()}
    first = next(iter(cells)).partition("=")[0]
    own = [one for name, one in cells.items() if name.partition("=")[0] == first]
    untagged = cells.pop("whole", None)
    everything = [*own, untagged] if untagged and first != "whole" else own
    whole: Mapping[str, Cell] = {"": Cell.total(everything), **cells}
    return Period(whole, {"": History(0.02)})
