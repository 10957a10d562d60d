"""The answers to one question that are remembered, and how much they differ."""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterable, Iterator, Sequence
from itertools import combinations
from typing import NamedTuple

from agent.consistency.vectors import Direction, likeness
from agent.consistency.wording import words_of
from agent.metrics.consistency import EMBEDDING, SIMILARITIES, Spread, similarities, spread
from agent.metrics.results import Gap

__all__ = ["KEPT", "THIN_SECONDS", "Answer", "Answers", "Asked", "Pairs"]

KEPT = 4
"""Answers of one question: 6 pairs. That a service does not say the same twice is seen by four as
well as by forty. Reading the answers of a question for the first time costs what scoring 3 to 6
traces does where they have 200 words (five runs of benchmarks/consistency.py: 1.9 to 3.3 ms on a
machine shared by others, 0.4 to 0.7 s for 200 questions); after that only new pairs are
compared."""

THIN_SECONDS = 60.0
"""Once there are so many, the next one is taken after so long: what a busy question costs is
bounded by the clock and not by its traffic, and the four cover some minutes."""


class Answer(NamedTuple):
    """`at` is event time. `vector`: of its embedding (`agent.consistency.vectors`), or empty."""

    at: float
    words: str
    vector: str = ""


class Asked(NamedTuple):
    """The embedding of a question, and a hash of all else that must be equal for another one to be
    near it."""

    context: str
    vector: str


class Pairs:
    """Similarities of every two answers, compared when somebody reads, each pair once."""

    def __init__(self) -> None:
        self._pairs: dict[tuple[Answer, Answer], dict[str, float]] = {}
        self._spreads: dict[tuple[Answer, ...], dict[str, Spread]] = {}

    def keep(self, answers: Iterable[Answer]) -> None:
        """Forget what was found of others."""
        there = set(answers)
        self._pairs = {pair: found for pair, found in self._pairs.items() if there.issuperset(pair)}
        self._spreads = {}

    def spreads(self, chosen: Sequence[Answer]) -> dict[str, Spread] | None:
        """By similarity; None with fewer than two. A similarity that no pair has a value of is
        left out."""
        if len(chosen) < 2:
            return None
        key = tuple(chosen)
        found = self._spreads.get(key)
        if found is None:
            found = self._spreads[key] = dict(self._found(key))
        return found

    def _found(self, chosen: tuple[Answer, ...]) -> Iterator[tuple[str, Spread]]:
        pairs = [self._pair(one, two) for one, two in combinations(chosen, 2)]
        for name in SIMILARITIES:
            values = spread([pair[name] for pair in pairs if name in pair])
            if not isinstance(values, Gap):
                yield name, values

    def _pair(self, one: Answer, two: Answer) -> dict[str, float]:
        found = self._pairs.get((one, two))
        if found is None:
            found = similarities(words_of(one.words), words_of(two.words))
            near = likeness(one.vector, two.vector)
            if near is not None:
                found[EMBEDDING] = near
            self._pairs[one, two] = found
        return found


class Answers:
    """Of one question, by time. `near` are the questions (by hash) that are near this one, and
    `direction` is what `asked` says, once somebody has asked."""

    def __init__(self, kept: list[Answer] | None = None) -> None:
        self.kept: list[Answer] = sorted(kept or ())
        self.asked: Asked | None = None
        self.direction: Direction | None = None
        self.near: set[str] = set()
        self._pairs = Pairs()

    def add(self, answer: Answer) -> bool:
        """Whether it was taken."""
        if len(self.kept) >= KEPT:
            if answer.at < self.kept[-1].at + THIN_SECONDS:
                return False
            del self.kept[0]
        insort(self.kept, answer)
        self._pairs.keep(self.kept)
        return True

    def attach(self, at: float, words: str, vector: str) -> bool:
        """The vector of an answer; whether the answer is still there."""
        for index, answer in enumerate(self.kept):
            if (answer.at, answer.words) == (at, words):
                self.kept[index] = answer._replace(vector=vector)
                self._pairs.keep(self.kept)
                return True
        return False

    def expire(self, before: float) -> bool:
        """Let go what is not younger; whether there was any."""
        left = [answer for answer in self.kept if answer.at > before]
        gone = len(left) < len(self.kept)
        if gone:
            self.kept = left
            self._pairs.keep(self.kept)
        return gone

    def within(self, after: float, until: float) -> list[Answer]:
        return [answer for answer in self.kept if after < answer.at <= until]

    def spreads(self, after: float, until: float) -> dict[str, Spread] | None:
        """By similarity, over every two answers of a time (`Pairs`)."""
        return self._pairs.spreads(self.within(after, until))
