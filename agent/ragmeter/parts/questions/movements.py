"""How far the last hour of a service is from the usual, from what every request tells; pure."""

from __future__ import annotations

import math

import numpy as np

from ragmeter.parts.questions.catalogue import QuestionSpec
from ragmeter.parts.questions.levels import LEAST_WORTH, change_effect, dependence_of, worth_of
from ragmeter.parts.questions.traffic import (
    COARSE,
    DAY,
    HOUR,
    SLOW,
    BucketRange,
    RequestBuckets,
    RequestSums,
)
from ragmeter.parts.views import Level, Movement
from ragmeter.windows.estimators import Z_95
from ragmeter.windows.log_histogram import LogHistogram
from ragmeter.windows.windows import Windows

USUAL_SECONDS = 7 * DAY  # the usual holds every hour of the day and every day of the week

# What the usual must hold before anything is compared with it.
LEAST_USUAL_SECONDS = 3 * HOUR
LEAST_USUAL = 50.0  # independent requests
LEAST_NOW = 20.0  # the same of the last hour
# Slots of different questions that tell a change where few requests are independent: those of some
# twenty questions. With 24 questions that change each in its own way the interval holds the truth
# in 94 % of the cases, with twelve in 92 %.
LEAST_SLOTS = 15

# Standard errors from 0 for a question to count as moved: the page looks every minute, and by 1.96
# one calm question in twenty would be moved at any time.
SURE = 3.3


def usual_buckets(
    now: float, seconds: int, frozen: float | None, first: float
) -> BucketRange | None:
    """Return the buckets before the last `seconds`, None if they reach back too little.

    Args:
        now: Event time.
        seconds: The length of what is compared with it.
        frozen: When the first open incident of the service began: what came later is not usual.
        first: When the service was first seen.
    """
    end = now - seconds if frozen is None else min(now - seconds, frozen)
    end = end // COARSE * COARSE
    start = max(end - USUAL_SECONDS, first // COARSE * COARSE)
    if end - max(start, first) < LEAST_USUAL_SECONDS:
        return None
    return BucketRange(start, end, COARSE)


def share_movement(
    question: QuestionSpec, recent: RequestSums, usual: RequestSums
) -> tuple[Movement, bool] | None:
    """Return the movement of a share or a cost, and whether it counts as moved for the worse.

    Returns:
        None where either stretch has too few requests.
    """
    now = recent.of(question.name)
    before = usual.of(question.name)
    if now is None or before is None:
        return None
    worth = worth_of(recent, question.name, tenants=True)
    worth_before = worth_of(usual, question.name, tenants=False)
    if worth < LEAST_NOW or worth_before < LEAST_USUAL:
        effect = _effect_among_the_same(usual, recent, question.name)
        if effect is None or before.kish < LEAST_USUAL:
            return None
        worth, worth_before = now.kish / effect, before.kish / effect
    # a stretch without a failure has no variance of its own, and is not known better for that
    pooled = (now.variance * now.kish + before.variance * before.kish) / (now.kish + before.kish)
    error = math.sqrt(
        max(now.variance, pooled) / worth + max(before.variance, pooled) / worth_before
    )
    scale = 100.0 if question.unit == "share" else 1.0
    return _judge(
        question,
        change=scale * (now.mean - before.mean),
        error=scale * error,
        least=question.least if question.unit == "share" else question.least * before.mean,
    )


def _effect_among_the_same(usual: RequestSums, recent: RequestSums, question: str) -> float | None:
    """Return the design effect of a change where the same few questions are asked all the time.

    What each of them is like at all times says nothing of a change, so that they tell it although
    they tell little of the level.

    Returns:
        None where tenants are known, whose part in the traffic may change, or too few questions.
    """
    counted = "works" if question == "fast" else question
    slots = recent.by_slot(counted)
    if slots is None or not np.array_equal(slots[0, 0], slots[0, 1]):
        return None
    if np.count_nonzero(slots[0, 0]) < LEAST_SLOTS:
        return None
    return change_effect(usual, recent, question)


def _judge(
    question: QuestionSpec, *, change: float, error: float, least: float
) -> tuple[Movement, bool]:
    movement = Movement(change, change - Z_95 * error, change + Z_95 * error)
    worse = -change if question.better == "higher" else change
    return movement, worse >= least and worse > SURE * error


class TotalTimes:
    """The total time of the requests of a service, or a segment of it, at a moment.

    Args:
        windows: The windows of all services.
        traffic: The requests of the service or segment.
        service: The service.
        segment: The segment.
    """

    def __init__(
        self, windows: Windows, traffic: RequestBuckets, service: str, segment: str = ""
    ) -> None:
        self._windows = windows
        self._traffic = traffic
        self._service = service
        self._segment = segment
        self._found: dict[BucketRange, LogHistogram | None] = {}
        self._levels: dict[tuple[BucketRange, float], Level | None] = {}

    def histogram(self, buckets: BucketRange) -> LogHistogram | None:
        """Return the histogram of some buckets, which is read once; None without a request."""
        if buckets not in self._found:
            self._found[buckets] = self._histogram(buckets)
        return self._found[buckets]

    def _histogram(self, buckets: BucketRange) -> LogHistogram | None:
        width = buckets.width
        done, left = self._traffic.split(buckets)
        # the windows forget buckets at other times than the traffic
        known = max(self._windows.known_from(width), float(done.start * width))
        key = ("times", width, done.start, done.stop, known)
        kept = self._traffic.finished
        if key not in kept:
            kept[key] = self._add(LogHistogram(), width, done)
        total: LogHistogram = kept[key]
        if left:
            total = LogHistogram()
            total.merge(kept[key])
            self._add(total, width, left)
        return total if total.n else None

    def level(self, buckets: BucketRange, *, dependence: float) -> Level | None:
        """Return the `latency_level` of some buckets, which is found once."""
        key = (buckets, dependence)
        if key not in self._levels:
            histogram = self.histogram(buckets)
            self._levels[key] = latency_level(histogram, dependence=dependence)
        return self._levels[key]

    def _add(self, total: LogHistogram, width: int, numbers: range) -> LogHistogram:
        for number in numbers:
            self._windows.add_bucket_latency(
                total,
                (self._service, self._segment),
                stage="total",
                width=width,
                start=float(number * width),
            )
        return total


def latency_level(
    histogram: LogHistogram | None, window: str = "", *, dependence: float
) -> Level | None:
    """Return the 95th percentile with its 95 % limits, None without enough requests.

    Args:
        histogram: The times.
        window: The name of the stretch of time.
        dependence: How many requests are worth one independent one.
    """
    if histogram is None or histogram.effective < LEAST_WORTH * dependence:
        return None
    for _, value, lower, upper in histogram.limits((1 - SLOW,), dependence):
        return Level(
            value=value,
            lower=lower,
            upper=upper,
            window=window,
            samples=histogram.n,
            worth=histogram.effective / dependence,
            source="requests",
        )
    return None


def latency_movement(
    question: QuestionSpec,
    *,
    times: TotalTimes,
    recent: tuple[RequestSums, BucketRange],
    usual: tuple[RequestSums, BucketRange],
) -> tuple[Movement, bool] | None:
    """Return the movement of the p95 in seconds, and whether it counts as moved for the worse.

    Args:
        question: That of the p95.
        times: The times of the service.
        recent: What the requests of the last hour tell, and its buckets.
        usual: The same of the usual.

    Returns:
        None where either stretch has too few requests.
    """
    sums, hour = recent
    sums_before, before = usual
    dependence = dependence_of(sums, question.name, tenants=True)
    dependence_before = dependence_of(sums_before, question.name, tenants=False)
    found = _latency_change(
        question,
        times.level(hour, dependence=dependence),
        times.level(before, dependence=dependence_before),
    )
    if found is not None:
        return found
    effect = _effect_among_the_same(sums_before, sums, question.name)
    if effect is None:
        return None
    return _latency_change(
        question,
        times.level(hour, dependence=effect),
        times.level(before, dependence=effect),
    )


def _latency_change(
    question: QuestionSpec, now: Level | None, before: Level | None
) -> tuple[Movement, bool] | None:
    if now is None or before is None or now.upper is None or before.upper is None:
        return None
    error = math.hypot(now.upper - now.lower, before.upper - before.lower) / (2 * Z_95)
    return _judge(
        question,
        change=now.value - before.value,
        error=error,
        least=question.least * before.value,
    )
