"""What is known of the questions of one service at a moment: level, movement, usual, goal, state.

Pure: it reads the sums and samples that it is given, and event time.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ragmeter.parts.questions.catalogue import (
    QUESTIONS,
    TRUST,
    QuestionSpec,
    Source,
    scores_of,
)
from ragmeter.parts.questions.estimator import MODEL_SPREAD
from ragmeter.parts.questions.levels import TimeStretch, request_level, sampled_level
from ragmeter.parts.questions.movements import (
    HOUR,
    TotalTimes,
    latency_movement,
    p95,
    share_movement,
    usual_stretch,
    usual_sums,
)
from ragmeter.parts.questions.samples import ValuedTraces
from ragmeter.parts.questions.settings import QuestionsSettings
from ragmeter.parts.questions.traffic import COARSE, FINE, RequestBuckets
from ragmeter.parts.views import Answer, Level, Movement, State
from ragmeter.windows.estimators import Z_95

DAY = 24 * HOUR

WINDOWS: Mapping[str, int] = {
    "1h": HOUR,
    "6h": 6 * HOUR,
    "24h": DAY,
    "7d": 7 * DAY,
    "14d": 14 * DAY,
}
"""The windows that a level may be about, in seconds, the shortest first."""

SHOWN = ("1h", "24h")
"""The windows that gauges have."""

# Half the width of an interval, as a share. A level is over the shortest window that is as narrow
# as the first; by a source that is not, it is shown up to the last, since an interval says how
# much is known, and one that is half of the scale says nothing.
NARROW, ENOUGH_OF_MODEL, WIDEST = 0.075, 0.15, 0.25

SOURCE_SECONDS = DAY  # for which a source is kept at least

LABELS_TO_STAND = 30  # from which on the number no longer needs what the model is usually off by

POINTS = 24  # of a chart: each has its interval, which more of them would widen

_UNTOLD = "not enough yet"


CHANGE_TAGS = ("model", "prompt_version", "index_version")
"""The tags whose new value is a change of the service; a new tenant is none."""


@dataclass(slots=True)
class ServiceRow:
    """A row of the state: what is known of a service beside its traffic and samples.

    Args:
        sources: By question the source of its level, and since when.
        first_seen: By segment, when it was first seen.
        incidents: By id of an open alert its question, severity and onset.
        complete_from: The time since which no sample was dropped for want of room.
        looked_at: When sources were last chosen, or found to be the same.
    """

    sources: dict[str, tuple[str, float]]
    first_seen: dict[str, float]
    incidents: dict[str, tuple[str, str, float]]
    complete_from: float | None
    looked_at: float

    @classmethod
    def empty(cls) -> ServiceRow:
        """Return the row of a new service."""
        return cls(sources={}, first_seen={}, incidents={}, complete_from=None, looked_at=0.0)


@dataclass(slots=True)
class AskedService:
    """What is known of a service.

    Args:
        name: Its bounded name.
        traffic: Its requests.
        samples: The valued traces of all services.
        latency: The times of its requests.
        row: The rest.
    """

    name: str
    traffic: RequestBuckets
    samples: ValuedTraces
    latency: TotalTimes
    row: ServiceRow

    @property
    def frozen(self) -> float | None:
        """When the first of its open incidents began."""
        return min((since for _, _, since in self.row.incidents.values()), default=None)

    def source(self, question: QuestionSpec) -> Source | None:
        """Return the source that was chosen for a question, None before the first choice."""
        chosen = self.row.sources.get(question.name, ("", 0.0))[0]
        return next((source for source in question.sources if source == chosen), None)

    def stretch(self, window: str, now: float) -> TimeStretch | None:
        """Return what is known of the last part of a window, None if samples were dropped in it."""
        seconds = WINDOWS[window]
        width = FINE if seconds <= 6 * HOUR else COARSE
        end = (now // width + 1) * width
        if self.samples.complete_from(self.name) > end - seconds:
            return None
        samples = list(self.samples.between(self.name, end - seconds, end))
        return TimeStretch(window, samples, self.traffic.last(seconds, now))

    def past(self, start: float, end: float) -> TimeStretch | None:
        """Return what is known of [start, end), None if samples were dropped in it."""
        if self.samples.complete_from(self.name) > start:
            return None
        samples = list(self.samples.between(self.name, start, end))
        return TimeStretch("", samples, self.traffic.between(start, end, COARSE))


def answer_all(service: AskedService, settings: QuestionsSettings, now: float) -> list[Answer]:
    """Return what is known of every question at event time `now`."""
    stretches = {
        window: stretch
        for window in WINDOWS
        if (stretch := service.stretch(window, now)) is not None
    }
    return [
        _answer(
            question=question,
            service=service,
            stretches=stretches,
            settings=settings,
            now=now,
        )
        for question in QUESTIONS
    ]


def _answer(
    question: QuestionSpec,
    service: AskedService,
    stretches: Mapping[str, TimeStretch],
    settings: QuestionsSettings,
    now: float,
) -> Answer:
    goal = settings.goal(question.name)
    if question.name == "fast":
        levels = latency_levels(service, now)
        level = next(iter(levels.values()), None)
    else:
        level, levels = _levels(question, service, stretches, now)
    movement, worse, usual = _movement(question, service, level, now)
    return Answer(
        question=question.name,
        meaning=question.meaning,
        unit=question.unit,
        better=question.better,
        level=level,
        levels=levels,
        movement=movement,
        usual=usual,
        goal=goal,
        state=_state(
            question=question,
            level=level,
            movement=movement,
            worse=worse,
            goal=goal,
            row=service.row,
        ),
        source=_describe_source(question, level, service),
        note=_note(question, level, movement),
        scores=scores_of(question.name),
    )


def _levels(
    question: QuestionSpec, service: AskedService, stretches: Mapping[str, TimeStretch], now: float
) -> tuple[Level | None, dict[str, Level]]:
    """Return the level of a question, and the same by window for gauges."""
    source = service.source(question)
    if source is None:
        # not chosen yet: so that a number does not wait for the next choice
        source = _choose_source(question, stretches)
    level = None if source is None else level_by(question, source, stretches)
    if level is None:
        return None, {}
    levels = {}
    for window in SHOWN:
        if window in stretches:
            own = _level_in(question, source_of(level), stretches[window])
            if own is not None and _half(own, question) <= WIDEST:
                levels[window] = own
    levels.setdefault(level.window, level)
    return level, levels


def source_of(level: Level) -> Source:
    """Return the source of a level."""
    return next(source for source in ("requests", *TRUST) if source == level.source)


def _level_in(question: QuestionSpec, source: Source, stretch: TimeStretch) -> Level | None:
    if source in ("requests", "builtin"):
        tenants = stretch.window in ("1h", "6h")
        return request_level(question, stretch, tenants=tenants)
    return sampled_level(question, source, stretch)


def _half(level: Level, question: QuestionSpec) -> float:
    """Return half the width of the interval as a share, of sampling alone for the model."""
    if question.unit != "share":
        return 0.0
    if level.source == "model":
        spread = max(level.value * (1 - level.value), 0.02)
        return Z_95 * math.sqrt(spread / level.worth)
    return ((1.0 if level.upper is None else level.upper) - level.lower) / 2


def level_by(
    question: QuestionSpec, source: Source, stretches: Mapping[str, TimeStretch]
) -> Level | None:
    """Return the level by a source over the shortest window in which it is narrow.

    If it is narrow in none, the narrowest; None if that is too wide as well.
    """
    best: Level | None = None
    for stretch in stretches.values():
        level = _level_in(question, source, stretch)
        if level is None:
            continue
        if _half(level, question) <= (ENOUGH_OF_MODEL if source == "model" else NARROW):
            return level
        if best is None or _half(level, question) < _half(best, question):
            best = level
    if best is None or source == "model" or _half(best, question) > WIDEST:
        return None
    return best


def choose_sources(service: AskedService, now: float) -> bool:
    """Choose the source of each question anew where it may change; return whether one did.

    The first that is narrow enough is chosen, in order of trust. If none is, the narrowest. The
    first choice may be mended at any time; from then on a source is kept for a day.
    """
    stretches: dict[str, TimeStretch] | None = None
    changed = False
    for question in QUESTIONS:
        source, since = service.row.sources.get(question.name, ("", -DAY))
        if source and now - since < SOURCE_SECONDS:
            continue
        if stretches is None:
            stretches = {
                window: stretch
                for window in WINDOWS
                if (stretch := service.stretch(window, now)) is not None
            }
        chosen = _choose_source(question, stretches)
        if chosen is None:
            continue
        if chosen != source:
            service.row.sources[question.name] = (chosen, now if source else now - SOURCE_SECONDS)
            changed = True
    return changed


def _choose_source(question: QuestionSpec, stretches: Mapping[str, TimeStretch]) -> Source | None:
    if question.sources == ("requests",):
        return "requests"
    found: list[Level] = []
    for source in question.sources:
        level = level_by(question, source, stretches)
        if level is None:
            continue
        if source != "model" and _half(level, question) <= NARROW:
            return source
        found.append(level)

    def width(level: Level) -> float:
        return (1.0 if level.upper is None else level.upper) - level.lower

    return source_of(min(found, key=width)) if found else None


def latency_levels(service: AskedService, now: float) -> dict[str, Level]:
    """Return the p95 by window, where it is known."""
    levels = {}
    for window in SHOWN:
        histogram = service.latency.last(WINDOWS[window], now)
        limits = p95(histogram)
        if histogram is None or limits is None:
            continue
        value, lower, upper = limits
        levels[window] = Level(
            value=value,
            lower=lower,
            upper=upper,
            window=window,
            samples=histogram.n,
            worth=float(histogram.n),
            source="requests",
        )
    return levels


def _movement(
    question: QuestionSpec, service: AskedService, level: Level | None, now: float
) -> tuple[Movement | None, bool, float | None]:
    """Return the movement, whether it counts as moved for the worse, and the usual."""
    first = now if service.traffic.first is None else service.traffic.first
    before = usual_stretch(now, HOUR, service.frozen, first)
    movement: tuple[Movement, bool] | None = None
    usual: float | None = None
    if question.name == "fast":
        if before is not None:
            past = service.latency.between(before.start, before.end, COARSE)
            movement = latency_movement(question, service.latency.last(HOUR, now), past)
            limits = p95(past)
            usual = limits and limits[0]
    elif question.name != "complete" and before is not None:
        past_sums = usual_sums(service.traffic, before)
        movement = share_movement(question, service.traffic.last(HOUR, now), past_sums)
        if level is not None and level.source in ("requests", "builtin"):
            moments = past_sums.of(question.name)
            usual = moments and moments.mean
    if usual is None and level is not None and level.source not in ("requests", "builtin"):
        usual = _usual_level(
            question=question,
            service=service,
            level=level,
            now=now,
            first=first,
        )
    if movement is None:
        return None, False, usual
    return movement[0], movement[1], usual


def _usual_level(
    question: QuestionSpec, service: AskedService, level: Level, now: float, first: float
) -> float | None:
    """Return the level by the same source before the window of a level, if it is narrow enough."""
    before = usual_stretch(now, WINDOWS[level.window], service.frozen, first)
    if before is None:
        return None
    stretch = service.past(before.start, before.end)
    if stretch is None:
        return None
    usual = _level_in(question, source_of(level), stretch)
    if usual is None or _half(usual, question) > ENOUGH_OF_MODEL:
        return None
    return usual.value


def _state(
    question: QuestionSpec,
    level: Level | None,
    movement: Movement | None,
    worse: bool,
    goal: float | None,
    row: ServiceRow,
) -> State:
    severities = {severity for name, severity, _ in row.incidents.values() if name == question.name}
    if "critical" in severities or _misses(question, level, goal):
        return "bad"
    if severities or worse:
        return "moved"
    return "not enough" if level is None and movement is None else "good"


def _misses(question: QuestionSpec, level: Level | None, goal: float | None) -> bool:
    """Return whether the goal is missed beyond doubt: by the end of the interval nearer to it."""
    if level is None or goal is None:
        return False
    if question.better == "lower":
        return level.lower > goal
    return level.upper is not None and level.upper < goal


def _describe_source(question: QuestionSpec, level: Level | None, service: AskedService) -> str:
    if level is None:
        return _UNTOLD
    if level.source == "requests":
        return "every request"
    if level.source == "builtin":
        return "built-in rules, every answer"
    if level.source == "labels":
        kind = "label" if level.samples == 1 else "labels"
        helped = " + model" if level.samples < 100 and "model" in question.sources else ""
        return f"{level.samples:,} {kind}{helped}"
    if level.source == "judge":
        return f"{level.samples:,} verdicts of the judge"
    return f"model, {level.samples:,} answers"


def _note(question: QuestionSpec, level: Level | None, movement: Movement | None) -> str:
    if level is None and movement is not None and question.unit == "share":
        needed = "labels or a judge" if "model" not in question.sources else "labels, a judge or"
        more = " more answers scored by the model" if "model" in question.sources else ""
        return f"no level: it needs {needed}{more}; the movement is of the built-in score"
    if level is None:
        return _UNTOLD
    if level.source == "model" or (level.source == "labels" and level.samples < LABELS_TO_STAND):
        return (
            f"the model is off by {100 * MODEL_SPREAD:.0f} points between services like those "
            f"that were labelled; from {LABELS_TO_STAND} labels of your own on it no longer counts"
        )
    return ""


def history(
    question: QuestionSpec, source: Source, service: AskedService, *, seconds: int, now: float
) -> list[tuple[float, Level]]:
    """Return (start, level) of up to `POINTS` parts of the last `seconds` that have a level."""
    width = FINE if seconds <= 6 * HOUR else COARSE
    size = max(1, -(-seconds // (POINTS * width))) * width
    end = (now // size + 1) * size
    found: list[tuple[float, Level]] = []
    start = end - -(-seconds // size) * size
    while start < end:
        level = _level_between(
            question=question,
            source=source,
            service=service,
            start=start,
            end=start + size,
            width=width,
        )
        if level is not None:
            found.append((start, level))
        start += size
    return found


def _level_between(
    question: QuestionSpec,
    source: Source,
    service: AskedService,
    start: float,
    end: float,
    width: int,
) -> Level | None:
    if question.name == "fast":
        histogram = service.latency.between(start, end, width)
        limits = p95(histogram)
        if histogram is None or limits is None:
            return None
        return Level(
            value=limits[0],
            lower=limits[1],
            upper=limits[2],
            window="",
            samples=histogram.n,
            worth=float(histogram.n),
            source="requests",
        )
    if service.samples.complete_from(service.name) > start:
        return None
    samples = list(service.samples.between(service.name, start, end))
    stretch = TimeStretch("1h", samples, service.traffic.between(start, end, width))
    return _level_in(question, source, stretch)


def compare(
    answers: Sequence[Answer], service: AskedService, at: float, now: float
) -> list[tuple[Answer, Level | None, Level | None]]:
    """Return each question with its levels in up to a day before and after a time."""
    length = max(HOUR, min(DAY, now - at))
    width = FINE if 2 * length <= 6 * HOUR else COARSE
    cut = at // width * width
    start = (cut - length) // width * width
    end = cut - (cut - at - length) // width * width  # the newest requests are after the change
    rows: list[tuple[Answer, Level | None, Level | None]] = []
    for question, answer in zip(QUESTIONS, answers, strict=True):
        source = None if answer.level is None else source_of(answer.level)
        if source is None:
            rows.append((answer, None, None))
            continue
        before = _level_between(
            question=question,
            source=source,
            service=service,
            start=start,
            end=cut,
            width=width,
        )
        after = _level_between(
            question=question,
            source=source,
            service=service,
            start=cut,
            end=end,
            width=width,
        )
        rows.append((answer, before, after))
    return rows
