"""Baselines: what is normal for a mean, learned as additive sums and frozen under a version.

A learner holds additive sums by hour of the week, from which level, weekly rhythm, spread and
over-dispersion follow: a month of learning takes as much memory as a week, and a restart loses
nothing. An hour is learned only once its quarantine has passed without an alarm.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import NormalDist, fmean
from typing import NamedTuple

from ragmeter.parts.drift.saved import FirstTime, LastTime

MINUTE = 60
HOUR = 3600
DAY = 86400
WEEK_HOURS = 168

# Factor on measured over-dispersion. One day shows only a few cycles of a slow wave, so its size is
# badly known: on bursts of 100 and load waves three times the measurement kept the promised
# false-alarm rate, once did not.
_GUARD = 3.0

# Pseudo-observations of the overall level in every hour of the day.
_SHRINK = 50.0

# Fewer groups of buckets tell nothing about the variance of such groups.
_GROUPS = 24

# Learned hours of a kind of day (weekend or not) below which the next such day is a new one.
_KNOWN_HOURS = 12

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


def is_weekend(hour: int) -> bool:
    """Return whether an hour (Unix time, UTC) is of a Saturday or Sunday; day 0 was a Thursday."""
    return hour // 24 % 7 in (2, 3)


Slack = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Baseline:
    """A frozen reference of one bucketed mean.

    `start` and `end` bound the learned time (Unix seconds). `levels` has 1 entry, 24 or 168 (hours
    of the day, or of the week from Thursday on, UTC), `errors` their standard errors. `sd` is the
    standard deviation of one sample; `phi` is the variance of bucket means over that of independent
    samples, measured at `typical` samples a bucket. `slack` (down, up) are distances from a level
    that count as none, in units of the mean: while less than two weeks are known they allow for the
    rhythm. `new_days` tells which days (`weekend` or `workday`) were not learned; on those
    `new_slack` is added. `provisional` names the reason of slack, "" without.
    """

    version: int
    start: float
    end: float
    levels: tuple[float, ...]
    errors: tuple[float, ...]
    sd: float
    phi: float
    typical: float
    slack: Slack = (0.0, 0.0)
    new_days: str = ""
    new_slack: Slack = (0.0, 0.0)
    provisional: str = ""

    def level(self, start: float) -> float:
        """Return the level for a bucket that begins at `start` (Unix seconds)."""
        return self.levels[int(start // HOUR) % len(self.levels)]

    def is_new_day(self, start: float) -> bool:
        """Return whether `start` (Unix seconds) is on a kind of day that was not learned."""
        return self.new_days == ("weekend" if is_weekend(int(start // HOUR)) else "workday")

    def error(self, start: float) -> float:
        """Return the standard error of that level."""
        return self.errors[int(start // HOUR) % len(self.errors)]

    def slack_at(self, start: float) -> Slack:
        """Return the slack (down, up) at `start` (Unix seconds)."""
        down, up = self.slack
        if self.new_days and self.is_new_day(start):
            return down + self.new_slack[0], up + self.new_slack[1]
        return down, up

    def dependence(self, n: float) -> float:
        """Return how many of n samples of a bucket count as one.

        That is phi for bursts. Where all samples of a bucket share a wave it grows with n, since
        traffic that grows must not become an alarm.
        """
        return self.phi if n <= self.typical else 1 + (self.phi - 1) * n / self.typical

    def variance(self, n: float) -> float:
        """Return the variance of the mean of n samples of one bucket."""
        return self.sd * self.sd * self.dependence(n) / n


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


@dataclass
class BaselineLearner:
    """The sums of one mean by hour of the week, and the last hours in quarantine.

    Args:
        width: Seconds of a bucket.
        start: When the learned time begins, Unix seconds.
        end: When it ends.
    """

    width: int
    start: FirstTime = math.inf
    end: LastTime = -math.inf
    _cells: dict[int, tuple[float, float]] = field(default_factory=dict)  # n, sum by hour of week
    _totals: list[float] = field(default_factory=list)
    _pending: list[tuple[int, list[float]]] = field(default_factory=list)
    _committed: int = 0
    _hour: int = -1
    _groups: list[list[float]] = field(default_factory=list)  # open, by width: index, n, S

    def __post_init__(self) -> None:
        self._ladder = dispersion_widths(self.width)
        self._totals = self._totals or self._no_sums()

    def _no_sums(self) -> list[float]:
        return [0.0] * (_HEAD + 2 * len(self._ladder))

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
            group[0] = number
            group[1] = n
            group[2] = total
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

    def _commit(self, hour: int, sums: list[float]) -> None:
        self._committed += 1
        slot = hour % WEEK_HOURS
        n, total = self._cells.get(slot, (0.0, 0.0))
        self._cells[slot] = (n + sums[1], total + sums[2])
        self._totals = [*map(sum, zip(self._totals, sums, strict=True))]

    def forget(self, since: float) -> None:
        """Drop the hours in quarantine that reach beyond `since`, when an alarm's change began."""
        self._groups = []
        self._hour = -1
        self._pending = [(hour, s) for hour, s in self._pending if (hour + 1) * HOUR <= since]
        self.end = min(self.end, since)

    def _snapshot(self) -> BaselineLearner:
        """Return a copy in which everything is committed; this object does not change."""
        copy = replace(
            self,
            _cells=dict(self._cells),
            _totals=list(self._totals),
            _pending=[(hour, list(sums)) for hour, sums in self._pending],
            _groups=[list(group) for group in self._groups],
        )
        copy._close()
        for hour, sums in copy._pending:
            copy._commit(hour, sums)
        copy._pending = []
        return copy

    def extremes(self, level: float, all_hours: bool) -> tuple[float, float]:
        """Return the lowest and the highest level of an hour, thin hours shrunk to `level`.

        Args:
            level: The overall level.
            all_hours: Include the hours in quarantine.
        """
        rows = [*self._cells.values(), *((s[1], s[2]) for _, s in self._pending if all_hours)]
        levels = [(total + _SHRINK * level) / (n + _SHRINK) for n, total in rows] or [level]
        return min(levels), max(levels)

    @property
    def new_days(self) -> str:
        """The kind of day, `weekend` or `workday`, that is hardly known; "" if both are known."""
        slots = [*self._cells, *(hour % WEEK_HOURS for hour, _ in self._pending)]
        weekend = sum(map(is_weekend, slots))
        if weekend < _KNOWN_HOURS:
            return "weekend"
        return "workday" if len(slots) - weekend < _KNOWN_HOURS else ""

    @property
    def samples(self) -> float:
        """The learned samples, those in quarantine included."""
        return self._totals[1] + sum(s[1] for _, s in self._pending)

    @property
    def hours(self) -> int:
        """Hours of the clock that had samples, the open one included."""
        return self._committed + len(self._pending)

    def freeze(
        self, version: int, slots: int, unit: float = 1.0, first_day: bool = False
    ) -> Baseline | None:
        """Make a baseline of what was learned, None without samples.

        Args:
            version: Its version.
            slots: Number of levels: 1, 24 for the hours of the day, or 168 for those of the week.
            unit: Range of a value. One pseudo-sample that far off keeps a rate without errors from
                being one that can never have any.
            first_day: Leave what hours differ to the slack that the baseline will get.
        """
        learned = self._snapshot()
        cells = learned._cells
        sums = learned._totals
        n = sums[1]
        if not n:
            return None
        overall = sums[2] / n
        floor = max(unit * unit / n, 1e-12 * overall * overall, 1e-18)
        levels = dict.fromkeys(cells, overall)
        phi = 1.0
        model = _WeekModel(overall, {}, {}, {})
        for _ in range(2 if slots > 1 else 0):
            # what scatters beyond a first fit is noise; only what stands out from it is rhythm
            sd = _spread(sums, cells, levels, floor)
            model = _WeekModel.fit(cells, overall, sd * sd * phi, self.hours // 24)
            levels = {slot: model.level(slot) for slot in cells}
            phi = _dispersion(
                sums=sums, cells=cells, levels=levels, sd=sd, parameters=model.parameters
            )
        sd = _spread(sums, cells, levels, floor)
        phi = _dispersion(sums=sums, cells=cells, levels=levels, sd=sd, parameters=model.parameters)
        base = sd * sd * phi / n
        if first_day:
            own = {slot: total / count for slot, (count, total) in cells.items()}
            phi = _dispersion(sums=sums, cells=cells, levels=own, sd=sd, parameters=len(own))
        means = [round(model.level(slot), 9) for slot in range(slots)]
        errors = [round(math.sqrt(base + model.error(slot)), 9) for slot in range(slots)]
        return Baseline(
            version=version,
            start=self.start,
            end=self.end,
            levels=tuple(means),
            errors=tuple(errors),
            sd=sd,
            phi=phi,
            # weighted by samples: the bucket of a random sample, not a random bucket
            typical=sums[4] / n,
            slack=(model.differ, model.differ),
            provisional="first two weeks" if model.differ else "",
        )


_Cells = Mapping[int, tuple[float, float]]  # (n, sum) by hour of the week


def _squares(squares: float, cells: _Cells, levels: Mapping[int, float]) -> float:
    """Return squared deviations from the levels; additive sums, so that levels may come later."""
    for slot, (n, total) in cells.items():
        squares += levels[slot] * (levels[slot] * n - 2 * total)
    return max(0.0, squares)


def _spread(
    sums: Sequence[float], cells: _Cells, levels: Mapping[int, float], floor: float
) -> float:
    return math.sqrt(_squares(sums[3], cells, levels) / sums[1] + floor)


def _dispersion(
    sums: Sequence[float],
    cells: _Cells,
    levels: Mapping[int, float],
    sd: float,
    parameters: float,
) -> float:
    """Return phi: the guarded one of wide groups if it is distinctly above that of buckets."""
    phis: list[tuple[float, float]] = []
    for groups, squares in zip(sums[_HEAD::2], sums[_HEAD + 1 :: 2], strict=True):
        if phis and groups < _GROUPS:
            break
        freedom = max(groups - parameters, groups / 4)  # fitted levels take in some of the noise
        phis.append((_squares(squares, cells, levels) / freedom / (sd * sd), freedom))
    phi = max(1.0, phis[0][0])
    wide = [p for p, freedom in phis[1:] if p > phi * (1 + 2.5 * math.sqrt(2.0 / freedom))]
    if wide:
        return _GUARD * max(wide)
    # where single buckets are dependent, wider groups need no evidence to be so
    dependent = phi > 1 + 3.0 * math.sqrt(2.0 / phis[0][1])
    return max(p for p, _ in phis) if dependent else phi


_Effects = dict[int, tuple[float, float]]  # (effect, its squared error) by group


class _WeekModel(NamedTuple):
    """Levels of the hours of the week: overall, hour of the day, day of the week, and the rest.

    Each part is shrunk by how much of its scatter is more than noise, so a service without a
    rhythm gets flat levels, known as well as their mean.
    """

    overall: float
    hours: _Effects
    days: _Effects
    rest: _Effects
    differ: float = 0.0

    @classmethod
    def fit(cls, cells: _Cells, overall: float, noise: float, days: int) -> _WeekModel:
        """Fit the parts to (n, sum) by hour of the week.

        `differ` is how far other days may be from the fit: with less than two weeks, a rhythm
        cannot be told from a day of its own.

        Args:
            cells: The sums.
            overall: The mean of all.
            noise: Variance of one sample, over-dispersion included.
            days: Days known: less than a week tells hours only.
        """

        def left(model: _WeekModel, size: int, every: int) -> dict[int, tuple[int, float, float]]:
            return {
                slot: (slot // every % size, n, total - n * model.level(slot))
                for slot, (n, total) in cells.items()
            }

        model = cls(overall, {}, {}, {})
        hours, differ = _shrunk(left(model, 24, 1), noise)
        model = model._replace(hours=hours, differ=2 * differ)
        if days < 7:
            return model
        by_day = left(model, 7, 24)
        effects, _ = _shrunk(by_day, noise)
        # Workdays that agree, and days of a weekend that agree, are a rhythm and not off by chance:
        # only what days of one kind differ can be that. Two of seven means are fitted.
        _, differ = _shrunk(_less_kinds(by_day), noise)
        model = model._replace(days=effects, differ=differ * math.sqrt(7 / 5))
        if days < 14:  # hours of their own on some days count as scatter until two weeks are known
            return model
        rest, _ = _shrunk(left(model, WEEK_HOURS, 1), noise)
        return model._replace(rest=rest, differ=0.0)

    def _parts(self, slot: int) -> list[tuple[float, float]]:
        none = (0.0, 0.0)
        parts = (self.hours.get(slot % 24), self.days.get(slot // 24), self.rest.get(slot))
        return [part or none for part in parts]

    def level(self, slot: int) -> float:
        """Return the level of an hour of the week."""
        return self.overall + sum(effect for effect, _ in self._parts(slot))

    def error(self, slot: int) -> float:
        """Return the squared error of a level, without that of the overall mean."""
        return sum(error for _, error in self._parts(slot))

    @property
    def parameters(self) -> float:
        """The fitted numbers; those that shrank to nothing do not count."""
        return float(sum(effect != 0 for part in self[1:4] for effect, _ in part.values()))


def _less_kinds(
    days: Mapping[int, tuple[int, float, float]],
) -> dict[int, tuple[int, float, float]]:
    """Return the deviations of days less the mean of their kind, workday or weekend."""
    means = {}
    for kind in (False, True):
        own = [(n, total) for slot, (_, n, total) in days.items() if is_weekend(slot) == kind]
        means[kind] = sum(total for _, total in own) / max(1.0, sum(n for n, _ in own))
    return {
        slot: (day, n, total - n * means[is_weekend(slot)])
        for slot, (day, n, total) in days.items()
    }


def _shrunk(cells: Mapping[int, tuple[int, float, float]], noise: float) -> tuple[_Effects, float]:
    """Return the effect of each group, shrunk to 0, and how far groups differ beyond noise.

    Args:
        cells: (group, n, sum of deviations) by slot.
        noise: Variance of one sample.
    """
    groups: dict[int, tuple[float, float]] = {}
    for group, n, total in cells.values():
        own = groups.get(group, (0.0, 0.0))
        groups[group] = (own[0] + n, own[1] + total)
    # method of moments (James and Stein): the scatter of group means less what noise makes
    means = {group: (total / n, noise / n) for group, (n, total) in groups.items() if n}
    excess = fmean([m * m - v for m, v in means.values()])
    scatter = math.sqrt(2.0 * fmean([v * v for _, v in means.values()]) / len(means))
    if excess <= 2.0 * scatter:  # within two standard errors of its own
        return {}, 0.0
    return {
        g: (m * excess / (excess + v), v * excess / (excess + v)) for g, (m, v) in means.items()
    }, math.sqrt(excess)
