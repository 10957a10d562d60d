"""The numbers of a box plot, of scores that stand for different numbers of traces. Pure.

A quantile is the point where the cumulative weight passes p, and the middle of two neighbours
where it meets p exactly (type 2 of Hyndman and Fan 1996; numpy: `averaged_inverted_cdf`). Of the
usual definitions this one needs no other rule for weights: a score of weight 3 counts as three
scores, and the median of an even number is the middle of the two in the middle.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from agent.windows.exact import weight

__all__ = ["MAX_OUTLIERS", "Box", "box_of", "quantiles"]

REACH = 1.5
"""Of the box's length: Tukey's whiskers (1977) end at the furthest score within so much of it."""

MAX_OUTLIERS = 200
"""Different values drawn beyond the whiskers of a box, the furthest ones. A picture of more shows a
smear; `outside` counts them all."""

_QUARTILES = ((1, 4), (1, 2), (3, 4))


@dataclass(frozen=True, slots=True)
class Box:
    """`n` scores; the whiskers `low` and `high` are scores; `outside` of them lie beyond."""

    n: int
    low: float
    q1: float
    median: float
    q3: float
    high: float
    outside: int
    outliers: tuple[float, ...]


def quantiles(
    values: Sequence[float], weights: Sequence[int], shares: Sequence[tuple[int, int]]
) -> list[float]:
    """Quantiles of sorted values, at least one, with positive whole weights. A share is a fraction,
    (1, 4): so that meeting it exactly is no matter of rounding."""
    sums = list(accumulate(weights))
    found, place = [], 0
    for above, below in shares:  # ascending
        while sums[place] * below < sums[-1] * above:
            place += 1
        meets = sums[place] * below == sums[-1] * above and place + 1 < len(values)
        found.append((values[place] + values[place + 1]) / 2 if meets else values[place])
    return found


def box_of(values: Sequence[float], probabilities: Sequence[float]) -> Box | None:
    """The box of scores with their inclusion probabilities, in any order; None of no score."""
    if not values:
        return None
    pairs = sorted(zip(values, map(weight, probabilities), strict=True))
    ordered = [value for value, _ in pairs]
    q1, median, q3 = quantiles(ordered, [number for _, number in pairs], _QUARTILES)
    reach = REACH * (q3 - q1)
    inside = [value for value in ordered if q1 - reach <= value <= q3 + reach]
    # the quartiles lie within the scores, so there is a score on each side of the box or in it
    low, high = min(inside[0], q1), max(inside[-1], q3)
    beyond = [value for value in ordered if not q1 - reach <= value <= q3 + reach]
    shown = sorted(set(beyond), key=lambda value: (-max(low - value, value - high), value))
    return Box(
        len(ordered), low, q1, median, q3, high, len(beyond), tuple(sorted(shown[:MAX_OUTLIERS]))
    )
