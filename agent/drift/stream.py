"""One stream of buckets against its baseline: merging of thin buckets, the e-SR, its restart."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from agent.drift.baseline import Baseline
from agent.drift.detector import Esr

__all__ = ["MIN_EDGES", "MIN_MEAN", "Stream"]

MIN_MEAN = 10
"""Samples of a step: the mean of fewer is too far from normal for standard errors to say much."""

MIN_EDGES = 20
"""The same for shares beyond an edge, some of which are near 0 or 1."""


class Stream:
    """A mean (one baseline) or the shares above several edges (a baseline each).

    `sign` -1 watches for lower values, `two_sided` for both. Thin buckets are merged until `least`
    samples are there. `indifference` is the smallest change worth an alarm, in units of the mean.
    """

    __slots__ = ("_n", "_totals", "baselines", "esr", "indifference", "least", "sign")

    def __init__(
        self,
        baselines: Sequence[Baseline],
        sign: int = 1,
        two_sided: bool = False,
        least: float = MIN_MEAN,
        indifference: float = 0.0,
    ) -> None:
        self.baselines = tuple(baselines)
        self.sign = sign
        self.least = least
        self.indifference = indifference
        self.esr = Esr(len(self.baselines), two_sided)
        self._clear()

    def _clear(self) -> None:
        self._n = 0.0
        self._totals = [0.0] * len(self.baselines)

    def add(self, start: float, n: float, totals: Sequence[float]) -> float | None:
        """A closed bucket: n samples and the sum of each statistic. The detector's statistic if
        that made a step, None while samples are gathered."""
        gathered = self.gather(n, totals)
        return None if gathered is None else self.esr.step(self.zs(start, *gathered))

    def gather(self, n: float, totals: Sequence[float]) -> tuple[float, list[float]] | None:
        """What a step is made of, once there is enough."""
        self._n += n
        for i, total in enumerate(totals):
            self._totals[i] += total
        if self._n < self.least:
            return None
        found = self._n, self._totals
        self._clear()
        return found

    def zs(self, start: float, n: float, totals: Sequence[float]) -> list[tuple[float, float]]:
        """(z, tol) of each statistic, z > 0 the way that is watched."""
        sign, out = self.sign, []
        for baseline, total in zip(self.baselines, totals, strict=True):
            z, tol = baseline.z(n, total / n, baseline.slot(start), self.indifference)
            out.append((sign * z, tol))
        return out

    def restart(self) -> None:
        self.esr.reset()
        self._clear()

    def dump(self) -> dict[str, Any]:
        return {
            "baselines": [baseline.dump() for baseline in self.baselines],
            "sign": self.sign,
            "least": self.least,
            "indifference": self.indifference,
            "esr": self.esr.dump(),
            "gathered": [self._n, *self._totals],
        }

    @classmethod
    def load(cls, state: Mapping[str, Any]) -> Stream:
        baselines = [Baseline.load(item) for item in state["baselines"]]
        new = cls(baselines, state["sign"], False, state["least"], state["indifference"])
        new.esr = Esr.load(state["esr"])
        new._n, *new._totals = state["gathered"]
        return new
