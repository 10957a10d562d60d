"""Monitors read the closed buckets of one metric or latency stage into its monitored series."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, Protocol, Self

from pydantic import Field

from ragmeter.core.arithmetic import VALUE_ONE, WEIGHT_ONE
from ragmeter.core.metric_specs import MetricSpec
from ragmeter.parts.drift.alarms import AlarmKind
from ragmeter.parts.drift.baseline import HOUR, MINUTE
from ragmeter.parts.drift.detectors import ScorePart
from ragmeter.parts.drift.judge_drift import JudgedSteps
from ragmeter.parts.drift.score_histograms import ScoreHistograms
from ragmeter.parts.drift.series import (
    DAILY_RHYTHM,
    MILESTONES,
    DetectorSpec,
    DriftSeries,
    SeriesAlarm,
)
from ragmeter.windows.log_histogram import LogHistogram, cell_value
from ragmeter.windows.sums import ScoreSums

# Buckets of ten seconds from five samples a second on: 50 in each, and an alarm twice as early.
_FAST = 10
_FAST_RATE = 5.0

# Seconds of the buckets of judged series.
_JUDGED_WIDTH = 300

# Buckets of a minute from which the rate of samples is taken.
_FIRST_BUCKETS = 10

# Time and samples that edges are taken from: the p99 of 500 samples has five beyond it.
_EDGE_HOUR = HOUR
_EDGE_SAMPLES = 500

# Quantiles at which edges are laid.
_SCORE_LEVELS = (0.1, 0.25, 0.5, 0.75, 0.9)
LATENCY_LEVELS = (0.5, 0.75, 0.9, 0.95, 0.99)

# Latency follows the load more than scores do (`series.DAILY_RHYTHM`): between .7 and 1.3 s it
# moves by that much in five hours. A latency three times slower is found all the same.
LATENCY_RHYTHM = 0.7


class BucketSource(Protocol):
    """Closed buckets of event time, as the monitor reads them; `Windows` is one."""

    def services(self) -> Sequence[str]:
        """Return the services with traffic."""

    def series(self, service: str, segment: str = "") -> Sequence[tuple[str, str]]:
        """Return each (metric, scorer) with traffic."""

    def stages(self, service: str, segment: str = "") -> Sequence[str]:
        """Return the latency stages with traffic."""

    def bucket(
        self, service: str, segment: str, metric: str, scorer: str, width: int, start: float
    ) -> ScoreSums | None:
        """Return the sums of [start, start + width), None without any."""

    def bucket_latency(
        self, service: str, segment: str, stage: str, width: int, start: float
    ) -> LogHistogram | None:
        """Return the latency histogram of [start, start + width), None without samples."""


class MonitorEvent(NamedTuple):
    """A change of the alarm of one of a monitor's series; `alarm` None: it cleared.

    `at` is event time (Unix seconds), `threshold` that of the detector.
    """

    kind: AlarmKind
    alarm: SeriesAlarm | None
    at: float
    threshold: float


@dataclass
class SeriesMonitor(ABC):
    """Reads the buckets of one (metric, scorer) or latency stage of a service.

    `next_start` is the start of the bucket to read (Unix seconds), `width` its seconds, `wait` the
    seconds from its start until it may be read. `series` are the monitored series by kind. The
    monitor sets `milestones` and `finest`, the narrowest bucket of its source.
    For a stage, `metric` is its name and `scorer` is "".

    Args:
        kind: The kind of the alarms of its score.
        watch: Whether bad goes up or down, or neither way is better, and the range of the values.
    """

    judged: ClassVar[bool] = False
    lateness: ClassVar[float] = 60.0  # seconds after their end at which buckets are read

    service: str
    metric: str
    scorer: str
    kind: AlarmKind = "mean"
    watch: dict[str, Any] = field(default_factory=dict)
    next_start: float = 0.0
    width: int = MINUTE
    series: dict[AlarmKind, DriftSeries] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.milestones: Sequence[tuple[float, int]] = MILESTONES
        self.finest = _FAST
        self.wait = 0.0

    @classmethod
    def begin(cls, service: str, metric: str, scorer: str, spec: MetricSpec | None = None) -> Self:
        """Return a monitor of a series with `spec`."""
        good = spec.good if spec else None
        return cls(
            service,
            metric,
            scorer,
            kind="rate" if spec and spec.kind == "ratio" else "mean",
            watch={
                "sign": -1 if good == "higher" else 1,
                "two_sided": good is None,
                "low": spec.low if spec else 0.0,
                "high": spec.high if spec else None,
            },
        )

    def set_pace(self, width: int) -> None:
        """Read buckets of `width` seconds."""
        self.width = max(width, self.finest)
        self.wait = self.width + self.lateness

    @property
    def streams(self) -> int:
        """The number of detectors that share the service's allowance."""
        return sum(series.monitored for series in self.series.values())

    @abstractmethod
    def read(self, source: BucketSource, scores: ScoreHistograms, h: float) -> list[MonitorEvent]:
        """Read the next bucket; return the changes of alarms that it brings.

        `h` is the threshold of a detector, seconds.
        """

    def _take_start(self) -> float:
        """Return the start of the next bucket and move on to the one after it."""
        start = self.next_start
        self.next_start += self.width
        return start

    def _feed(
        self,
        kind: AlarmKind,
        start: float,
        n: float,
        totals: Sequence[float],
        squares: Sequence[float],
        h: float,
        parts: Sequence[ScorePart] = (),
    ) -> list[MonitorEvent]:
        series = self.series[kind]
        was_active = series.active
        alarm = series.feed(start, n, totals, squares, h, parts)
        if alarm is None and was_active == series.active:
            return []
        return [MonitorEvent(kind, alarm, start + self.width, h)]


class EffectiveSums(NamedTuple):
    """n effective samples with the sum and the sum of squares that they would have."""

    n: float
    total: float
    squares: float


def effective_sums(cell: ScoreSums) -> EffectiveSums | None:
    """Return sums that give the self-normalised (Hajek) mean with Kish's number of samples.

    Returns:
        The sums, None without a scored trace.
    """
    n = cell.n
    y = cell.y / VALUE_ONE
    yy = cell.yy / (VALUE_ONE * VALUE_ONE)
    if not cell.strata:
        return EffectiveSums(n, y, yy) if n else None
    w = w2 = float(n)
    for sums in cell.strata.values():
        w += sums.w / WEIGHT_ONE
        w2 += sums.w2 / (WEIGHT_ONE * WEIGHT_ONE)
        y += sums.wy / (WEIGHT_ONE * VALUE_ONE)
        yy += sums.yy / (VALUE_ONE * VALUE_ONE)
        n += sums.n
    if not n:
        return None
    kish = w * w / w2
    return EffectiveSums(kish, kish * y / w, kish * yy / n)


@dataclass
class MeanMonitor(SeriesMonitor):
    """Monitors the mean of a score that (nearly) every trace has."""

    type: Literal["mean"] = "mean"
    _first: tuple[float, float] = (0.0, 0.0)  # buckets and samples before the series begins

    def read(self, source: BucketSource, scores: ScoreHistograms, h: float) -> list[MonitorEvent]:
        """Read the next bucket, as `SeriesMonitor.read`."""
        start = self._take_start()
        cell = source.bucket(self.service, "", self.metric, self.scorer, self.width, start)
        sums = effective_sums(cell) if cell is not None else None
        if sums is None:
            return []
        if not self.series:
            buckets, samples = self._first
            buckets += 1
            samples += sums.n
            self._first = (buckets, samples)
            if buckets >= _FIRST_BUCKETS:
                fast = samples >= _FAST_RATE * MINUTE * _FIRST_BUCKETS
                self.set_pace(_FAST if fast else MINUTE)
                spec = DetectorSpec(self.width, **self.watch)
                self.series[self.kind] = DriftSeries(spec, self.milestones)
            return []
        return self._feed(self.kind, start, sums.n, (sums.total,), (sums.squares,), h)


@dataclass
class SharesMonitor(SeriesMonitor):
    """Monitors the shares above five edges, of scores or of a stage's latency (`scorer` "").

    `edges` are the lowest cells above each edge.
    """

    type: Literal["shares"] = "shares"
    edges: list[int] = field(default_factory=list)
    _learned: list[float] = field(default_factory=list)  # by cell, until the edges are chosen
    _first: tuple[float, float] = (0.0, 0.0)  # buckets and samples behind them

    @classmethod
    def begin(cls, service: str, metric: str, scorer: str, spec: MetricSpec | None = None) -> Self:
        """Return a monitor of a score, or of a stage."""
        return cls(service, metric, scorer, kind="distribution" if scorer else "latency")

    def _take(
        self, source: BucketSource, scores: ScoreHistograms, start: float
    ) -> tuple[Sequence[float], float, float] | None:
        """Return (weights by cell, their sum, effective number of samples) of a bucket."""
        if self.kind == "latency":
            hist = source.bucket_latency(self.service, "", self.metric, self.width, start)
            if hist is None or not hist.n:
                return None
            total = float(sum(hist.counts))
            return hist.counts, total, total * total / hist.w2
        counts = scores.take(self.service, self.metric, self.scorer, self.width, start)
        if counts is None or counts[-2] <= 0:
            return None
        return counts[:-2], counts[-2], counts[-2] * counts[-2] / counts[-1]

    def read(self, source: BucketSource, scores: ScoreHistograms, h: float) -> list[MonitorEvent]:
        """Read the next bucket, as `SeriesMonitor.read`."""
        start = self._take_start()
        taken = self._take(source, scores, start)
        if taken is None:
            return []
        counts, total, n = taken
        if not self.series:
            self._choose_edges(counts, total, n)
            return []
        above = [n * sum(counts[edge:]) / total for edge in self.edges]
        return self._feed(self.kind, start, n, above, above, h)

    def edge_value(self, scores: ScoreHistograms, cell: int) -> float:
        """Return the lower end of a cell, in the metric's units or seconds."""
        if self.kind == "latency":
            return cell_value(cell - 1)
        return scores.edge(self.metric, cell)

    def _choose_edges(self, counts: Sequence[float], total: float, n: float) -> None:
        """Gather for an hour, then lay the edges at quantiles and begin the series.

        A score with few values gets fewer edges, and none that nothing or everything is above.
        """
        samples = [n * c / total for c in counts]
        old = self._learned
        self._learned = [a + b for a, b in zip(old, samples, strict=True)] if old else samples
        self._first = (self._first[0] + 1, self._first[1] + n)
        if self._first[0] * MINUTE < _EDGE_HOUR or self._first[1] < _EDGE_SAMPLES:
            return
        latency = self.kind == "latency"
        learned = self._learned
        whole = sum(self._learned)
        self.edges = []
        for level in LATENCY_LEVELS if latency else _SCORE_LEVELS:
            below = 0.0
            edge = 0
            while edge < len(learned) and below + learned[edge] <= level * whole:
                below += learned[edge]
                edge += 1
            # the cell that holds the quantile belongs to whichever side leaves both some
            for candidate in (edge, edge + 1):
                share = sum(learned[candidate:]) / whole
                if candidate not in self.edges and 0.005 <= share <= 0.98:
                    self.edges.append(candidate)
                    break
        self._learned = []
        if not self.edges:
            self._first = (0.0, 0.0)  # all values equal so far: gather again
            return
        fast = self._first[1] >= _FAST_RATE * MINUTE * self._first[0]
        self.set_pace(_FAST if fast else MINUTE)
        rhythm = LATENCY_RHYTHM if latency else DAILY_RHYTHM
        spec = DetectorSpec(self.width, two_sided=not latency, edges=len(self.edges), rhythm=rhythm)
        self.series[self.kind] = DriftSeries(spec, self.milestones)


@dataclass
class JudgedMonitor(SeriesMonitor):
    """Monitors the stratified mean of a sampled score, and its residual against the cheap score."""

    judged: ClassVar[bool] = True
    lateness: ClassVar[float] = 120.0

    type: Literal["judged"] = "judged"
    _steps: JudgedSteps = field(default_factory=JudgedSteps)

    @classmethod
    def begin(cls, service: str, metric: str, scorer: str, spec: MetricSpec | None = None) -> Self:
        """Return a monitor of a sampled score with `spec`."""
        new = super().begin(service, metric, scorer, spec)
        new.width = _JUDGED_WIDTH
        new.watch["high"] = new.watch["high"] or 1.0
        return new

    def read(self, source: BucketSource, scores: ScoreHistograms, h: float) -> list[MonitorEvent]:
        """Read the next bucket, as `SeriesMonitor.read`."""
        start = self._take_start()
        cell = source.bucket(self.service, "", self.metric, self.scorer, self.width, start)
        if cell is None or not cell.scored:
            return []
        step = self._steps.feed(cell)
        events = []
        if step.scores:
            events += self._feed_parts(
                kind=self.kind, start=start, parts=step.scores, h=h, spec=self.watch
            )
        if step.residuals:
            # score less slope times cheap score, both within the range of the score
            low, high = self.watch["low"], self.watch["high"]
            bounds = (low - step.slope * high, high - step.slope * low)
            spec = {"two_sided": True, "low": bounds[0], "high": bounds[1], "rhythm": 0.0}
            events += self._feed_parts(
                kind="judge", start=start, parts=step.residuals, h=h, spec=spec
            )
        return events

    def _feed_parts(
        self,
        kind: AlarmKind,
        start: float,
        parts: Sequence[ScorePart],
        h: float,
        spec: Mapping[str, Any],
    ) -> list[MonitorEvent]:
        if kind not in self.series:
            self.series[kind] = DriftSeries(DetectorSpec(self.width, **spec), self.milestones)
        n, total, squares = (sum(p.weight * p[i] for p in parts) for i in range(3))
        return self._feed(kind, start, n, (total,), (squares,), h, parts)


AnyMonitor = MeanMonitor | SharesMonitor | JudgedMonitor

SavedMonitor = Annotated[AnyMonitor, Field(discriminator="type")]
"""Any monitor, as it is saved."""
