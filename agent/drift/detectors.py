"""Sequential e-SR detectors, the stream of buckets that feeds them, and change-point estimation.

The detectors are bucketed Shiryaev-Roberts e-detectors (Shin, Ramdas, Rinaldo 2023), whose false
alarms are bounded in time for any distribution, however often somebody looks.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from ragmeter.drift.baseline import Baseline

# Small bets find small shifts late, large ones large shifts early; none needs tuning.
BETS = (0.05, 0.1, 0.2, 0.4, 0.8)

# Divisor of a distance in standard errors. 1 + l y must stay positive for l = 0.8: three standard
# errors below cost that bet four fifths of its stake, and no bucket costs more.
_CLIP = 3.0

# The most that one freak bucket may count (30 standard errors): cutting above only lowers E[y].
_MAX_BET = 10.0

# Least samples of a step: the mean of fewer is too far from normal for its standard error to tell
# much. Shares beyond an edge, some of which are near 0 or 1, need more.
MIN_MEAN_SAMPLES = 10
MIN_EDGE_SAMPLES = 20

# Drop of the log likelihood ratio that bounds the 95 % set of change times. Around the true change
# the ratio drops like two random walks, each of which exceeds x with probability at most exp(-x):
# 1 - (1 - exp(-3.7))**2 = .05.
_RATIO_DROP = 3.7


def detector_threshold(seconds_per_alarm: float, width: float, streams: int) -> float:
    """Return the threshold H of a detector.

    Args:
        seconds_per_alarm: Expected time to one false alarm over all streams.
        width: Seconds of a step.
        streams: Detectors that share the allowance; each gets an equal part.
    """
    return seconds_per_alarm / width * max(1, streams)


class EsrDetector:
    """The mean of e-SRs over several statistics.

    Each closed bucket gives a standardised distance z from the baseline. With y = (z - tol) / 3,
    cut to [-1, 10], and bets l, the detector holds M_l = (M_l + 1)(1 + l y) and alarms when the
    mean of the M_l reaches H. As long as E[y] <= 0 given the past, M less the number of steps is a
    supermartingale: at most one false alarm per H steps is expected. An average of e-detectors is
    an e-detector, so one threshold serves any number of edges and sides.

    Args:
        edges: Number of statistics.
        two_sided: Watch each statistic down as well as up.
    """

    __slots__ = ("_down", "_up", "statistic")

    def __init__(self, edges: int = 1, two_sided: bool = False) -> None:
        self._up = [[0.0] * len(BETS) for _ in range(edges)]
        self._down = [[0.0] * len(BETS) for _ in range(edges)] if two_sided else []
        self.statistic = 0.0

    def update(self, zs: Iterable[tuple[float, float]]) -> float:
        """Take in one closed bucket; return the statistic to compare with `detector_threshold`.

        Args:
            zs: (z, tolerance) of each statistic, z > 0 in the direction that is watched.
        """
        total = 0.0
        down = self._down
        for edge, (z, tol) in enumerate(zs):
            total += _update_stakes(self._up[edge], (z - tol) / _CLIP)
            if down:
                total += _update_stakes(down[edge], (-z - tol) / _CLIP)
        self.statistic = total / (len(BETS) * (len(self._up) + len(down)))
        return self.statistic

    def reset(self) -> None:
        """Start anew, after an alarm or with a new baseline."""
        for stake in (*self._up, *self._down):
            stake[:] = [0.0] * len(BETS)
        self.statistic = 0.0

    def strongest(self) -> tuple[int, int]:
        """Return (edge, direction +1 or -1) of the largest contribution."""
        best, strongest = -1.0, (0, 1)
        for sign, side in ((1, self._up), (-1, self._down)):
            for edge, stake in enumerate(side):
                if sum(stake) > best:
                    best, strongest = sum(stake), (edge, sign)
        return strongest

    def dump(self) -> list[list[float]]:
        """Return the state for JSON, which restores floats bit for bit."""
        return [[self.statistic, float(bool(self._down))], *map(list, self._up + self._down)]

    @classmethod
    def load(cls, state: Sequence[Sequence[float]]) -> EsrDetector:
        """Restore what `dump` returned; raises ValueError for anything else."""
        (statistic, two_sided), *stakes = state
        edges = len(stakes) // 2 if two_sided else len(stakes)
        new = cls(edges, bool(two_sided))
        if not edges or len(stakes) % (2 if two_sided else 1):
            raise ValueError("a detector's state has a part for each edge and side")
        if any(len(stake) != len(BETS) for stake in stakes):
            raise ValueError(f"a detector's state has {len(BETS)} numbers per edge and side")
        new._up = [list(stake) for stake in stakes[:edges]]
        new._down = [list(stake) for stake in stakes[edges:]]
        new.statistic = statistic
        return new


def _update_stakes(stake: list[float], y: float) -> float:
    """Update one mixture and return its sum. NaN loses the stake's growth and nothing else."""
    y = _MAX_BET if y > _MAX_BET else y if y > -1.0 else -1.0
    a, b, c, d, e = stake
    stake[0] = a = (a + 1.0) * (1.0 + 0.05 * y)
    stake[1] = b = (b + 1.0) * (1.0 + 0.1 * y)
    stake[2] = c = (c + 1.0) * (1.0 + 0.2 * y)
    stake[3] = d = (d + 1.0) * (1.0 + 0.4 * y)
    stake[4] = e = (e + 1.0) * (1.0 + 0.8 * y)
    return a + b + c + d + e


class DriftStream:
    """Closed buckets of one mean, or of the shares above several edges, fed to a detector.

    Args:
        baselines: The baseline of each statistic.
        sign: -1 watches for lower values.
        two_sided: Watch both directions.
        least: Thin buckets are merged until so many samples make a step.
        indifference: Smallest change worth an alarm, in units of the mean.
    """

    __slots__ = ("_n", "_totals", "baselines", "esr", "indifference", "least", "sign")

    def __init__(
        self,
        baselines: Sequence[Baseline],
        sign: int = 1,
        two_sided: bool = False,
        least: float = MIN_MEAN_SAMPLES,
        indifference: float = 0.0,
    ) -> None:
        self.baselines = tuple(baselines)
        self.sign = sign
        self.least = least
        self.indifference = indifference
        self.esr = EsrDetector(len(self.baselines), two_sided)
        self._clear()

    def _clear(self) -> None:
        self._n = 0.0
        self._totals = [0.0] * len(self.baselines)

    def add(self, start: float, n: float, totals: Sequence[float]) -> float | None:
        """Take in a closed bucket.

        Args:
            start: Start of the bucket, Unix seconds.
            n: Its samples.
            totals: The sum of each statistic over them.

        Returns:
            The detector's statistic if that made a step, None while samples are gathered.
        """
        gathered = self.gather(n, totals)
        if gathered is None:
            return None
        n, totals = gathered
        zs = []
        for baseline, total in zip(self.baselines, totals, strict=True):
            z, tol = baseline.z(n, total / n, baseline.slot(start), self.indifference)
            zs.append((self.sign * z, tol))
        return self.esr.update(zs)

    def gather(self, n: float, totals: Sequence[float]) -> tuple[float, list[float]] | None:
        """Collect samples; return (n, totals) of a step once there are enough."""
        self._n += n
        for i, total in enumerate(totals):
            self._totals[i] += total
        if self._n < self.least:
            return None
        step = self._n, self._totals
        self._clear()
        return step

    def restart(self) -> None:
        """Start the detector anew and drop the gathered samples."""
        self.esr.reset()
        self._clear()

    def dump(self) -> dict[str, Any]:
        """Return the state for JSON."""
        return {
            "baselines": [baseline.dump() for baseline in self.baselines],
            "sign": self.sign,
            "least": self.least,
            "indifference": self.indifference,
            "esr": self.esr.dump(),
            "gathered": [self._n, *self._totals],
        }

    @classmethod
    def load(cls, state: Mapping[str, Any]) -> DriftStream:
        """Restore what `dump` returned."""
        baselines = [Baseline.load(item) for item in state["baselines"]]
        new = cls(baselines, state["sign"], False, state["least"], state["indifference"])
        new.esr = EsrDetector.load(state["esr"])
        new._n, *new._totals = state["gathered"]
        return new


class BucketDeviation(NamedTuple):
    """A bucket's start, samples, and sum of deviations from the baseline with its variance.

    Deviations are positive in the direction of the alarm.
    """

    start: float
    n: float
    deviation: float
    variance: float


class ChangePoint(NamedTuple):
    """The estimated time of a change (Unix seconds) and the shift that it brought.

    `since` lies in the 95 % set [earliest, latest]; `shift` is the mean deviation after it, `error`
    its standard error, `n` the samples. `open`: the change may be older than the stored buckets.
    """

    since: float
    earliest: float
    latest: float
    shift: float
    error: float
    n: float
    open: bool


def find_change(steps: Sequence[BucketDeviation]) -> ChangePoint:
    """Estimate the time of the change behind an alarm.

    With a known level before it, the log likelihood ratio of a change at tau is Z**2 / 2, Z being
    the standardised sum of deviations since tau. The estimate is the tau with the largest ratio;
    the 95 % set holds every tau whose ratio is within `_RATIO_DROP` of it.

    Args:
        steps: Buckets in order of time, at least one.
    """
    n = deviation = variance = 0.0
    ratios: list[tuple[float, int, float, float, float]] = []
    for i in range(len(steps) - 1, -1, -1):
        step = steps[i]
        n += step.n
        deviation += step.deviation
        variance += step.variance
        ratio = deviation * deviation / (2 * variance) if deviation > 0 and variance > 0 else 0.0
        ratios.append((ratio, i, n, deviation, variance))
    best, first, n, deviation, variance = max(ratios)
    near = [i for ratio, i, *_ in ratios if ratio >= best - _RATIO_DROP]
    return ChangePoint(
        since=steps[first].start,
        earliest=steps[min(near)].start,
        latest=steps[max(near)].start,
        shift=deviation / n,
        error=math.sqrt(variance) / n,
        n=n,
        open=min(near) == 0,
    )
