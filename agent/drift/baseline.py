"""Baselines: what is normal for a mean, learned as mergeable sums and frozen under a version.

A learner holds per hour of the day the sums from which level, spread and over-dispersion follow,
so a week of learning takes as much memory as a day, and a restart loses nothing. Hours are the
unit: an hour enters only when its quarantine has passed without an alarm.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import NormalDist
from typing import Any

MINUTE, HOUR, DAY = 60, 3600, 86400

_GUARD = 3.0
"""One day shows only a few cycles of a slow wave, so its size is badly known: on bursts of 100 and
load waves three times the measured over-dispersion kept the promise, once did not."""

_SHRINK = 50.0
"""Pseudo-observations of the overall level in every hour of the day."""

_GROUPS = 24
"""Fewer groups of buckets say nothing of the variance of such groups."""

_MIN_TOLERANCE = 0.05

QUARANTINE = 4
"""Hours that wait before they are learned: half of all small shifts are found within one to two and
a half hours, and what came since the shift must not have been learned."""

_RESIDUAL = 0.05
"""Of the range of a score: how far a day may move judge minus calibrated cheap score, which is what
of the rhythm the calibration does not take out."""

_NORMAL = NormalDist()

_STEPS = (1, 60, 300, 900, 1800, 3600)
_HEAD = 5  # buckets, n, sum, sum of squares, sum of n squared; then (groups, sum S*S/n) per rung


def dispersion_widths(width: int) -> tuple[int, ...]:
    """Widths in buckets at which over-dispersion is looked at: each divides the next, and the
    hour."""
    return (1, *(s // width for s in _STEPS if s > width and not s % width))


@dataclass(frozen=True, slots=True)
class Baseline:
    """A frozen reference of one bucketed mean.

    `levels` has 1 or 24 entries (hours of the day, UTC), `sizes` the samples behind each, never
    below those of the shrinkage; `sd` is that of one sample within a bucket; `phi` the variance of
    bucket means over that of independent samples; `typical` the samples of a bucket at which phi
    was measured. `slack` (down, up) are the distances from a level that count as none, in units of
    the mean: where less than a day is known, for the day's rhythm.
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
        """Which level holds for a bucket that begins at `start`."""
        return int(start // HOUR) % len(self.levels)

    def variance(self, n: float) -> float:
        """Of the mean of n samples of one bucket.

        phi/n is right for bursts, a term that does not shrink with n for waves that all samples of
        a bucket share; whichever is larger, for traffic that grows must not become an alarm."""
        typical = self.typical
        factor = self.phi / n if n <= typical else 1 / n + (self.phi - 1) / typical
        return self.sd * self.sd * factor

    def z(self, n: float, mean: float, slot: int, indifference: float = 0.0) -> tuple[float, float]:
        """(distance in standard errors, tolerance: two standard errors of the level itself, and
        `indifference` in units of the mean). A distance within the tolerance is no evidence; slack
        that is not the same up and down moves the middle between the two."""
        typical = self.typical
        factor = self.phi / n if n <= typical else 1 / n + (self.phi - 1) / typical
        tolerance = max(_MIN_TOLERANCE, 2.0 * math.sqrt(self.phi / (self.sizes[slot] * factor)))
        distance = mean - self.levels[slot]
        scale = self.sd * math.sqrt(factor)
        down, up = self.slack
        if indifference or up or down:
            distance -= (up - down) / 2
            tolerance += (indifference + (up + down) / 2) / scale
        return distance / scale, tolerance

    def dump(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def load(cls, state: Mapping[str, Any]) -> Baseline:
        tuples = {name: tuple(state.get(name, (0.0, 0.0))) for name in ("levels", "sizes", "slack")}
        return cls(**{**state, **tuples})


def hourly_slack(
    level: float, hours: tuple[float, float], unit: float, sd: float, n: float, rhythm: float
) -> tuple[float, float]:
    """(down, up): how far from `level` the next hours of a day may be, of which n samples are known
    and the lowest and highest of the `hours`. Beyond those by `rhythm` standard deviations: of
    the values, or, where they have a range of `unit`, of a normal quantity of which the mean is
    the share beyond some limit. `rhythm` 0: a difference, `RESIDUAL` of the range."""
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
    """The sums of one mean, per hour of the day, and the last hours in quarantine."""

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
        self._groups: list[list[float]] = []  # the open group of each rung: index, n, S
        self.start = math.inf
        self.end = -math.inf

    def add(self, start: float, n: float, total: float, squares: float) -> None:
        """A closed bucket with n > 0 samples, in order of time."""
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
        """Into the open group of a rung; a full one goes on to the next wider rung."""
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
        place = _HEAD + 2 + 2 * rung
        sums = self._pending[-1][1]
        sums[place] += 1.0
        sums[place + 1] += group[2] * group[2] / group[1]
        if rung + 1 < len(self._groups):
            first = int(group[0]) * self._ladder[rung + 1]
            self._gather(rung + 1, first, group[1], group[2])

    def _open(self, hour: int) -> None:
        self._close()
        self._hour = hour
        while len(self._pending) >= QUARANTINE:
            self._commit(*self._pending.pop(0))
        self._pending.append((hour, array("d", bytes(8 * (_HEAD + 2 * len(self._ladder))))))
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
        """Drop the hours in quarantine that reach beyond `since`: an alarm says that what came
        after it was not normal."""
        self._groups, self._hour = [], -1
        self._pending = [(hour, s) for hour, s in self._pending if (hour + 1) * HOUR <= since]
        self.end = min(self.end, since)

    def merge(self, other: BaselineLearner) -> None:
        """Add what another learner of the same width has closed; of hours that both have open,
        each keeps its own groups."""
        for hour, sums in other._snapshot():
            self._commit(hour, array("d", sums))
        self._committed += other.hours - len(other._snapshot())
        self.start = min(self.start, other.start)
        self.end = max(self.end, other.end)

    def _snapshot(self) -> list[tuple[int, array[float]]]:
        """(hour, sums) of everything, the open groups counted, nothing changed."""
        if self._groups:
            return BaselineLearner.load(self.dump())._closed()
        return [*self._slots.items(), *self._pending]

    def _closed(self) -> list[tuple[int, array[float]]]:
        self._close()
        return self._snapshot()

    def extremes(self, level: float, precision: float, all_hours: bool) -> tuple[float, float]:
        """The lowest and the highest level of an hour, thin hours shrunk to `level`; without those
        in quarantine, if not `all_hours`."""
        shrink = _SHRINK * precision
        rows = [*self._slots.values(), *(s for _, s in self._pending if all_hours)]
        found = [(s[2] + shrink * level) / (s[1] + shrink) for s in rows] or [level]
        return min(found), max(found)

    @property
    def samples(self) -> float:
        return sum(s[1] for s in self._slots.values()) + sum(s[1] for _, s in self._pending)

    @property
    def hours(self) -> int:
        """Hours of the clock that had samples, the open one included."""
        return self._committed + len(self._pending)

    def freeze(
        self, version: int, slots: int, unit: float = 1.0, precision: float | None = None
    ) -> Baseline | None:
        """The baseline of 1 or 24 levels, None without samples.

        `unit` is the width of the range of a value: one pseudo-sample that far off keeps a rate
        of no errors so far from being a rate that can never have one. `precision`: n counts
        inverse variances (weighted scores), and this many are worth one sample; sd is 1 then.
        """
        sums = [array("d", bytes(8 * (_HEAD + 2 * len(self._ladder)))) for _ in range(slots)]
        for hour, part in self._snapshot():
            own = sums[hour % slots]
            own[:] = array("d", map(sum, zip(own, part, strict=True)))
        buckets, n = sum(s[0] for s in sums), sum(s[1] for s in sums)
        if not n:
            return None
        overall = sum(s[2] for s in sums) / n
        shrink = _SHRINK * (precision or 1.0) if slots > 1 else 0.0
        levels = [(s[2] + shrink * overall) / (s[1] + shrink) if n else 0.0 for s in sums]
        if precision:
            sd = 1.0
        else:
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
            # weighted by samples: what a sample sees, not a bucket
            typical=sum(s[4] for s in sums) / n,
            buckets=int(buckets),
        )

    def _dispersion(
        self, sums: Sequence[array[float]], levels: Sequence[float], sd: float
    ) -> tuple[float, bool]:
        """phi, and whether it grows with the width of the groups (dependence of buckets)."""
        phis: list[tuple[float, float]] = []
        for place in range(_HEAD, len(sums[0]), 2):
            groups = sum(s[place] for s in sums)
            if phis and groups < _GROUPS:
                break
            # sum over groups of (S - n m)**2 / n, expanded: additive, m may come later
            spread = sum(
                s[place + 1] - 2 * m * s[2] + m * m * s[1]
                for s, m in zip(sums, levels, strict=True)
            )
            phis.append((max(0.0, spread) / groups / (sd * sd), groups))
        phi = max(1.0, phis[0][0])
        wide = [p for p, g in phis[1:] if p > phi * (1 + 2.5 * math.sqrt(2.0 / g))]
        return (_GUARD * max(wide), True) if wide else (phi, False)

    def dump(self) -> dict[str, Any]:
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
        new = cls(state["width"])
        new._slots = {row[0]: array("d", row[1:]) for row in state["slots"]}
        new._pending = [(row[0], array("d", row[1:])) for row in state["pending"]]
        new._committed = state["committed"]
        new._hour = state["hour"]
        new._groups = [list(group) for group in state["groups"]]
        if state["span"]:
            new.start, new.end = state["span"]
        return new
