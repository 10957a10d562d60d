"""The number that an incident is about, over any stretch of event time and in any segment.

Shares of failed requests, indexes, costs and latencies are read alike from the windows, so that the
usual, the level since the onset and the last quarter of an hour are made of the same sums.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from ragmeter.parts.views import IncidentKind, IncidentUnit
from ragmeter.windows.contrasts import SHARE, estimate_sample, series_kind
from ragmeter.windows.estimators import wilson_interval
from ragmeter.windows.log_histogram import LogHistogram
from ragmeter.windows.shares import share_above
from ragmeter.windows.windows import Windows

DAY = 86_400.0
USUAL_GRAIN = 600.0  # seconds: the usual ends where the coarse buckets of a day do
LEAST_USUAL = 30.0  # samples of a usual
LEAST_EVIDENCE = 40.0  # samples that tell whether a number is back
_SLOW = 0.95  # the quantile of a latency

# Seconds of the last stretch that holds enough, the shortest first.
RECENT: Sequence[float] = (900.0, 1_800.0, 3_600.0, 7_200.0, 14_400.0)

Better = Literal["higher", "lower"]

DependenceWithin = Callable[[str, str | None, float, float], float]
"""Tells how many requests of a service are worth one independent one, for a metric (None: the p95
of latency) from one time to another: `ragmeter.parts.views.RequestHistory.dependence_within`."""


def take_all_as_independent(service: str, metric: str | None, start: float, end: float) -> float:
    """Take the requests of a service as independent of each other."""
    return 1.0


class NumberSpec(NamedTuple):
    """A number of a service.

    Args:
        kind: What is wrong where it is bad.
        question: The question that it tells of.
        unit: Its unit; `points` for an index.
        better: Which direction is better.
        least: The least shift that matters: of shares and indexes itself, else of the usual.
        scale: What a score is multiplied with.
    """

    kind: IncidentKind
    question: str
    unit: IncidentUnit
    better: Better
    least: float
    scale: float = 1.0


NUMBERS: dict[str, NumberSpec] = {
    "error": NumberSpec(
        kind="errors",
        question="works",
        unit="share",
        better="lower",
        least=0.01,
    ),
    "timeout": NumberSpec(
        kind="timeouts",
        question="works",
        unit="share",
        better="lower",
        least=0.01,
    ),
    "empty_answer": NumberSpec(
        kind="empty",
        question="works",
        unit="share",
        better="lower",
        least=0.01,
    ),
    "works": NumberSpec(
        kind="failures",
        question="works",
        unit="share",
        better="lower",
        least=0.01,
    ),
    "cut_answer": NumberSpec(
        kind="cut_off",
        question="complete",
        unit="share",
        better="lower",
        least=0.03,
    ),
    "filtered_answer": NumberSpec(
        kind="cut_off",
        question="complete",
        unit="share",
        better="lower",
        least=0.03,
    ),
    "latency": NumberSpec(
        kind="slow",
        question="fast",
        unit="seconds",
        better="lower",
        least=0.25,
    ),
    "answered": NumberSpec(
        kind="refusals",
        question="answered",
        unit="share",
        better="higher",
        least=0.03,
    ),
    "grounding": NumberSpec(
        kind="ungrounded",
        question="grounded",
        unit="points",
        better="higher",
        least=3.0,
        scale=100.0,
    ),
    "faithfulness": NumberSpec(
        kind="ungrounded",
        question="grounded",
        unit="share",
        better="higher",
        least=0.03,
    ),
    "relevance": NumberSpec(
        kind="wrong_passages",
        question="retrieved",
        unit="points",
        better="higher",
        least=3.0,
        scale=100.0 / 3,
    ),
    "context_relevancy": NumberSpec(
        kind="wrong_passages",
        question="retrieved",
        unit="share",
        better="higher",
        least=0.03,
    ),
    "reciprocal_rank": NumberSpec(
        kind="wrong_passages",
        question="retrieved",
        unit="share",
        better="higher",
        least=0.03,
    ),
    "citation_precision": NumberSpec(
        kind="citations",
        question="cited",
        unit="points",
        better="higher",
        least=3.0,
        scale=100.0,
    ),
    "citation_recall": NumberSpec(
        kind="citations",
        question="cited",
        unit="points",
        better="higher",
        least=3.0,
        scale=100.0,
    ),
    "nugget_vital": NumberSpec(
        kind="incomplete",
        question="complete",
        unit="share",
        better="higher",
        least=0.03,
    ),
    "cost_usd": NumberSpec(
        kind="cost",
        question="cost",
        unit="usd",
        better="lower",
        least=0.15,
    ),
    "input_tokens": NumberSpec(
        kind="cost",
        question="cost",
        unit="count",
        better="lower",
        least=0.15,
    ),
    "output_tokens": NumberSpec(
        kind="cost",
        question="cost",
        unit="count",
        better="lower",
        least=0.15,
    ),
}
"""The numbers that answer a question, by metric. `works` is the share of requests that failed."""

FAILURES = ("error", "timeout", "empty_answer")
"""The metrics of requests that failed, each of which a request has at most one of."""


class NumberKey(NamedTuple):
    """Which number: a metric and its scorer; of `latency` the scorer is the stage."""

    metric: str
    scorer: str


@dataclass(frozen=True, slots=True)
class NumberReading:
    """A number over a stretch of time, with its 95 % interval and its effective samples.

    Args:
        value: The number.
        lower: The lower end of its interval.
        upper: The upper end.
        worth: How many independent samples carry as much information.
        dependence: How many samples are worth one independent one.
        failures: Of `works`, the share of each kind of failure.
    """

    value: float
    lower: float
    upper: float
    worth: float
    dependence: float = 1.0
    failures: Mapping[str, float] = field(default_factory=dict)

    @property
    def samples(self) -> float:
        """The effective samples, as if they were independent of each other."""
        return self.worth * self.dependence

    def bad_end(self, better: Better) -> float:
        """Return the end of the interval that is the worse one."""
        return self.upper if better == "lower" else self.lower

    def good_end(self, better: Better) -> float:
        """Return the end of the interval that is the better one."""
        return self.lower if better == "lower" else self.upper


class NumberReader:
    """Reads numbers from the windows.

    Args:
        windows: The windows.
        dependence: Tells how alike the requests of a service are; those of a segment as much.
    """

    def __init__(
        self, windows: Windows, dependence: DependenceWithin = take_all_as_independent
    ) -> None:
        self._windows = windows
        self._dependence = dependence

    def read(
        self, service: str, segment: str, number: NumberKey, start: float, end: float
    ) -> NumberReading | None:
        """Return a number over [start, end), None without a sample."""
        if end <= start:
            return None
        if number.metric == "latency":
            histogram = self.latencies(
                service=service, segment=segment, stage=number.scorer, start=start, end=end
            )
            if histogram is None:
                return None
            return _read_latency(histogram, self._dependence(service, None, start, end))
        if number.metric == "works":
            parts = [
                self._score(
                    service=service,
                    segment=segment,
                    number=NumberKey(metric, "builtin"),
                    start=start,
                    end=end,
                )
                for metric in FAILURES
            ]
            return _join_failures(parts)
        return self._score(
            service=service,
            segment=segment,
            number=number,
            start=start,
            end=end,
        )

    def _score(
        self, service: str, segment: str, number: NumberKey, start: float, end: float
    ) -> NumberReading | None:
        cell = self._windows.sums_within(
            service=service,
            segment=segment,
            metric=number.metric,
            scorer=number.scorer,
            start=start,
            end=end,
        )
        if cell is None or not cell.scored:
            return None
        # of a session a sample has fewer requests, which are so much less alike
        drawn = cell.scored / (sum(cell.states().values()) - cell.not_applicable)
        whole = self._dependence(service, number.metric, start, end)
        dependence = 1 + (whole - 1) * drawn
        sample = estimate_sample(cell, series_kind(number.metric, number.scorer), dependence)
        if sample is None:
            return None
        scale = scale_of(number)
        return NumberReading(
            value=scale * sample.value,
            lower=scale * sample.lower,
            upper=scale * sample.upper,
            worth=sample.effective,
            dependence=dependence,
        )

    def usual(
        self, service: str, segment: str, number: NumberKey, onset: float
    ) -> NumberReading | None:
        """Return a number over the day before an onset, None with too few samples."""
        end = onset // USUAL_GRAIN * USUAL_GRAIN
        found = self.read(
            service=service,
            segment=segment,
            number=number,
            start=end - DAY,
            end=end,
        )
        return found if found is not None and found.samples >= LEAST_USUAL else None

    def recent(
        self,
        service: str,
        segment: str,
        number: NumberKey,
        *,
        now: float,
        since: float,
        narrow: float = math.inf,
    ) -> NumberReading | None:
        """Return a number over the last quarter of an hour, or as long as enough evidence takes.

        That is one whose interval reaches no further than `narrow` to the bad side. If none does,
        the longest stretch is taken. Nothing before `since` counts. None where there is too little,
        or none that is new.
        """
        if self.requests(service, segment, now - RECENT[0], now) == 0:
            return None
        better = NUMBERS[number.metric].better
        longest: NumberReading | None = None
        for seconds in RECENT:
            start = now - seconds
            if start < since:
                break
            found = self.read(
                service=service,
                segment=segment,
                number=number,
                start=start,
                end=now,
            )
            if found is None or found.samples < LEAST_EVIDENCE:
                continue
            longest = found
            if shift_of(better, found.bad_end(better), found.value) <= narrow:
                break
        return longest

    def requests(self, service: str, segment: str, start: float, end: float) -> int:
        """Return how many requests there were in [start, end)."""
        return self._windows.requests_within(service, segment, start, end)

    def share(self, service: str, segment: str, start: float, end: float) -> float:
        """Return the share of the requests in [start, end) that a segment has; 0 without any."""
        requests = self.requests(service, "", start, end)
        return self.requests(service, segment, start, end) / max(1, requests)

    def latencies(
        self, service: str, segment: str, stage: str, start: float, end: float
    ) -> LogHistogram | None:
        """Return the latencies of a stage in [start, end)."""
        return self._windows.latency_within(
            service=service,
            segment=segment,
            stage=stage,
            start=start,
            end=end,
        )

    def segments(self, service: str) -> list[str]:
        """Return the segments of a service."""
        return self._windows.segments(service)


def scale_of(number: NumberKey) -> float:
    """Return what scores of a metric are multiplied with."""
    spec = NUMBERS.get(number.metric)
    return 1.0 if spec is None or number.scorer == "people" else spec.scale


def least_shift(spec: NumberSpec, usual: float) -> float:
    """Return the least shift from the usual that matters."""
    relative = spec.unit in ("seconds", "usd", "count")
    return spec.least * abs(usual) if relative else spec.least


def shift_of(better: Better, value: float, usual: float) -> float:
    """Return how far a value is on the bad side of the usual."""
    return value - usual if better == "lower" else usual - value


def slow_share(histogram: LogHistogram | None, limit: float) -> NumberReading | None:
    """Return the share of latencies above a limit in seconds, None without any."""
    sample = estimate_sample(share_above(histogram, limit), SHARE)
    if sample is None:
        return None
    return NumberReading(sample.value, sample.lower, sample.upper, sample.effective)


def _read_latency(histogram: LogHistogram, dependence: float) -> NumberReading | None:
    worth = histogram.n / dependence
    for _, value, lower, upper in histogram.limits((_SLOW,), dependence):
        # without an upper limit it is at least known that the number is not below its estimate
        return NumberReading(
            value=value,
            lower=lower,
            upper=value if upper is None else upper,
            worth=worth,
            dependence=dependence,
        )
    few = histogram.quantile(_SLOW)  # of fewer than twenty: the slowest, without an interval
    if few is None:
        return None
    return NumberReading(value=few, lower=few, upper=few, worth=worth, dependence=dependence)


def _join_failures(parts: Sequence[NumberReading | None]) -> NumberReading | None:
    """Return the share of requests that failed, of the shares of each kind."""
    error, timeout, empty = parts
    if error is None:
        return None
    stopped = error.value + (timeout.value if timeout else 0.0)
    share = min(1.0, stopped + (1 - stopped) * (empty.value if empty else 0.0))
    lower, upper = wilson_interval(share, error.worth)
    kinds = zip(FAILURES, parts, strict=True)
    return NumberReading(
        value=share,
        lower=lower,
        upper=upper,
        worth=error.worth,
        dependence=error.dependence,
        failures={kind: part.value for kind, part in kinds if part and part.value > 0},
    )
