"""How the control record of sampling (`ragmeter.sampling.control`) is learned from traffic.

Pure, on event time.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Annotated

from pydantic import Field

from ragmeter.core.metric_specs import find_spec
from ragmeter.core.score import Score, ScoreState
from ragmeter.metrics.registry import metric_specs
from ragmeter.parts.contract import Arrival
from ragmeter.sampling.control import VERSION_TAGS, SamplingControl

# Metrics whose lowest built-in scores put a trace into the stratum `low`: every service has both,
# one of the passages and one of the answer.
LOW_METRICS = ("grounding", "relevance")
# Share of traces below the cuts of all of them together: drawn twice as often, this fifth is a
# third of what a judge sees.
LOW_SHARE = 0.2

# Bins of a cheap score's range: the cut then lies within half a per cent of the range.
_CHEAP_BINS = 200

# Traces that a cut or a share is read from: the 20 % quantile then has an error of 1.8 points.
MIN_TRACES = 500
# A segment with less of the traffic is rare: at 5 % it has one judged trace in a thousand.
RARE_SHARE = 0.02

# At so many traces all counts are halved: low and rare follow the last days, slowly.
_MEMORY_TRACES = 20_000

# Seconds of event time between two records, so that strata keep their meaning for an hour.
REVISE_SECONDS = 3600.0

# Models, prompt versions and segments that are remembered of a service.
MAX_VALUES = 64

# Names of the rows of the state.
_RECORD_ROW = "record"
_SERVICE_ROW = "service/"

_CheapCounts = Annotated[list[int], Field(min_length=_CHEAP_BINS, max_length=_CHEAP_BINS)]


@dataclass(slots=True)
class ServiceTraffic:
    """Counts of a service's traces.

    `cheap` holds counts by bin and metric, `segments` counts by segment, `first` and `last` the
    event times of each version.
    """

    traces: int
    cheap: dict[str, _CheapCounts] = field(default_factory=dict)
    segments: dict[str, int] = field(default_factory=dict)
    first: dict[str, float] = field(default_factory=dict)
    last: dict[str, float] = field(default_factory=dict)

    def appear(self, name: str, now: float) -> bool:
        """Note a version; return whether it is new, or others have displaced it since."""
        self.last[name] = now
        if name in self.first:
            return False
        if len(self.first) > MAX_VALUES:
            oldest = min((n for n in self.first if n), key=lambda n: (self.last[n], n))
            del self.first[oldest], self.last[oldest]
        self.first[name] = now
        return True

    def count_cheap(self, metric: str, value: float | None) -> None:
        """Count the cheap score of a trace; None, or a value outside its range, counts nowhere."""
        index = None if value is None else _bin(metric, value)
        if index is not None:
            self.cheap.setdefault(metric, [0] * _CHEAP_BINS)[index] += 1

    def count_segments(self, segments: Mapping[str, int]) -> None:
        """Add to the counts of segments, as long as there is room for new ones."""
        for name, number in segments.items():
            if name in self.segments or len(self.segments) < MAX_VALUES:
                self.segments[name] = self.segments.get(name, 0) + number

    def halve(self) -> None:
        """Halve all counts."""
        self.traces //= 2
        for counts in self.cheap.values():
            counts[:] = [count // 2 for count in counts]
        # segments that stay away altogether make room for others
        self.segments = {name: half for name, n in self.segments.items() if (half := n // 2)}


@dataclass(frozen=True, slots=True)
class LearnedRecord:
    """The record that holds after `turn`, the one that held `before` it, and when one is due."""

    record: SamplingControl
    before: SamplingControl
    turn: int
    due: float | None


ControlState = LearnedRecord | ServiceTraffic
"""A row of the state."""


class ControlLearner:
    """Counts traces and makes control records of them.

    There is a new `record` when a version appears, else every hour of event time. A record holds
    from the turn after the one it was learned in; a turn is a fixed stretch of the queue. So the
    draws of a replay depend on its traces alone, and not on batches and restarts.

    Args:
        low: Metrics whose lowest built-in scores are the stratum `low`.
        low_share: Share of traces below their cuts, all together.
    """

    def __init__(self, low: Sequence[str] = LOW_METRICS, low_share: float = LOW_SHARE) -> None:
        self._low = tuple(low)
        self._low_share = low_share
        self._services: dict[str, ServiceTraffic] = {}
        self._learned = LearnedRecord(
            record=SamplingControl(), before=SamplingControl(), turn=-1, due=None
        )
        self._changed: dict[str, None] = {}  # names of rows
        self._positions: dict[str, int] = {}  # of a built-in score in a trace's results

    @property
    def record(self) -> SamplingControl:
        """The record of all traces so far."""
        return self._learned.record

    def at(self, turn: int) -> SamplingControl:
        """Return the record that holds in `turn`, when all earlier turns have been observed."""
        return self._learned.record if turn > self._learned.turn else self._learned.before

    def observe(self, arrivals: Sequence[Arrival], turn: int = 0) -> None:
        """Count traces that arrive for the first time, in their order.

        Turns never go back.
        """
        by_service: dict[str, list[Arrival]] = {}
        for arrival in arrivals:
            by_service.setdefault(arrival.trace.service, []).append(arrival)
        versions = {service: _versions_of(own) for service, own in by_service.items()}
        if any(
            self._may_revise(service, own, versions[service]) for service, own in by_service.items()
        ):  # the order matters
            for arrival in arrivals:
                self._observe_one(arrival, turn)
            return
        for service, own in by_service.items():
            traffic = self._services[service]
            self._changed[_SERVICE_ROW + service] = None
            traffic.traces += len(own)
            traffic.last |= {"": own[-1].trace.timestamp, **versions[service]}
            traffic.count_segments(Counter(chain.from_iterable(names for _, names, _ in own)))
            for trace, _, _ in own:
                self._count_cheap(traffic, trace.results)

    def _may_revise(
        self, service: str, arrivals: Sequence[Arrival], versions: Mapping[str, float]
    ) -> bool:
        """Return whether traces of a service can do more than add to its counts."""
        traffic = self._services.get(service)
        return (
            traffic is None
            or not traffic.first.keys() >= {"", *versions}
            or traffic.traces + len(arrivals) >= _MEMORY_TRACES
            or max([trace.timestamp for trace, _, _ in arrivals]) >= self._due
        )

    def _observe_one(self, arrival: Arrival, turn: int) -> None:
        trace, segments, _ = arrival
        service = trace.service
        traffic = self._services.setdefault(service, ServiceTraffic(0))
        self._changed[_SERVICE_ROW + service] = None
        traffic.traces += 1
        if traffic.traces >= _MEMORY_TRACES:
            traffic.halve()
        appeared = traffic.appear("", trace.timestamp)
        for tag in VERSION_TAGS:
            if tag in trace.tags:
                appeared |= traffic.appear(f"{tag}={trace.tags[tag]}", trace.timestamp)
        traffic.count_segments(Counter(segments))
        self._count_cheap(traffic, trace.results)
        if appeared or trace.timestamp >= self._due:
            self._revise(trace.timestamp, turn)

    def _count_cheap(self, traffic: ServiceTraffic, results: Sequence[Score]) -> None:
        for metric in self._low:
            traffic.count_cheap(metric, self._cheap_value(metric, results))

    def _cheap_value(self, metric: str, results: Sequence[Score]) -> float | None:
        """Return the built-in score of a metric, almost always where the last trace had it."""
        at = self._positions.get(metric, 0)
        if at > len(results) or (at < len(results) and not _is_builtin(results[at], metric)):
            matches = (n for n, score in enumerate(results) if _is_builtin(score, metric))
            at = self._positions[metric] = next(matches, len(results))
        if at == len(results):  # the last trace with as many results had none either
            return None
        score = results[at]
        return score.value if score.state is ScoreState.SCORED else None

    @property
    def _due(self) -> float:
        return -math.inf if self._learned.due is None else self._learned.due

    def _revise(self, now: float, turn: int) -> None:
        old = self._learned
        services = sorted(self._services)
        due = old.due
        low = dict(old.record.low)
        rare = dict(old.record.rare)
        if now >= self._due:
            due = now + REVISE_SECONDS
            low = {name: cuts for name in services if (cuts := self._cuts(name))}
            rare = {name: names for name in services if (names := self._rare_segments(name))}
        first = {name: dict(self._services[name].first) for name in services}
        self._learned = LearnedRecord(
            record=SamplingControl(old.record.version + 1, low, first, rare),
            before=old.before if turn == old.turn else old.record,
            turn=turn,
            due=due,
        )
        self._changed[_RECORD_ROW] = None

    def _cuts(self, service: str) -> dict[str, float]:
        """Return the cut of each metric: at most the share of traces is below it."""
        share = self._low_share / max(1, len(self._low))
        cuts = {}
        for metric, counts in sorted(self._services[service].cheap.items()):
            total = sum(counts)
            below = 0
            if total < MIN_TRACES:
                continue
            for index, count in enumerate(counts):
                if below + count > share * total:
                    low, high = _range(metric) or (0.0, 1.0)
                    # of a score that is mostly 0 nothing is low: it would be most of the traffic
                    if below:
                        cuts[metric] = low + (high - low) * index / _CHEAP_BINS
                    break
                below += count
        return cuts

    def _rare_segments(self, service: str) -> list[str]:
        traffic = self._services[service]
        if traffic.traces < MIN_TRACES:
            return []
        bar = RARE_SHARE * traffic.traces
        return sorted(name for name, count in traffic.segments.items() if count < bar)

    def retain(self, services: Iterable[str]) -> None:
        """Forget every other service."""
        for name in self._services.keys() - set(services):
            del self._services[name]
            self._changed[_SERVICE_ROW + name] = None

    def changes(self) -> dict[str, ControlState | None]:
        """Return the rows that changed since the last call, None for those to delete."""
        changed = self._changed
        self._changed = {}
        return {name: self._row(name) for name in changed}

    def _row(self, name: str) -> ControlState | None:
        if name == _RECORD_ROW:
            return self._learned
        return self._services.get(name.removeprefix(_SERVICE_ROW))

    def restore(self, rows: Mapping[str, ControlState]) -> None:
        """Load rows as `changes` returned them."""
        for name, row in rows.items():
            if isinstance(row, LearnedRecord):
                self._learned = row
            else:
                self._services[name.removeprefix(_SERVICE_ROW)] = row


def _versions_of(arrivals: Sequence[Arrival]) -> dict[str, float]:
    """Return when the versions of traces came last."""
    return {
        f"{tag}={trace.tags[tag]}": trace.timestamp
        for tag in VERSION_TAGS
        for trace, _, _ in arrivals
        if tag in trace.tags
    }


def _is_builtin(score: Score, metric: str) -> bool:
    return score.metric == metric and score.scorer == "builtin"


def _range(metric: str) -> tuple[float, float] | None:
    spec = find_spec(metric_specs(), metric)
    return None if spec is None or spec.high is None else (spec.low, spec.high)


def _bin(metric: str, value: float) -> int | None:
    ends = _range(metric)
    if ends is None or not ends[0] <= value <= ends[1]:
        return None
    return min(_CHEAP_BINS - 1, int((value - ends[0]) / (ends[1] - ends[0]) * _CHEAP_BINS))
