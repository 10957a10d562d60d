"""Remember questions of a service and estimate how much the answers to each of them agree.

Pure. Of all different questions those with the smallest hashes are kept (a bottom-k sample). The
hash is independent of the answers, so every question has the same chance whatever its traffic, and
the mean over those that were repeated needs no weights.
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
from ragmeter.core.arithmetic import AnswerVectors
from ragmeter.core.counters import GaugeSample
from ragmeter.core.label_bounds import ServiceSlots
from ragmeter.core.score import HashedWording
from ragmeter.metrics.consistency import SIMILARITIES, SimilaritySpread
from ragmeter.windows.estimators import Cell, mean_interval

_EXPIRE_SECONDS = 60.0  # of event time between two passes over old answers


class Agreement(NamedTuple):
    """The mean similarity of answers to the same question, with its 95 % interval.

    Args:
        queries: How many questions have answers to compare.
        mean: The mean over the questions of their mean similarities.
        variance: The mean of their variances; None without any (two answers have none).
        variation: The mean of their coefficients of variation, likewise.
    """

    queries: int
    mean: float
    lower: float
    upper: float
    variance: float | None
    variation: float | None


class AnswerComparison(NamedTuple):
    """Remembered questions in a window: `single` with one answer, `several` with more.

    `by` has the agreement of the latter by similarity.
    """

    single: int
    several: int
    by: dict[str, Agreement]


_MemoryOutcome = Literal["kept", "sampled_out", "enough", "late"]


class AnswerMemory:
    """Answers to the remembered questions of all services.

    Args:
        queries: How many questions of a service are remembered.
        windows: The seconds of each window by name; answers are kept for the longest.
        min_samples: How many questions an agreement needs.
        mode: The rules of the wordings; state of another mode is dropped.
        near: The cosine from which two questions count as one, once both are embedded.
    """

    def __init__(
        self,
        queries: int,
        windows: Mapping[str, float],
        min_samples: int,
        mode: str,
        near: float | None = None,
    ) -> None:
        self._max_queries = queries
        self._windows = dict(windows)
        self._longest = max(self._windows.values())
        self._min = max(2, min_samples)
        self._mode = mode
        self._near = near
        self._pools: dict[tuple[str, tuple[str, ...]], AnswerPool] = {}
        self._remembered: dict[str, dict[str, RememberedAnswers]] = {}  # by service and query
        self._largest: dict[str, str] = {}  # the largest hash of a service that is full
        self._changed: dict[tuple[str, str], None] = {}  # (service, slot)
        self._slots = ServiceSlots()
        self._now = -math.inf
        self._expired = -math.inf

    def wants(self, service: str, query: str) -> bool:
        """Return whether an answer to the question of this hash might be remembered."""
        largest = self._largest.get(service)
        return largest is None or query <= largest

    def offer(self, service: str, query: str, at: float, now: float) -> bool:
        """Return whether another memory, which is told of more answers, might remember one.

        It is remembered here without its words. The same answer may be offered again.
        """
        self.advance(now)
        known = self._remembered.get(service, {}).get(query)
        if known is not None and any(one.at == at for one in known.answers):
            return True
        return self.add(service, HashedWording(query, ""), at, now) in ("kept", "late")

    def add(self, service: str, wording: HashedWording, at: float, now: float) -> _MemoryOutcome:
        """Remember an answer of event time `at`; `now` is the event time reached."""
        if at <= now - self._longest:
            return "late"
        self._now = max(self._now, now)
        questions = self._remembered.setdefault(service, {})
        query = wording.query
        if query not in questions:
            if not self.wants(service, query):
                return "sampled_out"
            if len(questions) >= self._max_queries:
                self._drop(service, max(questions))
            questions[query] = RememberedAnswers()
            if len(questions) >= self._max_queries:
                self._largest[service] = max(questions)
        if not questions[query].add(RememberedAnswer(at, wording.words)):
            return "enough"
        self._changed[service, query[0]] = None
        return "kept"

    def embed(
        self, service: str, wording: HashedWording, at: float, context: str, vectors: AnswerVectors
    ) -> None:
        """Add the vectors of an answer of event time `at`, and of its question.

        Nothing happens if the question was dropped since. `context` is a hash of all that must be
        equal for questions to be near.
        """
        questions = self._remembered.get(service, {})
        query = wording.query
        if query not in questions:
            return
        changed = questions[query].attach(at, wording.words, vectors.answer)
        if self._near is not None:
            embedding = QuestionEmbedding(context, vectors.question)
            changed |= link_near_questions(query, embedding, questions, self._near)
        if changed:
            self._changed[service, query[0]] = None

    def _drop(self, service: str, query: str) -> None:
        unlink_question(query, self._remembered[service])
        del self._remembered[service][query]
        self._largest.pop(service, None)
        self._changed[service, query[0]] = None

    @property
    def next_expiry(self) -> float:
        """The event time from which `advance` drops answers again."""
        return self._expired + _EXPIRE_SECONDS

    def advance(self, now: float) -> None:
        """Drop, once a minute, the answers that are older than the longest window."""
        self._now = max(self._now, now)
        if now < self.next_expiry:
            return
        self._expired = now
        for service, questions in list(self._remembered.items()):
            for query, answers in list(questions.items()):
                if answers.expire(now - self._longest):
                    self._changed[service, query[0]] = None
                if not answers.answers:
                    self._drop(service, query)
        self._pools = {
            key: pool for key, pool in self._pools.items() if self._remembered.get(key[0])
        }
        for pool in self._pools.values():
            pool.forget()

    def services(self) -> list[str]:
        """Return the services with remembered questions."""
        return sorted(service for service, questions in self._remembered.items() if questions)

    def queries(self, service: str, window: str) -> tuple[int, int]:
        """Return how many questions have one answer in the window, and how many have several."""
        after = self._now - self._windows[window]
        numbers = [len(one.within(after, self._now)) for one in self._questions(service)]
        return numbers.count(1), sum(number > 1 for number in numbers)

    def agreement(self, service: str, window: str) -> dict[str, Agreement]:
        """Return the agreement by similarity, without those that too few questions have."""
        after = self._now - self._windows[window]
        spreads = [one.spreads(after, self._now) or {} for one in self._questions(service)]
        by_name = {name: [one[name] for one in spreads if name in one] for name in SIMILARITIES}
        return {
            name: _estimate_agreement(values)
            for name, values in by_name.items()
            if len(values) >= self._min
        }

    def compared(self, service: str, window: str) -> AnswerComparison:
        """Return the counts and the agreement of a window."""
        return AnswerComparison(*self.queries(service, window), self.agreement(service, window))

    def _questions(self, service: str) -> list[RememberedAnswers | AnswerPool]:
        """Return the answers to each question, those to near questions as one pool."""
        questions = self._remembered.get(service, {})
        if self._near is None:
            return list(questions.values())
        result: list[RememberedAnswers | AnswerPool] = []
        pools = {key: pool for key, pool in self._pools.items() if key[0] != service}
        for group in group_questions(questions):
            if len(group) == 1:
                result.append(questions[group[0]])
                continue
            members = tuple(questions[query] for query in group)
            pool = self._pools.get((service, group))
            if pool is None or pool.members != members:
                pool = AnswerPool(members)
            pools[service, group] = pool
            result.append(pool)
        self._pools = pools
        return result

    def gauges(self) -> Iterator[GaugeSample]:
        """Yield the gauges of every service and window."""
        for service in self.services():
            for window in self._windows:
                labels = (("service", service), ("window", window))
                single, several, by = self.compared(service, window)
                for state, number in (("single_answer", single), ("compared", several)):
                    yield "rag_consistency_queries", (*labels, ("state", state)), float(number)
                for name, agreement in by.items():
                    rows = (
                        ("mean", agreement.mean),
                        ("ci_lower", agreement.lower),
                        ("ci_upper", agreement.upper),
                        ("variance", agreement.variance),
                        ("coefficient_of_variation", agreement.variation),
                    )
                    for suffix, value in rows:
                        if value is not None:
                            yield f"rag_consistency_{name}_{suffix}", labels, value

    def drain(self) -> dict[str, Any]:
        """Return the parts that changed since the last call, by name; call it before `dump`.

        A part holds the questions of a service whose hash begins with one digit.
        """
        changed, self._changed = self._changed, {}
        out: dict[str, Any] = {}
        for service, slot in changed:
            questions = {
                query: answers
                for query, answers in self._remembered.get(service, {}).items()
                if query[0] == slot
            }
            part: dict[str, Any] = {
                "service": service,
                "queries": {query: answers.answers for query, answers in questions.items()},
            }
            asked = {
                query: [*answers.question, sorted(answers.near)]
                for query, answers in questions.items()
                if answers.question is not None
            }
            if asked:
                part["asked"] = asked
            out[f"consistency.{self._slots.slot_of(service)}.{slot}"] = part
        self._remembered = {name: own for name, own in self._remembered.items() if own}
        self._slots.retain(self._remembered)  # after its parts were emptied
        return out

    def dump(self) -> dict[str, Any]:
        """Return the small part of the state, for every commit."""
        return {"mode": self._mode, "places": self._slots.dump()}

    def load(self, state: Mapping[str, Any]) -> None:
        """Restore what `dump` (under `consistency`) and every `drain` gave."""
        head = state.get("consistency")
        if head is None:
            return
        self._slots.load(head["places"])
        for service, slot, part in self._slots.saved_entries(state, "consistency"):
            if not slot or part["service"] != service:
                continue
            if head["mode"] != self._mode:
                self._changed[service, slot] = None  # the next commit empties it
                continue
            questions = self._remembered.setdefault(service, {})
            for query, saved in part["queries"].items():
                questions[query] = RememberedAnswers(
                    [RememberedAnswer(float(at), *map(str, texts)) for at, *texts in saved]
                )
            for query, (context, vector, near) in part.get("asked", {}).items():
                questions[query].question = QuestionEmbedding(str(context), str(vector))
                questions[query].near = set(map(str, near))
        for service, questions in self._remembered.items():
            repair_links(questions)
            for query in sorted(questions)[self._max_queries :]:  # the settings may have changed
                self._drop(service, query)
            if len(questions) >= self._max_queries:
                self._largest[service] = max(questions)


def _estimate_agreement(spreads: Sequence[SimilaritySpread]) -> Agreement:
    number = len(spreads)
    mean = math.fsum(spread.mean for spread in spreads) / number
    squares = math.fsum((spread.mean - mean) ** 2 for spread in spreads)
    cell = Cell(number, number, number, min(1.0, max(0.0, mean)), squares / max(1, number - 1))
    return Agreement(
        *(number, mean, *mean_interval([cell], 0.0, 1.0)[1:3]),
        variance=_mean([one.variance for one in spreads if isinstance(one.variance, float)]),
        variation=_mean([one.variation for one in spreads if isinstance(one.variation, float)]),
    )


def _mean(values: Sequence[float]) -> float | None:
    return math.fsum(values) / len(values) if values else None
