"""What each segment adds to the change of a mean.

With shares p and means m of the segments of a tag, before (0) and now (1), and the level c halfway
between the two overall means:

    added = p1 (m1 - c) - p0 (m0 - c) = (p0 + p1) / 2 (m1 - m0) + (p1 - p0) ((m0 + m1) / 2 - c)

The first term is the rate effect: its own mean has moved. The second is the mix effect: it has
become more or less of the traffic, and is better or worse than the rest. Summed over the segments
of a tag this is Kitagawa's decomposition (1955, J. Am. Stat. Assoc. 50: 1168), which has no
interaction term and does not depend on which of the two is called the first; subtracting c changes
no sum, for shares add up to 1, and says which segment the mix effect is of.
"""

from __future__ import annotations

from typing import NamedTuple

from agent.breakdown.contrasts import Term, mover
from agent.breakdown.sample import Sample

__all__ = ["Added", "added", "pulled"]


class Added(NamedTuple):
    """`rate` + `mix` = `value`, with the 95 % interval of `value` for shares as they were."""

    value: float
    lower: float
    upper: float
    rate: float
    mix: float


def added(
    now: Sample | None,
    before: Sample | None,
    rests: tuple[Sample | None, Sample | None],
    wholes: tuple[Sample, Sample],
) -> Added:
    """`now` or `before` is None where the segment had no traffic then: all is mix. `rests` and
    `wholes`: (now, before) of the other traffic and of all."""
    whole1, whole0 = wholes
    level = (whole1.value + whole0.value) / 2
    p1 = now.size / whole1.size if now else 0.0
    p0 = before.size / whole0.size if before else 0.0
    value = (p1 * (now.value - level) if now else 0.0) - (
        p0 * (before.value - level) if before else 0.0
    )
    rate = (p0 + p1) / 2 * (now.value - before.value) if now and before else 0.0
    # the level is made of the segment and the rest itself, which its interval must know
    half = (p1 - p0) / 2
    terms = [
        Term(factor, *sample[:3])
        for factor, sample in (
            (p1 - half * p1, now),
            (-p0 - half * p0, before),
            (-half * (1 - p1), rests[0]),
            (-half * (1 - p0), rests[1]),
        )
        if sample is not None
    ]
    middle, lower, upper = mover(terms)
    return Added(value, value + lower - middle, value + upper - middle, rate, value - rate)


def pulled(now: Sample, rest: Sample, whole: Sample) -> Added:
    """How far the segment pulls the mean of all away from that of the rest, without a past."""
    p = now.size / whole.size
    value, lower, upper = mover([Term(p * (1 - p), *now[:3]), Term(-p * (1 - p), *rest[:3])])
    return Added(value, lower, upper, 0.0, value)
