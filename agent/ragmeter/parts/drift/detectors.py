"""Sequential betting detectors on bounded scores, and change-point estimation.

The detectors are Shiryaev-Roberts e-detectors (Shin, Ramdas, Rinaldo 2023) that bet on single
scores (Waudby-Smith, Ramdas 2024). Their false alarms are bounded in time, for any distribution of
the scores, however often somebody looks.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Annotated, NamedTuple

from pydantic import Field

from ragmeter.parts.drift.baseline import Baseline

# Shares of the largest bet that no score can ruin. A rise from p to q of a share is found best with
# (q - p)/(1 - p), and with up to 1.5 times or from half of that a quarter later.
BETS = (0.002, 0.006, 0.02, 0.06, 0.15, 0.35, 0.7)

_Wealth = Annotated[list[float], Field(min_length=len(BETS), max_length=len(BETS))]

_LOG_LOSSES = tuple(math.log1p(-bet) for bet in BETS)  # of scores of 0

# The most log wealth that a bucket may bring, so that no single one raises an alarm: a baseline of
# hours does not know how rare a freak minute is. Cutting gains only lowers false alarms.
_MAX_GAIN = 7.0

# Standard errors of a level that a detector allows for. A baseline of 300 to 2,000 scores that is
# off by chance raised 6 and more alarms where one was promised without them, with these .2 to .6.
_LEVEL_ERRORS = 1.75

# Log wealth that the bet on the shift must lose to clear an alarm. Under an unchanged shift that
# happens once in about a thousand of its rises and falls; from the second limit on losses are not
# counted, so that a shift that comes back is seen.
_CLEAR_LOSS = 7.0
_MAX_LOSS = 9.0

# Drop of the log likelihood ratio that bounds the 95 % set of change times. Around the true change
# the ratio drops like two random walks, each of which exceeds x with probability at most exp(-x):
# 1 - (1 - exp(-3.7))**2 = .05.
_RATIO_DROP = 3.7


class ScorePart(NamedTuple):
    """Scores of one weight: their number, sum, sum of squares, and weight over the largest one."""

    n: float
    total: float
    squares: float
    weight: float = 1.0


Gains = Sequence[float]  # log wealth gained by each of the BETS


def rise_gains(parts: Iterable[ScorePart], mean: float) -> list[float]:
    """Return the log wealth that bets on a rise above `mean` gain.

    A bet c multiplies its wealth by 1 + c w (y - mean) / mean for each score y >= 0 of relative
    weight w. The sum of the logarithms is exact for scores of 0 and 1. For others it is the least
    that number, sum and squares admit: that of scores which are 0 or all alike (the lower principal
    representation of Chebyshev and Markov), so that wealth is never overstated.

    Args:
        parts: The scores, counted from their lowest value; they need no upper bound.
        mean: The mean that is no evidence, above 0.
    """
    gains = [0.0] * len(BETS)
    for n, total, squares, weight in parts:
        most = min(n, total * total / squares) if squares > 0 else 0.0
        ratio = total / most / mean - 1.0 if most else 0.0
        losses = _LOG_LOSSES if weight == 1.0 else [math.log1p(-bet * weight) for bet in BETS]
        for i, loss in enumerate(losses):
            gains[i] += (n - most) * loss + most * math.log1p(BETS[i] * weight * ratio)
    return gains


def fall_gains(parts: Iterable[ScorePart], mean: float, square: float) -> list[float]:
    """Return the log wealth that bets on a fall below `mean` gain, for scores without upper bound.

    exp(-x) <= 1 - x + x*x/2, so exp(-l y) over 1 - l mean + l*l square/2 is fair to bet with as
    long as the mean square of y >= 0 is at most `square`.
    """
    gains = [0.0] * len(BETS)
    for n, total, _, weight in parts:
        for i, bet in enumerate(BETS):
            x = bet * weight * mean / square
            gains[i] -= x * total + n * math.log1p(x * (x * square / 2 - mean))
    return gains


@dataclass
class EsrDetector:
    """The mean of Shiryaev-Roberts statistics over bets and sides.

    Each holds R = (R + seconds since the last step) * wealth gained. While the mean of the scores,
    given the past, is within the limit, R less the time is a supermartingale: the detector reaches
    H on average once in H seconds at most. An average of e-detectors is an e-detector, so one
    threshold serves any number of edges and sides.

    Args:
        sides: Number of (edge, direction) pairs.
    """

    sides: Annotated[int, Field(ge=1)] = 1
    statistic: float = 0.0
    _wealth: list[_Wealth] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._wealth = self._wealth or [[0.0] * len(BETS) for _ in range(self.sides)]
        if len(self._wealth) != self.sides:
            raise ValueError("a detector has as many rows of wealth as sides")

    def update(self, seconds: float, gains: Sequence[Gains]) -> float:
        """Take in one closed bucket; return the statistic in seconds.

        Args:
            seconds: Time since the last step.
            gains: Log wealth gained by each bet, of each side.
        """
        total = 0.0
        for wealth, own in zip(self._wealth, gains, strict=True):
            for i, gain in enumerate(own):
                # below 700 exp does not overflow; an alarm is raised at far less
                wealth[i] = min((wealth[i] + seconds) * math.exp(gain), 1e300)
            total += sum(wealth)
        self.statistic = total / (len(BETS) * len(self._wealth))
        return self.statistic

    def reset(self) -> None:
        """Start anew, after an alarm or with a new baseline."""
        self._wealth = [[0.0] * len(BETS) for _ in self._wealth]
        self.statistic = 0.0

    def strongest(self) -> tuple[int, int]:
        """Return (side, bet) of the largest statistic, as indices."""
        _, side, bet = max(
            (r, i, k) for i, row in enumerate(self._wealth) for k, r in enumerate(row)
        )
        return side, bet


@dataclass
class DriftStream:
    """Closed buckets of one mean, or of the shares above several edges, fed to a detector.

    Args:
        sign: -1 watches for lower values.
        two_sided: Watch both directions.
        bounds: Lowest and highest score; None for a score without upper bound.
    """

    baselines: Sequence[Baseline]
    sign: int = 1
    two_sided: bool = False
    bounds: tuple[float, float | None] = (0.0, 1.0)
    esr: EsrDetector = field(default_factory=EsrDetector)
    _at: float | None = None  # the last bucket
    # of an alarm: edge, direction, bet, and the log wealth that it has lost since
    _held: tuple[int, int, int, float] | None = None

    def __post_init__(self) -> None:
        self.baselines = tuple(self.baselines)
        directions = (self.sign, -self.sign) if self.two_sided else (self.sign,)
        self.sides = [(e, d) for d in directions for e in range(len(self.baselines))]
        if self.esr.sides != len(self.sides):
            self.esr = EsrDetector(len(self.sides))

    def _seconds(self, start: float, width: float) -> float:
        last, self._at = self._at, start
        return width if last is None else max(start - last, 0.0)

    def gains(self, start: float, parts: Sequence[ScorePart], edge: int, side: int) -> list[float]:
        """Return the log wealth that each bet gains from a bucket; `side` is +1 for a rise."""
        baseline = self.baselines[edge]
        low, high = self.bounds
        level = baseline.level(start)
        slack = baseline.slack_at(start)
        error = _LEVEL_ERRORS * baseline.error(start)
        if side < 0 and high is None:
            mean = max(level - low - error - slack[0], 0.0)
            gains = fall_gains(parts, mean, level * level + baseline.sd * baseline.sd)
        else:
            end, more = (low, slack[1]) if side > 0 else (high or 0.0, slack[0])
            distance = max(side * (level - end), 0.0)
            # the second term is that of Wilson's interval: a share near 0 errs upwards
            mean = distance + error + error * error / (2 * (distance + error)) + more
            if end or side < 0:
                parts = [_counted_from(part, end, side) for part in parts]
            gains = rise_gains(parts, mean)
        dependence = baseline.dependence(sum(part.n * part.weight for part in parts))
        return [min(gain / dependence, _MAX_GAIN) for gain in gains]

    def add(self, start: float, width: float, parts: Sequence[Sequence[ScorePart]]) -> float:
        """Take in a closed bucket.

        Args:
            start: Start of the bucket, Unix seconds.
            width: Its seconds.
            parts: The scores of each statistic.

        Returns:
            The detector's statistic, seconds.
        """
        gains = [self.gains(start, parts[edge], edge, side) for edge, side in self.sides]
        return self.esr.update(self._seconds(start, width), gains)

    def hold(self) -> tuple[int, int]:
        """Keep a bet on the shift that raised an alarm; return its (edge, direction).

        It is the next smaller one than the strongest: at an alarm shifts look larger than they are.
        """
        side, bet = self.esr.strongest()
        self._held = (*self.sides[side], max(0, bet - 1), 0.0)
        self.esr.reset()
        return self.sides[side]

    def recovers(self, start: float, parts: Sequence[Sequence[ScorePart]]) -> bool:
        """Take in a closed bucket under an alarm; return whether the bet has lost what it won.

        The bet wins as long as a third of the shift is left, so an unchanged one stays an alarm.
        """
        if self._held is None:
            raise RuntimeError("held is missing")
        edge, direction, bet, loss = self._held
        loss -= self.gains(start, parts[edge], edge, direction)[bet]
        loss = min(max(loss, 0.0), _MAX_LOSS)
        self._held = (edge, direction, bet, loss)
        self._at = start
        return loss >= _CLEAR_LOSS

    def restart(self) -> None:
        """Start the detector anew."""
        self.esr.reset()
        self._held = None


def _counted_from(part: ScorePart, end: float, sign: int) -> ScorePart:
    """Return the scores as distances from an end of their range; `sign` -1 counts downwards."""
    n, total, squares, weight = part
    squares += end * (end * n - 2 * total)
    return ScorePart(n, max(0.0, sign * (total - n * end)), max(0.0, squares), weight)


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


def find_change(steps: Sequence[BucketDeviation], end: float) -> ChangePoint:
    """Estimate the time of the change behind an alarm.

    With a known level before it, the log likelihood ratio of a change at tau is Z**2 / 2, Z being
    the standardised sum of deviations since tau. The estimate is the tau with the largest ratio;
    the 95 % set holds every tau whose ratio is within `_RATIO_DROP` of it, and a bucket on either
    side: a change within a bucket has its largest ratio at the start of that one or of the next.

    Args:
        steps: Buckets in order of time, at least one.
        end: The end of the last one (Unix seconds).
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
    times = [*(step.start for step in steps), end]
    return ChangePoint(
        since=steps[first].start,
        earliest=times[max(0, min(near) - 1)],
        latest=times[max(near) + 1],
        shift=deviation / n,
        error=math.sqrt(variance) / n,
        n=n,
        open=min(near) == 0,
    )
