"""Stratified means of judged scores, and the residual that separates judge from quality drift.

The residual is judge minus calibrated cheap score. When quality falls, the cheap score of all
traffic falls first and the residual hardly moves; when the judge has changed, the residual moves
and the cheap score is quiet.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

from ragmeter.drift.moments import moments_by_stratum
from ragmeter.windows.sums import COUNTS, WITHOUT_CHEAP, ScoreSums, StratumMoments, StratumSums

# Judged traces from which spread and slope are taken: their error is then some 8 %.
_CALIBRATE = 150

# Below this correlation a residual is the judged score itself and tells nothing about the judge.
_CORRELATION = 0.3

# Buckets merged (two hours of five minutes) for a stratum without a judged trace.
_MAX_MERGED = 24

# Least judged traces of a step.
_MIN_JUDGED = 10


class JudgedStep(NamedTuple):
    """The judged mean with its variance, and (mean, variance) of the residual, None without one.

    `start` is that of the last bucket (Unix seconds), `judged` the number of judged traces.
    """

    start: float
    judged: int
    mean: float
    variance: float
    residual: tuple[float, float] | None


class JudgedReference(NamedTuple):
    """Frozen variances and levels of one score by stratum.

    Variances of a bucket itself would double the delay and bend z. `scores` and `residuals` are the
    variances of one sample, "*" for an unknown stratum. `slope` turns the cheap score into the
    judge's scale, 0 if the two have too little in common. `levels` are the means of score and
    residual: traffic moves between strata from bucket to bucket, which no judging averages away.
    """

    scores: dict[str, float]
    residuals: dict[str, float]
    slope: float
    levels: dict[str, tuple[float, float]]

    def estimate(self, start: float, strata: Mapping[str, StratumMoments]) -> JudgedStep:
        """Make the stratified estimates of a step from the moments of its strata."""
        rows = [(name, m, m.y) for name, m in strata.items() if m.size]
        mean, variance = self._stratified_mean(rows, self.scores, 0)
        residual = None
        if self.slope:
            paired = [(name, m, m.y - self.slope * m.f) for name, m, _ in rows if _has_cheap(name)]
            residual = self._stratified_mean(paired, self.residuals, 1) if paired else None
        return JudgedStep(start, sum(m.n for _, m, _ in rows), mean, variance, residual)

    def _stratified_mean(
        self,
        rows: Sequence[tuple[str, StratumMoments, float]],
        variances: Mapping[str, float],
        which: Literal[0, 1],
    ) -> tuple[float, float]:
        """Return mean and variance over (stratum, moments, mean); `which` selects the level."""
        total = sum(m.size for _, m, _ in rows)
        shares = [m.size / total for _, m, _ in rows]
        mean = sum(share * x for share, (_, _, x) in zip(shares, rows, strict=True))
        levels = [self.levels.get(name, (mean, mean))[which] for name, _, _ in rows]
        centre = sum(share * level for share, level in zip(shares, levels, strict=True))
        variance = 0.0
        for share, level, (name, m, _) in zip(shares, levels, rows, strict=True):
            variance += share * share * variances.get(name, variances["*"]) / m.kish
            variance += share * (level - centre) ** 2 / total
        return mean, variance


class JudgedSteps:
    """Turns buckets of a judged series into steps.

    The first `_CALIBRATE` judged traces make the reference; then buckets are merged until every
    stratum has a judged trace.

    Args:
        unit: Range of the score.
    """

    def __init__(self, unit: float = 1.0) -> None:
        self.reference: JudgedReference | None = None
        self._unit = unit
        self._waiting: ScoreSums | None = None
        self._start = 0.0
        self._merged = 0
        self._learned: ScoreSums | None = None

    def feed(self, start: float, cell: ScoreSums) -> JudgedStep | None:
        """Take in a closed bucket that starts at `start`; return a step once there is one."""
        if self.reference is None:
            self._learned = ScoreSums.total([self._learned, cell] if self._learned else [cell])
            if self._learned.scored >= _CALIBRATE:
                self.reference = self._calibrate(self._learned)
                self._learned = None
            return None
        self._start = start
        self._waiting = ScoreSums.total([self._waiting, cell] if self._waiting else [cell])
        self._merged += 1
        strata = None
        if self._waiting.scored >= _MIN_JUDGED:
            strata = moments_by_stratum(self._waiting)
            if strata is None and self._merged >= _MAX_MERGED:
                # hardly anything of a stratum is judged: the others represent it
                strata = moments_by_stratum(self._waiting, all_strata=False)
        if not strata:
            return None
        self._waiting, self._merged = None, 0
        return self.reference.estimate(self._start, strata)

    def _calibrate(self, cell: ScoreSums) -> JudgedReference:
        strata = moments_by_stratum(cell, all_strata=False) or {}
        slope = _slope([m for name, m in strata.items() if _has_cheap(name)])
        floor = self._unit * self._unit
        scores = _variances({name: (m.yy, m.n) for name, m in strata.items()}, floor)
        residuals = {
            name: (max(0.0, m.yy - 2 * slope * m.yf + slope * slope * m.ff), m.n)
            for name, m in strata.items()
        }
        levels = {name: (m.y, m.y - slope * m.f) for name, m in strata.items()}
        return JudgedReference(scores, _variances(residuals, floor), slope, levels)

    def dump(self) -> dict[str, Any]:
        """Return the state for JSON."""
        return {
            "reference": list(self.reference) if self.reference else None,
            "unit": self._unit,
            "waiting": _dump_sums(self._waiting),
            "learned": _dump_sums(self._learned),
            "at": [self._start, self._merged],
        }

    @classmethod
    def load(cls, state: Mapping[str, Any]) -> JudgedSteps:
        """Restore what `dump` returned."""
        new = cls(state["unit"])
        if state["reference"]:
            scores, residuals, slope, levels = state["reference"]
            pairs = {name: (pair[0], pair[1]) for name, pair in levels.items()}
            new.reference = JudgedReference(dict(scores), dict(residuals), slope, pairs)
        new._waiting, new._learned = _load_sums(state["waiting"]), _load_sums(state["learned"])
        new._start, new._merged = state["at"]
        return new


def _has_cheap(stratum: str) -> bool:
    return bool(stratum) and not stratum.endswith(WITHOUT_CHEAP)


def _slope(strata: Sequence[StratumMoments]) -> float:
    """Return the slope of score on cheap score over all traffic, within strata and between.

    It is 0 if the correlation is too small.
    """
    total = sum(m.size for m in strata)
    if not total:
        return 0.0
    y = sum(m.size * m.y for m in strata) / total
    f = sum(m.size * m.f for m in strata) / total
    yf = sum(m.size * (m.yf / m.n + (m.y - y) * (m.f - f)) for m in strata)
    ff = sum(m.size * (m.ff / m.n + (m.f - f) ** 2) for m in strata)
    yy = sum(m.size * (m.yy / m.n + (m.y - y) ** 2) for m in strata)
    useful = ff > 0 and yf > 0 and yf * yf >= _CORRELATION**2 * ff * yy
    return yf / ff if useful else 0.0


def _variances(squares: Mapping[str, tuple[float, int]], floor: float) -> dict[str, float]:
    """Return the variance by stratum from (sum of squared deviations, n).

    Each is shrunk to that of all with 10 pseudo-observations. No stratum may have none, so one
    sample a whole range off is added to all.
    """
    total = sum(s for s, _ in squares.values()) + floor
    n = sum(n for _, n in squares.values())
    pooled = total / max(1, n)
    variances = {name: (s + 10 * pooled) / (n + 10) for name, (s, n) in squares.items()}
    variances["*"] = pooled
    return variances


def _dump_sums(cell: ScoreSums | None) -> Any:
    if cell is None:
        return None
    strata = {name: list(sums) for name, sums in (cell.strata or {}).items()}
    return [[getattr(cell, name) for name in COUNTS], strata]


def _load_sums(state: Any) -> ScoreSums | None:
    if not state:
        return None
    strata = {name: StratumSums.load(sums) for name, sums in state[1].items()}
    return ScoreSums(state[0], strata or None)
