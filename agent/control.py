"""What the score half needs to know of the traffic as a whole: a small, versioned record.

The aggregate half learns it from the traces it counts (`Learner`) and hands it back now and then;
the score half reads the last one it got (`Control`). One that comes late changes which traces are
drawn, and no estimate: each draw carries its probability. Pure, on event time.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from agent.config import Sampling
from agent.metrics import METRICS
from agent.metrics.names import spec_of
from agent.trace import ScoredTrace, State

__all__ = ["VERSION_TAGS", "Control", "Learner"]

VERSION_TAGS = ("model", "prompt_version")
"""What a deployment changes."""

BINS = 200
"""Of a cheap score's range: the cut then lies within half a per cent of the range."""

ENOUGH = 500
"""Traces that a cut or a share is read from: the 20 % quantile then has an error of 1.8 points."""

MEMORY = 20_000
"""At so many traces all counts are halved: what is low and rare follows the last days, slowly."""

REVISE = 3600.0
"""Seconds of event time between two records, so that strata keep their meaning for an hour."""

MAX_VALUES = 64
"""Of models, prompt versions and segments that are remembered of a service."""


@dataclass(frozen=True, slots=True)
class Control:
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
    def from_dict(cls, saved: Mapping[str, Any]) -> Control:
        return cls(saved["version"], saved["low"], saved["first"], saved["rare"])


class _Service:
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


class Learner:
    """Counts traces and makes a new `Control` of it, `record`, when there is something to say: at
    once when a version appears, else every hour of event time."""

    def __init__(self, settings: Sampling) -> None:
        self._settings = settings
        self._services: dict[str, _Service] = {}
        self._due = -math.inf
        self.record = Control()

    def observe(self, scored: ScoredTrace, service: str, segments: Sequence[str] = ()) -> bool:
        """Count a trace that was handed over for the first time, under its bounded names; whether
        `record` is a new one."""
        known = self._services.get(service)
        if known is None:
            known = self._services[service] = _Service()
        known.traces += 1
        if known.traces >= MEMORY:
            _halve(known)
        appeared = known.appear("", scored.timestamp)
        for tag in VERSION_TAGS:
            if tag in scored.tags:
                appeared |= known.appear(f"{tag}={scored.tags[tag]}", scored.timestamp)
        for segment in segments:
            if segment in known.segments or len(known.segments) < MAX_VALUES:
                known.segments[segment] = known.segments.get(segment, 0) + 1
        for score in scored.results:
            if (
                score.scorer == "builtin"
                and score.metric in self._settings.low
                and score.state is State.SCORED
                and score.value is not None
            ):
                place = _bin(score.metric, score.value)
                if place is not None:
                    known.cheap.setdefault(score.metric, [0] * BINS)[place] += 1
        if appeared or scored.timestamp >= self._due:
            self._revise(scored.timestamp, appeared)
            return True
        return False

    def _revise(self, now: float, appeared: bool) -> None:
        old = self.record
        low, rare = dict(old.low), dict(old.rare)
        if now >= self._due:
            self._due = now + REVISE
            low = {name: cuts for name in self._services if (cuts := self._cuts(name))}
            rare = {name: found for name in self._services if (found := self._rare(name))}
        first = {name: dict(known.first) for name, known in self._services.items()}
        self.record = Control(old.version + 1, low, first, rare)

    def _cuts(self, service: str) -> dict[str, float]:
        cheap = self._services[service].cheap
        share = self._settings.low_share / max(1, len(self._settings.low))
        found = {}
        for metric, counts in cheap.items():
            total, below = sum(counts), 0
            if total < ENOUGH:
                continue
            for place, count in enumerate(counts):
                # the cut that leaves at most the share below it: of a score that is mostly 0
                # nothing is low, for it would be most of the traffic
                if below + count > share * total:
                    low, high = _range(metric) or (0.0, 1.0)
                    if below:
                        found[metric] = low + (high - low) * place / BINS
                    break
                below += count
        return found

    def _rare(self, service: str) -> list[str]:
        known = self._services[service]
        if known.traces < ENOUGH:
            return []
        bar = self._settings.rare_share * known.traces
        return sorted(name for name, count in known.segments.items() if count < bar)

    def forget(self, keep: Sequence[str]) -> None:
        """Only the services that still have windows."""
        self._services = {name: s for name, s in self._services.items() if name in keep}

    def dump(self) -> dict[str, Any]:
        """JSON-able."""
        return {
            "record": self.record.to_dict(),
            "due": None if self._due == -math.inf else self._due,
            "services": {
                name: {
                    "traces": known.traces,
                    "cheap": known.cheap,
                    "segments": known.segments,
                    "first": known.first,
                    "last": known.last,
                }
                for name, known in self._services.items()
            },
        }

    def load(self, saved: Mapping[str, Any]) -> None:
        """The inverse of `dump`. KeyError, TypeError or ValueError for what it has not written."""
        self.record = Control.from_dict(saved["record"])
        self._due = -math.inf if saved["due"] is None else float(saved["due"])
        for name, fields in saved["services"].items():
            known = self._services[name] = _Service()
            known.traces = int(fields["traces"])
            known.segments = dict(fields["segments"])
            known.first, known.last = dict(fields["first"]), dict(fields["last"])
            known.cheap = {m: list(c) for m, c in fields["cheap"].items() if len(c) == BINS}


def _range(metric: str) -> tuple[float, float] | None:
    spec = spec_of(METRICS, metric)
    return None if spec is None or spec.high is None else (spec.low, spec.high)


def _bin(metric: str, value: float) -> int | None:
    ends = _range(metric)
    if ends is None or not ends[0] <= value <= ends[1]:
        return None
    return min(BINS - 1, int((value - ends[0]) / (ends[1] - ends[0]) * BINS))


def _halve(known: _Service) -> None:
    known.traces //= 2
    for counts in known.cheap.values():
        counts[:] = [count // 2 for count in counts]
    # what stays away altogether makes room for others
    known.segments = {name: half for name, n in known.segments.items() if (half := n // 2)}
