"""How far the last hour of a service is from the usual, from what every request tells; pure."""

from __future__ import annotations

import math
from typing import NamedTuple

from ragmeter.parts.questions.catalogue import QuestionSpec
from ragmeter.parts.questions.levels import worth_of
from ragmeter.parts.questions.traffic import COARSE, FINE, RequestBuckets, RequestSums
from ragmeter.parts.views import Movement
from ragmeter.windows.estimators import Z_95
from ragmeter.windows.log_histogram import LogHistogram
from ragmeter.windows.windows import Windows

HOUR = 3600
USUAL_SECONDS = 7 * 86_400  # the usual holds every hour of the day and every day of the week

# What the usual must hold before anything is compared with it.
LEAST_USUAL_SECONDS = 3 * 3600
LEAST_USUAL = 50.0  # independent requests
LEAST_NOW = 20.0  # the same of the last hour

# Standard errors from 0 for a question to count as moved: the page looks every minute, and by 1.96
# one calm question in twenty would be moved at any time.
SURE = 3.3


class UsualStretch(NamedTuple):
    """The stretch of time that is the usual, [start, end)."""

    start: float
    end: float


def usual_stretch(
    now: float, seconds: int, frozen: float | None, first: float
) -> UsualStretch | None:
    """Return the stretch before the last `seconds`, None if there is too little of it.

    Args:
        now: Event time.
        seconds: The length of what is compared with it.
        frozen: When the first open incident of the service began: what came later is not usual.
        first: When the service was first seen.
    """
    end = now - seconds if frozen is None else min(now - seconds, frozen)
    end = end // COARSE * COARSE
    start = max(end - USUAL_SECONDS, first // COARSE * COARSE)
    return UsualStretch(start, end) if end - max(start, first) >= LEAST_USUAL_SECONDS else None


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
        return None
    # two pseudo-requests at the farther end, so that a stretch without a failure has an error
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


def _judge(
    question: QuestionSpec, *, change: float, error: float, least: float
) -> tuple[Movement, bool]:
    movement = Movement(change, change - Z_95 * error, change + Z_95 * error)
    worse = -change if question.better == "higher" else change
    return movement, worse >= least and worse > SURE * error


class TotalTimes:
    """The total time of the requests of a service, from the windows.

    Args:
        windows: The windows of all services.
        service: The service.
    """

    def __init__(self, windows: Windows, service: str) -> None:
        self._windows = windows
        self._service = service

    def between(self, start: float, end: float, width: int) -> LogHistogram | None:
        """Return the histogram of the buckets of a width that begin in [start, end)."""
        total = LogHistogram()
        for index in range(math.ceil(start / width), math.ceil(end / width)):
            part = self._windows.bucket_latency(
                self._service, "", "total", width, float(index * width)
            )
            if part is not None:
                total.merge(part)
        return total if total.n else None

    def last(self, seconds: int, now: float) -> LogHistogram | None:
        """Return the histogram of the last `seconds` up to event time `now`."""
        width = FINE if seconds <= 6 * HOUR else COARSE
        end = (now // width + 1) * width
        return self.between(end - seconds, end, width)


def p95(histogram: LogHistogram | None) -> tuple[float, float, float | None] | None:
    """Return the 95th percentile with its 95 % limits, None without enough requests."""
    if histogram is None:
        return None
    for _, value, lower, upper in histogram.limits((0.95,)):
        return value, value if lower is None else lower, upper
    return None


def latency_movement(
    question: QuestionSpec, recent: LogHistogram | None, usual: LogHistogram | None
) -> tuple[Movement, bool] | None:
    """Return the movement of the p95 in seconds, and whether it counts as moved for the worse."""
    now, before = p95(recent), p95(usual)
    if now is None or before is None or now[2] is None or before[2] is None:
        return None
    error = math.hypot(now[2] - now[1], before[2] - before[1]) / (2 * Z_95)
    return _judge(
        question,
        change=now[0] - before[0],
        error=error,
        least=question.least * before[0],
    )


def usual_sums(traffic: RequestBuckets, usual: UsualStretch) -> RequestSums:
    """Return the sums of the usual."""
    return traffic.between(usual.start, usual.end, COARSE)
