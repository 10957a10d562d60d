"""The versioned control record of traffic statistics that sampling needs, and how it is learned.

The aggregate half learns it from the traces it counts (`ControlLearner`) and hands it back now and
then; the score half reads the last one it got (`Control`). One that comes late changes which traces
are drawn, and no estimate: each draw carries its probability. Pure, on event time.

So that the draws of a replay depend on its traces alone, and not on batches and restarts, a record
holds from the turn after the one it was learned in; a turn is a fixed stretch of the queue.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ragmeter.config.scoring import SamplingSettings
from ragmeter.core.label_bounds import ServiceSlots
from ragmeter.core.metric_specs import find_spec
from ragmeter.core.score import Score, ScoredTrace, ScoreState
from ragmeter.metrics.registry import METRICS

VERSION_TAGS = ("model", "prompt_version")
"""What a deployment changes."""

_CHEAP_BINS = 200
"""Of a cheap score's range: the cut then lies within half a per cent of the range."""

MIN_TRACES = 500
"""Traces that a cut or a share is read from: the 20 % quantile then has an error of 1.8 points."""

_MEMORY_TRACES = 20_000
"""At so many traces all counts are halved: what is low and rare follows the last days, slowly."""

REVISE_SECONDS = 3600.0
"""Seconds of event time between two records, so that strata keep their meaning for an hour."""

_STATE_NAME = "control"
"""The name of this state."""

MAX_VALUES = 64
"""Of models, prompt versions and segments that are remembered of a service."""


@dataclass(frozen=True, slots=True)
class SamplingControl:
    """`low` is the cut of each cheap score by service and metric, `first` when a version was first
    seen (`"model=x"`; the service itself by ""), `rare` the segments with little traffic."""

    version: int = 0
    low: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    first: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    rare: Mapping[str, Sequence[str]] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """JSON-able."""
        return {
            "version": self.version,
            "low": {service: dict(cuts) for service, cuts in self.low.items()},
            "first": {service: dict(times) for service, times in self.first.items()},
            "rare": {service: list(names) for service, names in self.rare.items()},
        }

    @classmethod
    def from_dict(cls, saved: Mapping[str, Any]) -> SamplingControl:
        return cls(saved["version"], saved["low"], saved["first"], saved["rare"])


class _ServiceTraffic:
    """`cheap` holds counts by bin and metric, `segments` counts by segment."""

    __slots__ = ("cheap", "first", "last", "segments", "traces")

    def __init__(self) -> None:
        self.traces = 0
        self.cheap: dict[str, list[int]] = {}
        self.segments: dict[str, int] = {}
        self.first: dict[str, float] = {}
        self.last: dict[str, float] = {}

    def appear(self, name: str, now: float) -> bool:
        """Whether this version was never seen, or so long ago that others took its place."""
        self.last[name] = now
        if name in self.first:
            return False
        if len(self.first) > MAX_VALUES:
            oldest = min((n for n in self.first if n), key=lambda n: (self.last[n], n))
            del self.first[oldest], self.last[oldest]
        self.first[name] = now
        return True


class ControlLearner:
    """Counts traces and makes a new `Control` of it, `record`, when there is something to say: when
    a version appears, else every hour of event time."""

    def __init__(self, settings: SamplingSettings) -> None:
        self._settings = settings
        self._services: dict[str, _ServiceTraffic] = {}
        self._due = -math.inf
        self.record = SamplingControl()
        self._turn = -1
        self._before = self.record  # what held before `_turn`
        self._places = ServiceSlots()
        self._touched: set[str] = set()
        self._where: dict[str, int] = {}  # position of a built-in score in a trace's results

    def update(self, settings: SamplingSettings) -> None:
        """Other settings from the next trace on."""
        self._settings = settings

    def at(self, turn: int) -> SamplingControl:
        """The record that holds in `turn`, when all earlier turns have been observed."""
        return self.record if turn > self._turn else self._before

    def observe(
        self, scored: ScoredTrace, service: str, segments: Sequence[str] = (), turn: int = 0
    ) -> None:
        """Count a trace that was handed over for the first time, under its bounded names. Turns
        never go back."""
        known = self._services.get(service)
        if known is None:
            known = self._services[service] = _ServiceTraffic()
        self._touched.add(service)
        known.traces += 1
        if known.traces >= _MEMORY_TRACES:
            _halve(known)
        appeared = known.appear("", scored.timestamp)
        for tag in VERSION_TAGS:
            if tag in scored.tags:
                appeared |= known.appear(f"{tag}={scored.tags[tag]}", scored.timestamp)
        for segment in segments:
            if segment in known.segments or len(known.segments) < MAX_VALUES:
                known.segments[segment] = known.segments.get(segment, 0) + 1
        for metric in self._settings.low:
            value = self._cheap(metric, scored.results)
            place = None if value is None else _bin(metric, value)
            if place is not None:
                known.cheap.setdefault(metric, [0] * _CHEAP_BINS)[place] += 1
        if appeared or scored.timestamp >= self._due:
            self._revise(scored.timestamp, turn)

    def _cheap(self, metric: str, results: Sequence[Score]) -> float | None:
        """The built-in score of a metric; almost always where the last trace had it."""
        at = self._where.get(metric, 0)
        if at >= len(results) or not _is_builtin(results[at], metric):
            found = (n for n, score in enumerate(results) if _is_builtin(score, metric))
            at = self._where[metric] = next(found, len(results))
            if at == len(results):
                return None
        score = results[at]
        return score.value if score.state is ScoreState.SCORED else None

    def _revise(self, now: float, turn: int) -> None:
        old = self.record
        if turn != self._turn:
            self._turn, self._before = turn, old
        low, rare = dict(old.low), dict(old.rare)
        if now >= self._due:
            self._due = now + REVISE_SECONDS
            low = {name: cuts for name in self._services if (cuts := self._cuts(name))}
            rare = {name: found for name in self._services if (found := self._rare(name))}
        first = {name: dict(known.first) for name, known in self._services.items()}
        self.record = SamplingControl(old.version + 1, low, first, rare)

    def _cuts(self, service: str) -> dict[str, float]:
        cheap = self._services[service].cheap
        share = self._settings.low_share / max(1, len(self._settings.low))
        found = {}
        for metric, counts in cheap.items():
            total, below = sum(counts), 0
            if total < MIN_TRACES:
                continue
            for place, count in enumerate(counts):
                # the cut that leaves at most the share below it: of a score that is mostly 0
                # nothing is low, for it would be most of the traffic
                if below + count > share * total:
                    low, high = _range(metric) or (0.0, 1.0)
                    if below:
                        found[metric] = low + (high - low) * place / _CHEAP_BINS
                    break
                below += count
        return found

    def _rare(self, service: str) -> list[str]:
        known = self._services[service]
        if known.traces < MIN_TRACES:
            return []
        bar = self._settings.rare_share * known.traces
        return sorted(name for name, count in known.segments.items() if count < bar)

    def retain_services(self, services: Iterable[str]) -> None:
        """Forget every other service."""
        kept = set(services)
        self._services = {name: s for name, s in self._services.items() if name in kept}
        self._places.retain(kept)

    def drain(self) -> dict[str, Any]:
        """What is known of each service that was observed since the last call, by place. Before
        `dump`: it gives places."""
        touched, self._touched = self._touched, set()
        return {
            f"{_STATE_NAME}.{self._places.slot_of(name)}": {
                "service": name,
                "traces": known.traces,
                "cheap": known.cheap,
                "segments": known.segments,
                "first": known.first,
                "last": known.last,
            }
            for name in sorted(touched)
            if (known := self._services.get(name)) is not None
        }

    def dump(self) -> dict[str, Any]:
        """The small part, JSON-able; `drain` has the rest."""
        return {
            "record": self.record.to_dict(),
            "before": self._before.to_dict(),
            "turn": self._turn,
            "due": None if self._due == -math.inf else self._due,
            "places": self._places.dump(),
        }

    def load(self, state: Mapping[str, Any]) -> None:
        """Back from all that `dump` (under `control`) and every `drain` gave. KeyError, TypeError
        or ValueError for what they have not written."""
        saved = state.get(_STATE_NAME)
        if saved is None:
            return
        self.record = SamplingControl.from_dict(saved["record"])
        self._before, self._turn = SamplingControl.from_dict(saved["before"]), int(saved["turn"])
        self._due = -math.inf if saved["due"] is None else float(saved["due"])
        self._places.load(saved["places"])
        for name, fields in self._places.saved_states(state, _STATE_NAME):
            known = self._services[name] = _ServiceTraffic()
            known.traces = int(fields["traces"])
            known.segments = dict(fields["segments"])
            known.first, known.last = dict(fields["first"]), dict(fields["last"])
            known.cheap = {m: list(c) for m, c in fields["cheap"].items() if len(c) == _CHEAP_BINS}


def _is_builtin(score: Score, metric: str) -> bool:
    return score.metric == metric and score.scorer == "builtin"


def _range(metric: str) -> tuple[float, float] | None:
    spec = find_spec(METRICS, metric)
    return None if spec is None or spec.high is None else (spec.low, spec.high)


def _bin(metric: str, value: float) -> int | None:
    ends = _range(metric)
    if ends is None or not ends[0] <= value <= ends[1]:
        return None
    return min(_CHEAP_BINS - 1, int((value - ends[0]) / (ends[1] - ends[0]) * _CHEAP_BINS))


def _halve(known: _ServiceTraffic) -> None:
    known.traces //= 2
    for counts in known.cheap.values():
        counts[:] = [count // 2 for count in counts]
    # what stays away altogether makes room for others
    known.segments = {name: half for name, n in known.segments.items() if (half := n // 2)}
