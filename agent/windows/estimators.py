"""Interval estimates of means and rates from additive sums; pure functions at 95 % confidence.

Interval estimates from additive sums. Pure functions; 95 % throughout.

Both over all traffic, by the stratified, prediction-powered difference estimator: a rate with a
Wilson interval on its effective sample size, the mean of graded scores with a t interval. Without
cheap scores they are the stratified self-normalised (Hajek) means, and with one stratum the
weighted mean itself. Inference is by design: the only randomness is which traces were scored, and
that comes from a hash.

The estimators for the common case: one stratum, all weights 1.

The same results as `estimators` gives, in a third of the time: a scrape asks for thousands.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from ragmeter.core.arithmetic import VALUE_BITS, WEIGHT_ONE

Z_95 = 1.959963984540054

_SLOPE_PRIOR = 50.0
"""Pseudo-observations of the slope seen in history: below some 50 samples it is mostly noise."""

VARIANCE_PRIOR = 10.0
"""Pseudo-observations of the variance seen in history: at n = 20 graded scores often are all
equal, and a plain t interval covers .79 instead of .95."""

WILSON_BELOW = 50
"""With fewer equal-weight samples, strata and slope cost more width than they save."""

_T = (12.706205, 4.302653, 3.182446, 2.776445, 2.570582, 2.446912, 2.364624, 2.306004, 2.262157)


_G = (
    (Z_95**3 + Z_95) / 4,
    (5 * Z_95**5 + 16 * Z_95**3 + 3 * Z_95) / 96,
    (3 * Z_95**7 + 19 * Z_95**5 + 17 * Z_95**3 - 15 * Z_95) / 384,
    (79 * Z_95**9 + 776 * Z_95**7 + 1482 * Z_95**5 - 1920 * Z_95**3 - 945 * Z_95) / 92160,
)


class Interval(NamedTuple):
    """`effective` is the number of equal-weight samples that would know as much."""

    value: float
    lower: float
    upper: float
    effective: float


class StratumMoments(NamedTuple):
    """A stratum's sums, centred and in natural units.

    `size` N, `n` scored, `w` and `w2` sums of weights and of their squares; `y` and `f` weighted
    means, `population_f` the mean cheap score of all N; `yy`, `ff`, `yf` unweighted sums of
    squared deviations; `linearised` = sum w**2 (y - ybar)**2 / (sum w)**2.
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
        return self.w * self.w / self.w2


def t975(df: float) -> float:
    """The .975 quantile of Student's t; `df` is rounded down, at least 1. Table below 10, then the
    Cornish-Fisher expansion (Abramowitz and Stegun 26.7.5), within 1e-4."""
    n = max(1, int(df + 1e-9))  # 6.9999999 is a 7 that met a float
    if n <= len(_T):
        return _T[n - 1]
    return Z_95 + (_G[0] + (_G[1] + (_G[2] + _G[3] / n) / n) / n) / n


def wilson_interval(share: float, n: float) -> tuple[float, float]:
    """Wilson's score interval (1927) of a share of n > 0 samples; n need not be whole."""
    zz = Z_95 * Z_95 / n
    centre = share + zz / 2
    half = Z_95 * math.sqrt(max(0.0, share * (1 - share) / n + zz / (4 * n)))
    # Rounding must not push a limit past the share it encloses.
    lower = max(0.0, min(share, (centre - half) / (1 + zz)))
    return lower, min(1.0, max(share, (centre + half) / (1 + zz)))


def stratum_moments(strata: Sequence[Sequence[int]]) -> list[StratumMoments]:
    """Moments per stratum from the whole-number sums of each (order: `sums.FIELDS`).

    Strata without a scored trace join a neighbour (their N and SF); an empty list comes back if
    nothing at all was scored. Differences are taken on whole numbers, so nothing cancels.
    """
    merged: list[list[int]] = []
    carry_size = carry_f = 0
    for sums in strata:
        if sums[2]:
            merged.append(list(sums))
            merged[-1][0] += carry_size
            merged[-1][1] += carry_f
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
    """The interval of the mean over all that should have been scored, a `share` of which was not:
    those may all have the worst value or all the best (Manski's bounds, 1989). The point stays.
    A mean without a bound cannot be bounded; its end stays as well."""
    value, lower, upper, effective = interval
    if low is not None:
        lower = min(lower, (1 - share) * lower + share * low)
    if high is not None:
        upper = max(upper, (1 - share) * upper + share * high)
    return Interval(value, lower, upper, effective)


def sample_variance(strata: Sequence[StratumMoments]) -> tuple[float, int]:
    """(variance of one score within strata, number of scores behind it), weights respected."""
    total, number = 0.0, 0
    for s in strata:
        if s.n > 1:
            number += s.n
            total += s.n * s.linearised * s.kish * s.n / (s.n - 1)
    return (total / number if number else 0.0), number


def rate_interval(
    strata: Sequence[StratumMoments], slope_history: float = 0.0, prior: float = _SLOPE_PRIOR
) -> Interval:
    """The mean of a 0/1 score over all traffic. At least one stratum with a scored trace.

    Stratified PPI++ (Angelopoulos, Duchi, Zrnic 2023) with the slope within strata shrunk to
    `slope_history`; Wilson on an effective n whose variance has one pseudo-success and one
    pseudo-failure per stratum, which is what makes it hold at 0 or 1 observed failures.
    """
    n = sum(s.n for s in strata)
    w, w2 = sum(s.w for s in strata), sum(s.w2 for s in strata)
    if n < WILSON_BELOW and w * w > w2 * n * (1 - 1e-9):
        share = sum(s.w * s.y for s in strata) / w
        return Interval(share, *wilson_interval(share, n), n)
    total = sum(s.size for s in strata)
    slope, explained = _slope(strata, n, total, slope_history, prior)
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
    """The slope that a longer window lends to a shorter one: itself shrunk to no slope at all."""
    n, total = sum(s.n for s in strata), sum(s.size for s in strata)
    return _slope(strata, n, total, 0.0, _SLOPE_PRIOR)[0] if n else 0.0


def _slope(
    strata: Sequence[StratumMoments], n: int, total: float, history: float, prior: float
) -> tuple[float, float]:
    """(slope of the score on the cheap score within strata, share of variance it explains)."""
    c = vf = vy = 0.0
    for s in strata:
        if s.n >= 2:
            g = (s.size / total) ** 2 / (s.n * (s.n - 1))
            c += g * s.yf
            vf += g * s.ff
            vy += g * s.yy
    own = max(0.0, c / vf) if vf > 1e-15 else history
    slope = (n * own + prior * history) / (n + prior)
    if vy <= 1e-15:
        return slope, 0.0
    left = (vy - 2 * slope * c + slope * slope * vf) / vy
    return slope, min(0.95, max(0.0, 1 - left)) * max(0.0, (n - 2) / n)


class MeanSpread(NamedTuple):
    """A mean with its squared standard error, the degrees of freedom of that, and the number of
    equal-weight samples that would know as much."""

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
    """The mean of graded scores over all traffic.

    Per stratum the self-normalised mean; its variance per sample, taken from the linearised
    (Hajek) variance, is shrunk to `variance_history[h]` with `prior` pseudo-observations. Degrees
    of freedom count Kish's effective samples, one less for each stratum. `effective` is Kish's
    number over all strata, 1 / sum W_h**2 / k_h: a stratum judged more often than its share of the
    traffic brings less than its samples.

    With `slope_history` cheap scores are used as in `rate_interval`: the slope within strata moves
    the mean by what the scored traces' cheap scores differ from those of all, and the share of
    variance that it explains is taken off, so much at most as n - 2 of n samples can show.
    """
    total = sum(s.size for s in strata)
    value = variance = kishes = inverse = slope = explained = 0.0
    freedom_used = len(strata)
    if slope_history is not None:
        n = sum(s.n for s in strata)
        slope, explained = _slope(strata, n, total, slope_history, _SLOPE_PRIOR)
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
    prior: float = VARIANCE_PRIOR,
    slope_history: float | None = None,
) -> Interval:
    """The t interval of `mean_spread`, cut to [low, high] where given."""
    value, error, freedom, effective = mean_spread(
        strata, variance_history, low, high, prior, slope_history
    )
    half = t975(freedom) * math.sqrt(error)
    lower, upper = value - half, value + half
    if low is not None:
        lower = min(value, max(low, lower))
    if high is not None:
        upper = max(value, min(high, upper))
    return Interval(value, lower, upper, effective)


def unit_rate_interval(n: int, y: int) -> Interval:
    """`estimators.rate_interval` of n > 0 scores of 0 or 1 whose sum is y units.

    From 50 samples on, its effective n is n times (z/t)**2: the smoothed variance cancels.
    """
    share = y / (n << VALUE_BITS)
    effective = float(n)
    if n >= WILSON_BELOW:
        ratio = Z_95 / t975(n - 2)
        effective *= ratio * ratio
    return Interval(share, *wilson_interval(share, effective), effective)


def unit_variance(n: int, y: int, yy: int) -> float:
    """The unbiased variance of n scores from the sums in units; 0 below two scores."""
    return (n * yy - y * y) / (n * (n - 1) << (2 * VALUE_BITS)) if n > 1 else 0.0


def unit_mean_interval(
    n: int, y: int, yy: int, variance_history: float, low: float | None, high: float | None
) -> Interval:
    """`estimators.mean_interval` of n > 0 scores with the sums y and yy in units."""
    value = y / (n << VALUE_BITS)
    shrunk = (n - 1) * unit_variance(n, y, yy) + VARIANCE_PRIOR * variance_history
    half = t975(n - 1) * math.sqrt(shrunk / (n - 1 + VARIANCE_PRIOR) / n)
    lower, upper = value - half, value + half
    if low is not None and lower < low:
        lower = min(value, low)
    if high is not None and upper > high:
        upper = max(value, high)
    return Interval(value, lower, upper, n)
