"""What came with the onset of an incident: a new value of a tag, one segment, one set of passages.

It reads the windows before and after the onset, so that it says the same whenever it is asked.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from ragmeter.parts.incidents.numbers import (
    DAY,
    NUMBERS,
    USUAL_GRAIN,
    NumberKey,
    NumberReader,
    NumberReading,
    shift_of,
    slow_share,
)
from ragmeter.parts.incidents.signals import SAME_CAUSE, Onset
from ragmeter.parts.views import Change, Incident
from ragmeter.windows.estimators import Z_95

CHANGE_TAGS = ("model", "prompt_version", "index_version")
"""The tags that a change is named by first."""

_BEFORE = 3 * 3600.0  # seconds before an onset in which a value that is not new was seen
_NEW_SHARE = 0.02  # up to which a value was not there before
_LEAST_SHARE = 0.1  # of the requests since the onset that a new value has
_MINUTE = 60.0

_MAX_SEGMENTS = 64  # that are compared
_LEAST_SEGMENT = 8.0  # requests of a segment since the onset
_OF_SHIFT = 0.6  # of the whole shift that a segment makes for it to be named
_MOST_TRAFFIC = 0.85  # of the requests: a segment that has more is the whole service
_REST = 0.35  # of the segment's own shift that the rest may show
_SURE = 3.3  # standard errors between a segment and the rest

_SLOWER = 1.5  # times the usual p95: requests that take longer are the slow ones

_STAGES_LEFT_OUT = ("total",)


@dataclass(slots=True)
class IncidentFacts:
    """What the texts say beside the incident itself; shares are of the requests since the onset.

    Args:
        failures: The shares of each kind of failure when the cause was searched.
        level_failures: The same over the stretch of time that the level is about.
        segment_share: The share of the requests that the segment has.
        rest: The number of the other requests since the onset.
        change_share: The share that the new value has.
        before: The value that a changed tag had before.
        tokens: By how much input and output tokens have grown, as factors.
        set_share: The share of the requests that got the most frequent set of passages.
        set_usual: The same before.
        stage: The stage that got slower most, with its p95 before and since.
        stage_times: Seconds before and since.
        hourly: Requests in the last hour.
        daily: Requests a day, at the pace of the day before.
    """

    failures: dict[str, float] = field(default_factory=dict)
    level_failures: dict[str, float] = field(default_factory=dict)
    segment_share: float = 0.0
    rest: float | None = None
    change_share: float = 0.0
    before: str = ""
    tokens: tuple[float, float] | None = None
    set_share: float = 0.0
    set_usual: float = 0.0
    stage: str = ""
    stage_times: tuple[float, float] | None = None
    hourly: float = 0.0
    daily: float = 0.0


def fault_share(incident: Incident, facts: IncidentFacts) -> float:
    """Return the share of all requests that the fault lies in: more answers it cannot hurt."""
    return (facts.segment_share or 1.0) if incident.segment else 1.0


class SegmentShift(NamedTuple):
    """The segment that an incident is about."""

    segment: str
    share: float
    usual: NumberReading
    level: NumberReading
    rest: float | None


class FoundChange(NamedTuple):
    """A change with the value before it and the share of requests that it has."""

    change: Change
    before: str
    share: float


def find_change(reader: NumberReader, service: str, onset: Onset, now: float) -> FoundChange | None:
    """Return the new value of a tag that came within ten minutes of an onset.

    One that was there before is not the story, however new it is, and neither is one that hardly
    any request has.
    """
    before = (onset.lower - SAME_CAUSE - _BEFORE, onset.lower - SAME_CAUSE)
    seen_before = reader.requests(service, "", *before)
    seen_since = reader.requests(service, "", onset.at, now)
    if not seen_before or not seen_since:
        return None
    by_tag: dict[str, list[str]] = {}
    for segment in reader.segments(service):
        by_tag.setdefault(segment.partition("=")[0], []).append(segment)
    found: list[FoundChange] = []
    for tag, segments in by_tag.items():
        shares = {one: reader.requests(service, one, *before) / seen_before for one in segments}
        for segment in segments:
            part = reader.requests(service, segment, onset.at, now) / seen_since
            if shares[segment] > _NEW_SHARE or part < _LEAST_SHARE:
                continue
            at = _first_seen(
                reader=reader,
                service=service,
                segment=segment,
                onset=onset,
                now=now,
            )
            if at is None:
                continue
            start = max(onset.at, at)  # the share of before would be that of nothing
            share = reader.share(service, segment, start, now)
            value = segment.partition("=")[2]
            old = max(
                (one for one in segments if one != segment), key=shares.__getitem__, default=""
            )
            known = old.partition("=")[2] if old and shares[old] > _NEW_SHARE else ""
            found.append(FoundChange(Change(at, tag, value), known, share))
    return min(found, key=_change_rank, default=None)


def _change_rank(found: FoundChange) -> tuple[int, float, str]:
    tag = found.change.tag
    rank = CHANGE_TAGS.index(tag) if tag in CHANGE_TAGS else len(CHANGE_TAGS)
    return rank, -found.share, found.change.value


def _first_seen(
    reader: NumberReader, service: str, segment: str, onset: Onset, now: float
) -> float | None:
    """Return the minute in which a value came, None if not within ten minutes of the onset."""
    start = math.floor((onset.lower - SAME_CAUSE) / _MINUTE) * _MINUTE
    end = min(now, onset.upper + SAME_CAUSE)
    while start < end:
        if reader.requests(service, segment, start, start + _MINUTE):
            return start
        start += _MINUTE
    # what is more than an hour ago has buckets of ten minutes
    start = math.floor((onset.lower - SAME_CAUSE) / USUAL_GRAIN) * USUAL_GRAIN
    while start < end:
        if reader.requests(service, segment, start, start + USUAL_GRAIN):
            return start
        start += USUAL_GRAIN
    return None


def find_segment(
    reader: NumberReader,
    *,
    service: str,
    number: NumberKey,
    onset: Onset,
    now: float,
    skip: str = "",
) -> SegmentShift | None:
    """Return the segment that makes most of a shift while the rest hardly moved, if there is one.

    Latencies are compared by the share of requests slower than half as much again as the usual
    p95, which adds up over segments. A tag to `skip` is that of the change itself, where the new
    value has all traffic.
    """
    start = max(onset.at, now - 3600.0)
    usual, whole = _before_and_since(
        reader=reader,
        service=service,
        segment="",
        number=number,
        onset=onset,
        now=now,
    )
    total = reader.requests(service, "", start, now)
    if usual is None or whole is None or not total:
        return None
    compare = _Comparison(
        reader=reader,
        service=service,
        number=number,
        onset=onset,
        since=(start, now),
        usual=usual,
    )
    shift = compare.shift("")
    if shift is None or shift.shift <= 0:
        return None
    best: tuple[float, str, float] | None = None
    for segment in _largest(reader, service, start, now):
        requests = reader.requests(service, segment, start, now)
        share = requests / total
        if segment.partition("=")[0] == skip or requests < _LEAST_SEGMENT or share > _MOST_TRAFFIC:
            continue
        own = compare.shift(segment)
        if own is None or own.shift <= 0:
            continue
        rest = (shift.shift - share * own.shift) / (1 - share)
        error = math.hypot(own.error, math.hypot(shift.error, share * own.error) / (1 - share))
        made = share * own.shift / shift.shift
        sure = own.shift - rest > _SURE * error
        if made >= _OF_SHIFT and rest <= _REST * own.shift and sure:
            # the smallest that explains all: a tenant before the model that it alone uses
            rank = (round(min(made, 1.0), 1), segment, share)
            if best is None or (rank[0], -rank[2]) > (best[0], -best[2]):
                best = rank
    if best is None:
        return None
    _, segment, share = best
    level = reader.read(
        service=service,
        segment=segment,
        number=number,
        start=start,
        end=now,
    )
    before = reader.usual(service, segment, number, onset.lower) or usual
    if level is None:
        return None
    rest_level = (whole.value - share * level.value) / (1 - share)
    if number.metric == "latency":
        rest_level = usual.value
    return SegmentShift(
        segment=segment,
        share=share,
        usual=before,
        level=level,
        rest=rest_level,
    )


class _Shift(NamedTuple):
    shift: float
    error: float


class _Comparison:
    """Compares a number before an onset and since, in one unit that adds up over segments."""

    def __init__(
        self,
        reader: NumberReader,
        service: str,
        number: NumberKey,
        onset: Onset,
        since: tuple[float, float],
        usual: NumberReading,
    ) -> None:
        self._reader = reader
        self._service = service
        self._number = number
        self._onset = onset
        self._since = since
        self._usual = usual

    def shift(self, segment: str) -> _Shift | None:
        """Return how far a segment went for the worse, with the standard error."""
        now, before = self._pair(segment)
        if now is None:
            return None
        if before is None:  # a value that is new is compared with what the service had
            before = self._pair("")[1]
        if before is None:
            return None
        better = NUMBERS[self._number.metric].better
        errors = [(one.upper - one.lower) / (2 * Z_95) for one in (now, before)]
        return _Shift(shift_of(better, now.value, before.value), math.hypot(*errors))

    def _pair(self, segment: str) -> tuple[NumberReading | None, NumberReading | None]:
        reader = self._reader
        service = self._service
        number = self._number
        end = self._onset.lower // USUAL_GRAIN * USUAL_GRAIN
        if number.metric != "latency":
            now = reader.read(service, segment, number, *self._since)
            return now, reader.usual(service, segment, number, self._onset.lower)
        limit = _SLOWER * self._usual.value
        return (
            slow_share(reader.latencies(service, segment, number.scorer, *self._since), limit),
            slow_share(
                reader.latencies(
                    service=service,
                    segment=segment,
                    stage=number.scorer,
                    start=end - DAY,
                    end=end,
                ),
                limit,
            ),
        )


def _largest(reader: NumberReader, service: str, start: float, end: float) -> Iterable[str]:
    segments = reader.segments(service)
    if len(segments) <= _MAX_SEGMENTS:
        return segments
    return sorted(segments, key=lambda one: -reader.requests(service, one, start, end))[
        :_MAX_SEGMENTS
    ]


def _before_and_since(
    *,
    reader: NumberReader,
    service: str,
    segment: str,
    number: NumberKey,
    onset: Onset,
    now: float,
) -> tuple[NumberReading | None, NumberReading | None]:
    """Return what a number usually was before an onset, and what it was in the last hour since."""
    before = reader.usual(service, segment, number, onset.lower)
    since = reader.read(
        service=service,
        segment=segment,
        number=number,
        start=max(onset.at, now - 3600.0),
        end=now,
    )
    return before, since


def read_tokens(
    reader: NumberReader, service: str, segment: str, onset: Onset, now: float
) -> tuple[float, float] | None:
    """Return by which factors input and output tokens of a request have grown."""
    factors = []
    for metric in ("input_tokens", "output_tokens"):
        number = NumberKey(metric, "builtin")
        before, since = _before_and_since(
            reader=reader,
            service=service,
            segment=segment,
            number=number,
            onset=onset,
            now=now,
        )
        if before is None or since is None or before.value <= 0:
            return None
        factors.append(since.value / before.value)
    return factors[0], factors[1]


def billed_again(tokens: tuple[float, float] | None) -> bool:
    """Return whether tokens look as if each request was paid for more than once.

    A longer prompt has more tokens in, a longer answer more out; a repeated request has both.
    """
    if tokens is None:
        return False
    least, most = min(tokens), max(tokens)
    return least >= 1.5 and most <= 1.35 * least


def find_stage(
    reader: NumberReader,
    *,
    service: str,
    segment: str,
    stages: Iterable[str],
    onset: Onset,
    now: float,
) -> tuple[str, tuple[float, float]] | None:
    """Return the stage whose p95 grew by most seconds, with its seconds before and since."""
    best: tuple[float, str, tuple[float, float]] | None = None
    for stage in stages:
        if stage in _STAGES_LEFT_OUT:
            continue
        number = NumberKey("latency", stage)
        before, since = _before_and_since(
            reader=reader,
            service=service,
            segment=segment,
            number=number,
            onset=onset,
            now=now,
        )
        if before is None or since is None:
            continue
        grown = since.value - before.value
        if grown > 0 and (best is None or grown > best[0]):
            best = (grown, stage, (before.value, since.value))
    return None if best is None else (best[1], best[2])


def refine_onset(
    reader: NumberReader, service: str, number: NumberKey, onset: Onset, now: float
) -> Onset:
    """Return the minute at which a number changed most, for a signal that knows no onset.

    The best split of the minutes of the interval, and of as long before it, into two means.
    """
    length = max(onset.upper - onset.lower, 1_800.0)
    start = max(onset.lower - length / 2, now - 3_600.0, 0.0)
    start = math.floor(start / _MINUTE) * _MINUTE
    minutes: list[tuple[float, float, float]] = []
    while start < now:
        if number.metric == "latency":
            histogram = reader.latencies(
                service=service,
                segment="",
                stage=number.scorer,
                start=start,
                end=start + _MINUTE,
            )
            value = None if histogram is None else histogram.quantile(0.9)
            weight = 0.0 if histogram is None else float(histogram.n)
        else:
            reading = reader.read(
                service=service,
                segment="",
                number=number,
                start=start,
                end=start + _MINUTE,
            )
            value = None if reading is None else reading.value
            weight = 0.0 if reading is None else reading.worth
        if value is not None and weight > 0:
            minutes.append((start, value, weight))
        start += _MINUTE
    at = _best_split(minutes, NUMBERS[number.metric].better)
    if at is None:
        return onset
    return Onset(at, at - 2 * _MINUTE, at + 2 * _MINUTE)


def _best_split(minutes: list[tuple[float, float, float]], better: str) -> float | None:
    total = sum(weight for _, _, weight in minutes)
    whole = sum(value * weight for _, value, weight in minutes)
    best, at = 0.0, None
    left = left_weight = 0.0
    for number, (start, value, weight) in enumerate(minutes):
        if number and 0 < left_weight < total:
            shift = (whole - left) / (total - left_weight) - left / left_weight
            gain = shift * shift * left_weight * (total - left_weight) / total
            if (shift > 0) == (better == "lower") and gain > best:
                best, at = gain, start
        left += value * weight
        left_weight += weight
    return at


def describe_failures(shares: Mapping[str, float]) -> list[tuple[str, float]]:
    """Return the kinds of failure, the most frequent first."""
    return sorted(shares.items(), key=lambda item: -item[1])
