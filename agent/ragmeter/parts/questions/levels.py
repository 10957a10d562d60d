"""The level of a question over a stretch of time, with its 95 % interval; pure.

Of what every request tells, the interval is about the process behind the traffic, and allows for
sessions and tenants. Of what a sample was valued for, it is about all traffic of the stretch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np

from ragmeter.core.arithmetic import WEIGHT_ONE
from ragmeter.parts.questions.catalogue import QuestionSpec
from ragmeter.parts.questions.clusters import (
    LEAST_TENANTS,
    design_effect_of_change,
    effective_samples,
)
from ragmeter.parts.questions.estimator import (
    LEAST_GUESSED,
    MODEL_SPREAD,
    draw_to_model,
    narrowest,
    regression_estimate,
)
from ragmeter.parts.questions.samples import (
    BY_CLASS,
    SampleRange,
    SourceValues,
    Valuation,
    ValuedTrace,
)
from ragmeter.parts.questions.traffic import (
    EDGES,
    INDEXED,
    SLOW,
    TRACKED,
    Numbers,
    QuestionMoments,
    RequestSums,
)
from ragmeter.parts.views import Level, Source
from ragmeter.windows.estimators import (
    Z_95,
    Interval,
    t975,
    widen_for_missing,
    wilson_interval,
)
from ragmeter.windows.intervals import estimate_interval
from ragmeter.windows.sums import COUNTS, NO_SUMS, ScoreSums, StratumSums

# Effective samples below which nothing is printed: the interval of fewer is nearly the whole scale.
LEAST_WORTH = 5.0

# Labels from which on the embedded model's mean no longer helps: their interval is narrower than
# what that mean is usually off by.
MANY_LABELS = 100

# Part of the valued traces that have a cheap score where one may help. Fewer, and the mean of the
# cheap score is of other traffic than the values.
LEAST_WITH_CHEAP = 0.95

# Part of the values of a stretch that one version of a judge or model has given. Around a change
# verdicts of the old one still come in, and some servers answer with another now and then.
LEAST_OF_ONE_VERSION = 0.9

# The questions whose worth is found at once: the p95 takes more, and is asked for less.
_OF_ONE_SUM = tuple(name for name in TRACKED if name != "fast")


class TimeStretch:
    """What is known of a stretch of time.

    Args:
        window: Its name.
        samples: The valued traces.
        read: Returns what every request tells; called where that is asked for.
    """

    def __init__(self, window: str, samples: SampleRange, read: Callable[[], RequestSums]) -> None:
        self.window = window
        self.samples = samples
        self._read = read

    @cached_property
    def sums(self) -> RequestSums:
        """What every request tells."""
        return self._read()


def request_level(
    question: QuestionSpec, stretch: TimeStretch, *, tenants: bool, dependence: float = 1.0
) -> Level | None:
    """Return the level of what every request tells, None without enough of them.

    Args:
        question: One whose source is `requests` or `builtin`.
        stretch: The stretch of time.
        tenants: Whether tenants are a sample, as in an hour, or all that there are, as in a day.
        dependence: How many requests are worth one, beside what the stretch itself tells: of a
            segment, whose clusters are not known, that of its service.
    """
    moments = stretch.sums.of(question.name)
    if moments is None:
        return None
    worth = worth_of(stretch.sums, question.name, tenants=tenants) / dependence
    if worth < LEAST_WORTH:
        return None
    source: Source = question.sources[-1]
    if question.unit == "share":
        lower, upper = wilson_interval(moments.mean, worth)
    else:
        # on the logarithm: of costs, few that are dear make the mean, and it errs upwards
        error = math.sqrt(moments.variance / worth) / moments.mean if moments.mean else 0.0
        factor = math.exp(min(t975(worth - 1) * error, 700.0))
        lower = moments.mean / factor
        upper = moments.mean * factor
    return Level(
        value=moments.mean,
        lower=lower,
        upper=upper,
        window=stretch.window,
        samples=moments.n,
        worth=worth,
        source=source,
    )


def worth_of(sums: RequestSums, question: str, *, tenants: bool) -> float:
    """Return how many independent requests as many are worth, for what the question asks of them.

    Of `fast` it is those of which the p95 is known as well: by the share that takes longer
    (Woodruff, JASA 1952).
    """
    if sums.of(question) is None:
        return 0.0
    if (question, tenants) not in sums.known:
        find_worths((sums,), ("fast",) if question == "fast" else _OF_ONE_SUM)
    return sums.known[question, tenants]


class _DependentMean(NamedTuple):
    """A mean over requests that may depend on each other.

    Args:
        name: The question.
        moments: The mean, with the variance of a value.
        slots: Weights and weighted values by key and slot, shape (2, 2, `SLOTS`).
        known: Takes what it is worth.
    """

    name: str
    moments: QuestionMoments
    slots: Numbers
    known: dict[Hashable, float]


def find_worths(many: Sequence[RequestSums], questions: Sequence[str] = TRACKED) -> None:
    """Find `worth_of` questions in several sums at once, which takes hardly longer than in one."""
    means: list[_DependentMean] = []
    for sums in many:
        for name in questions:
            moments = sums.of(name)
            if moments is None or (name, True) in sums.known:
                continue
            mean = _dependent_mean(sums, name, moments)
            if mean is None:
                sums.known[name, False] = sums.known[name, True] = moments.kish
            else:
                means.append(mean)
    if not means:
        return
    counts, values = np.array([mean.slots for mean in means]).transpose(1, 2, 0, 3)
    worths = effective_samples(
        counts,
        values,
        samples=np.array([mean.moments.kish for mean in means]),
        means=np.array([mean.moments.mean for mean in means]),
        variances=np.array([mean.moments.variance for mean in means]),
        bounded=np.array([mean.name != "cost" for mean in means]),
    )
    for tenants, column in zip((False, True), worths, strict=True):
        for mean, worth in zip(means, column.tolist(), strict=True):
            mean.known[mean.name, tenants] = worth


def _dependent_mean(
    sums: RequestSums, question: str, moments: QuestionMoments
) -> _DependentMean | None:
    """Return a mean with its slots, of the p95 the share that takes longer; None without slots."""
    if question != "fast":
        slots = sums.by_slot(question)
    else:
        slowness = sums.slowness()
        if slowness is None:
            return None
        slots = sums.slow_slots(slowness)
        moments = moments._replace(mean=SLOW, variance=sums.slow_variance(slowness))
    return None if slots is None else _DependentMean(question, moments, slots, sums.known)


def dependence_of(sums: RequestSums, question: str, *, tenants: bool) -> float:
    """Return how many requests are worth one independent one, at least 1."""
    moments = sums.of(question)
    worth = worth_of(sums, question, tenants=tenants)
    return max(1.0, moments.kish / worth) if moments and worth else 1.0


def change_effect(before: RequestSums, after: RequestSums, question: str) -> float | None:
    """Return the design effect of the change of a mean between stretches of time.

    Returns:
        None where too few clusters are known: all that one tenant asks may fail at once. With
        requests in one of the stretches only, that of its mean.
    """
    both = RequestSums()
    both.add(before)
    both.add(after)
    moments = both.of(question)
    slowness = both.slowness() if question == "fast" else None
    clusters = _clusters(both, question, slowness)
    if moments is None or clusters is None or np.count_nonzero(clusters[0]) < LEAST_TENANTS:
        return None
    parts = [
        (part_moments, part_clusters)
        for part in (before, after)
        if (part_moments := part.of(question)) is not None
        and (part_clusters := _clusters(part, question, slowness)) is not None
        and part_clusters[0].any()  # hours of more than a day ago have forgotten theirs
    ]
    if len(parts) < 2:
        return moments.kish / worth_of(both, question, tenants=False)
    (first, first_slots), (second, second_slots) = parts
    return design_effect_of_change(
        first_slots,
        second_slots,
        samples=1 / (1 / first.kish + 1 / second.kish),
        mean=moments.mean if slowness is None else SLOW,
        variance=moments.variance if slowness is None else both.slow_variance(slowness),
        bounded=question != "cost",
    )


def _clusters(
    sums: RequestSums, question: str, slowness: Numbers | None
) -> tuple[Numbers, Numbers] | None:
    slots = sums.by_slot(question) if slowness is None else sums.slow_slots(slowness)
    return None if slots is None else (slots[0, 0], slots[1, 0])


def sampled_level(question: QuestionSpec, source: Source, stretch: TimeStretch) -> Level | None:
    """Return the level by labels, a judge or the embedded model; None without enough of them.

    The interval of `model` is about what people would say: it includes how far the mean of the
    model is usually off.
    """
    has = stretch.samples.has
    if not (has(question.name, source) or (source == "labels" and has(question.name, "model"))):
        return None  # most services have no labels and no judge
    valued = _valued(question, source, stretch)
    own = _estimate(question, source, valued, stretch)
    if source == "model":
        if own is None or own.effective < LEAST_WORTH:
            return None
        drawn = draw_to_model(None, mean=own.value, error=_error(own), spread=MODEL_SPREAD)
        return _make_level(drawn._replace(effective=own.effective), valued, stretch, source)
    if source == "labels" and valued.count < MANY_LABELS:
        model = sampled_level_of_model(question, stretch)
        if model is not None:
            own = draw_to_model(own, mean=model.value, error=_error(model), spread=MODEL_SPREAD)
    if own is None or own.effective < LEAST_WORTH:
        return None
    return _make_level(own, valued, stretch, source)


def sampled_level_of_model(question: QuestionSpec, stretch: TimeStretch) -> Interval | None:
    """Return the embedded model's own mean, with the interval of sampling alone."""
    if "model" not in question.sources:
        return None
    own = _estimate(question, "model", _valued(question, "model", stretch), stretch)
    return own if own is not None and own.effective >= LEAST_WORTH else None


def _valued(question: QuestionSpec, source: Source, stretch: TimeStretch) -> SourceValues:
    """Return the traces that a source valued, by one version of it.

    Values of several versions of a judge or model are never averaged: where no version has nearly
    all, there is none.
    """
    valued = stretch.samples.valued(question.name, source)
    versions = valued.by_version()
    if len(versions) < 2:
        return valued
    version = max(versions, key=versions.__getitem__)
    if versions[version] < LEAST_OF_ONE_VERSION * sum(versions.values()):
        return SourceValues([])
    return valued.of_version(version)


def _error(interval: Interval) -> float:
    return (interval.upper - interval.lower) / (2 * Z_95)


def _make_level(
    interval: Interval,
    valued: SourceValues,
    stretch: TimeStretch,
    source: Source,
) -> Level:
    return Level(
        value=interval.value,
        lower=interval.lower,
        upper=interval.upper,
        window=stretch.window,
        samples=valued.count,
        worth=interval.effective,
        source=source,
    )


def _estimate(
    question: QuestionSpec,
    source: Source,
    valued: SourceValues,
    stretch: TimeStretch,
) -> Interval | None:
    """Return the narrowest estimate of the mean over all traffic, None without a value."""
    if not valued.count:
        return None
    by_class = question.name == BY_CLASS
    sums = _stratum_sums(source, valued, stretch.sums, by_class=by_class)
    plain = estimate_interval(sums, 0.0, 1.0)
    candidates = [plain]
    if by_class:
        candidates.append(estimate_interval(sums, 0.0, 1.0, assisted=True))
    candidates += _regressions(
        question=question,
        source=source,
        valued=valued,
        stretch=stretch,
        plain=plain,
    )
    total = sum(part.size for part in sums.sums().values()) / WEIGHT_ONE
    best = narrowest(candidates, min(1.0, valued.count / total) if total else 1.0)
    missing = sums.unscored_share() or 0.0
    return widen_for_missing(best, missing, 0.0, 1.0) if missing else best


def _stratum_sums(
    source: Source,
    valued: SourceValues,
    traffic: RequestSums,
    *,
    by_class: bool,
) -> ScoreSums:
    """Sum the values by stratum of their draw, with the sizes of the strata in all traffic."""
    strata = valued.strata()
    prefix = f"{source}:"
    for key, weight in traffic.strata.items():
        if not key.startswith(prefix):
            continue
        name = key.removeprefix(prefix)
        if not by_class:
            name = name.rpartition("|")[0] or name.rstrip("-")
        size = StratumSums(size=round(weight * WEIGHT_ONE))
        strata[name] = strata.get(name, NO_SUMS).plus(size)
    return ScoreSums([0] * len(COUNTS), strata)


def _regressions(
    question: QuestionSpec,
    source: Source,
    valued: SourceValues,
    stretch: TimeStretch,
    plain: Interval,
) -> list[Interval]:
    """Return the regression on the built-in score, and that on it and the model's at once."""
    if question.name not in INDEXED:
        return []
    if valued.helped < max(LEAST_GUESSED, LEAST_WITH_CHEAP * valued.count):
        return []
    helped = [(sample, one) for sample, one in valued.rows() if one.cheap is not None]
    weights, means = stretch.sums.histogram(question.name)
    total = float(weights.sum())
    found = []
    if total:
        found.append(
            regression_estimate(
                values=np.array([one.value for _, one in helped], dtype=float),
                weights=np.array([1 / one.probability for _, one in helped]),
                cheap=np.array([[one.cheap] for _, one in helped], dtype=float),
                traffic=means[:, None],
                traffic_weights=weights,
                plain=plain,
                total=total,
                edges=EDGES,
            )
        )
    both = _rows_with_model(question, source, helped)
    larger = _model_rows(question, stretch)
    enough = len(both) >= max(LEAST_GUESSED, LEAST_WITH_CHEAP * valued.count)
    if source != "model" and total and enough and len(larger) > len(both):
        chances = np.array([1 / chance for *_, chance in larger])
        number = float(chances.sum() ** 2 / (chances**2).sum())
        found.append(
            regression_estimate(
                values=np.array([value for value, *_ in both]),
                weights=np.array([1 / chance for *_, chance in both]),
                cheap=np.array([[cheap, model] for _, cheap, model, _ in both]),
                traffic=np.array([[cheap, model] for cheap, model, _ in larger]),
                traffic_weights=chances,
                plain=plain,
                total=total,
                second=number if number < 0.99 * total else None,
                # the model estimates what people say; of passages it gives a mean grade
                guess=1 if "model" in question.sources else None,
            )
        )
    return [one for one in found if one is not None]


def _rows_with_model(
    question: QuestionSpec, source: Source, helped: Sequence[tuple[ValuedTrace, Valuation]]
) -> list[tuple[float, float, float, float]]:
    """Return (value, built-in score, model's score, probability) of the traces that have all."""
    rows = []
    for sample, one in helped:
        model = sample.values[question.name].get("model")
        if model is None or model.value is None or one.value is None or one.cheap is None:
            continue
        rows.append((one.value, one.cheap, model.value, one.probability))
    return rows


def _model_rows(question: QuestionSpec, stretch: TimeStretch) -> list[tuple[float, float, float]]:
    """Return (built-in score, model's score, probability) of all traces that the model scored."""
    return [
        (model.cheap, model.value, model.probability)
        for _, model in stretch.samples.valued(question.name, "model").rows()
        if model.value is not None and model.cheap is not None
    ]
