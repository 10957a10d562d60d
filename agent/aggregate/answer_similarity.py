"""Compare the remembered answers to one question, or to questions of nearly the same meaning.

Questions that are one in meaning though not in words: by the cosine of their embeddings. Pure.

Nearness is no equivalence: A may be near B and B near C, and A not near C. So a group has a leader,
the question with the smallest hash, and all others are near it. Hashes know neither time nor
answers, so that the groups depend on which questions are remembered and on nothing else.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, combinations, zip_longest
from typing import NamedTuple

from ragmeter.aggregate.wordings import wording_words
from ragmeter.core.score import NoScore
from ragmeter.core.vectors import UnpackedVector, is_same_space, packed_cosine
from ragmeter.metrics.consistency import (
    EMBEDDING_SIMILARITY,
    SIMILARITIES,
    SimilaritySpread,
    answer_similarities,
    similarity_spread,
)

MAX_ANSWERS = 4
"""Answers of one question: 6 pairs. That a service does not say the same twice is seen by four as
well as by forty. Reading the answers of a question for the first time costs what scoring 3 to 6
traces does where they have 200 words (five runs of benchmarks/consistency.py: 1.9 to 3.3 ms on a
machine shared by others, 0.4 to 0.7 s for 200 questions); after that only new pairs are
compared."""

THIN_SECONDS = 60.0
"""Once there are so many, the next one is taken after so long: what a busy question costs is
bounded by the clock and not by its traffic, and the four cover some minutes."""


class RememberedAnswer(NamedTuple):
    """`at` is event time. `vector`: of its embedding (`ragmeter.core.vectors`), or empty."""

    at: float
    words: str
    vector: str = ""


class QuestionEmbedding(NamedTuple):
    """The embedding of a question, and a hash of all else that must be equal for another one to be
    near it."""

    context: str
    vector: str


class _AnswerPairs:
    """Similarities of every two answers, compared when somebody reads, each pair once."""

    def __init__(self) -> None:
        self._pairs: dict[tuple[RememberedAnswer, RememberedAnswer], dict[str, float]] = {}
        self._spreads: dict[tuple[RememberedAnswer, ...], dict[str, SimilaritySpread]] = {}

    def keep(self, answers: Iterable[RememberedAnswer]) -> None:
        """Forget what was found of others."""
        there = set(answers)
        self._pairs = {pair: found for pair, found in self._pairs.items() if there.issuperset(pair)}
        self._spreads = {}

    def spreads(self, chosen: Sequence[RememberedAnswer]) -> dict[str, SimilaritySpread] | None:
        """By similarity; None with fewer than two. A similarity that no pair has a value of is
        left out."""
        if len(chosen) < 2:
            return None
        key = tuple(chosen)
        found = self._spreads.get(key)
        if found is None:
            found = self._spreads[key] = dict(self._found(key))
        return found

    def _found(
        self, chosen: tuple[RememberedAnswer, ...]
    ) -> Iterator[tuple[str, SimilaritySpread]]:
        pairs = [self._pair(one, two) for one, two in combinations(chosen, 2)]
        for name in SIMILARITIES:
            values = similarity_spread([pair[name] for pair in pairs if name in pair])
            if not isinstance(values, NoScore):
                yield name, values

    def _pair(self, one: RememberedAnswer, two: RememberedAnswer) -> dict[str, float]:
        found = self._pairs.get((one, two))
        if found is None:
            found = answer_similarities(wording_words(one.words), wording_words(two.words))
            near = packed_cosine(one.vector, two.vector)
            if near is not None:
                found[EMBEDDING_SIMILARITY] = near
            self._pairs[one, two] = found
        return found


class RememberedAnswers:
    """Of one question, by time. `near` are the questions (by hash) that are near this one, and
    `direction` is what `asked` says, once somebody has asked."""

    def __init__(self, kept: list[RememberedAnswer] | None = None) -> None:
        self.answers: list[RememberedAnswer] = sorted(kept or ())
        self.question: QuestionEmbedding | None = None
        self.direction: UnpackedVector | None = None
        self.near: set[str] = set()
        self._pairs = _AnswerPairs()

    def add(self, answer: RememberedAnswer) -> bool:
        """Whether it was taken."""
        if len(self.answers) >= MAX_ANSWERS:
            if answer.at < self.answers[-1].at + THIN_SECONDS:
                return False
            del self.answers[0]
        insort(self.answers, answer)
        self._pairs.keep(self.answers)
        return True

    def attach(self, at: float, words: str, vector: str) -> bool:
        """The vector of an answer; whether the answer is still there."""
        for index, answer in enumerate(self.answers):
            if (answer.at, answer.words) == (at, words):
                self.answers[index] = answer._replace(vector=vector)
                self._pairs.keep(self.answers)
                return True
        return False

    def expire(self, before: float) -> bool:
        """Let go what is not younger; whether there was any."""
        left = [answer for answer in self.answers if answer.at > before]
        gone = len(left) < len(self.answers)
        if gone:
            self.answers = left
            self._pairs.keep(self.answers)
        return gone

    def within(self, after: float, until: float) -> list[RememberedAnswer]:
        return [answer for answer in self.answers if after < answer.at <= until]

    def spreads(self, after: float, until: float) -> dict[str, SimilaritySpread] | None:
        """By similarity, over every two answers of a time (`Pairs`)."""
        return self._pairs.spreads(self.within(after, until))


def link_near_questions(
    query: str, asked: QuestionEmbedding, known: Mapping[str, RememberedAnswers], threshold: float
) -> bool:
    """Find out which of the `known` questions a known one is near to; whether there was anything
    to find out."""
    own = known[query]
    if own.question is not None and is_same_space(own.question.vector, asked.vector):
        return False  # the same words again
    unlink_question(query, known)
    own.question, own.direction = asked, UnpackedVector(asked.vector)
    for name, other in known.items():
        if name == query or other.question is None or not _comparable(other.question, asked):
            continue
        if other.direction is None:  # after a restart
            other.direction = UnpackedVector(other.question.vector)
        found = own.direction.cosine(other.direction)
        if found is not None and found >= threshold:
            own.near.add(name)
            other.near.add(query)
    return True


def unlink_question(query: str, known: Mapping[str, RememberedAnswers]) -> None:
    """Nothing is near the question any more: it goes, or is asked about anew."""
    for name in known[query].near:
        known[name].near.discard(query)
    known[query].near = set()


def repair_links(known: Mapping[str, RememberedAnswers]) -> None:
    """After a restart: of two questions only the later one may have been written down with the
    other, and one may have gone since."""
    for query, one in known.items():
        one.near = {
            name
            for name in one.near
            if name in known and _comparable(one.question, known[name].question)
        }
        for name in one.near:
            known[name].near.add(query)


def _comparable(one: QuestionEmbedding | None, other: QuestionEmbedding | None) -> bool:
    return (
        one is not None
        and other is not None
        and one.context == other.context
        and is_same_space(one.vector, other.vector)
    )


def group_questions(known: Mapping[str, RememberedAnswers]) -> list[tuple[str, ...]]:
    """Every question in one group, leaders first."""
    found, taken = [], set[str]()
    for query in sorted(known):
        if query not in taken:
            group = (query, *sorted(known[query].near - taken))
            taken.update(group)
            found.append(group)
    return found


class AnswerPool:
    """The answers to the questions of a group. Of those within a time as many are compared as of
    one question: the latest of each question first, since it is between them that is asked."""

    def __init__(self, members: Sequence[RememberedAnswers]) -> None:
        self.members = tuple(members)
        self._pairs = _AnswerPairs()

    def forget(self) -> None:
        """Let go what was found of answers that are no longer kept."""
        self._pairs.keep(answer for one in self.members for answer in one.answers)

    def within(self, after: float, until: float) -> list[RememberedAnswer]:
        """Those that are compared, by time."""
        each = [reversed(one.within(after, until)) for one in self.members]
        turns = chain.from_iterable(zip_longest(*each))
        return sorted([answer for answer in turns if answer is not None][:MAX_ANSWERS])

    def spreads(self, after: float, until: float) -> dict[str, SimilaritySpread] | None:
        return self._pairs.spreads(self.within(after, until))
