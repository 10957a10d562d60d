"""The life of one monitored series: learn a baseline, detect, alarm, clear, learn again."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean
from typing import Any, NamedTuple

from ragmeter.parts.drift.baseline import (
    DAY,
    HOUR,
    WEEK_HOURS,
    Baseline,
    BaselineLearner,
    hourly_slack,
)
from ragmeter.parts.drift.detectors import (
    BucketDeviation,
    ChangePoint,
    DriftStream,
    ScorePart,
    find_change,
)
from ragmeter.parts.drift.saved import LastTime
from ragmeter.windows.estimators import Cell, Interval, mean_interval

# (learned seconds, levels) of successive baselines: one level after six hours, the hours of the day
# after a day, those of the week after one, in which days differ by chance, and after two.
MILESTONES = ((6 * HOUR, 1), (DAY, 24), (7 * DAY, WEEK_HOURS), (14 * DAY, WEEK_HOURS))

# While less than a day is known, so many standard deviations beyond its hours so far are normal;
# so they are on the first weekend. Errors between 2.5 and 7.5 % or scores between .74 and .86 over
# the day move by less in the five hours until an hour counts as known. Less leaves false alarms.
DAILY_RHYTHM = 0.4

# Rows for the change point: minutes of the last hour, then ten minutes, from half a day on hours.
_MAX_RECENT = 320
_RECENT_WIDTHS = ((12 * HOUR, HOUR), (HOUR, 600))

# Seconds for which the evidence of an alarm must be gone before it clears.
_CALM_SECONDS = 1800

# Samples below which six hours are no baseline.
_MIN_LEARNED = 100


def milestones_for(days: float) -> tuple[tuple[float, int], ...]:
    """Return the milestones of a baseline that is learned from `days` days.

    Earlier milestones come first; below a week the last one has no hours of the week, below a day
    none of the day.
    """
    whole = days * DAY
    hours = 24 if whole >= DAY else 1
    if whole >= 7 * DAY:
        hours = WEEK_HOURS
    return (*(item for item in MILESTONES if item[0] < whole), (whole, hours))


@dataclass(frozen=True, slots=True)
class DetectorSpec:
    """The way in which a series is watched.

    `width` is the seconds of a bucket; `sign` -1 watches for lower values, `two_sided` both ways;
    `edges` is the number of shares. Values lie between `low` and `high` (None: unbounded).
    `rhythm` is how far a day may move the values, in standard deviations, 0 for residuals.
    """

    width: int
    sign: int = 1
    two_sided: bool = False
    edges: int = 1
    low: float = 0.0
    high: float | None = 1.0
    rhythm: float = DAILY_RHYTHM

    @property
    def unit(self) -> float:
        """The range of values, 0 without one."""
        return 0.0 if self.high is None else self.high - self.low


class SeriesAlarm(NamedTuple):
    """An alarm of a series.

    `edge` and `direction` (+1 or -1) are the strongest movement, `level` the mean that the baseline
    expected since the change. `n`, `total` and `squares` are the samples since then with their sum
    and sum of squares. `change.open`: it may be older than `change.since`. On unchanged traffic the
    detector reaches `statistic` once in that many seconds at most. `provisional` tells why the
    baseline is not final, "" if it is.
    """

    change: ChangePoint
    edge: int
    direction: int
    level: float
    n: float
    total: float
    squares: float
    statistic: float
    baseline: Baseline
    provisional: str

    def estimate_level(self, low: float, high: float | None) -> Interval:
        """Estimate the mean since the change from its own samples, of values in a range.

        Args:
            low: Lowest value.
            high: Highest value, None without one.
        """
        mean = self.total / self.n
        if high is not None:
            mean = min(high, max(low, mean))
        scatter = max(0.0, self.squares - self.n * mean * mean) / max(1.0, self.n - 1)
        return mean_interval(
            [Cell(size=self.n, n=int(self.n) or 1, effective=self.n, mean=mean, variance=scatter)],
            low,
            high,
        )


@dataclass
class DriftSeries:
    """Takes in the buckets of one series and raises and clears its alarm.

    `version` counts the baselines, `stream` is None until there is one, `active` tells whether an
    alarm stands, `last_alarm` is its event time. State is bounded: some 5 kB per edge.

    Args:
        milestones: (learned seconds, levels) of successive baselines.
    """

    spec: DetectorSpec
    milestones: Sequence[tuple[float, int]] = MILESTONES
    version: int = 0
    stream: DriftStream | None = None
    active: bool = False
    last_alarm: LastTime = -math.inf
    _reached: int = 0  # milestones of this baseline
    _learners: list[BaselineLearner] = field(default_factory=list)
    # learn what comes after an alarm, should it become normal
    _alarm_learners: list[BaselineLearner] = field(default_factory=list)
    # (start, n, sum of squares, a sum per edge) of the last days
    _recent: list[tuple[float, ...]] = field(default_factory=list)
    _muted: bool = False  # a new baseline is requested, the old one no longer holds
    _calm: float | None = None  # since when the evidence of the alarm is gone
    _hour: float = -1.0
    _promoted: LastTime = -math.inf

    def __post_init__(self) -> None:
        self.milestones = tuple(self.milestones)
        self._learners = self._learners or self._new_learners()

    def _new_learners(self) -> list[BaselineLearner]:
        return [BaselineLearner(self.spec.width) for _ in range(self.spec.edges)]

    @property
    def monitored(self) -> bool:
        """True if a baseline holds that buckets are compared with."""
        return self.stream is not None and not self._muted

    def feed(
        self,
        start: float,
        n: float,
        totals: Sequence[float],
        squares: Sequence[float],
        h: float,
        parts: Sequence[ScorePart] = (),
    ) -> SeriesAlarm | None:
        """Take in a closed bucket.

        Args:
            start: Start of the bucket, Unix seconds.
            n: Samples, above 0; of unequal weight: the sum of relative weights.
            totals: The sum of each statistic, weighted likewise.
            squares: The sum of its squares.
            h: Threshold of the detector, seconds.
            parts: The scores by weight, if they are not all 1.

        Returns:
            The alarm if this bucket raises one.
        """
        hour = start // HOUR
        if hour != self._hour:
            self._hour = hour
            self._advance_baseline(start)
        learners = self._alarm_learners if self.active else self._learners
        for learner, total, square in zip(learners, totals, squares, strict=True):
            learner.add(start, n, total, square)
        self._remember(start, n, totals, squares[0])
        stream = self.stream
        if stream is None or self._muted:
            return None
        rows = zip(totals, squares, strict=True)
        bets = [parts] if parts else [[ScorePart(n, *row)] for row in rows]
        if self.active:
            self._recover(stream, start, bets)
            return None
        statistic = stream.add(start, self.spec.width, bets)
        if statistic < h:
            return None
        alarm = self._make_alarm(stream, statistic, start)
        self.active = True
        self._calm = None
        self.last_alarm = start + self.spec.width
        for learner in self._learners:
            learner.forget(alarm.change.since)
        self._alarm_learners = self._new_learners()
        return alarm

    def _advance_baseline(self, now: float) -> None:
        """Freeze a baseline if the next milestone is reached; called once an hour."""
        if self.active or self._reached == len(self.milestones):
            return
        needed, slots = self.milestones[self._reached]
        first = self._learners[0]
        if first.hours * HOUR >= needed and first.samples >= _MIN_LEARNED:
            self._freeze(self._learners, slots, now)
            self._reached += 1
            if self._reached == len(self.milestones):
                self._learners = self._new_learners()
        else:
            self._widen()

    def _freeze(self, learners: Sequence[BaselineLearner], slots: int, now: float) -> None:
        spec = self.spec
        first_day = learners[0].hours * HOUR < min(DAY, self.milestones[-1][0])
        frozen = [
            learner.freeze(self.version + 1, slots, spec.unit, first_day) for learner in learners
        ]
        baselines = [baseline for baseline in frozen if baseline is not None]
        if first_day:
            baselines = [*map(self._provisional, baselines, learners)]
        elif slots < WEEK_HOURS and self.milestones[-1][0] > DAY:
            baselines = [*map(self._expect_new_days, baselines, learners)]
        self.version += 1
        self._promoted = now
        self._muted = False
        stream = DriftStream(baselines, spec.sign, spec.two_sided, (spec.low, spec.high))
        if self.stream is not None and not self.active:
            # The stake goes on: under the new baseline, too, it is a fair game.
            stream.esr = self.stream.esr
        self.stream = stream

    def _slack(
        self, baseline: Baseline, learner: BaselineLearner, hours: tuple[float, float]
    ) -> tuple[float, float]:
        level = baseline.levels[0] - self.spec.low
        spec = self.spec
        low, high = hours[0] - spec.low, hours[1] - spec.low
        return hourly_slack(
            level=level,
            hours=(low, high),
            unit=spec.unit,
            sd=baseline.sd,
            n=learner.samples,
            rhythm=spec.rhythm,
        )

    def _provisional(
        self, baseline: Baseline, learner: BaselineLearner, all_hours: bool = True
    ) -> Baseline:
        """Widen the baseline of a first day by the rhythm that its hours so far suggest.

        It never gets narrower.
        """
        down, up = self._slack(baseline, learner, learner.extremes(baseline.levels[0], all_hours))
        slack = (max(down, baseline.slack[0]), max(up, baseline.slack[1]))
        return replace(baseline, slack=slack, provisional="first day")

    def _expect_new_days(self, baseline: Baseline, learner: BaselineLearner) -> Baseline:
        """Allow for the first weekend, or the first other day, to be unlike the days known."""
        level = fmean(baseline.levels)
        slack = self._slack(replace(baseline, levels=(level,)), learner, (level, level))
        return replace(baseline, new_days=learner.new_days, new_slack=slack)

    def _widen(self) -> None:
        """Take in another hour of the first day that has passed its quarantine."""
        stream = self.stream
        if stream is not None and stream.baselines[0].provisional == "first day":
            stream.baselines = tuple(
                self._provisional(baseline, learner, all_hours=False)
                for baseline, learner in zip(stream.baselines, self._learners, strict=True)
            )

    def promote(self, now: float) -> bool:
        """Make the present state the baseline, and end an alarm.

        The baseline is what was learned since the last one, or since the alarm, if that is six
        hours; otherwise everything is learned anew, without alarms until then.

        Args:
            now: Event time, Unix seconds.

        Returns:
            True if a new baseline holds at once.
        """
        learners = self._alarm_learners if self.active else self._learners
        hours = learners[0].hours * HOUR
        ready = hours >= self.milestones[0][0] and learners[0].samples > 0
        if ready:
            slots = [s for needed, s in self.milestones if hours >= needed]
            self._freeze(learners, slots[-1], now)
            # a baseline of less than a week is refined as the first one was
            self._reached = len(slots)
            whole = self._reached == len(self.milestones)
            self._learners = self._new_learners() if whole else list(learners)
            self._recent.clear()
            if self.stream is not None:
                self.stream.restart()
        else:
            # Under an alarm six hours of the new state may be nearly there already.
            self._learners = learners if self.active else self._new_learners()
            self._reached = 0
            self._muted = True
        self.active = False
        self._alarm_learners = []
        return ready

    def describe(self) -> dict[str, Any]:
        """Describe the baseline for people.

        Returns:
            `state` (`learning`, `watching` or `alarmed`), `version`, the learned span and since
            when it holds (event time, None without a baseline), `hours_of_day` and `provisional`.
        """
        first = self.stream.baselines[0] if self.stream is not None else None
        return {
            "state": "learning" if not self.monitored else "alarmed" if self.active else "watching",
            "version": self.version,
            "learned_from": first and first.start,
            "learned_until": first and first.end,
            "since": first and self._promoted,
            "hours_of_day": first is not None and len(first.levels) > 1,
            "provisional": first is not None and bool(first.provisional),
        }

    def _remember(self, start: float, n: float, totals: Sequence[float], squares: float) -> None:
        """Add a bucket to the rows of the last days, the older ones joined."""
        width = max(self.spec.width, 60)
        if not self._recent or start - self._recent[-1][0] >= width:
            if len(self._recent) >= _MAX_RECENT:
                self._join_rows(start)
            self._recent.append((start - start % width, n, squares, *totals))
        else:
            at, *sums = self._recent[-1]
            self._recent[-1] = (at, *map(sum, zip(sums, (n, squares, *totals), strict=True)))

    def _join_rows(self, now: float) -> None:
        joined: dict[float, tuple[float, ...]] = {}
        for at, *sums in self._recent:
            age = now - at
            width = next((w for oldest, w in _RECENT_WIDTHS if age > oldest), 1)
            own = joined.get(at - at % width)
            joined[at - at % width] = (
                tuple(map(sum, zip(own, sums, strict=True))) if own else tuple(sums)
            )
        # half of what fits: joining is for hundreds of rows at once
        self._recent = [(at, *sums) for at, sums in joined.items()][-_MAX_RECENT * 3 // 4 :]

    def _make_alarm(self, stream: DriftStream, statistic: float, start: float) -> SeriesAlarm:
        edge, direction = stream.hold()
        baseline = stream.baselines[edge]
        steps = []
        for at, n, _, *totals in self._recent:
            deviation = direction * (totals[edge] - n * baseline.level(at))
            steps.append(BucketDeviation(at, n, deviation, n * n * baseline.variance(n)))
        change = find_change(steps, start + self.spec.width)
        since = [row for row in self._recent if row[0] >= change.since]
        n = sum(row[1] for row in since)
        total = sum(row[3 + edge] for row in since)
        return SeriesAlarm(
            change,
            edge,
            direction,
            level=sum(row[1] * baseline.level(row[0]) for row in since) / n,
            n=n,
            total=total,
            # the square of a share is the share
            squares=sum(row[2] for row in since) if self.spec.edges == 1 else total,
            statistic=statistic,
            baseline=baseline,
            provisional=baseline.provisional
            or (f"first {baseline.new_days}" if baseline.is_new_day(start) else ""),
        )

    def _recover(
        self, stream: DriftStream, start: float, parts: Sequence[Sequence[ScorePart]]
    ) -> None:
        """Clear the alarm once its evidence has been gone for half an hour."""
        if not stream.recovers(start, parts):
            self._calm = None
        elif self._calm is None:
            self._calm = start
        elif start - self._calm >= _CALM_SECONDS:
            self.active = False
            self._calm = None
            self._alarm_learners = []
            self._recent = []  # what came before belongs to that alarm
            stream.restart()
