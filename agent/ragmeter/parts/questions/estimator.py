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

from ragmeter.windows.estimators import Z_95, Interval, t975, wilson_interval, wilson_samples

Floats = NDArray[np.float64]

# Standard deviation, between services, of how far the embedded model's mean is from the share that
# people call good: docs/decisions/model-spread.md.
MODEL_SPREAD = 0.2

# Values below which a regression is not tried, without a score to start from and with one: it would
# have as many coefficients as values.
LEAST_VALUES = 8
LEAST_GUESSED = 4

# Share of the traffic from which the plain estimate is taken. What is left to estimate is little
# there, strata help as much, and with unequal weights the regression alone covers .86 to .90.
MOST_SAMPLED = 0.4

# Quantiles of a cheap score at which its line may bend: most bends are where few are bad, low down.
_BENDS = (0.15, 0.5)

# Distinct scores from which a bend can be told from a line.
_GRADED = 4

# Pseudo-values that hold each coefficient at 0. With fewer, ten values follow their own noise.
_RIDGE = 4.0

# The same where the prediction starts from a score on the scale of the values, and pseudo-values
# that hold the power at 1. With 4 and none, ten labels of real answers are off by 9 % more.
_TRUST = 60.0

# Pseudo-values at the bound that is farther from the mean, as in `ragmeter.windows.estimators`.
_FAR_VALUES = 2.0

# Width of a regression's interval, as a part of the plain one, that it may have at most. Where it
# is worth more values it can be wider by chance alone: all of ten values are 1, and it says .9.
_MOST_WIDTH = 0.999

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
    guess: int | None = None,
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

    It is used where it is worth more values than the plain estimate, and not where its interval is
    narrower: of few values that depends more on where they happen to lie, and choosing by it would
    cost coverage. Its limits allow for how well so many values tell phi (Student's t), at the cost
    of half its gain at most.

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
        guess: Column of a score that is on the scale of the values, such as the embedded model's:
            the prediction starts from it, and few values suffice to correct it.

    Returns:
        The interval, narrower than `plain`; None with fewer than 8 values (4 with a guess), or
        where it is worth no more than `plain`.
    """
    n = len(values)
    if n < (LEAST_VALUES if guess is None else LEAST_GUESSED):
        return None
    features, background = _features(cheap, traffic, traffic_weights, edges)
    if not features.shape[1]:
        return None
    share = weights / weights.sum()
    share_of_traffic = traffic_weights / traffic_weights.sum()
    first, first_of_traffic = np.zeros(n), np.zeros(len(traffic))
    if guess is not None:
        first, first_of_traffic = _without_gaps(
            cheap[:, guess], traffic[:, guess], share_of_traffic
        )

    mean = float(share @ values)
    ridge = _RIDGE if guess is None else _TRUST
    slopes, predicted = _fit(values - first, features, weights / weights.mean(), ridge)
    predicted += first
    predicted -= share @ predicted
    explained = float(share @ (predicted * predicted))
    power = float(share @ ((values - mean) * predicted)) / explained if explained > 1e-12 else 0.0
    if guess is not None:
        power = (n * power + _TRUST) / (n + _TRUST)
    power = min(1.0, power)
    if power <= 0:
        return None

    of_sample = power * float(share @ (first + features @ slopes))
    of_traffic = power * (first_of_traffic + background @ slopes)
    middle = float(share_of_traffic @ of_traffic)
    point = min(1.0, max(0.0, mean + middle - of_sample))
    residuals = values - mean - power * predicted
    left = 1 - 1 / np.maximum(weights, 1.0) if math.isfinite(total) else np.ones(n)
    kish = 1 / float(share @ share)
    squares = float((left * (share * residuals) ** 2).sum()) * n / (n - 1) * kish * kish
    far = _FAR_VALUES * max(point, 1 - point) ** 2
    ratio = min(1.0, (squares + far) / (kish * point * (1 - point) + far))
    error = 0.0
    if second is not None:
        scatter = share_of_traffic * (of_traffic - middle)
        error = math.sqrt(float(scatter @ scatter) * max(0.0, 1 - second / total))
    return _improve(plain, point, _worth(point, kish / ratio, error), degrees=kish - 1)


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


def _fit(values: Floats, features: Floats, weights: Floats, ridge: float) -> tuple[Floats, Floats]:
    """Fit a ridge regression; return its slopes, and each prediction without the value itself.

    Args:
        values: To predict.
        features: Of each value; their coefficients are drawn to 0, the intercept is not.
        weights: Of each value, 1 on average.
        ridge: Values that hold each coefficient.
    """
    share = weights / weights.sum()
    mean = share @ values
    centred = features - share @ features
    gram = (weights[:, None] * centred).T @ centred
    inverse = np.linalg.inv(gram + ridge * np.eye(len(gram)))
    slopes = inverse @ ((weights * (values - mean)) @ centred)
    fitted = mean + centred @ slopes
    leverage = weights * np.einsum("ij,jk,ik->i", centred, inverse, centred) + share
    return slopes, fitted - (values - fitted) * leverage / (1 - leverage)


def _without_gaps(ours: Floats, all_scores: Floats, share: Floats) -> tuple[Floats, Floats]:
    """Return a score of the sample and of the traffic, with its mean where there is none."""
    known = ~np.isnan(all_scores)
    middle = np.average(all_scores[known], weights=share[known]) if known.any() else 0.0
    return np.where(np.isnan(ours), middle, ours), np.where(known, all_scores, middle)


def _worth(point: float, samples: float, error: float) -> float:
    """Return how many 0/1 values have Wilson's width of so many with an independent error."""
    lower, upper = wilson_interval(point, samples)
    if not error:
        return samples
    error *= Z_95
    lower = max(0.0, point - math.hypot(point - lower, error))
    upper = min(1.0, point + math.hypot(upper - point, error))
    return wilson_samples(point, upper - lower)


def _improve(plain: Interval, point: float, worth: float, *, degrees: float) -> Interval | None:
    """Return the interval of an estimate that is worth so many 0/1 values, None if plain is better.

    Args:
        plain: The interval that it must be better than.
        point: The estimate.
        worth: As the variance of `degrees` degrees of freedom tells.
        degrees: Degrees of freedom.
    """
    plain_width = plain.upper - plain.lower
    least = wilson_samples(plain.value, plain_width)
    if worth <= least:
        return None
    worth = max(worth * (Z_95 / t975(degrees)) ** 2, (worth + least) / 2)
    lower, upper = wilson_interval(point, worth)
    scale = min(1.0, _MOST_WIDTH * plain_width / (upper - lower))
    return Interval(
        point,
        point - scale * (point - lower),
        point + scale * (upper - point),
        plain.effective * worth / least,
    )
