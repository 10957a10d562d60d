"""The versioned control record of traffic statistics that sampling needs, and how it is learned.

The aggregate half learns it from traces (`ControlLearner`) and publishes it now and then; the score
half draws by the last one it has. A late record changes which traces are drawn and no estimate,
since each draw carries its probability. Pure, on event time.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

from ragmeter.config.scoring import SamplingSettings
from ragmeter.core.label_bounds import ServiceSlots
from ragmeter.core.metric_specs import find_spec
from ragmeter.core.score import Score, ScoredTrace, ScoreState
from ragmeter.metrics.registry import metric_specs

# Tags that a deployment changes.
VERSION_TAGS = ("model", "prompt_version")

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

# The name of the saved state.
_STATE_NAME = "control"


@dataclass(frozen=True, slots=True)
class SamplingControl:
    """The statistics of traffic that sampling needs.

    `low` is the cut of each cheap score by service and metric, `first` the event time (Unix
    seconds) when a version (`"model=x"`) or the service itself ("") first came, `rare` the segments
    with little traffic.
    """

    version: int = 0
    low: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    first: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    rare: Mapping[str, Sequence[str]] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Return the record for JSON."""
        return {
            "version": self.version,
            "low": {service: dict(cuts) for service, cuts in self.low.items()},
            "first": {service: dict(times) for service, times in self.first.items()},
            "rare": {service: list(names) for service, names in self.rare.items()},
        }

    @classmethod
    def from_dict(cls, saved: Mapping[str, Any]) -> SamplingControl:
        """Restore what `to_dict` returned."""
        return cls(saved["version"], saved["low"], saved["first"], saved["rare"])


class _ServiceTraffic:
    """Counts of a service's traces.

    `cheap` holds counts by bin and metric, `segments` counts by segment, `first` and `last` the
    event times of each version.
    """

    __slots__ = ("cheap", "first", "last", "segments", "traces")

    def __init__(self) -> None:
        self.traces = 0
        self.cheap: dict[str, list[int]] = {}
        self.segments: dict[str, int] = {}
        self.first: dict[str, float] = {}
        self.last: dict[str, float] = {}

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
        index = None if value is None else _bin(metric, value)
        if index is not None:
            self.cheap.setdefault(metric, [0] * _CHEAP_BINS)[index] += 1

    def halve(self) -> None:
        self.traces //= 2
        for counts in self.cheap.values():
            counts[:] = [count // 2 for count in counts]
        # segments that stay away altogether make room for others
        self.segments = {name: half for name, n in self.segments.items() if (half := n // 2)}


class ControlLearner:
    """Counts traces and makes control records of them.

    There is a new `record` when a version appears, else every hour of event time. A record holds
    from the turn after the one it was learned in; a turn is a fixed stretch of the queue. So the
    draws of a replay depend on its traces alone, and not on batches and restarts.
    """

    def __init__(self, settings: SamplingSettings) -> None:
        self._settings = settings
        self._services: dict[str, _ServiceTraffic] = {}
        self._due = -math.inf
        self.record = SamplingControl()
        self._turn = -1
        self._before = self.record  # the record that held before `_turn`
        self._slots = ServiceSlots()
        self._touched: set[str] = set()
        self._positions: dict[str, int] = {}  # of a built-in score in a trace's results

    def update(self, settings: SamplingSettings) -> None:
        """Use other settings from the next trace on."""
        self._settings = settings

    def at(self, turn: int) -> SamplingControl:
        """Return the record that holds in `turn`, when all earlier turns have been observed."""
        return self.record if turn > self._turn else self._before

    def observe(
        self, scored: ScoredTrace, service: str, segments: Sequence[str] = (), turn: int = 0
    ) -> None:
        """Count a trace that arrives for the first time, under its bounded names.

        Turns never go back.
        """
        traffic = self._services.get(service)
        if traffic is None:
            traffic = self._services[service] = _ServiceTraffic()
        self._touched.add(service)
        traffic.traces += 1
        if traffic.traces >= _MEMORY_TRACES:
            traffic.halve()
        appeared = traffic.appear("", scored.timestamp)
        for tag in VERSION_TAGS:
            if tag in scored.tags:
                appeared |= traffic.appear(f"{tag}={scored.tags[tag]}", scored.timestamp)
        for segment in segments:
            if segment in traffic.segments or len(traffic.segments) < MAX_VALUES:
                traffic.segments[segment] = traffic.segments.get(segment, 0) + 1
        for metric in self._settings.low:
            traffic.count_cheap(metric, self._cheap_value(metric, scored.results))
        if appeared or scored.timestamp >= self._due:
            self._revise(scored.timestamp, turn)

    def observe_all(
        self,
        traces: Sequence[ScoredTrace],
        service: str,
        segments: Sequence[Sequence[str]],
        columns: Mapping[tuple[str, str], Sequence[Score]],
    ) -> None:
        """Do as `observe` with many traces and the segments of each.

        `columns` are the results of the traces by metric and scorer.
        """
        traffic = self._services.get(service)
        versions = {
            f"{tag}={trace.tags[tag]}": trace.timestamp
            for tag in VERSION_TAGS
            for trace in traces
            if tag in trace.tags
        }
        if (
            traffic is None
            or not traffic.first.keys() >= {"", *versions}
            or traffic.traces + len(traces) >= _MEMORY_TRACES
            or max([trace.timestamp for trace in traces]) >= self._due
        ):  # the order matters
            for trace, names in zip(traces, segments, strict=True):
                self.observe(trace, service, names)
            return
        self._touched.add(service)
        traffic.traces += len(traces)
        traffic.last |= {"": traces[-1].timestamp, **versions}
        for name, number in Counter(chain.from_iterable(segments)).items():
            if name in traffic.segments or len(traffic.segments) < MAX_VALUES:
                traffic.segments[name] = traffic.segments.get(name, 0) + number
        for metric in self._settings.low:
            for score in columns.get((metric, "builtin"), ()):
                if score.state is ScoreState.SCORED:
                    traffic.count_cheap(metric, score.value)

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

    def _revise(self, now: float, turn: int) -> None:
        old = self.record
        if turn != self._turn:
            self._turn = turn
            self._before = old
        low = dict(old.low)
        rare = dict(old.rare)
        if now >= self._due:
            self._due = now + REVISE_SECONDS
            low = {name: cuts for name in self._services if (cuts := self._cuts(name))}
            rare = {name: names for name in self._services if (names := self._rare_segments(name))}
        first = {name: dict(traffic.first) for name, traffic in self._services.items()}
        self.record = SamplingControl(old.version + 1, low, first, rare)

    def _cuts(self, service: str) -> dict[str, float]:
        """Return the cut of each metric: at most the configured share of traces is below it."""
        share = self._settings.low_share / max(1, len(self._settings.low))
        cuts = {}
        for metric, counts in self._services[service].cheap.items():
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

    def retain_services(self, services: Iterable[str]) -> None:
        """Forget every other service."""
        retained = set(services)
        self._services = {name: t for name, t in self._services.items() if name in retained}
        self._slots.retain(retained)

    def drain(self) -> dict[str, Any]:
        """Return the state of services observed since the last call; call it before `dump`."""
        touched, self._touched = self._touched, set()
        return {
            f"{_STATE_NAME}.{self._slots.slot_of(name)}": {
                "service": name,
                "traces": traffic.traces,
                "cheap": traffic.cheap,
                "segments": traffic.segments,
                "first": traffic.first,
                "last": traffic.last,
            }
            for name in sorted(touched)
            if (traffic := self._services.get(name)) is not None
        }

    def dump(self) -> dict[str, Any]:
        """Return the small state besides `drain`'s, for JSON."""
        return {
            "record": self.record.to_dict(),
            "before": self._before.to_dict(),
            "turn": self._turn,
            "due": None if self._due == -math.inf else self._due,
            "places": self._slots.dump(),
        }

    def load(self, state: Mapping[str, Any]) -> None:
        """Restore what `dump` (under `control`) and every `drain` returned."""
        saved = state.get(_STATE_NAME)
        if saved is None:
            return
        self.record = SamplingControl.from_dict(saved["record"])
        self._before, self._turn = SamplingControl.from_dict(saved["before"]), int(saved["turn"])
        self._due = -math.inf if saved["due"] is None else float(saved["due"])
        self._slots.load(saved["places"])
        for name, fields in self._slots.saved_states(state, _STATE_NAME):
            traffic = self._services[name] = _ServiceTraffic()
            traffic.traces = int(fields["traces"])
            traffic.segments = dict(fields["segments"])
            traffic.first, traffic.last = dict(fields["first"]), dict(fields["last"])
            cheap = fields["cheap"].items()
            traffic.cheap = {m: list(counts) for m, counts in cheap if len(counts) == _CHEAP_BINS}


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
