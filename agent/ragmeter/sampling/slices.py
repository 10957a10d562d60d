"""Draw from slices of a score, with known probability; pure.

Thirty labels are worth most where they differ most, so a draw cuts the traces, sorted by their
cheap score, into as many slices as are to be labelled and takes one of each. Every trace has the
same probability in the end, whatever its score: the mean of the labels has no bias, and the strata
by class of the cheap score (`ragmeter.windows.intervals`) have about as many labels as their part
of the traffic.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate
from random import Random

LABELS_PER_DRAW = 30  # asked for without a number: an hour of work


def draw_chances(weights: Sequence[float], count: int) -> list[float]:
    """Return with which probability to draw each of `count` traces, in proportion to weights.

    So traces that were sampled at unequal rates have the same probability in the end, but for those
    that are certain. Weights are above 0: for how many each trace stands.
    """
    chances = [1.0] * len(weights)
    order = sorted(range(len(weights)), key=weights.__getitem__, reverse=True)
    left = min(count, len(weights))
    total = sum(weights)
    while left > 0 and weights[order[0]] * left >= total * (1 - 1e-12):
        total -= weights[order.pop(0)]
        left -= 1
    for at in order:
        chances[at] = weights[at] * left / total
    return chances


def draw_slices(
    cheap: Sequence[float | None], count: int, rng: Random, chances: Sequence[float] | None = None
) -> list[int]:
    """Draw traces from slices of their cheap score.

    Systematic sampling: every number / count-th trace of the sorted order from a random start.
    Traces without a cheap score are at its end, equal ones in random order.

    Args:
        cheap: The cheap score of every trace.
        count: How many to draw; all if there are not more.
        rng: Source of randomness.
        chances: The probability of each, from `draw_chances`; by default `count` / their number.

    Returns:
        Indexes in random order, so that the first of them are a random part of the draw.
    """
    order = sorted(
        range(len(cheap)), key=lambda at: (cheap[at] is None, cheap[at] or 0.0, rng.random())
    )
    count = min(count, len(order))
    chances = chances or [count / len(order)] * len(order) if order else []
    ends = list(accumulate(chances[at] for at in order))
    start = rng.random()
    places = (bisect_right(ends, place + start) for place in range(count))
    drawn = [order[min(place, len(order) - 1)] for place in places]
    rng.shuffle(drawn)
    return drawn
