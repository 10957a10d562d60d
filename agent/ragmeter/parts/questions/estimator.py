"""The mean of all traffic from few values and any number of cheap scores; pure.

A question such as "are answers grounded?" has one number. Where the source of it valued a sample
only, there are several estimates of the same mean: the plain one by strata, those by classes of a
0/1 score (`ragmeter.windows.estimators`), and regressions on the cheap scores that all traffic, or
a larger sample, has. The narrowest is taken. About people, an estimate from few labels is drawn to
what the embedded model says alone.

All values and scores lie in 0..1; intervals are at 95 % confidence.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ragmeter.windows.estimators import Z_95, Interval, wilson_interval

Floats = NDArray[np.float64]

# Standard deviation, between services, of how far the embedded model's mean is from the share that
# people call good: docs/decisions/model-spread.md.
MODEL_SPREAD = 0.2

# Values below which a regression is not tried: it would have as many coefficients as values.
LEAST_VALUES = 8

# Share of the traffic from which the plain estimate is taken. What is left to estimate is little
# there, strata help as much, and with unequal weights the regression alone covers .86 to .90.
MOST_SAMPLED = 0.4

# Quantiles of a cheap score at which its line may bend: most bends are where few are bad, low down.
_BENDS = (0.15, 0.5)

# Distinct scores from which a bend can be told from a line.
_GRADED = 4

# Pseudo-values that hold each coefficient at 0. With fewer, ten values follow their own noise.
_RIDGE = 4.0

# Pseudo-values at the bound that is farther from the mean, as in `ragmeter.windows.estimators`.
_FAR_VALUES = 2.0

# Least variance of a 0/1 value in the weight of a drawn estimate: at a mean of 0 or 1 the spread
# of the model would else be worth no value at all.
_LEAST_VARIANCE = 0.05


def regression_estimate(
    values: Floats,
    weights: Floats,
    cheap: Floats,
    traffic: Floats,
    traffic_weights: Floats,
    *,
    plain: Interval,
    total: float,
    second: float | None = None,
    edges: Sequence[float] | None = None,
) -> Interval | None:
    """Estimate the mean of all traffic by a regression of the values on their cheap scores.

    It is the generalised regression estimator (Särndal, Swensson and Wretman, Model Assisted Survey
    Sampling, 1992, chapter 6): the mean of the values plus what the prediction says of the traffic
    beyond what it says of the sample. The prediction is a ridge regression on each score and on how
    far it lies below two cuts. Only so much of it is used as predictions that did not see the value
    itself support (power tuning: Angelopoulos, Duchi and Zrnic, PPI++, 2023), so that a useless
    score gives the plain estimate. Those predictions come from the closed form of leaving one out
    (Allen's PRESS, Technometrics 1974). The limits are Wilson's, at n / phi: phi is the variance of
    the residuals, linearised with the weights, as a part of that of 0/1 values. Where the cheap
    scores are of a larger sample and not of all traffic, the error of that sample is added (double
    sampling: Cochran, Sampling Techniques, chapter 12).

    Args:
        values: Of the sample, shape (n,).
        weights: 1 / inclusion probability of each value.
        cheap: Cheap scores of the sample, shape (n, k). NaN: has none; this is a feature, too.
        traffic: Cheap scores of all traffic or of the larger sample, shape (m, k), NaN likewise; of
            one score, the means of the bins of a histogram are as good (see `edges`).
        traffic_weights: Of each row of `traffic`: 1 / inclusion probability, or the traces of a
            bin.
        plain: The estimate without cheap scores.
        total: Number of traces that the mean is about; infinity for a process.
        second: Number of traces in the larger sample (with unequal weights Kish's effective
            number); None if `traffic` is all traffic.
        edges: Where cuts may lie; None for anywhere. For the means of bins these are the inner
            edges of the bins, since the mean of what lies below a cut is exact there alone.

    Returns:
        The interval; None with fewer than 8 values, or where it is not narrower than `plain`.
    """
    n = len(values)
    if n < LEAST_VALUES:
        return None
    features, background = _features(cheap, traffic, traffic_weights, edges)
    if not features.shape[1]:
        return None

    relative = weights / weights.mean()
    share = relative / relative.sum()
    mean = float(share @ values)
    of_sample = share @ features
    centred = features - of_sample
    inverse = np.linalg.inv(
        (relative[:, None] * centred).T @ centred + _RIDGE * np.eye(len(of_sample))
    )
    slopes = inverse @ ((relative * (values - mean)) @ centred)
    fitted = mean + centred @ slopes
    leverage = relative * np.einsum("ij,jk,ik->i", centred, inverse, centred) + share
    unseen = fitted - (values - fitted) * leverage / (1 - leverage)

    unseen -= share @ unseen
    explained = float(share @ (unseen * unseen))
    power = float(share @ ((values - mean) * unseen)) / explained if explained > 1e-12 else 0.0
    power = min(1.0, power)
    if power <= 0:
        return None

    # the features have mean 0 over the traffic
    point = min(1.0, max(0.0, mean - power * float(of_sample @ slopes)))
    residuals = values - power * unseen
    residuals -= share @ residuals
    left = 1 - 1 / np.maximum(weights, 1.0) if math.isfinite(total) else np.ones(n)
    kish = 1 / float(share @ share)
    squares = float((left * (share * residuals) ** 2).sum()) * n / (n - 1) * kish * kish
    far = _FAR_VALUES * max(mean, 1 - mean) ** 2
    ratio = min(1.0, (squares + far) / (kish * mean * (1 - mean) + far))
    lower, upper = wilson_interval(point, kish / ratio)
    if second is not None:
        error = _second_phase_error(power * (background @ slopes), traffic_weights)
        error *= Z_95 * math.sqrt(max(0.0, 1 - second / total))
        lower = max(0.0, point - math.hypot(point - lower, error))
        upper = min(1.0, point + math.hypot(upper - point, error))
    gain = (plain.upper - plain.lower) / (upper - lower)
    if gain <= 1:
        return None
    return Interval(point, lower, upper, plain.effective * gain * gain)


def narrowest(candidates: Sequence[Interval], sampled: float) -> Interval:
    """Choose among estimates of the same mean.

    Args:
        candidates: At least one; the first is the plain estimate.
        sampled: Share (0..1) of the traffic that has a value.

    Returns:
        The narrowest, the first of equals; from `MOST_SAMPLED` on the plain one.
    """
    if sampled >= MOST_SAMPLED:
        return candidates[0]
    return min(candidates, key=lambda one: one.upper - one.lower)


def draw_to_model(
    estimate: Interval | None, *, mean: float, error: float, spread: float, offset: float = 0.0
) -> Interval:
    """Draw an estimate from few labels to what the embedded model says alone.

    The model's mean is off by an amount that differs from service to service as one draw of a
    normal distribution; both are weighted by their inverse variances (the normal model of Fay and
    Herriot for small areas, JASA 1979). So the interval covers over services like those on which
    the spread was measured, and not for each service alone.

    Args:
        estimate: About people, from labels; None without any.
        mean: Mean of the model's values over all traffic.
        error: Standard error of that mean, where only a sample was scored.
        spread: Standard deviation, between services, of how far the mean is off.
        offset: What has to be added to the mean on average.

    Returns:
        The interval, Wilson's at the number of labels that the information is worth.
    """
    value = min(1.0, max(0.0, mean + offset))
    information = 1 / (spread * spread + error * error)
    if estimate is not None:
        own = max(1e-9, ((estimate.upper - estimate.lower) / (2 * Z_95)) ** 2)
        value = (estimate.value / own + value * information) / (1 / own + information)
        information += 1 / own
    worth = max(value * (1 - value), _LEAST_VARIANCE) * information
    return Interval(value, *wilson_interval(value, worth), worth)


def _features(
    cheap: Floats, traffic: Floats, traffic_weights: Floats, edges: Sequence[float] | None
) -> tuple[Floats, Floats]:
    """Return the features of the sample and of the traffic, of mean 0 and variance 1 in the latter.

    They are each score and how far it is below its cuts, 0 where there is no score, and whether
    there is one. Features that do not vary are left out.
    """
    share = traffic_weights / traffic_weights.sum()
    of_sample: list[Floats] = []
    of_traffic: list[Floats] = []
    for ours, all_scores in zip(cheap.T, traffic.T, strict=True):
        known = ~np.isnan(all_scores)
        if not known.any():
            continue
        cuts = [math.inf, *_cuts(all_scores[known], share[known], edges)]
        for cut in cuts:
            # below infinity is everywhere: the score itself
            below = [np.minimum(ours, cut), np.minimum(all_scores, cut)]
            middle = np.average(below[1][known], weights=share[known])
            of_sample.append(np.nan_to_num(below[0] - middle))
            of_traffic.append(np.nan_to_num(below[1] - middle))
        of_sample.append(np.isnan(ours).astype(float))
        of_traffic.append(np.isnan(all_scores).astype(float))
    if not of_sample:
        return np.empty((len(cheap), 0)), np.empty((len(traffic), 0))
    features, background = np.stack(of_sample, 1), np.stack(of_traffic, 1)
    means = share @ background
    deviations = np.sqrt(share @ (background - means) ** 2)
    vary = deviations > 1e-9
    means, deviations = means[vary], deviations[vary]
    return (features[:, vary] - means) / deviations, (background[:, vary] - means) / deviations


def _cuts(scores: Floats, share: Floats, edges: Sequence[float] | None) -> list[float]:
    """Return where the line of a score may bend; nowhere if it has few distinct values."""
    places = np.unique(scores)
    if len(places) < _GRADED:
        return []
    if edges is not None:
        places = np.array(edges)
    order = np.argsort(scores)
    up_to = np.concatenate([[0.0], np.cumsum(share[order])]) / share.sum()
    below = up_to[np.searchsorted(scores[order], places, side="right")]
    return sorted({float(places[np.abs(below - part).argmin()]) for part in _BENDS})


def _second_phase_error(predictions: Floats, weights: Floats) -> float:
    """Return the standard error of the mean of predictions over a larger sample."""
    share = weights / weights.sum()
    return float(np.sqrt(((share * (predictions - share @ predictions)) ** 2).sum()))
