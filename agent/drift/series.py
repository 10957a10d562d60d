"""The life of one monitored series: learn a baseline, detect, alarm, clear, learn again."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
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

MILESTONES = ((6 * HOUR, 1), (DAY, 1), (7 * DAY, 24))
"""Learned time and levels of successive baselines: one level after six hours and after a day, the
hours of the day after a week."""

DAILY_RHYTHM = 0.4
"""While less than a day is known, so many standard deviations beyond its hours so far are normal:
errors between 2.5 and 7.5 % or scores between .74 and .86 over the day move by less in the five
hours until an hour counts as known. Less leaves false alarms; .5 misses 5 to 20 % half the time."""

_MAX_RECENT = 240
"""Steps kept for the change point, of a minute or the bucket's width: the hours of quarantine."""

_CLEAR_STEPS = 30
"""Steps in a row that must look normal again: half an hour at a minute each."""

_MIN_LEARNED = 200
"""Samples below which six hours are no baseline."""


def milestones_for(days: float) -> tuple[tuple[float, int], ...]:
    """`MILESTONES` for a baseline that is learned from so many days: the earlier ones on the way,
    then the whole; below a week the hours of the day are not told apart."""
    whole = days * DAY
    last = (whole, 24 if whole >= MILESTONES[-1][0] else 1)
    return (*(item for item in MILESTONES if item[0] < whole), last)


@dataclass(frozen=True, slots=True)
class DetectorSpec:
    """What of a series is watched, and how. `unit` is the range of its values, `two_sided` for
    those of which neither more nor less is bad. `weighted`: n counts inverse variances. `rhythm`
    is how far a day may move the values, in standard deviations, 0 for differences."""

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
        return 0.0 if self.weighted else MIN_MEAN_SAMPLES if self.edges == 1 else MIN_EDGE_SAMPLES


class SeriesAlarm(NamedTuple):
    """An alarm of the series: `edge` and `direction` say where and which way it moved most."""

    change: ChangePoint
    edge: int
    direction: int
    level: float
    statistic: float
    baseline: Baseline


class DriftSeries:
    """Bucket in, alarm or clearing out. Kept state is bounded: some 5 kB per edge."""

    def __init__(
        self,
        watch: DetectorSpec,
        milestones: Sequence[tuple[float, int]] = MILESTONES,
        version: int = 0,
    ) -> None:
        self.watch = watch
        self.version = version
        self.stream: DriftStream | None = None
        self.active = False
        self.last_alarm = -math.inf
        self._milestones = tuple(milestones)
        self._reached = 0  # milestones of this epoch
        self._learners = self._new_learners()
        self._aside: list[
            BaselineLearner
        ] = []  # learns what came after an alarm, should it become normal
        self._recent: deque[tuple[float, ...]] = deque(
            maxlen=_MAX_RECENT
        )  # start, n, a sum per edge
        self._muted = False  # a new baseline is ordered, the old one is known not to hold
        self._calm = 0
        self._hour = -1.0
        self._promoted = -math.inf
        self._samples = 0.0  # judged samples behind the weights, for weighted series
        self._weight = 0.0

    def _new_learners(self) -> list[BaselineLearner]:
        return [BaselineLearner(self.watch.width) for _ in range(self.watch.edges)]

    @property
    def watching(self) -> bool:
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
        """A closed bucket (n > 0) against threshold `h`; an alarm, if it makes one."""
        hour = start // HOUR
        if hour != self._hour:
            self._hour = hour
            self._advance_baseline(start)
        self._learn(start, n, totals, squares, samples)
        self._remember(start, n, totals)
        if self.stream is None or self._muted:
            return None
        if self.active:
            self._recover(start, n, totals)
            return None
        statistic = self.stream.add(start, n, totals)
        if statistic is None or statistic < h:
            return None
        found = self._found(statistic)
        self.active, self._calm, self.last_alarm = True, 0, start + self.watch.width
        for learner in self._learners:
            learner.forget(found.change.since)
        self._aside = self._new_learners()
        self.stream.restart()
        return found

    def _learn(
        self,
        start: float,
        n: float,
        totals: Sequence[float],
        squares: Sequence[float],
        samples: float,
    ) -> None:
        learners = self._aside if self.active else self._learners
        for learner, total, square in zip(learners, totals, squares, strict=True):
            learner.add(start, n, total, square)
        self._samples += samples
        self._weight += n

    def _advance_baseline(self, now: float) -> None:
        """When an hour is full: is the next milestone reached?"""
        if self.active or self._reached == len(self._milestones):
            return
        needed, slots = self._milestones[self._reached]
        first = self._learners[0]
        enough = self._samples if self.watch.weighted else first.samples
        if first.hours * HOUR >= needed and enough >= _MIN_LEARNED:
            self._freeze(self._learners, slots, now)
            self._reached += 1
            if self._reached == len(self._milestones):
                self._learners = self._new_learners()
        else:
            self._widen()

    def _freeze(self, learners: Sequence[BaselineLearner], slots: int, now: float) -> None:
        precision = self._weight / self._samples if self.watch.weighted else None
        found = [
            learner.freeze(self.version + 1, slots, self.watch.unit, precision)
            for learner in learners
        ]
        baselines = [baseline for baseline in found if baseline is not None]
        if learners[0].hours * HOUR < min(DAY, self._milestones[-1][0]):
            baselines = [*map(self._provisional, baselines, learners)]
        self.version += 1
        self._promoted = now
        self._muted = False
        w = self.watch
        stream = DriftStream(baselines, w.sign, w.two_sided, w.least, w.indifference)
        if self.stream is not None and not self.active:
            # The stake goes on: under the new baseline, too, it is a fair game.
            stream.esr = self.stream.esr
        self.stream = stream

    def _provisional(
        self, baseline: Baseline, learner: BaselineLearner, all_hours: bool = True
    ) -> Baseline:
        """Less than a day is known: what the hours so far have shown and somewhat more is normal.
        It never gets narrower."""
        precision = self._weight / self._samples if self.watch.weighted else 1.0
        level, w = baseline.levels[0], self.watch
        hours = learner.extremes(level, precision, all_hours)
        n = learner.samples / precision
        down, up = hourly_slack(level, hours, w.unit, baseline.sd, n, w.rhythm)
        return replace(baseline, slack=(max(down, baseline.slack[0]), max(up, baseline.slack[1])))

    def _widen(self) -> None:
        """Another hour of the first day has passed its quarantine without an alarm."""
        stream = self.stream
        if stream is not None and any(stream.baselines[0].slack):
            stream.baselines = tuple(
                self._provisional(baseline, learner, all_hours=False)
                for baseline, learner in zip(stream.baselines, self._learners, strict=True)
            )

    def promote(self, now: float) -> bool:
        """What is normal now becomes the baseline: what was learned since the last one (or since
        the alarm, if there is one), where that is six hours; else from now on all is learned
        anew, and until then there are no alarms. Whether a new one holds at once."""
        learners = self._aside if self.active else self._learners
        hours = learners[0].hours * HOUR
        ready = hours >= self._milestones[0][0] and learners[0].samples > 0
        if ready:
            slots = [s for needed, s in self._milestones if hours >= needed]
            self._freeze(learners, slots[-1], now)
            self.active = False
            # of less than a week it is refined as the first one was
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
            self.active = False
            self._muted = True
        self._aside = []
        return ready

    def describe(self) -> dict[str, Any]:
        """The baseline for people: its version, the span that it was learned over, since when it
        holds (event time). `state` is `learning` without one that holds."""
        found: dict[str, Any] = {
            "state": "learning" if not self.watching else "alarmed" if self.active else "watching",
            "version": self.version,
            "learned_from": None,
            "learned_until": None,
            "since": None,
            "hours_of_day": False,
            "provisional": False,
        }
        if self.stream is not None:
            first = self.stream.baselines[0]
            found |= {
                "learned_from": first.start,
                "learned_until": first.end,
                "since": self._promoted,
                "hours_of_day": len(first.levels) > 1,
                "provisional": any(first.slack),
            }
        return found

    def due(self, now: float, every: float) -> bool:
        """Whether the schedule wants a new baseline: `every` seconds after the last, in calm."""
        return (
            not self.active
            and self._reached == len(self._milestones)
            and now - self._promoted >= every
            and self._learners[0].hours * HOUR >= self._milestones[-1][0]
        )

    def _remember(self, start: float, n: float, totals: Sequence[float]) -> None:
        width = max(self.watch.width, 60)
        at = start - start % width
        if self._recent and self._recent[-1][0] == at:
            last = self._recent[-1]
            sums = (a + b for a, b in zip(last[2:], totals, strict=True))
            self._recent[-1] = (at, last[1] + n, *sums)
        else:
            self._recent.append((at, n, *totals))

    def _found(self, statistic: float) -> SeriesAlarm:
        stream = self.stream
        assert stream is not None
        edge, direction = stream.esr.strongest()
        direction *= stream.sign
        baseline = stream.baselines[edge]
        steps, level = [], 0.0
        for at, n, *totals in self._recent:
            own = baseline.levels[baseline.slot(at)]
            variance = n * n * baseline.variance(n)
            steps.append(BucketDeviation(at, n, direction * (totals[edge] - n * own), variance))
        change = find_change(steps)
        since = [row for row in self._recent if row[0] >= change.since]
        level = sum(row[1] * baseline.levels[baseline.slot(row[0])] for row in since)
        return SeriesAlarm(
            change, edge, direction, level / sum(row[1] for row in since), statistic, baseline
        )

    def _recover(self, start: float, n: float, totals: Sequence[float]) -> None:
        """Thirty steps in a row with the mean of the last hour back at the baseline, to within
        the tolerance and one standard error: a bare tolerance of .05 a two-sided series that is
        back to normal would meet one time in twenty-five."""
        stream = self.stream
        assert stream is not None
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
            z = abs(z) if self.watch.two_sided else stream.sign * z
            # of five edges one is often beyond one standard error
            calm = calm and z <= tol + (1 if self.watch.edges == 1 else 1.5) / math.sqrt(len(hour))
        self._calm = self._calm + 1 if calm else 0
        if self._calm >= _CLEAR_STEPS:
            self.active, self._calm, self._aside = False, 0, []
            stream.restart()

    def dump(self) -> dict[str, Any]:
        w = self.watch
        return {
            "watch": [
                *(w.width, w.sign, w.two_sided, w.edges, w.unit, w.indifference, w.weighted),
                w.rhythm,
            ],
            "milestones": [list(item) for item in self._milestones],
            "version": self.version,
            "stream": self.stream.dump() if self.stream else None,
            "active": self.active,
            "last_alarm": None if self.last_alarm == -math.inf else self.last_alarm,
            "reached": self._reached,
            "learners": [learner.dump() for learner in self._learners],
            "aside": [learner.dump() for learner in self._aside],
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
        milestones = [(item[0], item[1]) for item in state["milestones"]]
        new = cls(DetectorSpec(*state["watch"]), milestones, state["version"])
        new.stream = DriftStream.load(state["stream"]) if state["stream"] else None
        new.active = state["active"]
        new.last_alarm = -math.inf if state["last_alarm"] is None else state["last_alarm"]
        new._reached = state["reached"]
        new._learners = [BaselineLearner.load(item) for item in state["learners"]]
        new._aside = [BaselineLearner.load(item) for item in state["aside"]]
        new._recent.extend(tuple(row) for row in state["recent"])
        new._muted = state["muted"]
        new._calm, new._hour = state["calm"], state["hour"]
        new._promoted = -math.inf if state["promoted"] is None else state["promoted"]
        new._samples, new._weight = state["samples"], state["weight"]
        return new
