"""The traces that a model, a judge or people have valued; pure.

They are kept one by one, since the regression on cheap scores needs to leave each of them out, and
beside that as columns in order of time, of which a stretch of time is a slice.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from ragmeter.core.arithmetic import value_units, weight_units
from ragmeter.windows.sums import NO_SUMS, StratumSums, stratum_key

# For how long a sample is kept: as long as the buckets of an hour.
KEPT_SECONDS = 14 * 86_400

# Valued traces of all services together; each takes about half a kilobyte. Of more, the service
# with the most gives up its oldest, and its windows that reach further back have no level.
MAX_SAMPLES = 20_000

# The question whose built-in score is 0 or 1: its values are summed by class of that.
BY_CLASS = "answered"

# Sums of a column that are kept: of five windows and what is usual before each, and some more.
_KEPT_SUMS = 16


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


class _Outcome(NamedTuple):
    """What the valuations of one column have in common.

    Args:
        stratum: The name that they are summed under.
        version: The fingerprint of the judge or model.
        scored: Whether they have a value.
        applies: Whether the question has a meaning for the traces.
        helped: Whether they have a cheap score as well.
    """

    stratum: str
    version: str
    scored: bool
    applies: bool
    helped: bool

    @classmethod
    def of(cls, question: str, valuation: Valuation) -> _Outcome:
        stratum = valuation.stratum
        if question == BY_CLASS and stratum:
            stratum = stratum_key(stratum, valuation.cheap)
        return cls(
            stratum=stratum,
            version=valuation.version,
            scored=valuation.value is not None,
            applies=valuation.applies,
            helped=valuation.cheap is not None,
        )


class _Column:
    """Valuations with one outcome in order of time, with their weights and values in units."""

    __slots__ = ("_sums", "samples", "times", "valuations", "values", "weights")

    def __init__(self) -> None:
        self.times: list[float] = []
        self.samples: list[ValuedTrace] = []
        self.valuations: list[Valuation] = []
        self.weights: list[int] = []
        self.values: list[int] = []  # empty where there is no value
        self._sums: dict[int, tuple[int, StratumSums]] = {}  # by first position, with the end

    def insert(self, sample: ValuedTrace, valuation: Valuation) -> None:
        at = bisect_right(self.times, sample.at)
        if at < len(self.times):
            self._sums.clear()
        self.times.insert(at, sample.at)
        self.samples.insert(at, sample)
        self.valuations.insert(at, valuation)
        self.weights.insert(at, weight_units(valuation.probability))
        if valuation.value is not None:
            self.values.insert(at, value_units(valuation.value))

    def remove(self, sample: ValuedTrace) -> None:
        at = bisect_left(self.times, sample.at)
        while self.samples[at] is not sample:
            at += 1
        for column in (self.times, self.samples, self.valuations, self.weights):
            del column[at]
        if self.values:
            del self.values[at]
        self._sums.clear()

    def sums(self, first: int, last: int) -> StratumSums:
        """Return the sums of the values at the positions [first, last).

        A stretch of time begins with a bucket and grows with the traces that come, so that the sums
        found last from the same position are carried on.
        """
        end, sums = self._sums.get(first, (first, NO_SUMS))
        if end > last:
            end, sums = first, NO_SUMS
        if end < last:
            sums = sums.plus(StratumSums.of_columns(self.weights[end:last], self.values[end:last]))
            if len(self._sums) >= _KEPT_SUMS:
                self._sums.clear()
            self._sums[first] = (last, sums)
        return sums


class _ColumnSlice(NamedTuple):
    outcome: _Outcome
    column: _Column
    first: int
    last: int

    @property
    def sums(self) -> StratumSums:
        if self.outcome.scored:
            return self.column.sums(self.first, self.last)
        weights = self.column.weights[self.first : self.last]
        if self.outcome.applies:
            return StratumSums(no_value=sum(weights))
        return StratumSums(not_applicable=sum(weights))


class SourceValues:
    """What one source says of the samples of a stretch of time, by one question.

    Attributes:
        count: How many have a value.
        helped: How many of these have a cheap score as well.
    """

    def __init__(self, slices: Sequence[_ColumnSlice]) -> None:
        self._slices = slices
        scored = [one for one in slices if one.outcome.scored]
        self.count = sum([one.last - one.first for one in scored])
        self.helped = sum([one.last - one.first for one in scored if one.outcome.helped])

    def by_version(self) -> Mapping[str, int]:
        """Return how many have a value by the version of the source, of those with a version."""
        found: dict[str, int] = {}
        for one in self._slices:
            version = one.outcome.version
            if version and one.outcome.scored:
                found[version] = found.get(version, 0) + one.last - one.first
        return found

    def of_version(self, version: str) -> SourceValues:
        """Return those of a version, and those that no version gave."""
        return SourceValues([one for one in self._slices if one.outcome.version in ("", version)])

    def strata(self) -> dict[str, StratumSums]:
        """Return the sums by stratum."""
        found: dict[str, StratumSums] = {}
        for one in self._slices:
            name, sums = one.outcome.stratum, one.sums
            found[name] = found[name].plus(sums) if name in found else sums
        return found

    def rows(self) -> list[tuple[ValuedTrace, Valuation]]:
        """Return the samples that have a value, with what the source says, in order of time."""
        rows = [
            pair
            for one in self._slices
            if one.outcome.scored
            for pair in zip(
                one.column.samples[one.first : one.last],
                one.column.valuations[one.first : one.last],
                strict=True,
            )
        ]
        if len(self._slices) > 1:
            rows.sort(key=lambda pair: pair[0].at)
        return rows


_Columns = dict[tuple[str, str], dict[_Outcome, _Column]]
"""By question and source, and by outcome."""


def _add_to(columns: _Columns, sample: ValuedTrace, question: str, source: str) -> None:
    valuation = sample.values[question][source]
    own = columns.setdefault((question, source), {})
    outcome = _Outcome.of(question, valuation)
    column = own.get(outcome)
    if column is None:
        column = own[outcome] = _Column()
    column.insert(sample, valuation)


def _take_from(columns: _Columns, sample: ValuedTrace, question: str, source: str) -> None:
    own = columns[question, source]
    outcome = _Outcome.of(question, sample.values[question][source])
    own[outcome].remove(sample)
    if not own[outcome].times:
        del own[outcome]


class SampleRange:
    """The samples of a service, or of a segment of it, in a stretch of time."""

    def __init__(self, columns: _Columns, start: float, end: float) -> None:
        self._columns = columns
        self._start = start
        self._end = end

    @classmethod
    def of(cls, samples: Iterable[ValuedTrace]) -> SampleRange:
        """Return all of some samples."""
        columns: _Columns = {}
        for sample in samples:
            for question, by_source in sample.values.items():
                for source in by_source:
                    _add_to(columns, sample, question, source)
        return cls(columns, -math.inf, math.inf)

    def has(self, question: str, source: str) -> bool:
        """Return whether a source says anything of the samples at any time, by a question."""
        return bool(self._columns.get((question, source)))

    def valued(self, question: str, source: str) -> SourceValues:
        """Return what a source says of them, by a question."""
        slices = []
        for outcome, column in self._columns.get((question, source), {}).items():
            first = bisect_left(column.times, self._start)
            last = bisect_left(column.times, self._end)
            if last > first:
                slices.append(_ColumnSlice(outcome, column, first, last))
        return SourceValues(slices)


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
        self._columns: dict[str, _Columns] = {}
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
        columns = self._columns.setdefault(name.service, {})
        for question, by_source in values.items():
            known = sample.values.setdefault(question, {})
            for source, valuation in by_source.items():
                if source in known:
                    _take_from(columns, sample, question, source)
                known[source] = valuation
                _add_to(columns, sample, question, source)
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
        sample = self._samples[name.service].pop(name.trace)
        columns = self._columns[name.service]
        for question, by_source in sample.values.items():
            for source in by_source:
                _take_from(columns, sample, question, source)
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
        self._columns.pop(service, None)
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

    def range(self, service: str, start: float, end: float) -> SampleRange:
        """Return the samples of [start, end) as columns."""
        return SampleRange(self._columns.get(service, {}), start, end)

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
        for service in {name.service for name in rows}:
            order = self._order[service]
            order.sort()
            own = self._samples[service]
            columns = self._columns.setdefault(service, {})
            for _, trace in order:  # in order of time: each goes to the end of its columns
                for question, by_source in own[trace].values.items():
                    for source in by_source:
                        _add_to(columns, own[trace], question, source)
