"""Judged scores by weight, and the residual that separates judge from quality drift.

The residual is judge minus calibrated cheap score. When quality falls, the cheap score of all
traffic falls first and the residual hardly moves; when the judge has changed, the residual moves
and the cheap score is quiet.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple

from pydantic import PlainSerializer, PlainValidator

from ragmeter.parts.drift.detectors import ScorePart
from ragmeter.windows.sums import COUNTS, WITHOUT_CHEAP, ScoreSums, StratumSums, stratum_moments

# Judged traces from which the slope is taken: its error is then some 8 %.
_CALIBRATE = 150

# Below this correlation a residual is the judged score itself and tells nothing about the judge.
_CORRELATION = 0.3

# Factor a step by which the largest weight is forgotten: a stratum that is judged rarely comes
# again within hours, and after the sampling rate has grown bets are small for as long.
_FORGET = 0.99


class PairedMoments(NamedTuple):
    """Second central moments of score y and cheap score f over all traffic, times its size.

    `effective` is Kish's number of traces with both.
    """

    yy: float
    yf: float
    ff: float
    effective: float


def paired_moments(cell: ScoreSums) -> PairedMoments | None:
    """Return the moments, within strata and between; None if no judged trace has a cheap score."""
    pairs = [
        stratum_moments(sums) for name, sums in cell.sums().items() if sums.n and _has_cheap(name)
    ]
    if not pairs:
        return None
    total = sum(m.size for m in pairs)
    y = sum(m.size * m.y for m in pairs) / total
    f = sum(m.size * m.f for m in pairs) / total
    return PairedMoments(
        yy=sum(m.size * (m.yy / m.n + (m.y - y) ** 2) for m in pairs),
        yf=sum(m.size * (m.yf / m.n + (m.y - y) * (m.f - f)) for m in pairs),
        ff=sum(m.size * (m.ff / m.n + (m.f - f) ** 2) for m in pairs),
        effective=sum(m.kish for m in pairs),
    )


class JudgedStep(NamedTuple):
    """The judged scores of a bucket by weight, and their residuals if there is a slope."""

    scores: list[ScorePart]
    residuals: list[ScorePart]
    slope: float


def _dump_sums(cell: ScoreSums) -> tuple[list[int], dict[str, list[int]]]:
    strata = {name: list(sums) for name, sums in (cell.strata or {}).items()}
    return [getattr(cell, name) for name in COUNTS], strata


def _load_sums(state: Any) -> ScoreSums:
    counts, strata = state
    return ScoreSums(counts, {n: StratumSums.load(sums) for n, sums in strata.items()} or None)


_SavedSums = Annotated[ScoreSums, PlainValidator(_load_sums), PlainSerializer(_dump_sums)]


@dataclass
class JudgedSteps:
    """Turns buckets of a judged series into scores of relative weight.

    A trace drawn with probability p counts 1/p: then the mean is that of all traffic, whatever the
    sampling rates are. Bets must survive the largest weight, which is remembered over buckets, so
    that it does not depend on which traces one happens to hold. The slope of score on cheap score
    is taken from the first `_CALIBRATE` judged traces, 0 if the two have too little in common.
    """

    slope: float | None = None
    _largest: float = 0.0
    _learned: _SavedSums | None = None

    def feed(self, cell: ScoreSums) -> JudgedStep:
        """Take in a closed bucket with judged traces."""
        strata = {name: sums for name, sums in cell.sums().items() if sums.n}
        largest = max(sums.w / sums.n for sums in strata.values())
        self._largest = max(self._largest * _FORGET, largest)
        if self.slope is None:
            self._learned = ScoreSums.total([self._learned, cell] if self._learned else [cell])
            if self._learned.scored >= _CALIBRATE:
                self.slope = _slope(self._learned)
                self._learned = None
        slope = self.slope or 0.0
        scores = []
        residuals = []
        for name, sums in strata.items():
            m = stratum_moments(sums)
            weight = sums.w / sums.n / self._largest
            scores.append(_part(m.n, m.y, m.yy, weight))
            if slope and _has_cheap(name):
                squares = m.yy - 2 * slope * m.yf + slope * slope * m.ff
                residuals.append(_part(m.n, m.y - slope * m.f, squares, weight))
        return JudgedStep(scores, residuals, slope)


def _part(n: int, mean: float, deviations: float, weight: float) -> ScorePart:
    """Return the part of n scores with a sum of squared deviations from their mean."""
    return ScorePart(n, n * mean, max(0.0, deviations) + n * mean * mean, weight)


def _has_cheap(stratum: str) -> bool:
    return bool(stratum) and not stratum.endswith(WITHOUT_CHEAP)


def _slope(cell: ScoreSums) -> float:
    """Return the slope of score on cheap score, 0 if the correlation is too small."""
    moments = paired_moments(cell)
    if moments is None:
        return 0.0
    yy, yf, ff, _ = moments
    useful = ff > 0 and yf > 0 and yf * yf >= _CORRELATION**2 * ff * yy
    return yf / ff if useful else 0.0
