"""The questions by segment: where the answers are worse; pure."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import partial

from ragmeter.parts.questions.answers import BY_REQUEST, AskedService
from ragmeter.parts.questions.catalogue import BY_NAME, QuestionSpec
from ragmeter.parts.questions.levels import TimeStretch, dependence_of, request_level, sampled_level
from ragmeter.parts.questions.movements import SURE, TotalTimes, latency_level
from ragmeter.parts.questions.samples import SampleRange
from ragmeter.parts.questions.traffic import DAY, RequestBuckets, last_buckets
from ragmeter.parts.views import Answer, Level, SegmentAnswer
from ragmeter.windows.windows import Windows

WINDOW = "24h"


def segment_levels(
    service: AskedService,
    answers: Sequence[Answer],
    segments: Mapping[str, RequestBuckets],
    windows: Windows,
    now: float,
) -> Iterator[SegmentAnswer]:
    """Yield the level of each question in each segment over the last day, where there is one."""
    day = last_buckets(DAY, now)
    whole = service.stretch(day, WINDOW) if segments else None
    if whole is None:
        return
    dependence = {
        answer.question: dependence_of(whole.sums, answer.question, tenants=False)
        for answer in answers
    }
    samples = list(service.samples.between(service.name, day.start, day.end))
    for segment, traffic in sorted(segments.items()):
        own = SampleRange.of(sample for sample in samples if segment in sample.segments)
        part = TimeStretch(WINDOW, own, partial(traffic.sums, day))
        for answer in answers:
            question = BY_NAME[answer.question]
            if question.name == "fast":
                level = latency_level(
                    TotalTimes(windows, traffic, service.name, segment).histogram(day),
                    WINDOW,
                    dependence=dependence["fast"],
                )
                if level is not None:
                    moved = _slower(level, answer)
                    yield SegmentAnswer(segment, question.name, level, moved)
                continue
            if answer.level is None:
                continue
            worth_one = dependence[question.name]
            if answer.level.source in BY_REQUEST:
                level = request_level(question, part, tenants=False, dependence=worth_one)
            else:
                level = sampled_level(question, answer.level.source, part)
            if level is not None:
                moved = _differs(question, part, whole, worth_one)
                yield SegmentAnswer(segment, question.name, level, moved)


def _differs(
    question: QuestionSpec, part: TimeStretch, whole: TimeStretch, dependence: float
) -> bool:
    """Return whether the requests of a segment are worse than the others beyond chance."""
    own, all_ = part.sums.of(question.name), whole.sums.of(question.name)
    if own is None or all_ is None or all_.weight - own.weight < 1:
        return False
    rest = (all_.mean * all_.weight - own.mean * own.weight) / (all_.weight - own.weight)
    others = max(1.0, all_.kish - own.kish)
    error = math.sqrt(all_.variance * dependence * (1 / own.kish + 1 / others))
    worse = rest - own.mean if question.better == "higher" else own.mean - rest
    least = question.least / 100 if question.unit == "share" else question.least * rest
    return worse >= least and worse > SURE * error


def _slower(level: Level, answer: Answer) -> bool:
    """Return whether a segment is slower than its service beyond chance."""
    least = BY_NAME[answer.question].least
    whole = answer.levels.get(WINDOW) or answer.level
    if whole is None or whole.upper is None:
        return False
    return level.lower > whole.upper and level.value > (1 + least) * whole.value
