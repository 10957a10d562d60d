"""Interval estimates of means and rates from additive sums; pure functions at 95 % confidence.

Estimates cover all traffic: they are stratified, prediction-powered difference estimates, which
without cheap scores are the stratified self-normalised (Hajek) means. Inference is by design: the
only randomness is which traces were scored, and a hash decides that.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from ragmeter.core.arithmetic import VALUE_BITS, WEIGHT_ONE

# The .975 quantile of the standard normal distribution.
Z_95 = 1.959963984540054

# Pseudo-observations of the historical slope: below some 50 samples a slope is mostly noise.
_SLOPE_PRIOR = 50.0

# Pseudo-observations of the historical variance: at n = 20 graded scores often are all equal, and
# a plain t interval covers .79 instead of .95.
VARIANCE_PRIOR = 10.0

# With fewer equal-weight samples, strata and slope cost more width than they save.
WILSON_BELOW = 50

# The .975 quantiles of Student's t for 1 to 9 degrees of freedom.
_T = (12.706205, 4.302653, 3.182446, 2.776445, 2.570582, 2.446912, 2.364624, 2.306004, 2.262157)

# Coefficients of 1/n .. 1/n**4 in the expansion of that quantile (Abramowitz and Stegun 26.7.5).
_G = (
    (Z_95**3 + Z_95) / 4,
    (5 * Z_95**5 + 16 * Z_95**3 + 3 * Z_95) / 96,
    (3 * Z_95**7 + 19 * Z_95**5 + 17 * Z_95**3 - 15 * Z_95) / 384,
    (79 * Z_95**9 + 776 * Z_95**7 + 1482 * Z_95**5 - 1920 * Z_95**3 - 945 * Z_95) / 92160,
)


class Interval(NamedTuple):
    """A point estimate with its 95 % limits.

    `effective` is the number of equal-weight samples that carry as much information.
    """

    value: float
    lower: float
    upper: float
    effective: float


class StratumMoments(NamedTuple):
    """Centred sums of one stratum in natural units, of scores y and cheap scores f.

    `size` is the weight N of all its traces, `n` the number scored, `w` and `w2` the sums of their
    weights and squared weights; `y` and `f` are weighted means over the scored traces,
    `population_f` the mean cheap score of all N. `yy`, `ff` and `yf` are unweighted sums of
    squared deviations and products; `linearised` is sum w**2 (y - ybar)**2 / (sum w)**2.
    """

    size: float
    n: int
    w: float
    w2: float
    y: float
    f: float
    population_f: float
    yy: float
    ff: float
    yf: float
    linearised: float

    @property
    def kish(self) -> float:
        """Kish's effective sample size (sum w)**2 / sum w**2 (Survey Sampling, 1965)."""
        return self.w * self.w / self.w2


def t975(df: float) -> float:
    """Return the .975 quantile of Student's t.

    Args:
        df: Degrees of freedom; rounded down to a whole number, at least 1.

    Returns:
        The quantile from a table below 10 degrees of freedom, then from the Cornish-Fisher
        expansion (Abramowitz and Stegun 26.7.5), within 1e-4.
    """
    n = max(1, int(df + 1e-9))  # 6.9999999 is a 7 with a rounding error
    if n <= len(_T):
        return _T[n - 1]
    return Z_95 + (_G[0] + (_G[1] + (_G[2] + _G[3] / n) / n) / n) / n


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


def stratum_moments(strata: Sequence[Sequence[int]]) -> list[StratumMoments]:
    """Compute the moments of each stratum from its whole-number sums.

    Args:
        strata: Sums of each stratum in the order of `sums.FIELDS`, in fixed-point units.

    Returns:
        One entry for each stratum with a scored trace. A stratum without one passes its N and SF
        on to the stratum before it (the first to the one after). Empty if nothing was scored.
        Differences are taken on whole numbers, so nothing cancels.
    """
    merged: list[list[int]] = []
    carry_size = carry_f = 0
    for sums in strata:
        if sums[2]:
            merged.append([sums[0] + carry_size, sums[1] + carry_f, *sums[2:]])
            carry_size = carry_f = 0
        elif merged:
            merged[-1][0] += sums[0]
            merged[-1][1] += sums[1]
        else:
            carry_size += sums[0]
            carry_f += sums[1]
    return [_moments_of_sums(sums) for sums in merged]


def _moments_of_sums(sums: Sequence[int]) -> StratumMoments:
    size, sf, n, w, w2, wy, wf, w2y, w2yy, y, f, yy, ff, yf = sums[:14]
    spread = w * w * w2yy - 2 * w * wy * w2y + wy * wy * w2
    scale = n << (2 * VALUE_BITS)
    return StratumMoments(
        size=size / WEIGHT_ONE,
        n=n,
        w=w / WEIGHT_ONE,
        w2=w2 / (WEIGHT_ONE * WEIGHT_ONE),
        y=wy / (w << VALUE_BITS),
        f=wf / (w << VALUE_BITS),
        population_f=sf / (size << VALUE_BITS) if size else 0.0,
        yy=(n * yy - y * y) / scale,
        ff=(n * ff - f * f) / scale,
        yf=(n * yf - y * f) / scale,
        linearised=spread / (w**4 << (2 * VALUE_BITS)),
    )


def widen_for_missing(
    interval: Interval, share: float, low: float | None, high: float | None
) -> Interval:
    """Widen an interval for values that are missing (Manski's bounds, 1989).

    Args:
        interval: The estimate from the values that exist.
        share: Weighted share of values that should exist and do not, 0..1.
        low: Least possible value; None leaves the lower limit as it is.
        high: Greatest possible value; None leaves the upper limit as it is.

    Returns:
        The same point with limits that hold even if all missing values are `low` or all `high`.
    """
    value, lower, upper, effective = interval
    if low is not None:
        lower = min(lower, (1 - share) * lower + share * low)
    if high is not None:
        upper = max(upper, (1 - share) * upper + share * high)
    return Interval(value, lower, upper, effective)


def sample_variance(strata: Sequence[StratumMoments]) -> tuple[float, int]:
    """Return the variance of one score within strata, weights respected.

    Returns:
        (variance, number of scores behind it); strata with a single score contribute nothing.
    """
    total, number = 0.0, 0
    for s in strata:
        if s.n > 1:
            number += s.n
            total += s.n * s.linearised * s.kish * s.n / (s.n - 1)
    return (total / number if number else 0.0), number


def rate_interval(strata: Sequence[StratumMoments], slope_history: float = 0.0) -> Interval:
    """Estimate the mean of a 0/1 score over all traffic.

    The point is the stratified PPI++ estimate (Angelopoulos, Duchi, Zrnic 2023), its slope within
    strata shrunk to `slope_history`. The limits are Wilson's on an effective n whose variance has
    one pseudo-success and one pseudo-failure per stratum, so that it holds at 0 or 1 observed
    failures. Fewer than `WILSON_BELOW` samples of equal weight give Wilson's interval alone.

    Args:
        strata: Moments of at least one stratum, each with a scored trace.
        slope_history: Slope of the score on the cheap score in a longer window.
    """
    n = sum(s.n for s in strata)
    w, w2 = sum(s.w for s in strata), sum(s.w2 for s in strata)
    if n < WILSON_BELOW and w * w > w2 * n * (1 - 1e-9):
        share = sum(s.w * s.y for s in strata) / w
        return Interval(share, *wilson_interval(share, n), n)
    total = sum(s.size for s in strata)
    slope, explained = _slope(strata, n, total, slope_history)
    value = variance = 0.0
    for s in strata:
        part, kish = s.size / total, s.kish
        value += part * (s.y + slope * (s.population_f - s.f))
        smooth = (s.y * kish + 1) / (kish + 2)
        own = smooth * (1 - smooth) / kish
        if kish < 0.999 * s.n and s.n > 1:  # weights differ inside the stratum
            own = max(own, s.linearised * s.n / (s.n - 1))
        variance += part * part * (1 - explained) * own
    value = min(1.0, max(0.0, value))
    smooth = (value * n + 1) / (n + 2)
    effective = smooth * (1 - smooth) / variance * (Z_95 / t975(n - len(strata) - 1)) ** 2
    return Interval(value, *wilson_interval(value, effective), effective)


def shrink_slope(strata: Sequence[StratumMoments]) -> float:
    """Return the slope of score on cheap score that a longer window lends to a shorter one.

    The slope is shrunk to 0 with `_SLOPE_PRIOR` pseudo-observations; 0 without a scored trace.
    """
    n, total = sum(s.n for s in strata), sum(s.size for s in strata)
    return _slope(strata, n, total, 0.0)[0] if n else 0.0


def _slope(
    strata: Sequence[StratumMoments], n: int, total: float, history: float
) -> tuple[float, float]:
    """Return (slope of score on cheap score within strata, share of variance it explains)."""
    c = vf = vy = 0.0
    for s in strata:
        if s.n >= 2:
            g = (s.size / total) ** 2 / (s.n * (s.n - 1))
            c += g * s.yf
            vf += g * s.ff
            vy += g * s.yy
    own = max(0.0, c / vf) if vf > 1e-15 else history
    slope = (n * own + _SLOPE_PRIOR * history) / (n + _SLOPE_PRIOR)
    if vy <= 1e-15:
        return slope, 0.0
    left = (vy - 2 * slope * c + slope * slope * vf) / vy
    return slope, min(0.95, max(0.0, 1 - left)) * max(0.0, (n - 2) / n)


class MeanSpread(NamedTuple):
    """A mean with what its t interval is made of.

    `error` is the squared standard error, `freedom` its degrees of freedom, `effective` the number
    of equal-weight samples that carry as much information.
    """

    value: float
    error: float
    freedom: float
    effective: float


def mean_spread(
    strata: Sequence[StratumMoments],
    variance_history: Sequence[float],
    low: float | None = None,
    high: float | None = None,
    prior: float = VARIANCE_PRIOR,
    slope_history: float | None = None,
) -> MeanSpread:
    """Estimate the mean of a graded score over all traffic, with its standard error.

    Each stratum contributes its self-normalised mean. Its variance per sample comes from the
    linearised (Hajek) variance and is shrunk to history. Degrees of freedom count Kish's effective
    samples, one less for each stratum; `effective` is 1 / sum W_h**2 / k_h over strata of share
    W_h, so that a stratum scored more often than its share brings less than its samples.

    Args:
        strata: Moments of at least one stratum, each with a scored trace.
        variance_history: Variance of one score by stratum; the last entry serves further strata.
        low: Least possible value, None if unbounded.
        high: Greatest possible value, None if unbounded.
        prior: Pseudo-observations of `variance_history`.
        slope_history: Slope on the cheap score in a longer window. If given, cheap scores move the
            mean as in `rate_interval`, and the share of variance that they explain is taken off.
    """
    total = sum(s.size for s in strata)
    value = variance = kishes = inverse = slope = explained = 0.0
    freedom_used = len(strata)
    if slope_history is not None:
        n = sum(s.n for s in strata)
        slope, explained = _slope(strata, n, total, slope_history)
        freedom_used += 1
    for h, s in enumerate(strata):
        part, kish = s.size / total, s.kish
        value += part * (s.y + slope * (s.population_f - s.f))
        # linearised * n/(n-1) is the variance of the mean; times kish: of one sample.
        sample = s.linearised * kish * s.n / (s.n - 1) if s.n > 1 else 0.0
        history = variance_history[min(h, len(variance_history) - 1)]
        freedom = max(0.0, kish - 1)
        shrunk = (freedom * sample + prior * history) / (freedom + prior)
        variance += part * part * shrunk / kish * (1 - explained)
        kishes += kish
        inverse += part * part / kish
    if slope:
        value = max(value if low is None else low, value)
        value = min(value if high is None else high, value)
    return MeanSpread(value, variance, kishes - freedom_used, 1 / (inverse * (1 - explained)))


def mean_interval(
    strata: Sequence[StratumMoments],
    variance_history: Sequence[float],
    low: float | None = None,
    high: float | None = None,
    slope_history: float | None = None,
) -> Interval:
    """Return the t interval of `mean_spread`, whose arguments it takes, cut to [low, high]."""
    value, error, freedom, effective = mean_spread(
        strata, variance_history, low, high, slope_history=slope_history
    )
    return _cut_interval(value, t975(freedom) * math.sqrt(error), low, high, effective)


def _cut_interval(
    value: float, half: float, low: float | None, high: float | None, effective: float
) -> Interval:
    lower, upper = value - half, value + half
    if low is not None and lower < low:
        lower = min(value, low)
    if high is not None and upper > high:
        upper = max(value, high)
    return Interval(value, lower, upper, effective)


# The same estimates for the common case, one stratum with all weights 1, in a third of the time:
# a scrape asks for thousands. `y` is the sum of n > 0 scores and `yy` of their squares, in units.


def unit_rate_interval(n: int, y: int) -> Interval:
    """Return `rate_interval` of n scores of 0 or 1, all of weight 1.

    From `WILSON_BELOW` samples on, the effective n is n (z/t)**2: the smoothed variance cancels.

    Args:
        n: Number of scores, above 0.
        y: Their sum in units of 2**-30.
    """
    share = y / (n << VALUE_BITS)
    effective = float(n)
    if n >= WILSON_BELOW:
        ratio = Z_95 / t975(n - 2)
        effective *= ratio * ratio
    return Interval(share, *wilson_interval(share, effective), effective)


def unit_variance(n: int, y: int, yy: int) -> float:
    """Return the unbiased variance of n scores from their sums in units; 0 below two scores."""
    return (n * yy - y * y) / (n * (n - 1) << (2 * VALUE_BITS)) if n > 1 else 0.0


def unit_mean_interval(
    n: int, y: int, yy: int, variance_history: float, low: float | None, high: float | None
) -> Interval:
    """Return `mean_interval` of n graded scores, all of weight 1.

    Args:
        n: Number of scores, above 0.
        y: Their sum in units of 2**-30.
        yy: The sum of their squares in units of 2**-60.
        variance_history: Variance of one score in a longer window.
        low: Least possible value, None if unbounded.
        high: Greatest possible value, None if unbounded.
    """
    shrunk = (n - 1) * unit_variance(n, y, yy) + VARIANCE_PRIOR * variance_history
    half = t975(n - 1) * math.sqrt(shrunk / (n - 1 + VARIANCE_PRIOR) / n)
    return _cut_interval(y / (n << VALUE_BITS), half, low, high, n)
