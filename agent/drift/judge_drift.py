"""Stratified means of judged scores and the residual that separates judge drift from quality drift.


The residual is judge minus calibrated cheap score. When quality falls, the cheap score of all
traffic falls first and the residual hardly moves; when the judge has changed, the residual moves
and the cheap score is quiet.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

from ragmeter.drift.moments import moments_by_stratum
from ragmeter.windows.estimators import StratumMoments
from ragmeter.windows.sums import COUNTS, WITHOUT_CHEAP, ScoreSums

QUIET_SECONDS = 86400.0
"""Seconds without an alarm of the cheap score, for its being quiet to mean something."""

_CALIBRATE = 150
"""Judged traces from which spread and slope are taken: their error is then some 8 %."""

_CORRELATION = 0.3
"""Below it a residual is the judged score itself, and says nothing of the judge."""

_MAX_MERGED = 24
"""Buckets merged (two hours of five minutes) for a stratum without a judged trace."""

_MIN_JUDGED = 10


class JudgedStep(NamedTuple):
    """Estimate and variance of the judged mean, the same of the residual (None without one)."""

    start: float
    judged: int
    mean: float
    variance: float
    residual: tuple[float, float] | None


class JudgedReference(NamedTuple):
    """Frozen spreads of one score by stratum ("*" for one never seen): those of a bucket itself
    would double the delay and bend z. `slope` turns the cheap score into the judge's scale; 0
    where the two have too little in common."""

    scores: dict[str, float]
    residuals: dict[str, float]
    slope: float
    levels: dict[str, tuple[float, float]]
    """Mean of score and residual by stratum: traffic moves between strata from bucket to bucket,
    which no judge call can average away."""

    def estimate(self, start: float, found: Mapping[str, StratumMoments]) -> JudgedStep:
        """The stratified estimates of a bucket."""
        every = [(name, m) for name, m in found.items() if m.size]
        judged = sum(m.n for _, m in every)
        mean, variance = self._stratified([(name, m, m.y) for name, m in every], self.scores, 0)
        residual = None
        paired = [(n, m) for n, m in every if not n.endswith(WITHOUT_CHEAP) and n]
        if self.slope and paired:
            rows = [(name, m, m.y - self.slope * m.f) for name, m in paired]
            residual = self._stratified(rows, self.residuals, 1)
        return JudgedStep(start, judged, mean, variance, residual)

    def _stratified(
        self,
        rows: Sequence[tuple[str, StratumMoments, float]],
        spreads: Mapping[str, float],
        which: Literal[0, 1],
    ) -> tuple[float, float]:
        """Estimate and variance over (stratum, moments, mean)."""
        total = sum(m.size for _, m, _ in rows)
        parts = [m.size / total for _, m, _ in rows]
        mean = sum(part * x for part, (_, _, x) in zip(parts, rows, strict=True))
        known = [self.levels.get(name, (mean, mean))[which] for name, _, _ in rows]
        centre = sum(part * level for part, level in zip(parts, known, strict=True))
        variance = 0.0
        for part, level, (name, m, _) in zip(parts, known, rows, strict=True):
            variance += part * part * spreads.get(name, spreads["*"]) / m.kish
            variance += part * (level - centre) ** 2 / total
        return mean, variance


class JudgedSteps:
    """From buckets of a judged series to steps: calibrates first, then merges until every stratum
    has a judged trace."""

    def __init__(self, unit: float = 1.0) -> None:
        self.reference: JudgedReference | None = None
        self._unit = unit
        self._waiting: ScoreSums | None = None
        self._start = 0.0
        self._merged = 0
        self._learned: ScoreSums | None = None

    def feed(self, start: float, cell: ScoreSums) -> JudgedStep | None:
        """A closed bucket; a step, once there is one."""
        if self.reference is None:
            self._learned = ScoreSums.total([self._learned, cell] if self._learned else [cell])
            if self._learned.scored >= _CALIBRATE:
                self.reference = self._calibrate(self._learned)
                self._learned = None
            return None
        self._start = start
        self._waiting = ScoreSums.total([self._waiting, cell] if self._waiting else [cell])
        self._merged += 1
        found = None
        if self._waiting.scored >= _MIN_JUDGED:
            found = moments_by_stratum(self._waiting)
            if found is None and self._merged >= _MAX_MERGED:
                # a stratum that hardly anything is judged of: the others stand for it
                found = moments_by_stratum(self._waiting, all_strata=False)
        if not found:
            return None
        self._waiting, self._merged = None, 0
        return self.reference.estimate(self._start, found)

    def _calibrate(self, cell: ScoreSums) -> JudgedReference:
        found = moments_by_stratum(cell, all_strata=False) or {}
        paired = [m for name, m in found.items() if name and not name.endswith(WITHOUT_CHEAP)]
        slope = _slope(paired)
        floor = self._unit * self._unit
        scores = _spreads({name: (m.yy, m.n) for name, m in found.items()}, floor)
        left = {
            name: (max(0.0, m.yy - 2 * slope * m.yf + slope * slope * m.ff), m.n)
            for name, m in found.items()
        }
        levels = {name: (m.y, m.y - slope * m.f) for name, m in found.items()}
        return JudgedReference(scores, _spreads(left, floor), slope, levels)

    def dump(self) -> dict[str, Any]:
        return {
            "reference": list(self.reference) if self.reference else None,
            "unit": self._unit,
            "waiting": _dump(self._waiting),
            "learned": _dump(self._learned),
            "at": [self._start, self._merged],
        }

    @classmethod
    def load(cls, state: Mapping[str, Any]) -> JudgedSteps:
        new = cls(state["unit"])
        if state["reference"]:
            scores, residuals, slope, levels = state["reference"]
            pairs = {name: (pair[0], pair[1]) for name, pair in levels.items()}
            new.reference = JudgedReference(dict(scores), dict(residuals), slope, pairs)
        new._waiting, new._learned = _load(state["waiting"]), _load(state["learned"])
        new._start, new._merged = state["at"]
        return new


def _slope(strata: Sequence[StratumMoments]) -> float:
    """Of the score on the cheap score over all traffic, within strata and between; 0 where the
    correlation is too small."""
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


def _spreads(squares: Mapping[str, tuple[float, int]], floor: float) -> dict[str, float]:
    """Variance by stratum, each shrunk to that of all with 10 pseudo-observations; no stratum may
    have none, so one sample a whole range off is added to all."""
    total = sum(s for s, _ in squares.values()) + floor
    n = sum(n for _, n in squares.values())
    pooled = total / max(1, n)
    spreads = {name: (s + 10 * pooled) / (n + 10) for name, (s, n) in squares.items()}
    spreads["*"] = pooled
    return spreads


def _dump(cell: ScoreSums | None) -> Any:
    if cell is None:
        return None
    strata = {name: list(sums) for name, sums in (cell.strata or {}).items()}
    return [[getattr(cell, name) for name in COUNTS], strata]


def _load(state: Any) -> ScoreSums | None:
    return ScoreSums(state[0], state[1] or None) if state else None
