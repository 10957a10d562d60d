"""The life of one monitored series: learn a baseline, detect, alarm, clear, learn again."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass, replace
from typing import Any, NamedTuple

from ragmeter.drift.baseline import DAY, HOUR, Baseline, BaselineLearner, hourly_slack
from ragmeter.drift.detectors import (
    MIN_EDGE_SAMPLES,
    MIN_MEAN_SAMPLES,
    BucketDeviation,
    ChangePoint,
    DriftStream,
    find_change,
)

# (learned seconds, levels) of successive baselines: one level after six hours and after a day, the
# hours of the day after a week.
MILESTONES = ((6 * HOUR, 1), (DAY, 1), (7 * DAY, 24))

# While less than a day is known, so many standard deviations beyond its hours so far are normal.
# Errors between 2.5 and 7.5 % or scores between .74 and .86 over the day move by less in the five
# hours until an hour counts as known. Less leaves false alarms; .5 misses 5 to 20 % half the time.
DAILY_RHYTHM = 0.4

# Steps stored for the change point, of a minute or the bucket's width: the hours of quarantine.
_MAX_RECENT = 240

# Steps in a row that must look normal to clear an alarm: half an hour at a minute each.
_CLEAR_STEPS = 30

# Samples below which six hours are no baseline.
_MIN_LEARNED = 200


def milestones_for(days: float) -> tuple[tuple[float, int], ...]:
    """Return the milestones of a baseline that is learned from `days` days.

    Earlier milestones come first; below a week the last one has no hours of the day.
    """
    whole = days * DAY
    last = (whole, 24 if whole >= MILESTONES[-1][0] else 1)
    return (*(item for item in MILESTONES if item[0] < whole), last)


@dataclass(frozen=True, slots=True)
class DetectorSpec:
    """How a series is watched.

    `width` is the seconds of a bucket; `sign` -1 watches for lower values, `two_sided` both ways;
    `edges` is the number of shares, `unit` the range of values (0: none), `indifference` the
    smallest change worth an alarm. `weighted`: n counts inverse variances. `rhythm` is how far a
    day may move the values, in standard deviations, 0 for residuals.
    """

    width: int
    sign: int = 1
    two_sided: bool = False
    edges: int = 1
    unit: float = 1.0
    indifference: float = 0.0
    weighted: bool = False
    rhythm: float = DAILY_RHYTHM

    @property
    def least(self) -> float:
        """The least samples of a step."""
        return 0.0 if self.weighted else MIN_MEAN_SAMPLES if self.edges == 1 else MIN_EDGE_SAMPLES


class SeriesAlarm(NamedTuple):
    """An alarm of a series.

    `edge` and `direction` (+1 or -1) are the strongest movement, `level` the mean that the baseline
    expected since the change.
    """

    change: ChangePoint
    edge: int
    direction: int
    level: float
    statistic: float
    baseline: Baseline


class DriftSeries:
    """Takes in the buckets of one series and raises and clears its alarm.

    `version` counts the baselines, `stream` is None until there is one, `active` tells whether an
    alarm stands, `last_alarm` is its event time. State is bounded: some 5 kB per edge.

    Args:
        spec: How the series is watched.
        milestones: (learned seconds, levels) of successive baselines.
        version: The version of the last baseline.
    """

    def __init__(
        self,
        spec: DetectorSpec,
        milestones: Sequence[tuple[float, int]] = MILESTONES,
        version: int = 0,
    ) -> None:
        self.spec = spec
        self.version = version
        self.stream: DriftStream | None = None
        self.active = False
        self.last_alarm = -math.inf
        self._milestones = tuple(milestones)
        self._reached = 0  # milestones of this baseline
        self._learners = self._new_learners()
        # learn what comes after an alarm, should it become normal
        self._alarm_learners: list[BaselineLearner] = []
        # (start, n, a sum per edge) of the last steps
        self._recent: deque[tuple[float, ...]] = deque(maxlen=_MAX_RECENT)
        self._muted = False  # a new baseline is requested, the old one no longer holds
        self._calm = 0  # normal steps in a row
        self._hour = -1.0
        self._promoted = -math.inf
        self._samples = 0.0  # judged samples behind the weights, for weighted series
        self._weight = 0.0

    def _new_learners(self) -> list[BaselineLearner]:
        return [BaselineLearner(self.spec.width) for _ in range(self.spec.edges)]

    @property
    def watching(self) -> bool:
        """True if a baseline holds that buckets are compared with."""
        return self.stream is not None and not self._muted

    def feed(
        self,
        start: float,
        n: float,
        totals: Sequence[float],
        squares: Sequence[float],
        h: float,
        samples: float = 0.0,
    ) -> SeriesAlarm | None:
        """Take in a closed bucket.

        Args:
            start: Start of the bucket, Unix seconds.
            n: Samples, or their inverse variance for a weighted series; above 0.
            totals: The sum of each statistic.
            squares: The sum of its squares.
            h: Threshold of the detector.
            samples: Samples behind `n` of a weighted series.

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
        self._samples += samples
        self._weight += n
        self._remember(start, n, totals)
        if self.stream is None or self._muted:
            return None
        if self.active:
            self._recover(self.stream, start, n, totals)
            return None
        statistic = self.stream.add(start, n, totals)
        if statistic is None or statistic < h:
            return None
        alarm = self._make_alarm(self.stream, statistic)
        self.active, self._calm, self.last_alarm = True, 0, start + self.spec.width
        for learner in self._learners:
            learner.forget(alarm.change.since)
        self._alarm_learners = self._new_learners()
        self.stream.restart()
        return alarm

    def _advance_baseline(self, now: float) -> None:
        """Freeze a baseline if the next milestone is reached; called once an hour."""
        if self.active or self._reached == len(self._milestones):
            return
        needed, slots = self._milestones[self._reached]
        first = self._learners[0]
        samples = self._samples if self.spec.weighted else first.samples
        if first.hours * HOUR >= needed and samples >= _MIN_LEARNED:
            self._freeze(self._learners, slots, now)
            self._reached += 1
            if self._reached == len(self._milestones):
                self._learners = self._new_learners()
        else:
            self._widen()

    def _freeze(self, learners: Sequence[BaselineLearner], slots: int, now: float) -> None:
        spec = self.spec
        precision = self._weight / self._samples if spec.weighted else None
        frozen = [
            learner.freeze(self.version + 1, slots, spec.unit, precision) for learner in learners
        ]
        baselines = [baseline for baseline in frozen if baseline is not None]
        if learners[0].hours * HOUR < min(DAY, self._milestones[-1][0]):
            baselines = [*map(self._provisional, baselines, learners)]
        self.version += 1
        self._promoted = now
        self._muted = False
        stream = DriftStream(baselines, spec.sign, spec.two_sided, spec.least, spec.indifference)
        if self.stream is not None and not self.active:
            # The stake goes on: under the new baseline, too, it is a fair game.
            stream.esr = self.stream.esr
        self.stream = stream

    def _provisional(
        self, baseline: Baseline, learner: BaselineLearner, all_hours: bool = True
    ) -> Baseline:
        """Widen the baseline of a first day by the rhythm that its hours so far suggest.

        It never gets narrower.
        """
        precision = self._weight / self._samples if self.spec.weighted else 1.0
        level, spec = baseline.levels[0], self.spec
        hours = learner.extremes(level, precision, all_hours)
        n = learner.samples / precision
        down, up = hourly_slack(level, hours, spec.unit, baseline.sd, n, spec.rhythm)
        return replace(baseline, slack=(max(down, baseline.slack[0]), max(up, baseline.slack[1])))

    def _widen(self) -> None:
        """Take in another hour of the first day that has passed its quarantine."""
        stream = self.stream
        if stream is not None and any(stream.baselines[0].slack):
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
        ready = hours >= self._milestones[0][0] and learners[0].samples > 0
        if ready:
            slots = [s for needed, s in self._milestones if hours >= needed]
            self._freeze(learners, slots[-1], now)
            # a baseline of less than a week is refined as the first one was
            self._reached = len(slots)
            whole = self._reached == len(self._milestones)
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
            "state": "learning" if not self.watching else "alarmed" if self.active else "watching",
            "version": self.version,
            "learned_from": first and first.start,
            "learned_until": first and first.end,
            "since": first and self._promoted,
            "hours_of_day": first is not None and len(first.levels) > 1,
            "provisional": first is not None and any(first.slack),
        }

    def due(self, now: float, every: float) -> bool:
        """Return whether the schedule wants a new baseline, `every` seconds after the last."""
        return (
            not self.active
            and self._reached == len(self._milestones)
            and now - self._promoted >= every
            and self._learners[0].hours * HOUR >= self._milestones[-1][0]
        )

    def _remember(self, start: float, n: float, totals: Sequence[float]) -> None:
        width = max(self.spec.width, 60)
        at = start - start % width
        if self._recent and self._recent[-1][0] == at:
            last = self._recent[-1]
            sums = (a + b for a, b in zip(last[2:], totals, strict=True))
            self._recent[-1] = (at, last[1] + n, *sums)
        else:
            self._recent.append((at, n, *totals))

    def _make_alarm(self, stream: DriftStream, statistic: float) -> SeriesAlarm:
        edge, direction = stream.esr.strongest()
        direction *= stream.sign
        baseline = stream.baselines[edge]
        steps = []
        for at, n, *totals in self._recent:
            own = baseline.levels[baseline.slot(at)]
            variance = n * n * baseline.variance(n)
            steps.append(BucketDeviation(at, n, direction * (totals[edge] - n * own), variance))
        change = find_change(steps)
        since = [row for row in self._recent if row[0] >= change.since]
        level = sum(row[1] * baseline.levels[baseline.slot(row[0])] for row in since)
        level /= sum(row[1] for row in since)
        return SeriesAlarm(change, edge, direction, level, statistic, baseline)

    def _recover(
        self, stream: DriftStream, start: float, n: float, totals: Sequence[float]
    ) -> None:
        """Clear the alarm after enough calm steps in a row.

        A step is calm if the mean of the last hour is back at the baseline, to within the tolerance
        and one standard error. A two-sided series that is back to normal would meet the bare
        tolerance of .05 one time in twenty-five.
        """
        if stream.gather(n, totals) is None:
            return
        hour = [row for row in self._recent if row[0] > start - HOUR]
        count = sum(row[1] for row in hour)
        calm = True
        for i, baseline in enumerate(stream.baselines):
            total = sum(row[2 + i] for row in hour)
            slot = baseline.slot(start)
            # in standard errors of one step; n is that of the step that was gathered last
            z, tol = baseline.z(max(count / max(1, len(hour)), 1e-300), total / count, slot)
            z = abs(z) if self.spec.two_sided else stream.sign * z
            # of five edges one is often beyond one standard error
            calm = calm and z <= tol + (1 if self.spec.edges == 1 else 1.5) / math.sqrt(len(hour))
        self._calm = self._calm + 1 if calm else 0
        if self._calm >= _CLEAR_STEPS:
            self.active, self._calm, self._alarm_learners = False, 0, []
            stream.restart()

    def dump(self) -> dict[str, Any]:
        """Return the state for JSON."""
        return {
            "watch": list(astuple(self.spec)),
            "milestones": [list(item) for item in self._milestones],
            "version": self.version,
            "stream": self.stream.dump() if self.stream else None,
            "active": self.active,
            "last_alarm": None if self.last_alarm == -math.inf else self.last_alarm,
            "reached": self._reached,
            "learners": [learner.dump() for learner in self._learners],
            "aside": [learner.dump() for learner in self._alarm_learners],
            "recent": [list(row) for row in self._recent],
            "muted": self._muted,
            "calm": self._calm,
            "hour": self._hour,
            "promoted": None if self._promoted == -math.inf else self._promoted,
            "samples": self._samples,
            "weight": self._weight,
        }

    @classmethod
    def load(cls, state: Mapping[str, Any]) -> DriftSeries:
        """Restore what `dump` returned."""
        milestones = [(item[0], item[1]) for item in state["milestones"]]
        new = cls(DetectorSpec(*state["watch"]), milestones, state["version"])
        new.stream = DriftStream.load(state["stream"]) if state["stream"] else None
        new.active = state["active"]
        new.last_alarm = -math.inf if state["last_alarm"] is None else state["last_alarm"]
        new._reached = state["reached"]
        new._learners = [BaselineLearner.load(item) for item in state["learners"]]
        new._alarm_learners = [BaselineLearner.load(item) for item in state["aside"]]
        new._recent.extend(tuple(row) for row in state["recent"])
        new._muted = state["muted"]
        new._calm, new._hour = state["calm"], state["hour"]
        new._promoted = -math.inf if state["promoted"] is None else state["promoted"]
        new._samples, new._weight = state["samples"], state["weight"]
        return new
