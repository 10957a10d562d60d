"""The pool of traces that people are asked to label; pure."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass, field
from random import Random
from typing import Any, NamedTuple

from ragmeter.config.scoring import SamplingRates, SamplingSettings
from ragmeter.core.feedback import PEOPLE, Feedback
from ragmeter.core.score import BUILTIN_SCORER, ScoredTrace, ScoreState
from ragmeter.metrics.labelled import SORTED_BY, find_model_score
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
_MAX_TRACES, _LEAST_TRACES = 600, 120

# Characters of their ids, on average; with longer ids there are fewer. Up to twice as many are one
# row of a Kafka worker's state, of a megabyte at most, and a character of them may be 12 bytes.
_ID_CHARS = 50

_MAX_LABELLED = 500  # whose labels are remembered, to compare them with the scorers
_POOL, _LABELLED = "label_pool", "labelled"  # of what is saved
_SALT = b"people"

EvidenceKey = tuple[str, str]  # (service, trace id)


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


class LabelledTrace(NamedTuple):
    """The labels of a trace, the values of all scorers, and for how many traces it stands."""

    service: str
    trace_id: str
    labels: dict[str, bool | str]
    scores: dict[str, dict[str, float]]
    weight: float = 1.0


@dataclass(slots=True)
class _ServicePool:
    """The traces of one service.

    Args:
        scale: Part of the configured share at which traces enter.
        drawn: Of how many traces the last draw took its own.
    """

    traces: list[PoolTrace] = field(default_factory=list)
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
        share: How many such pools share the services.
    """

    def __init__(
        self, settings: SamplingSettings, horizon: float, rng: Random, share: int = 1
    ) -> None:
        self._most = max(_LEAST_TRACES, _MAX_TRACES // share)
        self._entered, self._new = set[EvidenceKey](), set[EvidenceKey]()
        self.resample(settings)
        self._horizon = horizon
        self._rng = rng
        self._services: dict[str, _ServicePool] = {}
        self.labelled: list[LabelledTrace] = []
        self.changed = False

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
        pool.traces.append(
            PoolTrace(
                trace_id=scored.trace_id,
                timestamp=scored.timestamp,
                cheap=cheap,
                chance=chance,
                probability=probability,
            )
        )
        self._entered.add((scored.service, scored.trace_id))
        self.changed = True
        traces = (one for pool in self._services.values() for one in pool.traces)
        if sum(max(1.0, len(one.trace_id) / _ID_CHARS) for one in traces) > self._most:
            largest = max(self._services.values(), key=lambda one: len(one.traces))
            largest.scale /= 2
            largest.traces = [
                one._replace(probability=one.probability / 2)
                for one in largest.traces
                if one.chance < one.probability / 2
            ]
        return True

    def expire(self, now: float) -> None:
        """Forget traces that can no longer be labelled."""
        for pool in self._services.values():
            pool.traces = [one for one in pool.traces if one.timestamp >= now - self._horizon]
            pool.drawn = [one for one in pool.drawn if one.timestamp >= now - self._horizon]

    def keys(self) -> set[EvidenceKey]:
        """Return the traces whose texts are to be kept."""
        return {
            (service, one.trace_id)
            for service, pool in self._services.items()
            for one in (*pool.traces, *pool.drawn)
        }

    def take_entered(self) -> set[EvidenceKey]:
        """Return the traces that have entered since the last call; until the next they are new."""
        self._new, self._entered = self._entered, set()
        return self._new

    def is_new(self, key: EvidenceKey) -> bool:
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
        traces = pool.traces
        number = min(count, len(pool.traces))
        chances = draw_chances([1 / one.probability for one in traces], number)
        chosen = draw_slices([one.cheap for one in traces], number, self._rng, chances)
        pool.drawn = [
            traces[at]._replace(probability=traces[at].probability * chances[at]) for at in chosen
        ]
        pool.traces, pool.scale, pool.asked = [], 1.0, number
        self.changed = True

    def forget(self, service: str, trace_id: str) -> None:
        """Ask no more about a trace: its text is gone, or it has labels."""
        pool = self._services.get(service, _ServicePool())
        pool.traces = [one for one in pool.traces if one.trace_id != trace_id]
        pool.drawn = [one for one in pool.drawn if one.trace_id != trace_id]
        self.changed = True

    def drawn_among(self, feedback: Iterable[Feedback]) -> set[str]:
        """Return the ids of traces that were drawn here, with the probability of these labels."""
        pools = self._services.values()
        drawn = {(one.trace_id, one.probability) for pool in pools for one in pool.drawn}
        return {one.trace_id for one in feedback if (one.trace_id, one.probability) in drawn}

    def label(
        self, given: Feedback, services: Container[str], results: Callable[[str, str], Results]
    ) -> None:
        """Remember the labels of a trace of some services, all if it names none."""
        trace_id = given.trace_id
        labels = given.verdict.given
        for service, pool in self._services.items():
            for one in (*pool.traces, *pool.drawn):
                if one.trace_id == trace_id and (service in services or given.service is None):
                    self.forget(service, trace_id)
                    scores = list(results(service, trace_id))
                    # what was drawn upstream stands for more
                    whole = (one for one in scores if one["scorer"] in (PEOPLE, BUILTIN_SCORER))
                    own = (item["probability"] for item in whole if "probability" in item)
                    name = trace_id[:_ID_CHARS]
                    row = LabelledTrace(service, name, labels, scorer_values(scores))
                    weight = 1 / (one.probability * next(own, 1.0))
                    self.labelled.append(row._replace(weight=weight))
                    del self.labelled[:-_MAX_LABELLED]
                    break

    def agreement(self, service: str) -> list[ScorerAgreement]:
        """Return how well the scorers agree with the labels of a service."""
        return compare_with_people(
            LabelledScores(row.labels, row.scores, row.weight)
            for row in self.labelled
            if row.service == service
        )

    def dump(self) -> dict[str, Any]:
        """Return the state as parts of `meta`: the labels change more rarely than the traces."""
        self.changed = False
        services = {name: astuple(pool) for name, pool in self._services.items()}
        return {_POOL: {"services": services}, _LABELLED: self.labelled}

    def load(self, meta: Mapping[str, Any]) -> None:
        """Restore the parts of `meta` that `dump` gave; a new state has none."""
        if _POOL not in meta:
            return
        self._services = {
            name: _ServicePool(_pool_traces(traces), scale, _pool_traces(drawn), asked)
            for name, (traces, scale, drawn, asked) in meta[_POOL]["services"].items()
        }
        self.labelled = [LabelledTrace(*row) for row in meta[_LABELLED]]


def _pool_traces(rows: Iterable[Sequence[Any]]) -> list[PoolTrace]:
    return [PoolTrace(*row) for row in rows]
