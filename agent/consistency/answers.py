"""The answers to one question that are remembered, and how much they differ."""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterator
from itertools import combinations
from typing import NamedTuple

from agent.consistency.wording import words_of
from agent.metrics.consistency import SIMILARITIES, Spread, similarities, spread
from agent.metrics.results import Gap

__all__ = ["KEPT", "THIN_SECONDS", "Answer", "Answers"]

KEPT = 4
"""Answers of one question: 6 pairs, 0.4 ms each of long ones. That a service does not say the same
twice is seen by four as well as by forty."""

THIN_SECONDS = 60.0
"""Once there are so many, the next one is taken after so long: what a busy question costs is
bounded by the clock and not by its traffic, and the four cover some minutes."""


class Answer(NamedTuple):
    """`at` is event time."""

    at: float
    words: str


class Answers:
    """Of one question, by time. Pairs are compared when somebody reads, each once."""

    def __init__(self, kept: list[Answer] | None = None) -> None:
        self.kept: list[Answer] = sorted(kept or ())
        self._pairs: dict[tuple[Answer, Answer], dict[str, float]] = {}
        self._spreads: dict[tuple[Answer, ...], dict[str, Spread]] = {}

    def add(self, answer: Answer) -> bool:
        """Whether it was taken."""
        if len(self.kept) >= KEPT:
            if answer.at < self.kept[-1].at + THIN_SECONDS:
                return False
            del self.kept[0]
        insort(self.kept, answer)
        self._forget()
        return True

    def expire(self, before: float) -> bool:
        """Let go what is not younger; whether there was any."""
        left = [answer for answer in self.kept if answer.at > before]
        gone = len(left) < len(self.kept)
        if gone:
            self.kept = left
            self._forget()
        return gone

    def _forget(self) -> None:
        there = set(self.kept)
        self._pairs = {pair: found for pair, found in self._pairs.items() if there.issuperset(pair)}
        self._spreads = {}

    def spreads(self, after: float, until: float) -> dict[str, Spread] | None:
        """By similarity, over every two answers of a time; None with fewer than two of them. A
        similarity that no pair has a value of is left out."""
        chosen = tuple(answer for answer in self.kept if after < answer.at <= until)
        if len(chosen) < 2:
            return None
        found = self._spreads.get(chosen)
        if found is None:
            found = self._spreads[chosen] = dict(self._found(chosen))
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
            self._pairs[one, two] = found
        return found
