"""Box plots of weighted values.

Quantiles are weighted: a quantile is the point where the cumulative weight passes p,
or the middle of two neighbours where it meets p exactly (type 2 of Hyndman and Fan 1996; numpy:
`averaged_inverted_cdf`). This definition extends to weights unchanged: a score of weight 3 counts
as three scores.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from ragmeter.core.arithmetic import weight_units

# Tukey's whiskers (1977) end at the furthest score within this many box lengths of the box.
WHISKER_REACH = 1.5

# Distinct outliers drawn per box, furthest first: more would blur; `outside` counts them all.
MAX_OUTLIERS = 200

_QUARTILES = ((1, 4), (1, 2), (3, 4))


@dataclass(frozen=True, slots=True)
class BoxPlot:
    """Numbers of a box plot.

    Args:
        low: Lower whisker, a score.
        high: Upper whisker, a score.
        outside: Number of scores beyond the whiskers.
        outliers: Distinct values beyond the whiskers, ascending, at most `MAX_OUTLIERS`.
    """

    n: int
    low: float
    q1: float
    median: float
    q3: float
    high: float
    outside: int
    outliers: tuple[float, ...]


def _weighted_quantiles(
    values: Sequence[float], weights: Sequence[int], shares: Sequence[tuple[int, int]]
) -> list[float]:
    """Compute quantiles of at least one sorted value with positive whole weights.

    Shares are ascending fractions such as (1, 4), so that no rounding decides on an exact match.
    """
    sums = list(accumulate(weights))
    quantiles = []
    index = 0
    for above, below in shares:  # ascending
        while sums[index] * below < sums[-1] * above:
            index += 1
        meets = sums[index] * below == sums[-1] * above and index + 1 < len(values)
        quantiles.append((values[index] + values[index + 1]) / 2 if meets else values[index])
    return quantiles


def compute_box_plot(values: Sequence[float], probabilities: Sequence[float]) -> BoxPlot | None:
    """Compute the box plot of weighted scores; None without a score."""
    if not values:
        return None
    pairs = sorted(zip(values, map(weight_units, probabilities), strict=True))
    ordered = [value for value, _ in pairs]
    q1, median, q3 = _weighted_quantiles(ordered, [number for _, number in pairs], _QUARTILES)
    reach = WHISKER_REACH * (q3 - q1)
    inside = [value for value in ordered if q1 - reach <= value <= q3 + reach]
    # The quartiles lie within the range of the scores, so a score lies in the box or on each side.
    low, high = min(inside[0], q1), max(inside[-1], q3)
    beyond = [value for value in ordered if not q1 - reach <= value <= q3 + reach]
    shown = sorted(set(beyond), key=lambda value: (-max(low - value, value - high), value))
    return BoxPlot(
        n=len(ordered),
        low=low,
        q1=q1,
        median=median,
        q3=q3,
        high=high,
        outside=len(beyond),
        outliers=tuple(sorted(shown[:MAX_OUTLIERS])),
    )
