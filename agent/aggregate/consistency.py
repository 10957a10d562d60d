"""Remember questions of a service and estimate how much the answers to each of them agree.

Which questions of a service are remembered, and what their answers come to: pure.

Of all different questions those with the smallest hashes are kept (a bottom-k sample). The hash
knows nothing of answers, so every question has the same chance whatever its traffic, and the mean
over those that were asked again needs no weights.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from ragmeter.aggregate.answer_similarity import (
    AnswerPool,
    QuestionEmbedding,
    RememberedAnswer,
    RememberedAnswers,
    group_questions,
    link_near_questions,
    repair_links,
    unlink_question,
)
from ragmeter.core.counters import GaugeSample
from ragmeter.core.label_bounds import ServiceSlots
from ragmeter.core.score import HashedWording
from ragmeter.core.vectors import AnswerVectors
from ragmeter.metrics.consistency import SIMILARITIES, SimilaritySpread
from ragmeter.windows.estimators import t975

_UNIFORM = 1 / 12
"""Variance of a value of which only the range 0..1 is known. One such observation is added, as the
windows do: five equal values do not make a mean that is known exactly."""


class Agreement(NamedTuple):
    """Over `queries` questions with answers to compare: the mean of their mean similarities with
    its 95 % interval, and the means of their variances and coefficients of variation, of those that
    have any (a question with two answers has neither)."""

    queries: int
    mean: float
    lower: float
    upper: float
    variance: float | None
    variation: float | None


class _AnswerComparison(NamedTuple):
    """Remembered questions with one answer in a window, and with several; by similarity what those
    say."""

    single: int
    several: int
    by: dict[str, Agreement]


def _estimate_agreements(
    found: Sequence[Mapping[str, SimilaritySpread]], min_samples: int
) -> dict[str, Agreement]:
    """By similarity, from what each question has; one that too few questions have is left out."""
    out: dict[str, Agreement] = {}
    for name in SIMILARITIES:
        values = [spreads[name] for spreads in found if name in spreads]
        if len(values) >= min_samples:
            out[name] = _agreement(values)
    return out


def _agreement(found: Sequence[SimilaritySpread]) -> Agreement:
    number = len(found)
    mean = math.fsum(one.mean for one in found) / number
    squares = math.fsum((one.mean - mean) ** 2 for one in found) + _UNIFORM
    half = t975(number - 1) * math.sqrt(squares / number / number)
    variances = [one.variance for one in found if isinstance(one.variance, float)]
    variations = [one.variation for one in found if isinstance(one.variation, float)]
    return Agreement(
        number,
        mean,
        max(0.0, mean - half),
        min(1.0, mean + half),
        _mean(variances),
        _mean(variations),
    )


def _mean(values: Sequence[float]) -> float | None:
    return math.fsum(values) / len(values) if values else None


_MemoryOutcome = Literal["kept", "sampled_out", "enough", "late"]

_EXPIRE_SECONDS = 60.0


class AnswerMemory:
    """`queries` of a service, for the longest of `windows` (seconds by name). What was kept under
    another `mode` is dropped. An agreement needs `min_samples` questions. `near`: the cosine from
    which two questions count as one, as soon as both are embedded."""

    def __init__(
        self,
        queries: int,
        windows: Mapping[str, float],
        min_samples: int,
        mode: str,
        near: float | None = None,
    ) -> None:
        self._most = queries
        self._windows = dict(windows)
        self._longest = max(self._windows.values())
        self._min = max(2, min_samples)
        self._mode = mode
        self._near = near
        self._pools: dict[tuple[str, tuple[str, ...]], AnswerPool] = {}
        self._known: dict[str, dict[str, RememberedAnswers]] = {}
        self._largest: dict[str, str] = {}  # the largest hash of a service that is full
        self._changed: dict[tuple[str, str], None] = {}  # (service, slot)
        self._places = ServiceSlots()
        self._now = -math.inf
        self._expired = -math.inf

    def wants(self, service: str, query: str) -> bool:
        """Whether an answer to the question might be kept."""
        largest = self._largest.get(service)
        return largest is None or query <= largest

    def add(self, service: str, wording: HashedWording, at: float, now: float) -> _MemoryOutcome:
        """Remember an answer; `now` is the event time reached."""
        if at <= now - self._longest:
            return "late"
        self._now = max(self._now, now)
        known = self._known.setdefault(service, {})
        query = wording.query
        if query not in known:
            if not self.wants(service, query):
                return "sampled_out"
            if len(known) >= self._most:
                self._drop(service, max(known))
            known[query] = RememberedAnswers()
            if len(known) >= self._most:
                self._largest[service] = max(known)
        if not known[query].add(RememberedAnswer(at, wording.words)):
            return "enough"
        self._changed[service, query[0]] = None
        return "kept"

    def embed(
        self, service: str, wording: HashedWording, at: float, context: str, by: AnswerVectors
    ) -> None:
        """The embeddings of an answer that was kept, and of its question; of one that has been let
        go since nothing is remembered. `context`: what must be equal for questions to be near."""
        known = self._known.get(service, {})
        query = wording.query
        answers = known.get(query)
        if answers is None:
            return
        changed = answers.attach(at, wording.words, by.answer)
        if self._near is not None:
            changed = (
                link_near_questions(
                    query, QuestionEmbedding(context, by.question), known, self._near
                )
                or changed
            )
        if changed:
            self._changed[service, query[0]] = None

    def _drop(self, service: str, query: str) -> None:
        unlink_question(query, self._known[service])
        del self._known[service][query]
        self._largest.pop(service, None)
        self._changed[service, query[0]] = None

    def advance(self, now: float) -> None:
        """Let go, now and then, what is older than the longest window."""
        self._now = max(self._now, now)
        if now < self._expired + _EXPIRE_SECONDS:
            return
        self._expired = now
        for service, known in list(self._known.items()):
            for query, answers in list(known.items()):
                if answers.expire(now - self._longest):
                    self._changed[service, query[0]] = None
                if not answers.answers:
                    self._drop(service, query)
        self._pools = {key: pool for key, pool in self._pools.items() if self._known.get(key[0])}
        for pool in self._pools.values():
            pool.forget()

    def services(self) -> list[str]:
        return sorted(service for service, known in self._known.items() if known)

    def queries(self, service: str, window: str) -> tuple[int, int]:
        """(with one answer, with several) in the window, of those that are remembered."""
        after = self._now - self._windows[window]
        numbers = [len(one.within(after, self._now)) for one in self._questions(service)]
        return numbers.count(1), sum(number > 1 for number in numbers)

    def _questions(self, service: str) -> list[RememberedAnswers | AnswerPool]:
        """Near ones as one."""
        known = self._known.get(service, {})
        if self._near is None:
            return list(known.values())
        found: list[RememberedAnswers | AnswerPool] = []
        pools: dict[tuple[str, tuple[str, ...]], AnswerPool] = {}
        for group in group_questions(known):
            if len(group) == 1:
                found.append(known[group[0]])
                continue
            members = tuple(known[query] for query in group)
            pool = self._pools.get((service, group))
            if pool is None or pool.members != members:
                pool = AnswerPool(members)
            pools[service, group] = pool
            found.append(pool)
        others = {key: pool for key, pool in self._pools.items() if key[0] != service}
        self._pools = {**others, **pools}
        return found

    def agreement(self, service: str, window: str) -> dict[str, Agreement]:
        """By similarity; one that too few questions have is left out."""
        after = self._now - self._windows[window]
        found = [one.spreads(after, self._now) for one in self._questions(service)]
        return _estimate_agreements(
            [spreads for spreads in found if spreads is not None], self._min
        )

    def compared(self, service: str, window: str) -> _AnswerComparison:
        return _AnswerComparison(*self.queries(service, window), self.agreement(service, window))

    def gauges(self) -> Iterator[GaugeSample]:
        for service in self.services():
            for window in self._windows:
                own = (("service", service), ("window", window))
                single, several, by = self.compared(service, window)
                for state, number in (("single_answer", single), ("compared", several)):
                    yield "rag_consistency_queries", (*own, ("state", state)), float(number)
                for name, found in by.items():
                    rows = (
                        ("mean", found.mean), ("ci_lower", found.lower), ("ci_upper", found.upper),
                        ("variance", found.variance),
                        ("coefficient_of_variation", found.variation),
                    )  # fmt: skip
                    for suffix, value in rows:
                        if value is not None:
                            yield f"rag_consistency_{name}_{suffix}", own, value

    # State --------------------------------------------------------------------------------------

    def drain(self) -> dict[str, Any]:
        """By name, the parts that changed since the last call, the questions of a service by the
        first digit of their hash. Before `dump`: it gives places."""
        changed, self._changed = self._changed, {}
        out: dict[str, Any] = {}
        for service, slot in changed:
            queries = {
                query: answers.answers
                for query, answers in self._known.get(service, {}).items()
                if query[0] == slot
            }
            name = f"consistency.{self._places.slot_of(service)}.{slot}"
            out[name] = {"service": service, "queries": queries}
            asked = {
                query: [*answers.question, sorted(answers.near)]
                for query, answers in self._known.get(service, {}).items()
                if query[0] == slot and answers.question is not None
            }
            if asked:
                out[name]["asked"] = asked
        self._known = {service: known for service, known in self._known.items() if known}
        self._places.retain(self._known)  # after its parts were emptied
        return out

    def dump(self) -> dict[str, Any]:
        """The small part, for every commit."""
        return {"mode": self._mode, "places": self._places.dump()}

    def load(self, state: Mapping[str, Any]) -> None:
        """Back from all that `dump` (under `consistency`) and every `drain` gave."""
        head = state.get("consistency")
        if head is None:
            return
        self._places.load(head["places"])
        for service, slot, part_ in self._places.saved_entries(state, "consistency"):
            if not slot or part_["service"] != service:
                continue
            if head["mode"] != self._mode:
                self._changed[service, slot] = None  # the next commit empties it
                continue
            known = self._known.setdefault(service, {})
            for query, kept in part_["queries"].items():
                known[query] = RememberedAnswers(
                    [RememberedAnswer(float(at), *map(str, said)) for at, *said in kept]
                )
            for query, (context, vector, near) in part_.get("asked", {}).items():
                known[query].question = QuestionEmbedding(str(context), str(vector))
                known[query].near = set(map(str, near))
        for service, known in self._known.items():
            repair_links(known)
            for query in sorted(known)[self._most :]:  # the settings may have changed
                self._drop(service, query)
            if len(known) >= self._most:
                self._largest[service] = max(known)
