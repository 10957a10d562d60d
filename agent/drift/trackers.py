"""Trackers read the buckets of one metric or latency stage into its series and find the segment behind an alarm."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from ragmeter.core.metric_specs import MetricSpec
from ragmeter.drift.alarms import AlarmKind
from ragmeter.drift.baseline import DAY, HOUR, MINUTE
from ragmeter.drift.judge_drift import JudgedSteps
from ragmeter.drift.moments import (
    BucketSource,
    SampleMoments,
    SegmentMove,
    effective_sums,
    find_moved_segment,
    sample_moments,
)
from ragmeter.drift.score_histograms import ScoreHistograms
from ragmeter.drift.series import DAILY_RHYTHM, MILESTONES, DetectorSpec, DriftSeries, SeriesAlarm
from ragmeter.windows.log_histogram import cell_value

_FAST, _FAST_RATE = 10, 5.0
"""Buckets of ten seconds from five samples a second on: 50 in each, and twice as early an alarm."""

_JUDGED_WIDTH = 300

_FIRST_BUCKETS = 10
"""Buckets of a minute that tell the rate."""

_EDGE_HOUR, _EDGE_SAMPLES = HOUR, 500
"""What edges are taken from: the p99 of 500 samples has five beyond it."""

_SCORE_LEVELS = (0.1, 0.25, 0.5, 0.75, 0.9)
LATENCY_LEVELS = (0.5, 0.75, 0.9, 0.95, 0.99)

LATENCY_RHYTHM = 0.7
"""Latency follows the load more than scores do (`series.RHYTHM`): between .7 and 1.3 s it moves by
that much in five hours. What is three times slower is found all the same."""


class TrackerEvent(NamedTuple):
    """What a bucket has brought about in one of a tracker's series; `found` None: it cleared."""

    kind: AlarmKind
    found: SeriesAlarm | None
    at: float
    threshold: float


class Tracker(ABC):
    """One (metric, scorer) or stage of a service. `next` is the start of the bucket to read."""

    def __init__(self, service: str, metric: str, scorer: str, next_: float) -> None:
        self.service, self.metric, self.scorer = service, metric, scorer
        self.next = next_
        self.width = MINUTE
        self.series: dict[AlarmKind, DriftSeries] = {}
        self.milestones: Sequence[tuple[float, int]] = MILESTONES
        self.finest = _FAST
        self.lateness = 0.0
        self.wait = 0.0
        """From the start of a bucket to when it may be read."""

    def set_pace(self, width: int, lateness: float) -> None:
        """Read buckets of `width`, `lateness` seconds after their end."""
        width = max(width, self.finest)
        self.width, self.lateness, self.wait = width, lateness, width + lateness

    @property
    def streams(self) -> int:
        """How many detectors share the service's allowance."""
        return sum(series.watching for series in self.series.values())

    @abstractmethod
    def read(self, source: BucketSource, scores: ScoreHistograms, h: float) -> list[TrackerEvent]:
        """Take the next bucket. `h`: the threshold for one bucket a second."""

    def _feed(
        self,
        kind: AlarmKind,
        start: float,
        n: float,
        totals: Sequence[float],
        squares: Sequence[float],
        h: float,
        samples: float = 0.0,
    ) -> list[TrackerEvent]:
        series = self.series[kind]
        was = series.active
        found = series.feed(start, n, totals, squares, h / self.width, samples)
        if found is None and was == series.active:
            return []
        return [TrackerEvent(kind, found, start + self.width, h / self.width)]

    def dump(self) -> dict[str, Any]:
        return {
            "type": type(self).__name__,
            "key": [self.service, self.metric, self.scorer, self.next, self.width],
            "series": {kind: series.dump() for kind, series in self.series.items()},
            **self._more(),
        }

    def _more(self) -> dict[str, Any]:
        return {}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Back to the state of `dump`."""
        self.width = state["key"][4]
        self.series = {kind: DriftSeries.load(item) for kind, item in state["series"].items()}


def _direction(spec: MetricSpec | None) -> tuple[int, bool]:
    """(sign, two-sided): bad goes up, or neither way is better."""
    good = spec.good if spec else None
    return (-1 if good == "higher" else 1), good is None


def _unit(spec: MetricSpec | None) -> float:
    return spec.high - spec.low if spec and spec.high is not None else 0.0


class MeanTracker(Tracker):
    """The mean of a score that (nearly) every trace has."""

    def __init__(
        self, service: str, metric: str, scorer: str, next_: float, spec: MetricSpec | None = None
    ) -> None:
        super().__init__(service, metric, scorer, next_)
        self._kind: AlarmKind = "rate" if spec and spec.kind == "ratio" else "mean"
        self._watch = [*_direction(spec), _unit(spec)]
        self._first = [0.0, 0.0]  # buckets, samples

    def read(self, source: BucketSource, scores: ScoreHistograms, h: float) -> list[TrackerEvent]:
        start = self.next
        self.next += self.width
        cell = source.bucket(self.service, "", self.metric, self.scorer, self.width, start)
        found = effective_sums(cell) if cell is not None else None
        if found is None:
            return []
        if not self.series:
            self._first = [self._first[0] + 1, self._first[1] + found.n]
            if self._first[0] >= _FIRST_BUCKETS:
                fast = self._first[1] >= _FAST_RATE * MINUTE * _FIRST_BUCKETS
                self.set_pace(_FAST if fast else MINUTE, self.lateness)
                sign, two_sided, unit = self._watch
                watch = DetectorSpec(self.width, int(sign), bool(two_sided), unit=unit)
                self.series[self._kind] = DriftSeries(watch, self.milestones)
            return []
        return self._feed(self._kind, start, found.n, (found.total,), (found.squares,), h)

    def _more(self) -> dict[str, Any]:
        return {"kind": self._kind, "watch": self._watch, "first": self._first}

    def restore(self, state: Mapping[str, Any]) -> None:
        super().restore(state)
        self._kind, self._watch = state["kind"], list(state["watch"])
        self._first = list(state["first"])


class SharesTracker(Tracker):
    """The shares above five edges, of the scores or of a stage's latency (`scorer` "")."""

    def __init__(self, service: str, metric: str, scorer: str, next_: float) -> None:
        super().__init__(service, metric, scorer, next_)
        self._kind: AlarmKind = "distribution" if scorer else "latency"
        self.edges: list[int] = []
        self._learned: list[float] = []
        self._first = [0.0, 0.0]

    def _take(
        self, source: BucketSource, scores: ScoreHistograms, start: float
    ) -> tuple[Sequence[float], float, float] | None:
        """(weights by cell, their sum, the effective number of samples)"""
        if self._kind == "latency":
            hist = source.bucket_latency(self.service, "", self.metric, self.width, start)
            if hist is None or not hist.n:
                return None
            total = float(sum(hist.counts))
            return hist.counts, total, total * total / hist.w2
        counts = scores.take(self.service, self.metric, self.scorer, self.width, start)
        if counts is None or counts[-2] <= 0:
            return None
        return counts[:-2], counts[-2], counts[-2] * counts[-2] / counts[-1]

    def read(self, source: BucketSource, scores: ScoreHistograms, h: float) -> list[TrackerEvent]:
        start = self.next
        self.next += self.width
        taken = self._take(source, scores, start)
        if taken is None:
            return []
        counts, total, n = taken
        if not self.series:
            self._choose(counts, total, n)
            return []
        above = [n * sum(counts[edge:]) / total for edge in self.edges]
        return self._feed(self._kind, start, n, above, above, h)

    def edge_value(self, scores: ScoreHistograms, cell: int) -> float:
        """The lower end of a cell, in the metric's units or seconds."""
        if self._kind == "latency":
            return cell_value(cell - 1)
        return scores.edge(self.metric, cell)

    def _choose(self, counts: Sequence[float], total: float, n: float) -> None:
        """Gather for an hour, then lay the edges at quantiles; where values are few, fewer edges
        and none that nothing or everything is above."""
        shares = [n * c / total for c in counts]
        old = self._learned
        self._learned = [a + b for a, b in zip(old, shares, strict=True)] if old else shares
        self._first = [self._first[0] + 1, self._first[1] + n]
        if self._first[0] * MINUTE < _EDGE_HOUR or self._first[1] < _EDGE_SAMPLES:
            return
        whole = sum(self._learned)
        levels = LATENCY_LEVELS if self._kind == "latency" else _SCORE_LEVELS
        self.edges = []
        for level in levels:
            below, edge = 0.0, 0
            while edge < len(self._learned) and below + self._learned[edge] <= level * whole:
                below += self._learned[edge]
                edge += 1
            # the cell that holds the quantile belongs to whichever side leaves both some
            for candidate in (edge, edge + 1):
                share = sum(self._learned[candidate:]) / whole
                if candidate not in self.edges and 0.005 <= share <= 0.98:
                    self.edges.append(candidate)
                    break
        self._learned = []
        if not self.edges:
            self._first = [0.0, 0.0]  # all values equal so far: look again
            return
        fast = self._first[1] >= _FAST_RATE * MINUTE * self._first[0]
        self.set_pace(_FAST if fast else MINUTE, self.lateness)
        latency = self._kind == "latency"
        rhythm = LATENCY_RHYTHM if latency else DAILY_RHYTHM
        watch = DetectorSpec(
            self.width, two_sided=not latency, edges=len(self.edges), rhythm=rhythm
        )
        self.series[self._kind] = DriftSeries(watch, self.milestones)

    def _more(self) -> dict[str, Any]:
        return {"edges": self.edges, "learned": self._learned, "first": self._first}

    def restore(self, state: Mapping[str, Any]) -> None:
        super().restore(state)
        self.edges, self._learned = list(state["edges"]), list(state["learned"])
        self._first = list(state["first"])


class JudgedTracker(Tracker):
    """The stratified mean of a sampled score, and its residual against the cheap score."""

    def __init__(
        self, service: str, metric: str, scorer: str, next_: float, spec: MetricSpec | None = None
    ) -> None:
        super().__init__(service, metric, scorer, next_)
        self.width = _JUDGED_WIDTH
        self._kind: AlarmKind = "rate" if spec and spec.kind == "ratio" else "mean"
        self._watch = [*_direction(spec), _unit(spec)]
        self.judging = JudgedSteps(_unit(spec) or 1.0)

    def read(self, source: BucketSource, scores: ScoreHistograms, h: float) -> list[TrackerEvent]:
        start = self.next
        self.next += self.width
        cell = source.bucket(self.service, "", self.metric, self.scorer, self.width, start)
        if cell is None or not cell.scored:
            return []
        step = self.judging.feed(start, cell)
        if step is None:
            return []
        if not self.series:
            sign, two_sided, unit = self._watch
            one = DetectorSpec(
                self.width, int(sign), bool(two_sided), unit=unit or 1.0, weighted=True
            )
            self.series[self._kind] = DriftSeries(one, self.milestones)
        events = self._weighted(self._kind, start, step.mean, step.variance, step.judged, h)
        if step.residual is not None:
            if "judge" not in self.series:
                unit = self._watch[2] or 1.0
                both = DetectorSpec(
                    self.width, two_sided=True, unit=unit, weighted=True, rhythm=0.0
                )
                self.series["judge"] = DriftSeries(both, self.milestones)
            events += self._weighted("judge", start, *step.residual, step.judged, h)
        return events

    def _weighted(
        self, kind: AlarmKind, start: float, x: float, variance: float, judged: int, h: float
    ) -> list[TrackerEvent]:
        u = 1.0 / variance
        return self._feed(kind, start, u, (u * x,), (u * x * x,), h, float(judged))

    def spread(self, kind: AlarmKind) -> float:
        """The variance of one sample: turns inverse variances into samples."""
        reference = self.judging.reference
        assert reference is not None
        return (reference.residuals if kind == "judge" else reference.scores)["*"]

    def _more(self) -> dict[str, Any]:
        return {"kind": self._kind, "watch": self._watch, "judging": self.judging.dump()}

    def restore(self, state: Mapping[str, Any]) -> None:
        super().restore(state)
        self._kind, self._watch = state["kind"], list(state["watch"])
        self.judging = JudgedSteps.load(state["judging"])


def load_tracker(state: Mapping[str, Any]) -> Tracker:
    """Back from `dump`."""
    kinds = {cls.__name__: cls for cls in (MeanTracker, SharesTracker, JudgedTracker)}
    service, metric, scorer, next_, _ = state["key"]
    new = kinds[state["type"]](service, metric, scorer, next_)
    new.restore(state)
    return new


_COARSE_WIDTH = 600
"""Buckets of the longest window: a day of them is there to compare with."""

_MAX_COMPARED_SEGMENTS = 64
"""Segments compared: each costs some 150 buckets, and an alarm comes once in a month."""


def find_segment_of_alarm(
    source: BucketSource, tracker: Tracker, kind: AlarmKind, since: float, at: float, cell: int
) -> SegmentMove | None:
    """The segment that moved most between the day before `since` and the time until `at`. Of
    judge drift there is none: the judge is one for all."""
    if kind == "judge":
        return None
    names = [name for name in source.segments(tracker.service) if name][:_MAX_COMPARED_SEGMENTS]
    if not names:
        return None
    before = list(_buckets(since - since % _COARSE_WIDTH - DAY, since - since % _COARSE_WIDTH))
    fine = since - since % (MINUTE if at - since < HOUR * 0.75 else _COARSE_WIDTH)
    after = list(_buckets(fine, at - at % MINUTE))

    def parts(segment: str) -> tuple[SampleMoments, SampleMoments]:
        return (
            _segment_moments(source, tracker, segment, kind, cell, before),
            _segment_moments(source, tracker, segment, kind, cell, after),
        )

    return find_moved_segment(parts(""), {name: parts(name) for name in names})


def _buckets(start: float, end: float) -> Iterator[tuple[int, float]]:
    while start + MINUTE <= end:
        width = (
            _COARSE_WIDTH if start % _COARSE_WIDTH == 0 and start + _COARSE_WIDTH <= end else MINUTE
        )
        yield width, start
        start += width


def _segment_moments(
    source: BucketSource,
    tracker: Tracker,
    segment: str,
    kind: AlarmKind,
    cell: int,
    buckets: list[tuple[int, float]],
) -> SampleMoments:
    if kind != "latency":
        args = (tracker.service, segment, tracker.metric, tracker.scorer)
        return sample_moments(source.bucket(*args, width, start) for width, start in buckets)
    n = above = 0.0
    for width, start in buckets:
        hist = source.bucket_latency(tracker.service, segment, tracker.metric, width, start)
        if hist is not None and hist.n:
            total = sum(hist.counts)
            kish = total * total / hist.w2
            n += kish
            above += kish * sum(hist.counts[cell:]) / total
    share = above / n if n else 0.0
    return SampleMoments(n, share, share * (1 - share))
