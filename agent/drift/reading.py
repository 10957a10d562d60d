"""From the windows' exact sums to the numbers that detectors take."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple, Protocol

from agent.drift.segments import Part
from agent.windows.estimators import Moments, moments
from agent.windows.exact import VALUE_ONE, WEIGHT_ONE
from agent.windows.loghist import LogHist
from agent.windows.sums import Cell

__all__ = ["Plain", "Source", "named_moments", "part_of", "plain"]


class Source(Protocol):
    """What the monitor reads: closed buckets of event time. `Windows` is one."""

    def services(self) -> Sequence[str]: ...

    def segments(self, service: str) -> Sequence[str]: ...

    def series(self, service: str, segment: str = "") -> Sequence[tuple[str, str]]: ...

    def stages(self, service: str, segment: str = "") -> Sequence[str]: ...

    def bucket(
        self, service: str, segment: str, metric: str, scorer: str, width: int, start: float
    ) -> Cell | None: ...

    def bucket_latency(
        self, service: str, segment: str, stage: str, width: int, start: float
    ) -> LogHist | None: ...


class Plain(NamedTuple):
    """n effective samples with the sum and the sum of squares that they would have."""

    n: float
    total: float
    squares: float


def plain(cell: Cell) -> Plain | None:
    """The self-normalised (Hajek) mean with Kish's number of samples."""
    n, y, yy = cell.n, cell.y / VALUE_ONE, cell.yy / (VALUE_ONE * VALUE_ONE)
    if not cell.strata:
        return Plain(n, y, yy) if n else None
    w = w2 = float(n)
    for sums in cell.strata.values():
        w += sums[3] / WEIGHT_ONE
        w2 += sums[4] / (WEIGHT_ONE * WEIGHT_ONE)
        y += sums[5] / (WEIGHT_ONE * VALUE_ONE)
        yy += sums[11] / (VALUE_ONE * VALUE_ONE)
        n += sums[2]
    if not n:
        return None
    kish = w * w / w2
    return Plain(kish, kish * y / w, kish * yy / n)


def named_moments(cell: Cell, all_strata: bool = True) -> dict[str, Moments] | None:
    """Moments by stratum. None without a scored trace, and, where `all_strata` are asked for, while
    one that has traces has no scored one."""
    named = cell.sums()
    scored = {name: sums for name, sums in named.items() if sums[2]}
    if not scored or (all_strata and len(scored) < len(named)):
        return None
    return {name: moments([sums])[0] for name, sums in scored.items()}


def part_of(cells: Iterable[Cell | None]) -> Part:
    """Mean and spread over several buckets."""
    n = total = squares = 0.0
    for cell in cells:
        found = plain(cell) if cell is not None else None
        if found is not None:
            n += found.n
            total += found.total
            squares += found.squares
    if not n:
        return Part(0.0, 0.0, 0.0)
    mean = total / n
    return Part(n, mean, max(0.0, squares / n - mean * mean))
