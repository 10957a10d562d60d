"""Questions that are one in meaning though not in words: by the cosine of their embeddings. Pure.

Nearness is no equivalence: A may be near B and B near C, and A not near C. So a group has a leader,
the question with the smallest hash, and all others are near it. Hashes know neither time nor
answers, so that the groups depend on which questions are remembered and on nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain, zip_longest

from agent.consistency.answers import KEPT, Answer, Answers, Asked, Pairs
from agent.consistency.vectors import Direction, same_space
from agent.metrics.consistency import Spread

__all__ = ["Pool", "groups", "meet", "mend", "part"]


def meet(query: str, asked: Asked, known: Mapping[str, Answers], threshold: float) -> bool:
    """Find out which of the `known` questions a known one is near to; whether there was anything
    to find out."""
    own = known[query]
    if own.asked is not None and same_space(own.asked.vector, asked.vector):
        return False  # the same words again
    part(query, known)
    own.asked, own.direction = asked, Direction(asked.vector)
    for name, other in known.items():
        if name == query or other.asked is None or not _comparable(other.asked, asked):
            continue
        if other.direction is None:  # after a restart
            other.direction = Direction(other.asked.vector)
        found = own.direction.cosine(other.direction)
        if found is not None and found >= threshold:
            own.near.add(name)
            other.near.add(query)
    return True


def part(query: str, known: Mapping[str, Answers]) -> None:
    """Nothing is near the question any more: it goes, or is asked about anew."""
    for name in known[query].near:
        known[name].near.discard(query)
    known[query].near = set()


def mend(known: Mapping[str, Answers]) -> None:
    """After a restart: of two questions only the later one may have been written down with the
    other, and one may have gone since."""
    for query, one in known.items():
        one.near = {
            name for name in one.near if name in known and _comparable(one.asked, known[name].asked)
        }
        for name in one.near:
            known[name].near.add(query)


def _comparable(one: Asked | None, other: Asked | None) -> bool:
    return (
        one is not None
        and other is not None
        and one.context == other.context
        and same_space(one.vector, other.vector)
    )


def groups(known: Mapping[str, Answers]) -> list[tuple[str, ...]]:
    """Every question in one group, leaders first."""
    found, taken = [], set[str]()
    for query in sorted(known):
        if query not in taken:
            group = (query, *sorted(known[query].near - taken))
            taken.update(group)
            found.append(group)
    return found


class Pool:
    """The answers to the questions of a group. Of those within a time as many are compared as of
    one question: the latest of each question first, since it is between them that is asked."""

    def __init__(self, members: Sequence[Answers]) -> None:
        self.members = tuple(members)
        self._pairs = Pairs()

    def forget(self) -> None:
        """Let go what was found of answers that are no longer kept."""
        self._pairs.keep(answer for one in self.members for answer in one.kept)

    def within(self, after: float, until: float) -> list[Answer]:
        """Those that are compared, by time."""
        each = [reversed(one.within(after, until)) for one in self.members]
        turns = chain.from_iterable(zip_longest(*each))
        return sorted([answer for answer in turns if answer is not None][:KEPT])

    def spreads(self, after: float, until: float) -> dict[str, Spread] | None:
        return self._pairs.spreads(self.within(after, until))
