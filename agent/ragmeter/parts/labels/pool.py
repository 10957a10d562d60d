"""The pool of traces that people are asked to label; pure."""

from __future__ import annotations

import json
from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import dataclass, field
from random import Random
from typing import NamedTuple

from ragmeter.config.scoring import SamplingRates, SamplingSettings
from ragmeter.core.feedback import PEOPLE
from ragmeter.core.score import BUILTIN_SCORER, ScoredTrace, ScoreState
from ragmeter.metrics.labelled import SORTED_BY, find_model_score
from ragmeter.metrics.merged_labels import trace_key
from ragmeter.parts.contract import TraceName
from ragmeter.sampling.sampler import uniform_fraction
from ragmeter.sampling.slices import draw_chances, draw_slices
from ragmeter.windows.people_agreement import (
    LabelledScores,
    Results,
    ScorerAgreement,
    compare_with_people,
    scorer_values,
)

# Traces of all services together that wait to be drawn, with their texts. Twenty times a draw of
# 30 is enough for slices; each takes up to `EVIDENCE_BYTES`. Several pools share them, but
# each has room for four draws.
_MAX_TRACES = 600
_LEAST_TRACES = 120

# Characters of their ids, on average; with longer ids there are fewer. A draw of all of them is one
# row of a Kafka worker's state, of a megabyte at most, and a character of them may be 12 bytes.
_ID_CHARS = 50

_MAX_LABELLED = 500  # whose labels are remembered, to compare them with the scorers
_SALT = b"people"


class PoolTrace(NamedTuple):
    """A trace of the pool, or of a draw.

    Args:
        timestamp: Event time in Unix seconds.
        cheap: Its score `SORTED_BY`, of a local model where one scores the service.
        chance: A hash of its id in [0, 1) times the probability with which such a model drew it;
            below `probability` as long as it is in the pool.
        probability: With which it came so far.
    """

    trace_id: str
    timestamp: float
    cheap: float | None
    chance: float
    probability: float


@dataclass(frozen=True, slots=True)
class LabelledTrace:
    """A row of the state: the labels of a trace, and the values of all scorers.

    Args:
        place: Its place among such rows.
        weight: For how many traces it stands.
    """

    place: int
    service: str
    trace_id: str
    labels: dict[str, bool | str]
    scores: dict[str, dict[str, float]]
    weight: float


@dataclass(frozen=True, slots=True)
class PoolEntry:
    """A row of the state: a trace of a service that waits to be drawn."""

    entered: int
    pool: str
    waiting: PoolTrace


@dataclass(frozen=True, slots=True)
class PoolDraw:
    """A row of the state: what a service's last draw has left to label, see `_ServicePool`."""

    pool: str
    scale: float
    asked: int
    drawn: list[PoolTrace]


PoolState = LabelledTrace | PoolEntry | PoolDraw
"""A row of the state of the pool."""


@dataclass(slots=True)
class _ServicePool:
    """The traces of one service.

    Args:
        traces: What waits to be drawn, by the number with which it entered.
        scale: Part of the configured share at which traces enter.
        drawn: What the last draw has left to label.
        asked: How many it took.
    """

    traces: dict[int, PoolTrace] = field(default_factory=dict)
    scale: float = 1.0
    drawn: list[PoolTrace] = field(default_factory=list)
    asked: int = 0


class LabelPool:
    """Traces from which people's labels are drawn, drawn ones, and labels that were given.

    A trace enters by a hash of its id, with the share of `sampling.people`; if there are too many,
    the largest service keeps half of its own. Where a local model scores a sample of the traffic,
    a trace enters when it has been scored, so with no more than the model's probability: people
    see which words nothing supports, and the score helps their labels. A draw takes some of a
    service and passes over the others: a trace has one chance, so that its probability is known
    however often people label.

    Args:
        settings: The shares by service.
        horizon: Seconds of event time after which a trace can no longer be labelled.
        rng: Source of randomness of the draws.
        states: How many such pools share the services.
    """

    def __init__(
        self, settings: SamplingSettings, horizon: float, rng: Random, states: int = 1
    ) -> None:
        self._most = max(_LEAST_TRACES, _MAX_TRACES // states)
        self._entered: set[TraceName] = set()
        self._new: set[TraceName] = set()
        self.resample(settings)
        self._horizon = horizon
        self._rng = rng
        self._services: dict[str, _ServicePool] = {}
        self._entries = 0
        self.labelled: dict[int, LabelledTrace] = {}  # by place, oldest first
        self._unsaved: dict[tuple[str, str, int], None] = {}  # (kind, service, number) of rows

    def resample(self, settings: SamplingSettings) -> None:
        """Let traces enter by other shares from now on."""
        self._rates: Mapping[str, SamplingRates] = settings.services
        self._default = settings

    def offer(self, scored: ScoredTrace) -> bool:
        """Let a counted trace enter by chance; return whether its text is to be kept.

        Call it with the cheap scores of a trace, and again with the results of each slow tier.
        """
        share = self._rates.get(scored.service, self._default).people
        if not share or scored.canary:
            return False
        model = find_model_score(scored.results)
        if model is None:
            waits = (score[0] == SORTED_BY and score[1] != PEOPLE for score in scored.pending)
            if scored.partial or any(waits):
                return False
            rate = 1.0
            drawn = (score.cheap for score in scored.results if score.scorer == PEOPLE)
            cheap = next(drawn, None)
        elif model.state in (ScoreState.SAMPLED_OUT, ScoreState.SHED):
            return False
        else:
            rate = min(1.0, model.probability / scored.probability)
            cheap = model.value
        pool = self._services.setdefault(scored.service, _ServicePool())
        chance = rate * uniform_fraction(scored.trace_id, _SALT)
        probability = min(rate, share * pool.scale)
        if chance >= probability:
            return False
        self._entries += 1
        pool.traces[self._entries] = PoolTrace(
            trace_id=scored.trace_id,
            timestamp=scored.timestamp,
            cheap=cheap,
            chance=chance,
            probability=probability,
        )
        self._save("entry", scored.service, self._entries)
        self._entered.add((scored.service, scored.trace_id))
        traces = (one for pool in self._services.values() for one in pool.traces.values())
        if sum(max(1.0, len(one.trace_id) / _ID_CHARS) for one in traces) > self._most:
            self._halve_largest()
        return True

    def _halve_largest(self) -> None:
        name, largest = max(self._services.items(), key=lambda item: len(item[1].traces))
        for entry in largest.traces:
            self._save("entry", name, entry)
        self._save("draw", name)
        largest.scale /= 2
        largest.traces = {
            entry: one._replace(probability=one.probability / 2)
            for entry, one in largest.traces.items()
            if one.chance < one.probability / 2
        }

    def _save(self, kind: str, service: str, number: int = 0) -> None:
        self._unsaved[kind, service, number] = None

    def expire(self, now: float) -> None:
        """Forget traces that can no longer be labelled."""
        past = now - self._horizon
        for service in self._services:
            self._keep(service, lambda one: one.timestamp >= past)

    def _keep(self, service: str, wanted: Callable[[PoolTrace], bool]) -> None:
        """Forget all traces of a service but those that are wanted."""
        pool = self._services[service]
        for entry in [entry for entry, one in pool.traces.items() if not wanted(one)]:
            del pool.traces[entry]
            self._save("entry", service, entry)
        drawn = [one for one in pool.drawn if wanted(one)]
        if len(drawn) < len(pool.drawn):
            pool.drawn = drawn
            self._save("draw", service)

    def keys(self) -> set[TraceName]:
        """Return the traces whose texts are to be kept."""
        return {
            (service, one.trace_id)
            for service, pool in self._services.items()
            for one in (*pool.traces.values(), *pool.drawn)
        }

    def take_entered(self) -> set[TraceName]:
        """Return the traces that have entered since the last call; until the next they are new."""
        self._new, self._entered = self._entered, set()
        return self._new

    def is_new(self, key: TraceName) -> bool:
        """Return whether a trace has entered so lately that its text may not be stored yet."""
        return key in self._entered or key in self._new

    def state(self, service: str) -> tuple[list[PoolTrace], int, int]:
        """Return what the last draw has left to label, of how many, and how many wait for one."""
        pool = self._services.get(service, _ServicePool())
        return list(pool.drawn), pool.asked, len(pool.traces)

    def draw(self, service: str, count: int) -> None:
        """Draw traces of a service and pass over the others, unless some are left to label."""
        pool = self._services.get(service)
        if pool is None or not pool.traces or pool.drawn:
            return
        traces = list(pool.traces.values())
        number = min(count, len(traces))
        chances = draw_chances([1 / one.probability for one in traces], number)
        chosen = draw_slices([one.cheap for one in traces], number, self._rng, chances)
        pool.drawn = [
            traces[at]._replace(probability=traces[at].probability * chances[at]) for at in chosen
        ]
        for entry in pool.traces:
            self._save("entry", service, entry)
        self._save("draw", service)
        pool.traces = {}
        pool.scale = 1.0
        pool.asked = number

    def forget(self, service: str, trace_id: str) -> None:
        """Ask no more about a trace: its text is gone, or it has labels."""
        if service in self._services:
            self._keep(service, lambda one: one.trace_id != trace_id)

    def label(
        self,
        key: str,
        services: Container[str] | None,
        labels: Mapping[str, bool | str],
        results: Callable[[str, str], Results],
    ) -> None:
        """Remember the labels of a trace beside the scores of it, and ask no more about it.

        Args:
            key: The hash of its id.
            services: Bounded names that its service may have here; None for any.
            labels: Labels of the whole trace.
            results: Returns the stored scores of a trace, of a service and a trace id.
        """
        for name, pool in self._services.items():
            if services is not None and name not in services:
                continue
            for one in (*pool.traces.values(), *pool.drawn):
                if trace_key(one.trace_id).hex() == key:
                    self._label(name, one, labels, list(results(name, one.trace_id)))
                    break

    def _label(
        self, service: str, one: PoolTrace, labels: Mapping[str, bool | str], scores: Results
    ) -> None:
        self.forget(service, one.trace_id)
        # what was drawn upstream stands for more
        whole = (item for item in scores if item["scorer"] in (PEOPLE, BUILTIN_SCORER))
        own = (item["probability"] for item in whole if "probability" in item)
        place = max(self.labelled, default=0) + 1
        self.labelled[place] = LabelledTrace(
            place=place,
            service=service,
            trace_id=one.trace_id[:_ID_CHARS],
            labels=dict(labels),
            scores=scorer_values(scores),
            weight=1 / (one.probability * next(own, 1.0)),
        )
        self._save("labelled", "", place)
        if len(self.labelled) > _MAX_LABELLED:
            oldest = next(iter(self.labelled))
            del self.labelled[oldest]
            self._save("labelled", "", oldest)

    def agreement(self, service: str) -> list[ScorerAgreement]:
        """Return how well the scorers agree with the labels of a service."""
        return compare_with_people(
            LabelledScores(row.labels, row.scores, row.weight)
            for row in self.labelled.values()
            if row.service == service
        )

    @property
    def touched(self) -> bool:
        """Whether anything has changed since the last `changes`."""
        return bool(self._unsaved)

    def changes(self) -> dict[str, PoolState | None]:
        """Return the rows that changed since the last call, None for those to delete."""
        unsaved, self._unsaved = self._unsaved, {}
        return {json.dumps(key): self._row(*key) for key in unsaved}

    def _row(self, kind: str, service: str, number: int) -> PoolState | None:
        if kind == "labelled":
            return self.labelled.get(number)
        pool = self._services[service]
        if kind == "draw":
            return PoolDraw(service, pool.scale, pool.asked, pool.drawn)
        waiting = pool.traces.get(number)
        return None if waiting is None else PoolEntry(number, service, waiting)

    def restore(self, rows: Iterable[PoolState]) -> None:
        """Load rows as `changes` returned them."""
        entries = []
        labelled = []
        for row in rows:
            if isinstance(row, PoolEntry):
                entries.append(row)
            elif isinstance(row, LabelledTrace):
                labelled.append(row)
            elif isinstance(row, PoolDraw):
                pool = self._services.setdefault(row.pool, _ServicePool())
                pool.scale = row.scale
                pool.asked = row.asked
                pool.drawn = row.drawn
        for entry in sorted(entries, key=lambda one: one.entered):
            pool = self._services.setdefault(entry.pool, _ServicePool())
            pool.traces[entry.entered] = entry.waiting
            self._entries = entry.entered
        self.labelled = {row.place: row for row in sorted(labelled, key=lambda one: one.place)}
