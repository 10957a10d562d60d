"""The sums of a service by segment, made of lists of values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ragmeter.parts.segments.segment_rows import PeriodSums
from ragmeter.windows.sums import ScoreSums

from tests.windows.cells import cell

__all__ = ["period"]


def period(**segments: Sequence[float]) -> PeriodSums:
    """Values by segment, `tag_value` for tag=value; the whole service is their sum over the first
    tag, `whole` besides."""
    cells = {name.replace("_", "=", 1): cell(values) for name, values in segments.items()}
    first = next(iter(cells)).partition("=")[0]
    own = [one for name, one in cells.items() if name.partition("=")[0] == first]
    untagged = cells.pop("whole", None)
    everything = [*own, untagged] if untagged and first != "whole" else own
    whole: Mapping[str, ScoreSums] = {"": ScoreSums.total(everything), **cells}
    return whole
