"""From a source's buckets to series: what is read, how often, and how it begins."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from agent.drift.alarm import Kind
from agent.drift.baseline import HOUR, MINUTE
from agent.drift.judge import Judging
from agent.drift.reading import Source, plain
from agent.drift.scores import ScoreCells
from agent.drift.series import MILESTONES, RHYTHM, Found, Series, Watch
from agent.metrics.spec import MetricSpec
from agent.windows.loghist import cell_value

__all__ = ["Event", "JudgedTracker", "MeanTracker", "SharesTracker", "Tracker", "load_tracker"]

FAST, FAST_RATE = 10, 5.0
"""Buckets of ten seconds from five samples a second on: 50 in each, and twice as early an alarm."""

JUDGED = 300

FIRST = 10
"""Buckets of a minute that tell the rate."""

EDGE_HOUR, EDGE_SAMPLES = HOUR, 500
"""What edges are taken from: the p99 of 500 samples has five beyond it."""

SCORE_LEVELS = (0.1, 0.25, 0.5, 0.75, 0.9)
LATENCY_LEVELS = (0.5, 0.75, 0.9, 0.95, 0.99)

LATENCY_RHYTHM = 0.7
"""Latency follows the load more than scores do (`series.RHYTHM`): between .7 and 1.3 s it moves by
that much in five hours. What is three times slower is found all the same."""


class Event(NamedTuple):
    """What a bucket has brought about in one of a tracker's series; `found` None: it cleared."""

    kind: Kind
    found: Found | None
    at: float
    threshold: float


class Tracker(ABC):
    """One (metric, scorer) or stage of a service. `next` is the start of the bucket to read."""

    def __init__(self, service: str, metric: str, scorer: str, next_: float) -> None:
        self.service, self.metric, self.scorer = service, metric, scorer
        self.next = next_
        self.width = MINUTE
        self.series: dict[Kind, Series] = {}
        self.milestones: Sequence[tuple[float, int]] = MILESTONES
        self.finest = FAST
        self.lateness = 0.0
        self.wait = 0.0
        """From the start of a bucket to when it may be read."""

    def pace(self, width: int, lateness: float) -> None:
        """Read buckets of `width`, `lateness` seconds after their end."""
        width = max(width, self.finest)
        self.width, self.lateness, self.wait = width, lateness, width + lateness

    @property
    def streams(self) -> int:
        """How many detectors share the service's allowance."""
        return sum(series.watching for series in self.series.values())

    @abstractmethod
    def read(self, source: Source, scores: ScoreCells, h: float) -> list[Event]:
        """Take the next bucket. `h`: the threshold for one bucket a second."""

    def _feed(
        self,
        kind: Kind,
        start: float,
        n: float,
        totals: Sequence[float],
        squares: Sequence[float],
        h: float,
        samples: float = 0.0,
    ) -> list[Event]:
        series = self.series[kind]
        was = series.active
        found = series.feed(start, n, totals, squares, h / self.width, samples)
        if found is None and was == series.active:
            return []
        return [Event(kind, found, start + self.width, h / self.width)]

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
        self.series = {kind: Series.load(item) for kind, item in state["series"].items()}


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
        self._kind: Kind = "rate" if spec and spec.kind == "ratio" else "mean"
        self._watch = [*_direction(spec), _unit(spec)]
        self._first = [0.0, 0.0]  # buckets, samples

    def read(self, source: Source, scores: ScoreCells, h: float) -> list[Event]:
        start = self.next
        self.next += self.width
        cell = source.bucket(self.service, "", self.metric, self.scorer, self.width, start)
        found = plain(cell) if cell is not None else None
        if found is None:
            return []
        if not self.series:
            self._first = [self._first[0] + 1, self._first[1] + found.n]
            if self._first[0] >= FIRST:
                fast = self._first[1] >= FAST_RATE * MINUTE * FIRST
                self.pace(FAST if fast else MINUTE, self.lateness)
                sign, two_sided, unit = self._watch
                watch = Watch(self.width, int(sign), bool(two_sided), unit=unit)
                self.series[self._kind] = Series(watch, self.milestones)
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
        self._kind: Kind = "distribution" if scorer else "latency"
        self.edges: list[int] = []
        self._learned: list[float] = []
        self._first = [0.0, 0.0]

    def _take(
        self, source: Source, scores: ScoreCells, start: float
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

    def read(self, source: Source, scores: ScoreCells, h: float) -> list[Event]:
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

    def edge_value(self, scores: ScoreCells, cell: int) -> float:
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
        if self._first[0] * MINUTE < EDGE_HOUR or self._first[1] < EDGE_SAMPLES:
            return
        whole = sum(self._learned)
        levels = LATENCY_LEVELS if self._kind == "latency" else SCORE_LEVELS
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
        fast = self._first[1] >= FAST_RATE * MINUTE * self._first[0]
        self.pace(FAST if fast else MINUTE, self.lateness)
        latency = self._kind == "latency"
        rhythm = LATENCY_RHYTHM if latency else RHYTHM
        watch = Watch(self.width, two_sided=not latency, edges=len(self.edges), rhythm=rhythm)
        self.series[self._kind] = Series(watch, self.milestones)

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
        self.width = JUDGED
        self._kind: Kind = "rate" if spec and spec.kind == "ratio" else "mean"
        self._watch = [*_direction(spec), _unit(spec)]
        self.judging = Judging(_unit(spec) or 1.0)

    def read(self, source: Source, scores: ScoreCells, h: float) -> list[Event]:
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
            one = Watch(self.width, int(sign), bool(two_sided), unit=unit or 1.0, weighted=True)
            self.series[self._kind] = Series(one, self.milestones)
        events = self._weighted(self._kind, start, step.mean, step.variance, step.judged, h)
        if step.residual is not None:
            if "judge" not in self.series:
                unit = self._watch[2] or 1.0
                both = Watch(self.width, two_sided=True, unit=unit, weighted=True, rhythm=0.0)
                self.series["judge"] = Series(both, self.milestones)
            events += self._weighted("judge", start, *step.residual, step.judged, h)
        return events

    def _weighted(
        self, kind: Kind, start: float, x: float, variance: float, judged: int, h: float
    ) -> list[Event]:
        u = 1.0 / variance
        return self._feed(kind, start, u, (u * x,), (u * x * x,), h, float(judged))

    def spread(self, kind: Kind) -> float:
        """The variance of one sample: turns inverse variances into samples."""
        reference = self.judging.reference
        assert reference is not None
        return (reference.residuals if kind == "judge" else reference.scores)["*"]

    def _more(self) -> dict[str, Any]:
        return {"kind": self._kind, "watch": self._watch, "judging": self.judging.dump()}

    def restore(self, state: Mapping[str, Any]) -> None:
        super().restore(state)
        self._kind, self._watch = state["kind"], list(state["watch"])
        self.judging = Judging.load(state["judging"])


def load_tracker(state: Mapping[str, Any]) -> Tracker:
    """Back from `dump`."""
    kinds = {cls.__name__: cls for cls in (MeanTracker, SharesTracker, JudgedTracker)}
    service, metric, scorer, next_, _ = state["key"]
    new = kinds[state["type"]](service, metric, scorer, next_)
    new.restore(state)
    return new
