"""Interval estimates of means and rates from cells of the traffic; pure, at 95 % confidence.

Traffic is cut into cells whose sizes are known: sampling strata, classes of a cheap score. Each
cell has its own interval, and the limits of the mean over all traffic are joined from those of the
cells (`join_limits`). So every cell brings its own asymmetry: rare failures that the sample of a
cell happens to lack keep their weight.

Two inferences share the formulas. Where a draw of ours chose what was scored, the interval is about
all traffic of the window: the only randomness is the draw, and a cell that was scored in full has
none left (`Cell.sampled`). Where every trace was scored, it is about the process behind the
traffic, of which the window is a sample.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

# The .975 quantile of the standard normal distribution.
Z_95 = 1.959963984540054

# Pseudo-scores at the bound that is farther from the mean, where scores that a small sample lacks
# may lie. With 2 the interval covers .942 in the worst of 126 cells of graded scores (a handful of
# grades, claims, spikes, smooth ones; 8 to 400 of them) and .973 in the mean, with 0.5 .933 and
# .964.
_FAR_SCORES = 2.0

# Scores that the mean of each cell uses up where there are several; a little less than one, so that
# a cell with a single score has an interval.
_USED = 0.9

# Part of a trace by which each limit of one of several cells moves out. Without it intervals with
# the help of a 0/1 score cover .89 to .94 where 84 % are judged, with it .95 to .97.
_TRACE_STEP = 0.25

# The .975 quantiles of Student's t for 1 to 3 degrees of freedom.
_T = (12.706205, 4.302653, 3.182446)


class Interval(NamedTuple):
    """A point estimate with its 95 % limits.

    `effective` is the number of equal-weight samples that carry as much information.
    """

    value: float
    lower: float
    upper: float
    effective: float


class Cell(NamedTuple):
    """The scores of one part of the traffic.

    Args:
        size: Weight of all its traffic, scored or not.
        n: Number of scores, above 0.
        effective: Kish's number of scores of equal weight, (sum w)**2 / sum w**2 (Survey Sampling,
            1965).
        mean: Weighted mean of the scores.
        variance: Variance of one effective score, without bias; 0 for a single score.
        sampled: Share (0..1) of its traffic that was scored, 0 for inference about the process.
        applied: Share (0..1) of its traffic that the metric applies to, as its draws tell. `size`
            and `sampled` are of that part.
    """

    size: float
    n: int
    effective: float
    mean: float
    variance: float
    sampled: float = 0.0
    applied: float = 1.0


def _wallace_factor(df: float) -> float:
    return (8 * df + 1) / (8 * df + 3)


def t975(df: float) -> float:
    """Return the .975 quantile of Student's t: the t whose `student_p_value` is .05.

    Args:
        df: Degrees of freedom; rounded down to a whole number, at least 1.

    Returns:
        The quantile; from 4 degrees of freedom on up to .5 % above it, and never below.
    """
    n = max(1, int(df + 1e-9))  # 6.9999999 is a 7 with a rounding error
    if n <= len(_T):
        return _T[n - 1]
    return math.sqrt(n * math.expm1((Z_95 / _wallace_factor(n)) ** 2 / n))


def student_p_value(t: float, df: float) -> float:
    """Return the two-sided p value of Student's t by Wallace's normal deviate (1959).

    It is within 3 % from 10 degrees of freedom on, down to p = 0.0001.
    """
    z = abs(t)
    if math.isinf(z):
        return 0.0
    if df < 1e7:
        z = _wallace_factor(df) * math.sqrt(df * math.log1p(t * t / df))
    return math.erfc(z / math.sqrt(2))


def wilson_interval(share: float, n: float) -> tuple[float, float]:
    """Return the score interval of a share (Wilson, JASA 1927).

    Args:
        share: The observed share, 0..1.
        n: Samples behind it, above 0; an effective number need not be whole.

    Returns:
        The 95 % limits (lower, upper), within 0..1; they always enclose `share`.
    """
    zz = Z_95 * Z_95 / n
    centre = share + zz / 2
    half = Z_95 * math.sqrt(max(0.0, share * (1 - share) / n + zz / (4 * n)))
    # Rounding must not push a limit past the share it encloses.
    lower = max(0.0, min(share, (centre - half) / (1 + zz)))
    return lower, min(1.0, max(share, (centre + half) / (1 + zz)))


def wilson_samples(share: float, width: float) -> float:
    """Return the number of samples whose Wilson interval at `share` is `width` wide.

    The width is 2 sqrt(share (1 - share) x + x**2 / 4) / (1 + x) with x = z**2 / n, which makes a
    quadratic equation in x.
    """
    if width <= 0:
        return math.inf
    width = min(width, 1 - 1e-9)
    a = 1 - width * width
    c = width * width
    b = 2 * c - 4 * share * (1 - share)
    x = (b + math.sqrt(b * b + 4 * a * c)) / (2 * a)
    return Z_95 * Z_95 / x


def widen_for_missing(
    interval: Interval, share: float, low: float | None, high: float | None
) -> Interval:
    """Widen an interval for values that are missing (Manski's bounds, 1989).

    The error of each end is that of the mean with all missing values at that bound (Imbens and
    Manski, Econometrica 2004). The share that is missing has an error, too: it is known from as
    many traces as the mean, with the missing ones.

    Args:
        interval: The estimate from the values that exist.
        share: Weighted share of values that should exist and do not, 0..1.
        low: Least possible value; None leaves the lower limit as it is.
        high: Greatest possible value; None leaves the upper limit as it is.

    Returns:
        The same point with limits that hold even if all missing values are `low` or all `high`.
    """
    value, lower, upper, effective = interval
    error = Z_95 * math.sqrt(share / effective)
    if low is not None:
        below = math.hypot(value - lower, error * (value - low))
        lower = min(lower, max(low, value - below - share * (value - low - below)))
    if high is not None:
        above = math.hypot(upper - value, error * (high - value))
        upper = max(upper, min(high, value + above + share * (high - value - above)))
    return Interval(value, lower, upper, effective)


def join_limits(rows: Sequence[tuple[float, float, float, float]]) -> tuple[float, float, float]:
    """Join independent estimates to one of their weighted sum.

    Two ways to do it are averaged. One is the method of variance estimates recovery (MOVER; Zou and
    Donner, Statistics in Medicine 2008): the distance of each limit from its estimate stands for a
    standard error on that side. It holds where the cells differ much, and makes the sum of k like
    cells k times too skewed. The other adds half the widths in squares and averages the shifts of
    the centres, which come of skewness, by the cells' part in the variance: third cumulants add,
    and the shift is in proportion to the third over the second. It is exact for like cells and
    covers .93 where a small cell differs from a large one. Their mean covers .94 and more in both.

    Args:
        rows: (weight, value, lower, upper) of each estimate; a weight may be negative.

    Returns:
        (value, lower, upper) of the sum of weight times value.
    """
    value = squares = shifts = below = above = 0.0
    for weight, middle, lower, upper in rows:
        value += weight * middle
        down = weight * (middle - lower)
        up = weight * (upper - middle)
        if weight < 0:
            down, up = -up, -down
        below += down * down
        above += up * up
        square = (down + up) ** 2 / 4
        squares += square
        shifts += square * (up - down) / 2
    half = math.sqrt(squares)
    shift = shifts / squares if squares else 0.0
    return (
        value,
        value - (math.sqrt(below) + half - shift) / 2,
        value + (math.sqrt(above) + half + shift) / 2,
    )


def mean_interval(
    cells: Sequence[Cell],
    low: float | None,
    high: float | None,
    sizes_known_from: float = math.inf,
) -> Interval:
    """Estimate the mean over all traffic from the scores of its cells.

    Scores with two bounds get Wilson's interval, for each cell at an effective number of scores:
    n / phi / (1 - sampled), where phi is the ratio of the variance to that of 0/1 scores of the
    same mean. 0/1 scores have phi = 1. Scores without bounds get the t interval.

    Args:
        cells: At least one cell.
        low: Least possible value, None if unbounded.
        high: Greatest possible value, None if unbounded.
        sizes_known_from: Number of traces from which the sizes of the cells are estimated, each as
            good as one drawn with replacement; infinity if they are known.

    Returns:
        The interval, within the bounds; `effective` counts scores as spread out as these.
    """
    if low is None or high is None:
        return _unbounded_interval(cells, low, high, sizes_known_from)
    span = high - low
    unit = cells
    if low or span != 1:
        unit = [
            cell._replace(mean=(cell.mean - low) / span, variance=cell.variance / (span * span))
            for cell in cells
        ]
    if len(cells) == 1:
        (cell,) = unit
        value = cell.mean
        effective = cell.effective / max(1 - cell.sampled, 1 / cell.n)
        lower, upper = _bounded_limits(cell, cell.effective, _variance_ratio(cell, 1.0))
    else:
        total = sum([cell.size for cell in cells])
        shares = [cell.size / total for cell in cells]
        pooled = _pool(unit, shares)
        overall = _variance_ratio(pooled, 1.0)
        rows = [
            (
                share,
                cell.mean,
                *_bounded_limits(cell, cell.effective - _USED, _variance_ratio(cell, overall)),
            )
            for share, cell in zip(shares, unit, strict=True)
        ]
        half = Z_95 * math.sqrt(_size_variance(unit, shares, pooled.mean, sizes_known_from))
        rows.append((1.0, 0.0, -half, half))
        value, lower, upper = join_limits(rows)
        value = min(1.0, max(0.0, value))
        lower, upper = max(0.0, min(value, lower)), min(1.0, max(value, upper))
        effective = min(total * pooled.n, wilson_samples(value, upper - lower) * overall)
    return Interval(low + span * value, low + span * lower, low + span * upper, effective)


def _size_variance(
    cells: Sequence[Cell], shares: Sequence[float], mean: float, known_from: float
) -> float:
    """Return the variance that the mean has because the sizes of the cells are estimates.

    Sizes come from a sample of the traffic, and of each cell only the draws tell which part the
    metric applies to: the mean is one of a domain (Cochran, Sampling Techniques, 5A.14).
    """
    return sum(
        share
        * (cell.mean - mean) ** 2
        * (1 / known_from + share * (1 - cell.applied) * (1 - cell.sampled) / cell.effective)
        for share, cell in zip(shares, cells, strict=True)
    )


def _bounded_limits(cell: Cell, n: float, ratio: float) -> tuple[float, float]:
    """Return Wilson's limits of a mean within 0..1, of `n` scores with this variance ratio.

    A mean over a finite number of traces moves by whole traces. Of one of several cells that is
    judged nearly in full, a limit may be nearer than the next trace, hence `_TRACE_STEP`.
    """
    if cell.sampled >= 1:
        return cell.mean, cell.mean
    lower, upper = wilson_interval(cell.mean, n / (ratio * (1 - cell.sampled)))
    step = _TRACE_STEP / cell.size if cell.sampled and n < cell.effective else 0.0
    return max(0.0, lower - step), min(1.0, upper + step)


def _pool(cells: Sequence[Cell], shares: Sequence[float]) -> Cell:
    """Return the cells as one, with the variance within and between them."""
    mean = sum(share * cell.mean for share, cell in zip(shares, cells, strict=True))
    variance = sum(
        share * (cell.variance + (cell.mean - mean) ** 2)
        for share, cell in zip(shares, cells, strict=True)
    )
    n = sum(cell.n for cell in cells)
    effective = sum(cell.effective for cell in cells)
    return Cell(size=1.0, n=n, effective=effective, mean=mean, variance=variance)


def _variance_ratio(cell: Cell, prior: float) -> float:
    """Return the variance as a part of that of 0/1 scores of the same mean.

    Near a bound both variances are near 0 and tell nothing: pseudo-scores at the other bound draw
    the ratio to `prior`.
    """
    n = cell.effective
    mean = cell.mean
    pseudo = _FAR_SCORES * max(mean, 1 - mean) ** 2
    ratio = (n * cell.variance + prior * pseudo) / (n * mean * (1 - mean) + pseudo)
    # scores of equal weight cannot vary more than 0/1 scores do; n / (n - 1) makes it seem so
    return min(1.0, ratio) if cell.effective > 0.999 * cell.n else ratio


def _unbounded_interval(
    cells: Sequence[Cell], low: float | None, high: float | None, sizes_known_from: float
) -> Interval:
    total = sum(cell.size for cell in cells)
    shares = [cell.size / total for cell in cells]
    value = sum(share * cell.mean for share, cell in zip(shares, cells, strict=True))
    error = _size_variance(cells, shares, value, sizes_known_from)
    inverse = 0.0
    for share, cell in zip(shares, cells, strict=True):
        error += share * share * cell.variance / cell.effective * (1 - cell.sampled)
        inverse += share * share / cell.effective
    half = t975(sum(cell.effective for cell in cells) - len(cells)) * math.sqrt(error)
    lower, upper = value - half, value + half
    return Interval(
        value,
        lower if low is None else max(min(value, low), lower),
        upper if high is None else min(max(value, high), upper),
        1 / inverse,
    )
