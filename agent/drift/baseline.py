"""Baselines: what is normal for a mean, learned as additive sums and frozen under a version.

A learner holds, per hour of the day, sums from which level, spread and over-dispersion follow, so
a week of learning takes as much memory as a day, and a restart loses nothing. An hour is learned
only once its quarantine has passed without an alarm.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import NormalDist
from typing import Any

MINUTE, HOUR, DAY = 60, 3600, 86400

# Factor on measured over-dispersion. One day shows only a few cycles of a slow wave, so its size is
# badly known: on bursts of 100 and load waves three times the measurement kept the promised
# false-alarm rate, once did not.
_GUARD = 3.0

# Pseudo-observations of the overall level in every hour of the day.
_SHRINK = 50.0

# Fewer groups of buckets tell nothing about the variance of such groups.
_GROUPS = 24

_MIN_TOLERANCE = 0.05

# Hours that wait before they are learned. Half of all small shifts are found within one to two and
# a half hours, and what came since the shift must not have been learned.
QUARANTINE = 4

# Share of a score's range by which a day may move judge minus calibrated cheap score: the part of
# the rhythm that the calibration does not remove.
_RESIDUAL = 0.05

_NORMAL = NormalDist()
_STEPS = (1, 60, 300, 900, 1800, 3600)

# Sums of an hour: buckets, n, sum, sum of squares, sum of n squared; then (groups, sum S*S/n) for
# each width of `dispersion_widths`.
_HEAD = 5


def dispersion_widths(width: int) -> tuple[int, ...]:
    """Return the group widths, in buckets, at which over-dispersion is measured.

    Each divides the next one and the hour; `width` is that of a bucket in seconds.
    """
    return (1, *(s // width for s in _STEPS if s > width and not s % width))


@dataclass(frozen=True, slots=True)
class Baseline:
    """A frozen reference of one bucketed mean.

    `start` and `end` bound the learned time (Unix seconds). `levels` has 1 or 24 entries (hours of
    the day, UTC), `sizes` the samples behind each, never below those of the shrinkage. `sd` is the
    standard deviation of one sample within a bucket; `phi` is the variance of bucket means over
    that of independent samples, `dependent` whether it grows with the width of groups; `typical`
    is the samples of a bucket at which phi was measured. `slack` (down, up) are distances from a
    level that count as none, in units of the mean: while less than a day is known, they allow for
    the day's rhythm.
    """

    version: int
    start: float
    end: float
    levels: tuple[float, ...]
    sizes: tuple[float, ...]
    sd: float
    phi: float
    dependent: bool
    typical: float
    buckets: int
    slack: tuple[float, float] = (0.0, 0.0)

    def slot(self, start: float) -> int:
        """Return the index of the level for a bucket that begins at `start` (Unix seconds)."""
        return int(start // HOUR) % len(self.levels)

    def _dispersion_factor(self, n: float) -> float:
        """Return the variance of a bucket mean over that of one sample.

        phi/n is right for bursts, a term that does not shrink with n for waves that all samples of
        a bucket share. The larger one holds, since traffic that grows must not become an alarm.
        """
        typical = self.typical
        return self.phi / n if n <= typical else 1 / n + (self.phi - 1) / typical

    def variance(self, n: float) -> float:
        """Return the variance of the mean of n samples of one bucket."""
        return self.sd * self.sd * self._dispersion_factor(n)

    def z(self, n: float, mean: float, slot: int, indifference: float = 0.0) -> tuple[float, float]:
        """Standardise the distance of a bucket's mean from its level.

        Args:
            n: Samples of the bucket.
            mean: Their mean.
            slot: Index of the level.
            indifference: Smallest change of interest, in units of the mean.

        Returns:
            (distance, tolerance) in standard errors. A distance within the tolerance is no
            evidence: it covers two standard errors of the level itself, `indifference` and the
            slack, whose asymmetry moves the distance.
        """
        factor = self._dispersion_factor(n)
        tolerance = max(_MIN_TOLERANCE, 2.0 * math.sqrt(self.phi / (self.sizes[slot] * factor)))
        distance = mean - self.levels[slot]
        scale = self.sd * math.sqrt(factor)
        down, up = self.slack
        if indifference or up or down:
            distance -= (up - down) / 2
            tolerance += (indifference + (up + down) / 2) / scale
        return distance / scale, tolerance

    def dump(self) -> dict[str, Any]:
        """Return the state for JSON."""
        return asdict(self)

    @classmethod
    def load(cls, state: Mapping[str, Any]) -> Baseline:
        """Restore what `dump` returned."""
        tuples = {name: tuple(state.get(name, (0.0, 0.0))) for name in ("levels", "sizes", "slack")}
        return cls(**{**state, **tuples})


def hourly_slack(
    level: float, hours: tuple[float, float], unit: float, sd: float, n: float, rhythm: float
) -> tuple[float, float]:
    """Return how far from the level the next hours of a first day may be.

    That is beyond the known hours by `rhythm` standard deviations: of the values, or, for a score
    with a range, of a normal quantity of which the mean is the share beyond some limit.

    Args:
        level: The overall level so far.
        hours: The lowest and the highest level of an hour so far.
        unit: Range of the score, 0 for one without a range.
        sd: Standard deviation of one sample.
        n: Samples behind the level.
        rhythm: Standard deviations; 0 for a residual, which gets `_RESIDUAL` of the range.

    Returns:
        Distances (down, up) in units of the mean.
    """
    low, high = min(level, hours[0]), max(level, hours[1])
    if not rhythm or not unit:
        more = rhythm * sd or _RESIDUAL * unit
        return level - low + more, high - level + more
    # one pseudo-sample more: six hours without an error do not make the day's rate 0
    low, high = (min(max(q, 1e-9), 1 - 1e-9) for q in (low / unit - 1 / n, high / unit + 1 / n))
    low = _NORMAL.cdf(_NORMAL.inv_cdf(low) - rhythm)
    high = _NORMAL.cdf(_NORMAL.inv_cdf(high) + rhythm)
    return level - low * unit, high * unit - level


class BaselineLearner:
    """The sums of one mean per hour of the day, and the last hours in quarantine.

    `start` and `end` bound the learned time (Unix seconds).

    Args:
        width: Seconds of a bucket.
    """

    __slots__ = (
        *("_committed", "_groups", "_hour", "_ladder", "_pending", "_slots"),
        *("end", "start", "width"),
    )

    def __init__(self, width: int) -> None:
        self.width = width
        self._ladder = dispersion_widths(width)
        self._slots: dict[int, array[float]] = {}
        self._pending: list[tuple[int, array[float]]] = []
        self._committed = 0
        self._hour = -1
        self._groups: list[list[float]] = []  # the open group of each width: index, n, S
        self.start = math.inf
        self.end = -math.inf

    def _no_sums(self) -> array[float]:
        return array("d", bytes(8 * (_HEAD + 2 * len(self._ladder))))

    def add(self, start: float, n: float, total: float, squares: float) -> None:
        """Add a closed bucket; buckets come in order of time.

        Args:
            start: Start of the bucket, Unix seconds.
            n: Samples, above 0.
            total: Sum of the samples.
            squares: Sum of their squares.
        """
        hour = int(start // HOUR)
        if hour != self._hour:
            self._open(hour)
        sums = self._pending[-1][1]
        sums[0] += 1.0
        sums[1] += n
        sums[2] += total
        sums[3] += squares
        sums[4] += n * n
        sums[5] += 1.0
        sums[6] += total * total / n
        self._gather(0, int(start - hour * HOUR) // self.width, n, total)
        if start < self.start:
            self.start = start
        if start + self.width > self.end:
            self.end = start + self.width

    def _gather(self, rung: int, index: int, n: float, total: float) -> None:
        """Add to the open group of a width; a full one is passed on to the next wider one."""
        group = self._groups[rung]
        number = index // self._ladder[rung + 1]
        if number != group[0]:
            if group[1]:
                self._pass_on(rung, group)
            group[0], group[1], group[2] = number, n, total
        else:
            group[1] += n
            group[2] += total

    def _pass_on(self, rung: int, group: list[float]) -> None:
        index = _HEAD + 2 + 2 * rung
        sums = self._pending[-1][1]
        sums[index] += 1.0
        sums[index + 1] += group[2] * group[2] / group[1]
        if rung + 1 < len(self._groups):
            first = int(group[0]) * self._ladder[rung + 1]
            self._gather(rung + 1, first, group[1], group[2])

    def _open(self, hour: int) -> None:
        self._close()
        self._hour = hour
        while len(self._pending) >= QUARANTINE:
            self._commit(*self._pending.pop(0))
        self._pending.append((hour, self._no_sums()))
        self._groups = [[-1.0, 0.0, 0.0] for _ in self._ladder[1:]]

    def _close(self) -> None:
        for rung, group in enumerate(self._groups):
            if group[1]:
                self._pass_on(rung, group)
        self._groups = []
        self._hour = -1

    def _commit(self, hour: int, sums: array[float]) -> None:
        self._committed += 1
        slot = hour % 24
        own = self._slots.get(slot)
        self._slots[slot] = array("d", map(sum, zip(own, sums, strict=True))) if own else sums

    def forget(self, since: float) -> None:
        """Drop the hours in quarantine that reach beyond `since`, when an alarm's change began."""
        self._groups, self._hour = [], -1
        self._pending = [(hour, s) for hour, s in self._pending if (hour + 1) * HOUR <= since]
        self.end = min(self.end, since)

    def _snapshot(self) -> list[tuple[int, array[float]]]:
        """Return (hour, sums) of everything, open groups counted; this object does not change."""
        if not self._groups:
            return [*self._slots.items(), *self._pending]
        copy = BaselineLearner.load(self.dump())
        copy._close()
        return copy._snapshot()

    def extremes(self, level: float, precision: float, all_hours: bool) -> tuple[float, float]:
        """Return the lowest and the highest level of an hour, thin hours shrunk to `level`.

        Args:
            level: The overall level.
            precision: What n counts for one sample: 1, or its mean inverse variance.
            all_hours: Include the hours in quarantine.
        """
        shrink = _SHRINK * precision
        rows = [*self._slots.values(), *(s for _, s in self._pending if all_hours)]
        levels = [(s[2] + shrink * level) / (s[1] + shrink) for s in rows] or [level]
        return min(levels), max(levels)

    @property
    def samples(self) -> float:
        """The learned samples, those in quarantine included."""
        return sum(s[1] for s in self._slots.values()) + sum(s[1] for _, s in self._pending)

    @property
    def hours(self) -> int:
        """Hours of the clock that had samples, the open one included."""
        return self._committed + len(self._pending)

    def freeze(
        self, version: int, slots: int, unit: float = 1.0, precision: float | None = None
    ) -> Baseline | None:
        """Make a baseline of what was learned, None without samples.

        Args:
            version: Its version.
            slots: Number of levels: 1, or 24 for the hours of the day.
            unit: Range of a value. One pseudo-sample that far off keeps a rate without errors from
                being one that can never have any.
            precision: n counts inverse variances (weighted scores), and this many are worth one
                sample; `sd` is 1 then.
        """
        sums = [self._no_sums() for _ in range(slots)]
        for hour, part in self._snapshot():
            own = sums[hour % slots]
            own[:] = array("d", map(sum, zip(own, part, strict=True)))
        buckets, n = sum(s[0] for s in sums), sum(s[1] for s in sums)
        if not n:
            return None
        overall = sum(s[2] for s in sums) / n
        shrink = _SHRINK * (precision or 1.0) if slots > 1 else 0.0
        levels = [(s[2] + shrink * overall) / (s[1] + shrink) for s in sums]
        sd = 1.0
        if not precision:
            within = sum(s[3] - (s[2] * s[2] / s[1] if s[1] else 0.0) for s in sums) / n
            floor = max(unit * unit / n, 1e-12 * overall * overall, 1e-18)
            sd = math.sqrt(max(within, 0.0) + floor)
        phi, dependent = self._dispersion(sums, levels, sd)
        return Baseline(
            version=version,
            start=self.start,
            end=self.end,
            levels=tuple(levels),
            sizes=tuple(max(s[1], _SHRINK * (precision or 1.0)) for s in sums),
            sd=sd,
            phi=phi,
            dependent=dependent,
            # weighted by samples: the bucket of a random sample, not a random bucket
            typical=sum(s[4] for s in sums) / n,
            buckets=int(buckets),
        )

    def _dispersion(
        self, sums: Sequence[array[float]], levels: Sequence[float], sd: float
    ) -> tuple[float, bool]:
        """Return phi, and whether it grows with the width of groups (dependence of buckets)."""
        phis: list[tuple[float, float]] = []
        for index in range(_HEAD, len(sums[0]), 2):
            groups = sum(s[index] for s in sums)
            if phis and groups < _GROUPS:
                break
            # sum over groups of (S - n m)**2 / n, expanded: additive, m may come later
            spread = sum(
                s[index + 1] - 2 * m * s[2] + m * m * s[1]
                for s, m in zip(sums, levels, strict=True)
            )
            phis.append((max(0.0, spread) / groups / (sd * sd), groups))
        phi = max(1.0, phis[0][0])
        wide = [p for p, g in phis[1:] if p > phi * (1 + 2.5 * math.sqrt(2.0 / g))]
        return (_GUARD * max(wide), True) if wide else (phi, False)

    def dump(self) -> dict[str, Any]:
        """Return the state for JSON."""
        return {
            "width": self.width,
            "slots": [[slot, *sums] for slot, sums in self._slots.items()],
            "pending": [[hour, *sums] for hour, sums in self._pending],
            "committed": self._committed,
            "hour": self._hour,
            "groups": [list(group) for group in self._groups],
            "span": [self.start, self.end] if self.end > -math.inf else None,
        }

    @classmethod
    def load(cls, state: Mapping[str, Any]) -> BaselineLearner:
        """Restore what `dump` returned."""
        new = cls(state["width"])
        new._slots = {row[0]: array("d", row[1:]) for row in state["slots"]}
        new._pending = [(row[0], array("d", row[1:])) for row in state["pending"]]
        new._committed = state["committed"]
        new._hour = state["hour"]
        new._groups = [list(group) for group in state["groups"]]
        if state["span"]:
            new.start, new.end = state["span"]
        return new
