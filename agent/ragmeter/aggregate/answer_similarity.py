"""Compare the remembered answers to one question, or to questions of nearly the same meaning.

Pure. Questions are near by the cosine of their embeddings. Nearness is no equivalence: A may be
near B and B near C, and A not near C. So a group has a leader, the question with the smallest
hash, and all others are near it. Hashes depend on neither time nor answers, so the groups depend
only on which questions are remembered.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain, combinations, zip_longest
from typing import NamedTuple

from ragmeter.aggregate.wordings import wording_words
from ragmeter.core.arithmetic import UnpackedVector, is_same_space, packed_cosine
from ragmeter.core.score import NoScore
from ragmeter.metrics.consistency import (
    EMBEDDING_SIMILARITY,
    SIMILARITIES,
    SimilaritySpread,
    answer_similarities,
    similarity_spread,
)

# Answers of one question: 6 pairs. Four show as well as forty that a service does not say the same
# twice. Reading the answers of a question for the first time costs what scoring 3 to 6 traces does
# if they have 200 words (five runs of benchmarks/consistency.py: 1.9 to 3.3 ms on a machine shared
# by others, 0.4 to 0.7 s for 200 questions); after that only new pairs are compared.
MAX_ANSWERS = 4

# Once there are so many, the next one is taken after so long: the cost of a busy question is
# bounded by the clock and not by its traffic, and the four cover some minutes.
THIN_SECONDS = 60.0


class RememberedAnswer(NamedTuple):
    """An answer of event time `at`; `vector` is its packed embedding, or ""."""

    at: float
    words: str
    vector: str = ""


class QuestionEmbedding(NamedTuple):
    """The embedding of a question, and a hash of all else that near questions have in common."""

    context: str
    vector: str


class RememberedAnswers:
    """The answers to one question by time, and which other questions are near it.

    Attributes:
        question: The embedding of the question, once it has one.
        direction: The vector of `question`, unpacked when it is first needed.
        near: The hashes of the near questions.
    """

    def __init__(self, answers: Iterable[RememberedAnswer] = ()) -> None:
        self.answers = sorted(answers)
        self.question: QuestionEmbedding | None = None
        self.direction: UnpackedVector | None = None
        self.near: set[str] = set()
        self._pairs = _AnswerPairs()

    def add(self, answer: RememberedAnswer) -> bool:
        """Add an answer and return whether it was taken."""
        if len(self.answers) >= MAX_ANSWERS:
            if answer.at < self.answers[-1].at + THIN_SECONDS:
                return False
            del self.answers[0]
        insort(self.answers, answer)
        self._pairs.retain(self.answers)
        return True

    def attach(self, at: float, words: str, vector: str) -> bool:
        """Add the vector of an answer and return whether the answer is still there."""
        for index, answer in enumerate(self.answers):
            if (answer.at, answer.words) == (at, words):
                self.answers[index] = answer._replace(vector=vector)
                self._pairs.retain(self.answers)
                return True
        return False

    def expire(self, before: float) -> bool:
        """Drop the answers up to a time and return whether there was any."""
        left = [answer for answer in self.answers if answer.at > before]
        expired = len(left) < len(self.answers)
        if expired:
            self.answers = left
            self._pairs.retain(self.answers)
        return expired

    def within(self, after: float, until: float) -> list[RememberedAnswer]:
        """Return the answers of a time."""
        return [answer for answer in self.answers if after < answer.at <= until]

    def spreads(self, after: float, until: float) -> dict[str, SimilaritySpread] | None:
        """Return the similarities of the answers of a time, by name; None with fewer than two."""
        return self._pairs.spreads(self.within(after, until))


class AnswerPool:
    """The answers to the questions of a group.

    Of a time as many are compared as of one question: the latest of each question first, since the
    comparison is meant to be between questions.
    """

    def __init__(self, members: Sequence[RememberedAnswers]) -> None:
        self.members = tuple(members)
        self._pairs = _AnswerPairs()

    def forget(self) -> None:
        """Drop the similarities of answers that were dropped."""
        self._pairs.retain(answer for member in self.members for answer in member.answers)

    def within(self, after: float, until: float) -> list[RememberedAnswer]:
        """Return the answers that are compared, by time."""
        latest = [reversed(member.within(after, until)) for member in self.members]
        in_turn = chain.from_iterable(zip_longest(*latest))
        return sorted([answer for answer in in_turn if answer is not None][:MAX_ANSWERS])

    def spreads(self, after: float, until: float) -> dict[str, SimilaritySpread] | None:
        """Return the similarities of the answers of a time, by name; None with fewer than two."""
        return self._pairs.spreads(self.within(after, until))


class _AnswerPairs:
    """Similarities of every two answers, each compared once and only when it is read."""

    def __init__(self) -> None:
        self._pairs: dict[tuple[RememberedAnswer, RememberedAnswer], dict[str, float]] = {}
        self._spreads: dict[tuple[RememberedAnswer, ...], dict[str, SimilaritySpread]] = {}

    def retain(self, answers: Iterable[RememberedAnswer]) -> None:
        """Drop the similarities of other answers."""
        retained = set(answers)
        self._pairs = {
            pair: values for pair, values in self._pairs.items() if retained.issuperset(pair)
        }
        self._spreads = {}

    def spreads(self, answers: Sequence[RememberedAnswer]) -> dict[str, SimilaritySpread] | None:
        if len(answers) < 2:
            return None
        key = tuple(answers)
        if key not in self._spreads:
            pairs = [self._similarities(one, two) for one, two in combinations(key, 2)]
            spreads = {
                name: similarity_spread([pair[name] for pair in pairs if name in pair])
                for name in SIMILARITIES
            }
            self._spreads[key] = {
                name: spread for name, spread in spreads.items() if not isinstance(spread, NoScore)
            }
        return self._spreads[key]

    def _similarities(self, one: RememberedAnswer, two: RememberedAnswer) -> dict[str, float]:
        values = self._pairs.get((one, two))
        if values is None:
            values = answer_similarities(wording_words(one.words), wording_words(two.words))
            cosine = packed_cosine(one.vector, two.vector)
            if cosine is not None:
                values[EMBEDDING_SIMILARITY] = cosine
            self._pairs[one, two] = values
        return values


def link_near_questions(
    query: str,
    embedding: QuestionEmbedding,
    questions: Mapping[str, RememberedAnswers],
    threshold: float,
) -> bool:
    """Link a question with those near it and return whether its embedding is a new one."""
    own = questions[query]
    if own.question is not None and is_same_space(own.question.vector, embedding.vector):
        return False  # the same words again
    unlink_question(query, questions)
    own.question, own.direction = embedding, UnpackedVector(embedding.vector)
    for name, other in questions.items():
        if name == query or other.question is None or not _comparable(other.question, embedding):
            continue
        if other.direction is None:  # after a restart
            other.direction = UnpackedVector(other.question.vector)
        cosine = own.direction.cosine(other.direction)
        if cosine is not None and cosine >= threshold:
            own.near.add(name)
            other.near.add(query)
    return True


def unlink_question(query: str, questions: Mapping[str, RememberedAnswers]) -> None:
    """Remove the links of a question."""
    for name in questions[query].near:
        questions[name].near.discard(query)
    questions[query].near = set()


def repair_links(questions: Mapping[str, RememberedAnswers]) -> None:
    """Make links mutual after a restart: one of two questions may be saved without its link."""
    for query, answers in questions.items():
        answers.near = {
            name
            for name in answers.near
            if name in questions and _comparable(answers.question, questions[name].question)
        }
        for name in answers.near:
            questions[name].near.add(query)


def _comparable(one: QuestionEmbedding | None, other: QuestionEmbedding | None) -> bool:
    if one is None or other is None or one.context != other.context:
        return False
    return is_same_space(one.vector, other.vector)


def group_questions(questions: Mapping[str, RememberedAnswers]) -> list[tuple[str, ...]]:
    """Return every question in one group, leaders first."""
    groups, grouped = [], set[str]()
    for query in sorted(questions):
        if query not in grouped:
            group = (query, *sorted(questions[query].near - grouped))
            grouped.update(group)
            groups.append(group)
    return groups
