"""Which segment moved most: each against the rest, with as many comparisons as there are segments.

The largest of many noisy differences is always large, so a segment is named only where its own
movement differs from that of the other traffic by more than chance among all that were compared
(Bonferroni); else it is said that all moved alike.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

__all__ = ["LEAST", "LEVEL", "Part", "SegmentMove", "rest_of", "squared_error", "top_segment"]

LEVEL = 0.01
"""Chance, over all segments compared, of naming one that moved like the rest."""

LEAST = 10
"""Samples before and after below which a segment is not compared."""


class Part(NamedTuple):
    """Effective samples, mean and variance of one sample."""

    n: float
    mean: float
    variance: float


class SegmentMove(NamedTuple):
    """The segment that moved most, by its own standard error.

    `z` is its movement in standard errors; `p` says whether it differs from that of the rest,
    adjusted for the number of segments `compared`; `contribution` is the part of the service's
    shift that its own movement makes, `share_before` and `share_after` its part of the samples.
    """

    segment: str
    before: float
    after: float
    contribution: float
    share_before: float
    share_after: float
    z: float
    p: float
    compared: int

    @property
    def distinct(self) -> bool:
        """Whether it moved differently from the rest, beyond chance."""
        return self.p <= LEVEL

    def words(self) -> str:
        """A sentence for people."""
        moved = f"{self.segment} moved most, {self.before:.3g} to {self.after:.3g}"
        if self.distinct:
            return f"{moved}, unlike the rest (p = {self.p:.1g} over {self.compared} segments)"
        return f"all segments moved alike, as far as can be told ({moved})"


def top_segment(
    service: tuple[Part, Part], segments: Mapping[str, tuple[Part, Part]]
) -> SegmentMove | None:
    """(before, after) of the service and of each segment; None where none can be compared."""
    known = {name: pair for name, pair in segments.items() if min(part.n for part in pair) >= LEAST}
    best: SegmentMove | None = None
    for name in sorted(known):
        move = _move(name, service, known[name], len(known))
        if best is None or abs(move.z) > abs(best.z):
            best = move
    return best


def _move(
    name: str, service: tuple[Part, Part], pair: tuple[Part, Part], compared: int
) -> SegmentMove:
    (all0, all1), (own0, own1) = service, pair
    own, error = own1.mean - own0.mean, _error(pair)
    rests = rest_of(all0, own0), rest_of(all1, own1)
    other, other_error = 0.0, 0.0
    if rests[0] is not None and rests[1] is not None:
        rest = (rests[0], rests[1])
        other, other_error = rest[1].mean - rest[0].mean, _error(rest)
    apart = abs(own - other) / math.sqrt(error + other_error)
    return SegmentMove(
        segment=name,
        before=own0.mean,
        after=own1.mean,
        contribution=min(1.0, own1.n / all1.n) * own,
        share_before=min(1.0, own0.n / all0.n),
        share_after=min(1.0, own1.n / all1.n),
        z=own / math.sqrt(error),
        p=min(1.0, compared * math.erfc(apart / math.sqrt(2))),
        compared=compared,
    )


def rest_of(whole: Part, own: Part) -> Part | None:
    """What is not in the segment; None where that is next to nothing."""
    n = whole.n - own.n
    if n < LEAST:
        return None
    return Part(n, (whole.n * whole.mean - own.n * own.mean) / n, whole.variance)


def squared_error(part: Part) -> float:
    """The squared standard error of a mean. A variance of 0 (all values equal) is one
    pseudo-sample's worth."""
    return max(part.variance, 1e-3 / part.n) / part.n


def _error(pair: tuple[Part, Part]) -> float:
    """The squared standard error of a movement."""
    return sum(map(squared_error, pair))
