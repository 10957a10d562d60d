"""Find that numbers of a service have moved for the worse, from sums over buckets of time; pure.

Every series of a service is compared with its usual level, by hour of the day (and on weekends
apart) once that is known, over windows of ten minutes to a day. The score of a window is its
distance from the level, in standard errors that allow for dependent requests. A series alarms
where the score of a window is beyond a fixed limit, beyond what calm traffic itself has reached
lately, and the distance is large enough to matter (docs/decisions/drift-detectors.md).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.float64]

FINE, HOUR = 300, 3600
"""Seconds of the fine and of the coarse buckets."""

DAY = 24 * HOUR
KEPT_FINE = 6 * HOUR  # seconds of the fine buckets that a detector reads
KEPT_HOURS = 14 * DAY  # of the coarse ones

N, WEIGHT, SUM, SQUARES, WEIGHT_SQUARES = range(5)
"""Columns of a bucket: requests, weight, weighted values and squares, squared weights."""

FINE_WINDOWS = (2, 4, 12, 36, 72)  # fine buckets
COARSE_WINDOWS = (24,)  # hours
WINDOWS = len(FINE_WINDOWS) + len(COARSE_WINDOWS)

# Standard errors. A service has some seven series, six windows that overlap and 288 looks a day.
# What ordinary traffic has reached itself in the last two weeks (batch jobs, releases, seasons),
# times 1.4, is the limit that adapts to each service; 4.8 is the least.
LIMIT = 4.8
MARGIN = 1.4
# On its first day a service has no calm days to learn from and few requests to compare with. There
# a change of three times the least that matters is told sooner, at the price of one false alarm in
# some twenty first days. Failures need no such help.
YOUNG_LIMIT = 3.8
YOUNG_TIMES = 3.0
YOUNG_DAYS = 1.0
LEVEL_DAYS = 3  # from which on hours of the day have levels of their own

LEAST_WORTH = 40.0  # independent requests in a window
LEAST_USUAL = 60.0  # independent requests of the usual
LEAST_USUAL_SECONDS = 1.5 * HOUR
# Independent failures in a window of a share of failures: three of twenty are noise.
LEAST_FAILURES = 10.0

_LEAST_SCORED = 5  # requests in a window

_SHRINK = 60.0  # requests that an hour of the day needs before its own level counts half

# The log likelihood of a true onset is at most so much below the best one in 95 % of cases: the
# maximum of the two-sided walk around it is beyond c with probability 1 - (1 - exp(-c))**2
# (Siegmund, Confidence sets in change-point problems, International Statistical Review 56, 1988).
_ONSET_DEPTH = 3.7


class SeriesSpec(NamedTuple):
    """A series that is watched.

    Args:
        name: Its name, a question.
        worse: 1 if higher values are worse, -1 if lower ones are.
        least: The least distance from the usual that matters, in the unit of the values.
        relative: The same as a share of the usual, of amounts such as a cost.
        failures: Whether its values are 1 for what works and 0 for what fails.
    """

    name: str
    worse: int
    least: float
    relative: float = 0.0
    failures: bool = False


@dataclass(frozen=True, slots=True)
class Usual:
    """What a series usually is.

    Args:
        mean: Its mean.
        variance: Of a single value.
        worth: How many independent requests it rests on.
        levels: By hour of the day, first of weekdays, then of weekends; 48 numbers.
        days: How many days it reaches back.
        hour_spread: Variance of the means of hours beyond chance: batch jobs, a mix of tenants.
        day_spread: The same of days, beyond that of their hours.
    """

    mean: float
    variance: float
    worth: float
    levels: tuple[float, ...]
    days: float
    hour_spread: float = 0.0
    day_spread: float = 0.0

    def level_at(self, starts: Numbers) -> Numbers:
        """Return the level of buckets that begin at Unix times."""
        return np.array(self.levels)[hour_cells(starts)]


@dataclass(frozen=True, slots=True)
class Deviation:
    """A window of a series that is far from the usual.

    Args:
        score: The distance in standard errors, positive for the worse.
        distance: From the usual, in the unit of the values, positive for the worse.
        error: Its standard error.
        seconds: Its length.
        value: The mean in it.
        usual: The usual level of the same hours.
        samples: Requests in it.
        worth: How many independent ones.
    """

    score: float
    distance: float
    error: float
    seconds: int
    value: float
    usual: float
    samples: int
    worth: float


@dataclass(slots=True)
class Extremes:
    """The highest score of each window on each of the last days, of days without an alarm.

    Args:
        days: By number of the day since the epoch, one score a window.
    """

    days: dict[int, list[float]] = field(default_factory=dict)

    def note(self, day: int, scores: Sequence[float]) -> bool:
        """Note scores of a day, and return whether one was the highest by a tenth."""
        kept = self.days.get(day, [0.0] * WINDOWS)
        # in steps of a tenth, so that what is saved changes rarely
        highest = [
            math.ceil(10 * score) / 10 if score > old else old
            for score, old in zip(scores, kept, strict=True)
        ]
        if highest == kept:
            return False
        self.days[day] = highest
        for old_day in [one for one in self.days if one < day - 14]:
            del self.days[old_day]
        return True

    def drop_from(self, day: int) -> None:
        """Forget a day and all later ones: they hold what is no measure of calm."""
        self.days = {one: scores for one, scores in self.days.items() if one < day}

    def highest(self, day: int) -> list[float]:
        """Return the highest score of each window before a day."""
        rows = [scores for one, scores in self.days.items() if one < day]
        return [max(column) for column in zip(*rows, strict=True)] if rows else [0.0] * WINDOWS


def usual_end(first: float, hour: float) -> float:
    """Return where the usual of a service ends, before what is compared with it.

    A day before the present once four days are known, and a quarter of the time that is known
    before that, in whole hours: a fault of some hours is to be no part of what it is compared with.
    """
    return hour - round(min(DAY, (hour - first) / 4) / HOUR) * HOUR


def hour_cells(starts: Numbers) -> NDArray[np.int64]:
    """Return the place in `Usual.levels` of buckets that begin at Unix times (UTC)."""
    hours = np.floor_divide(starts, HOUR).astype(np.int64)
    days = hours // 24
    weekend = (days + 3) % 7 >= 5  # the epoch began on a Thursday
    return hours % 24 + 24 * weekend


def learn_usual(starts: Numbers, sums: Numbers, design: float) -> Usual | None:
    """Return the usual of hours.

    Args:
        starts: Shape (hours,): when each begins, in Unix seconds.
        sums: Shape (hours, 5): see the columns above.
        design: The design effect: by how much dependence enlarges the variance of a mean.

    Returns:
        None where too little is known.
    """
    total = sums.sum(axis=0)
    filled = sums[:, N] > 0
    if not filled.any():
        return None
    kish = total[WEIGHT] ** 2 / total[WEIGHT_SQUARES]
    worth = kish / design
    span = float(starts[filled][-1] - starts[filled][0]) + HOUR
    if worth < LEAST_USUAL or span < LEAST_USUAL_SECONDS:
        return None
    weights = sums[filled, WEIGHT]
    means = sums[filled, SUM] / weights
    # Hours of a fault that nobody has found are few of the known ones, and are left out: the level
    # is that of the middle four fifths of hours, by weight, once there are twelve of them.
    mean = _trimmed_mean(means, weights) if len(means) >= 12 else total[SUM] / total[WEIGHT]
    variance = max(0.0, total[SQUARES] / total[WEIGHT] - (total[SUM] / total[WEIGHT]) ** 2)
    days = span / DAY
    levels = np.full(48, mean)
    if days >= LEVEL_DAYS:
        cells = hour_cells(starts[filled])
        hours = cells % 24
        _fill_levels(levels, hours, means - mean, weights, both=True)
        if days >= 9:  # more than one weekend
            rest = means - levels[cells]
            _fill_levels(levels, cells, rest, weights, both=False)
    rest = means - levels[hour_cells(starts[filled])]
    independent = weights**2 / np.maximum(sums[filled, WEIGHT_SQUARES], 1e-9) / design
    hour_spread = _excess(rest, variance / np.maximum(independent, 1.0), independent)
    day_spread = 0.0
    if days >= LEVEL_DAYS:
        day = np.floor_divide(starts[filled], DAY).astype(np.int64)
        day -= day[0]
        daily = np.bincount(day, weights=weights)
        busy = daily > 0
        daily_rest = np.bincount(day, weights=weights * rest)[busy] / daily[busy]
        daily_worth = np.bincount(day, weights=independent)[busy].astype(np.float64)
        known_hours = np.bincount(day)[busy]
        chance = variance / np.maximum(daily_worth, 1.0) + hour_spread / known_hours
        day_spread = _excess(daily_rest, chance, daily_worth)
    return Usual(
        mean=float(mean),
        variance=float(variance),
        worth=float(worth),
        levels=tuple(levels.tolist()),
        days=days,
        hour_spread=hour_spread,
        day_spread=day_spread,
    )


def count_odd_hours(spec: SeriesSpec, sums: Numbers, design: float) -> int:
    """Return how many of the first hours are surely worse than all later ones.

    A service may begin with a fault, which is to be no part of its usual.

    Args:
        spec: The series.
        sums: Shape (hours, 5).
        design: The design effect.
    """
    before = np.cumsum(sums, axis=0)[:-1]
    after = sums.sum(axis=0) - before
    with np.errstate(divide="ignore", invalid="ignore"):
        mean_before, squared_before = _mean_and_error(before, design)
        mean_after, squared_after = _mean_and_error(after, design)
        distance = spec.worse * (mean_before - mean_after)
        score = distance / np.sqrt(squared_before + squared_after)
    least = np.maximum(spec.least, spec.relative * np.abs(mean_after))
    odd = (score >= LIMIT) & (distance >= YOUNG_TIMES * least)
    return int(np.argmax(np.where(odd, score, 0.0))) + 1 if odd.any() else 0


def _mean_and_error(sums: Numbers, design: float) -> tuple[Numbers, Numbers]:
    """Return means and their squared standard errors; NaN where there is too little."""
    worth = sums[:, WEIGHT] ** 2 / sums[:, WEIGHT_SQUARES] / design
    mean = np.where(worth >= LEAST_WORTH, sums[:, SUM] / sums[:, WEIGHT], math.nan)
    variance = np.maximum(0.0, sums[:, SQUARES] / sums[:, WEIGHT] - mean**2) + 0.5 / worth
    return mean, variance / worth


def _excess(rest: Numbers, chance: NDArray[Any], worth: NDArray[np.float64]) -> float:
    """Return the variance of residual means beyond what chance gives, by the method of moments."""
    enough = worth >= 5
    if enough.sum() < 3:
        return 0.0
    weight = worth[enough]
    beyond = rest[enough] ** 2 - chance[enough]
    return max(0.0, float((weight * beyond).sum() / weight.sum()))


def _trimmed_mean(means: Numbers, weights: Numbers) -> float:
    order = np.argsort(means)
    ranked = weights[order]
    upto = np.cumsum(ranked) / ranked.sum()
    inner = (upto > 0.1) & (upto - ranked / ranked.sum() < 0.9)
    return float((means[order][inner] * ranked[inner]).sum() / ranked[inner].sum())


def _fill_levels(
    levels: Numbers, cells: NDArray[np.int64], rest: Numbers, weights: Numbers, *, both: bool
) -> None:
    count = 24 if both else 48
    weight = np.bincount(cells, weights=weights, minlength=count)
    total = np.bincount(cells, weights=weights * rest, minlength=count)
    own = total / (weight + _SHRINK)
    levels += np.tile(own, 2) if both else own


class BucketSums(NamedTuple):
    """The sums of a series, the newest bucket last; without those in which nothing came.

    Args:
        now: Event time.
        fine_starts: Shape (buckets,): when each of the last six hours begins, in Unix seconds.
        fine: Shape (buckets, 5).
        hour_starts: Shape (hours,): of the last day, with the open hour.
        hours: Shape (hours, 5).
        design: The design effect.
    """

    now: float
    fine_starts: Numbers
    fine: Numbers
    hour_starts: Numbers
    hours: Numbers
    design: float


class TrafficSums(NamedTuple):
    """The sums of all series of a service, as `BucketSums` has them of one.

    Args:
        now: Event time.
        fine_starts: Shape (buckets,).
        fine: Shape (buckets, series, 5).
        hour_starts: Shape (hours,).
        hours: Shape (hours, series, 5).
        design: Shape (series,).
    """

    now: float
    fine_starts: Numbers
    fine: Numbers
    hour_starts: Numbers
    hours: Numbers
    design: Numbers

    def of(self, place: int) -> BucketSums:
        """Return the sums of one series."""
        return BucketSums(
            now=self.now,
            fine_starts=self.fine_starts,
            fine=self.fine[:, place],
            hour_starts=self.hour_starts,
            hours=self.hours[:, place],
            design=float(self.design[place]),
        )

    def without(self, place: int, begun: float, over: float) -> TrafficSums:
        """Return sums in which a series has nothing in the buckets that touch [begun, over)."""
        fine, hours = self.fine.copy(), self.hours.copy()
        fine[(self.fine_starts + FINE > begun) & (self.fine_starts < over), place] = 0.0
        hours[(self.hour_starts + HOUR > begun) & (self.hour_starts < over), place] = 0.0
        return self._replace(fine=fine, hours=hours)


class UsualColumns(NamedTuple):
    """What all series of a service usually are, as `Usual` has it of one; NaN where it is unknown.

    Args:
        levels: Shape (series, 48).
        variance: Shape (series,).
        worth: Shape (series,).
        hour_spread: Shape (series,).
        day_spread: Shape (series,).
        worse: Shape (series,): see `SeriesSpec`.
        failures: Shape (series,): whether it is a share of failures.
    """

    levels: Numbers
    variance: Numbers
    worth: Numbers
    hour_spread: Numbers
    day_spread: Numbers
    worse: Numbers
    failures: NDArray[np.bool_]


def usual_columns(specs: Sequence[SeriesSpec], usual: Mapping[str, Usual]) -> UsualColumns:
    """Return the usual of series as columns."""
    unknown = Usual(
        mean=math.nan,
        variance=math.nan,
        worth=math.nan,
        levels=(math.nan,) * 48,
        days=0.0,
    )
    found = [usual.get(spec.name, unknown) for spec in specs]
    return UsualColumns(
        levels=np.array([one.levels for one in found]),
        variance=np.array([one.variance for one in found]),
        worth=np.array([one.worth for one in found]),
        hour_spread=np.array([one.hour_spread for one in found]),
        day_spread=np.array([one.day_spread for one in found]),
        worse=np.array([float(spec.worse) for spec in specs]),
        failures=np.array([spec.failures for spec in specs]),
    )


_LENGTHS = tuple(FINE * length for length in FINE_WINDOWS) + tuple(
    HOUR * length for length in COARSE_WINDOWS
)
"""Seconds of each window."""


class WindowScores(NamedTuple):
    """How far each window of each series is from its usual, see `Deviation`.

    Shapes (windows, series). A window of a series without requests or without a usual has NaN.
    """

    score: Numbers
    distance: Numbers
    error: Numbers
    value: Numbers
    usual: Numbers
    samples: Numbers
    worth: Numbers

    def at(self, window: int, place: int) -> Deviation:
        """Return one of them."""
        return Deviation(
            seconds=_LENGTHS[window],
            score=float(self.score[window, place]),
            distance=float(self.distance[window, place]),
            error=float(self.error[window, place]),
            value=float(self.value[window, place]),
            usual=float(self.usual[window, place]),
            samples=int(self.samples[window, place]),
            worth=float(self.worth[window, place]),
        )


def score_windows(sums: TrafficSums, usual: UsualColumns) -> WindowScores:
    """Compare every window of every series with the usual."""
    rows = np.concatenate(
        [
            _window_rows(
                FINE_WINDOWS,
                FINE,
                now=sums.now,
                starts=sums.fine_starts,
                buckets=sums.fine,
                usual=usual,
            ),
            _window_rows(
                COARSE_WINDOWS,
                HOUR,
                now=sums.now,
                starts=sums.hour_starts,
                buckets=sums.hours,
                usual=usual,
            ),
        ]
    )
    n, weight, total, squares, weight_squares, expected = np.moveaxis(rows, 2, 0)
    seconds = np.array(_LENGTHS, dtype=float)[:, None]
    with np.errstate(divide="ignore", invalid="ignore"):
        weight = np.where(n >= _LEAST_SCORED, weight, math.nan)
        mean = total / weight
        level = expected / weight
        worth = np.maximum(1.0, weight * weight / weight_squares / sums.design)
        spread = np.maximum(0.0, squares / weight - mean * mean) * n / (n - 1)
        # A window without a failure has no variance of its own, and is not known better for that.
        # The spread of the usual is that under which the window would be a usual one.
        variance = np.where(
            usual.failures, usual.variance + 0.5 / worth, np.maximum(usual.variance, spread)
        )
        of_time = usual.hour_spread / np.maximum(1.0, seconds / HOUR) + usual.day_spread
        error = np.sqrt(variance / worth + usual.variance / usual.worth + of_time)
        error = np.maximum(error, 1e-9)
        distance = usual.worse * (mean - level)
        score = distance / error
    return WindowScores(
        score=score,
        distance=distance,
        error=error,
        value=mean,
        usual=level,
        samples=n,
        worth=worth,
    )


def _window_rows(
    lengths: Sequence[int],
    width: int,
    *,
    now: float,
    starts: Numbers,
    buckets: Numbers,
    usual: UsualColumns,
) -> Numbers:
    """Return the sums of each window; shape (windows, series, 6): the last is what is expected."""
    series = len(usual.worse)
    rows = np.zeros((len(lengths), series, 6))
    if not len(starts):
        return rows
    expected = usual.levels[:, hour_cells(starts)].T * buckets[:, :, WEIGHT]
    # of each bucket and all later ones
    later = np.cumsum(np.concatenate([buckets, expected[:, :, None]], axis=2)[::-1], axis=0)[::-1]
    open_bucket = now // width * width
    firsts = np.searchsorted(starts, [open_bucket - (length - 1) * width for length in lengths])
    filled = firsts < len(starts)
    rows[filled] = later[firsts[filled]]
    return rows


def find_worst(
    spec: SeriesSpec,
    place: int,
    *,
    scores: WindowScores,
    young: bool,
    highest: Sequence[float],
) -> Deviation | None:
    """Return the window of a series that is furthest beyond its limit, None if none is.

    Args:
        spec: The series.
        place: Its place in the columns.
        scores: How far its windows are from the usual.
        young: Whether the usual is of less than `YOUNG_DAYS`.
        highest: The highest score of each window on earlier days.
    """
    best: tuple[float, Deviation] | None = None
    for window, score in enumerate(scores.score[:, place].tolist()):
        if not score >= YOUNG_LIMIT:  # NaN is none either
            continue
        finding = scores.at(window, place)
        limit = max(LIMIT, MARGIN * highest[window])
        least = max(spec.least, spec.relative * abs(finding.usual))
        if young and not spec.failures and finding.distance >= YOUNG_TIMES * least:
            limit = YOUNG_LIMIT
        if finding.distance < least or not _has_enough(spec, finding):
            continue
        beyond = score / limit
        if beyond >= 1 and (best is None or beyond > best[0]):
            best = beyond, finding
    return None if best is None else best[1]


def _has_enough(spec: SeriesSpec, finding: Deviation) -> bool:
    if spec.failures:
        return (1 - finding.value) * finding.worth >= LEAST_FAILURES
    return finding.worth >= LEAST_WORTH


def estimate_onset(spec: SeriesSpec, sums: BucketSums, usual: Usual) -> tuple[float, float, float]:
    """Return the most likely time at which a series left its usual, and the earliest and latest.

    It is the time since which the sum of distances explains most, by the likelihood of a shift of
    the mean; the other two are the ends of those whose log likelihood is at most `_ONSET_DEPTH`
    worse. The fine buckets are searched, and the hours before them.
    """
    fine_from = sums.fine_starts[0] if len(sums.fine_starts) else np.inf
    earlier = sums.hour_starts + HOUR <= fine_from
    starts = np.concatenate([sums.hour_starts[earlier], sums.fine_starts])
    buckets = np.concatenate([sums.hours[earlier], sums.fine])
    levels = usual.level_at(starts)
    distance = spec.worse * (buckets[:, SUM] - levels * buckets[:, WEIGHT])
    weight = np.cumsum(buckets[::-1, WEIGHT])[::-1]
    total = np.cumsum(distance[::-1])[::-1]
    variance = max(usual.variance, 1e-9) * sums.design
    gain = np.where(total > 0, total**2 / np.maximum(weight, 1e-9) / (2 * variance), 0.0)
    gain[buckets[:, N] == 0] = 0.0
    best = int(np.argmax(gain))
    near = np.flatnonzero(gain >= gain[best] - _ONSET_DEPTH)
    last = min(len(starts) - 1, int(near[-1]) + 1)
    return float(starts[best]), float(starts[near[0]]), float(starts[last])
