"""The traces that a model, a judge or people have valued; pure.

They are kept one by one, since the regression on cheap scores needs to leave each of them out.
"""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

# For how long a sample is kept: as long as the buckets of an hour.
KEPT_SECONDS = 14 * 86_400

# Valued traces of all services together; each takes about half a kilobyte. Of more, the service
# with the most gives up its oldest, and its windows that reach further back have no level.
MAX_SAMPLES = 20_000


class Valuation(NamedTuple):
    """What one source says of a trace, by one question.

    Args:
        value: From 0 to 1; None where it should have one and has none.
        applies: Whether the question has a meaning for the trace.
        probability: With which the trace was drawn, in (0, 1].
        stratum: The stratum that it was drawn from.
        cheap: The built-in score of the question from 0 to 1, None without one.
        version: The fingerprint of the judge or model.
    """

    value: float | None
    applies: bool
    probability: float
    stratum: str
    cheap: float | None
    version: str


Valuations = dict[str, dict[str, Valuation]]
"""Valuations by question and source."""


@dataclass(slots=True)
class ValuedTrace:
    """A row of the state: a trace that was valued.

    Args:
        at: Event time in Unix seconds.
        segments: The segments that it was counted in.
        values: What is known of it.
    """

    at: float
    segments: tuple[str, ...]
    values: Valuations = field(default_factory=dict)


class SampleName(NamedTuple):
    """The name of a sample: its service, and a hash of its trace id."""

    service: str
    trace: str


class ValuedTraces:
    """The samples of all services of one state.

    Args:
        limit: How many are kept.
    """

    def __init__(self, limit: int = MAX_SAMPLES) -> None:
        self._limit = limit
        self._count = 0
        self._samples: dict[str, dict[str, ValuedTrace]] = {}
        self._order: dict[str, list[tuple[float, str]]] = {}  # (time, trace) of a service
        self._complete_from: dict[str, float] = {}
        self._touched: dict[SampleName, None] = {}
        self._shortened: dict[str, None] = {}  # services whose `complete_from` has moved
        self.versions: dict[str, int] = {}

    def add(
        self,
        name: SampleName,
        *,
        at: float,
        segments: tuple[str, ...],
        values: Valuations,
    ) -> None:
        """Add what is known of a trace; a later valuation by a source replaces its earlier one."""
        own = self._samples.setdefault(name.service, {})
        sample = own.get(name.trace)
        if sample is None:
            sample = own[name.trace] = ValuedTrace(at, segments)
            insort(self._order.setdefault(name.service, []), (at, name.trace))
            self._count += 1
        for question, by_source in values.items():
            sample.values.setdefault(question, {}).update(by_source)
        self._touch(name)
        while self._count > self._limit:
            self._drop_oldest(max(self._order, key=lambda service: len(self._order[service])))

    def _touch(self, name: SampleName) -> None:
        self._touched[name] = None
        self.versions[name.service] = self.versions.get(name.service, 0) + 1

    def _drop_oldest(self, service: str) -> None:
        at, trace = self._order[service].pop(0)
        self._complete_from[service] = math.nextafter(at, math.inf)
        self._shortened[service] = None
        self._remove(SampleName(service, trace))

    def _remove(self, name: SampleName) -> None:
        del self._samples[name.service][name.trace]
        self._count -= 1
        self._touch(name)

    def expire(self, now: float) -> None:
        """Drop the samples that are too old at event time `now`."""
        for service, order in self._order.items():
            gone = bisect_left(order, (now - KEPT_SECONDS, ""))
            for _, trace in order[:gone]:
                self._remove(SampleName(service, trace))
            del order[:gone]

    def forget(self, service: str) -> None:
        """Drop a service."""
        for _, trace in self._order.pop(service, []):
            self._remove(SampleName(service, trace))
        self._samples.pop(service, None)
        self._complete_from.pop(service, None)
        self._shortened.pop(service, None)

    def complete_from(self, service: str) -> float:
        """Return the time since which no sample was dropped for want of room."""
        return self._complete_from.get(service, -math.inf)

    def take_shortened(self) -> dict[str, float]:
        """Return since when services are complete that have lost samples since the last call."""
        shortened = self._shortened
        self._shortened = {}
        return {service: self._complete_from[service] for service in shortened}

    def between(self, service: str, start: float, end: float) -> Iterator[ValuedTrace]:
        """Yield the samples of [start, end), the oldest first."""
        order = self._order.get(service, [])
        own = self._samples.get(service, {})
        for at in range(bisect_left(order, (start, "")), bisect_left(order, (end, ""))):
            yield own[order[at][1]]

    def changes(self) -> dict[SampleName, ValuedTrace | None]:
        """Return the samples that changed since the last call, None for dropped ones."""
        touched = self._touched
        self._touched = {}
        return {name: self._samples.get(name.service, {}).get(name.trace) for name in touched}

    def restore(
        self, rows: Mapping[SampleName, ValuedTrace], complete_from: Mapping[str, float]
    ) -> None:
        """Load rows as `changes` returned them, and since when those of a service are complete."""
        self._complete_from = dict(complete_from)
        for name, sample in rows.items():
            self._samples.setdefault(name.service, {})[name.trace] = sample
            self._order.setdefault(name.service, []).append((sample.at, name.trace))
            self._count += 1
        for order in self._order.values():
            order.sort()
