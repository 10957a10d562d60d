"""Answer the questions of one service at a moment: level, movement, usual, goal, state.

Pure: it reads the sums and samples that it is given, and event time.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple

from ragmeter.core.durations import parse_window
from ragmeter.metrics.costs import list_prices
from ragmeter.parts.questions.catalogue import QUESTIONS, QuestionSpec, scores_of
from ragmeter.parts.questions.estimator import MODEL_SPREAD
from ragmeter.parts.questions.goals import WatchedGoal, misses
from ragmeter.parts.questions.levels import (
    MANY_LABELS,
    TimeStretch,
    dependence_of,
    find_worths,
    request_level,
    sampled_level,
)
from ragmeter.parts.questions.movements import (
    TotalTimes,
    latency_movement,
    share_movement,
    usual_buckets,
)
from ragmeter.parts.questions.samples import ValuedTraces
from ragmeter.parts.questions.settings import QuestionsSettings
from ragmeter.parts.questions.traffic import (
    DAY,
    FINE,
    HOUR,
    BucketRange,
    RequestBuckets,
    RequestSums,
    bucket_width,
    last_buckets,
)
from ragmeter.parts.views import Answer, Level, Movement, Source, SourceChange, State
from ragmeter.windows.estimators import Z_95

WINDOWS: Mapping[str, int] = {name: parse_window(name) for name in ("1h", "6h", "24h", "7d", "14d")}
"""The windows that a level may be about, in seconds, the shortest first."""

BY_REQUEST: tuple[Source, ...] = ("requests", "estimate", "builtin")
"""The sources that know of every request."""

SHOWN = ("1h", "24h")
"""The windows that gauges have."""

# Half the width of an interval, as a share. A level is over the shortest window that is as narrow
# as the first; by a source that is not, it is shown up to the last, since an interval says how
# much is known, and one that is half of the scale says nothing.
NARROW = 0.075
ENOUGH_OF_MODEL = 0.15
WIDEST = 0.25

SOURCE_SECONDS = DAY  # for which a source is kept at least

LABELS_TO_STAND = 30  # from which on the number no longer needs what the model is usually off by

POINTS = 24  # of a chart: each has its interval, which more of them would widen

_UNTOLD = "not enough yet"


CHANGE_TAGS = ("model", "prompt_version", "index_version")
"""The tags whose new value is a change of the service; a new tenant is none."""


class ChosenSource(NamedTuple):
    """What the level of a question rests on.

    Args:
        source: The source.
        since: When it was chosen; of a first choice, which may be mended at any time, a day before.
        before: What the level rested on before; None at first.
    """

    source: Source
    since: float
    before: Source | None = None


@dataclass(slots=True)
class CompleteFrom:
    """A row of the state: since when no sample of a service was dropped for want of room."""

    complete_from: float


def _later(first: float | None, second: float) -> float:
    return second if first is None else max(first, second)


@dataclass(slots=True)
class ServiceRow:
    """A row of the state: what is known of a service beside its traffic and samples.

    Args:
        sources: By question the source of its level.
        first_seen: By segment, when it was first seen.
        incidents: By id of an open alert its question, severity and onset.
        looked_at: When sources were last chosen, or found to be the same.
        cost_given_at: When a request last told its cost.
        cost_estimated_at: When a cost was last estimated and counted.
        goals: By question, what became of the goal of the user.
        goals_due: When the goals are next looked at; None: not before another request.
    """

    sources: dict[str, ChosenSource]
    first_seen: dict[str, float]
    incidents: dict[str, tuple[str, str, float]]
    looked_at: float
    cost_given_at: float | None = None
    cost_estimated_at: float | None = None
    goals: dict[str, WatchedGoal] = field(default_factory=dict)
    goals_due: float | None = None

    def count_cost(self, at: float, given: float | None, estimate: float | None) -> float | None:
        """Return the cost of a request that counts, of which one may be given or estimated.

        Where requests of the last day have told theirs, estimates of others do not count.
        """
        bucket = at // FINE * FINE  # so that the row changes seldom
        if given is not None:
            self.cost_given_at = _later(self.cost_given_at, bucket)
            return given
        if estimate is None or (self.cost_given_at is not None and at - self.cost_given_at < DAY):
            return None
        self.cost_estimated_at = _later(self.cost_estimated_at, bucket)
        return estimate

    def estimates_cost(self, now: float) -> bool:
        """Return whether costs of the last day are estimates."""
        return self.cost_estimated_at is not None and self.cost_estimated_at > now - DAY

    @classmethod
    def empty(cls) -> ServiceRow:
        """Return the row of a new service."""
        return cls(sources={}, first_seen={}, incidents={}, looked_at=0.0)

    def source(self, question: str) -> Source | None:
        """Return the source that was chosen for a question, None before the first choice."""
        chosen = self.sources.get(question)
        return None if chosen is None else chosen.source


@dataclass(slots=True)
class AskedService:
    """What is known of a service at a moment: what has been read of it is not read again.

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
    _sums: dict[BucketRange, RequestSums] = field(default_factory=dict, init=False)

    @property
    def frozen(self) -> float | None:
        """When the first of its open incidents began."""
        return min((since for _, _, since in self.row.incidents.values()), default=None)

    def first(self, now: float) -> float:
        """Return when its first request came, `now` without any."""
        return now if self.traffic.first is None else self.traffic.first

    def stretch(self, buckets: BucketRange, window: str) -> TimeStretch | None:
        """Return what is known of some buckets, None if samples were dropped in them."""
        if self.samples.complete_from(self.name) > buckets.start:
            return None
        samples = self.samples.range(self.name, buckets.start, buckets.end)
        return TimeStretch(window, samples, lambda: self.sums(buckets))

    def sums(self, buckets: BucketRange) -> RequestSums:
        """Return the sums of some buckets, which are read once."""
        found = self._sums.get(buckets)
        if found is None:
            found = self._sums[buckets] = self.traffic.sums(buckets)
        return found

    def p95(self, buckets: BucketRange, window: str = "") -> Level | None:
        """Return the p95 of the total time in some buckets, None without enough requests."""
        tenants = buckets.end - buckets.start <= WINDOWS["6h"]
        dependence = dependence_of(self.sums(buckets), "fast", tenants=tenants)
        level = self.latency.level(buckets, dependence=dependence)
        return level if level is None or not window else replace(level, window=window)


class Moment:
    """What is known of a service at event time `now`; everything is read once, for all questions.

    Args:
        service: The service.
        now: Event time.
    """

    def __init__(self, service: AskedService, now: float) -> None:
        self.service = service
        self.now = now
        self._levels: dict[tuple[str, Source, str], Level | None] = {}

    @cached_property
    def stretches(self) -> Mapping[str, TimeStretch]:
        """The last part of each window, of those in which no sample was dropped."""
        found = {
            window: self.service.stretch(last_buckets(seconds, self.now), window)
            for window, seconds in WINDOWS.items()
        }
        return {window: stretch for window, stretch in found.items() if stretch is not None}

    @property
    def hour(self) -> BucketRange:
        """The last hour."""
        return last_buckets(HOUR, self.now)

    @cached_property
    def recent(self) -> RequestSums:
        """What the requests of the last hour tell."""
        return self.service.sums(self.hour)

    @cached_property
    def usual(self) -> BucketRange | None:
        """What the last hour is compared with, None if there is too little of it."""
        return self.usual_before(HOUR)

    @cached_property
    def usual_sums(self) -> RequestSums | None:
        """What the requests of the usual tell."""
        return None if self.usual is None else self.service.sums(self.usual)

    def usual_before(self, seconds: int) -> BucketRange | None:
        """Return what the last `seconds` are compared with, None if there is too little of it."""
        return usual_buckets(self.now, seconds, self.service.frozen, self.service.first(self.now))

    def level(self, question: QuestionSpec, source: Source, window: str) -> Level | None:
        """Return the level by a source over a window of `stretches`."""
        key = (question.name, source, window)
        if key not in self._levels:
            self._levels[key] = _level_in(question, source, self.stretches[window])
        return self._levels[key]


def answer_all(service: AskedService, settings: QuestionsSettings, now: float) -> list[Answer]:
    """Return what is known of every question at event time `now`."""
    moment = Moment(service, now)
    # all of them are asked for of these windows
    find_worths([service.sums(last_buckets(WINDOWS[window], now)) for window in SHOWN])
    return [_answer(question, moment, settings) for question in QUESTIONS]


class FileMoment(Moment):
    """What is known of the traces of a file, of which the requests are a sample of all traffic."""

    @cached_property
    def stretches(self) -> Mapping[str, TimeStretch]:
        """The whole file, in place of the last hour."""
        whole = self.service.stretch(last_buckets(HOUR, self.now), "1h")
        return {} if whole is None else {"1h": whole}


def answer_file(
    service: AskedService, settings: QuestionsSettings, now: float, unknown: Collection[str]
) -> list[Answer]:
    """Return every question of a file, whose traces are all of event time `now`.

    Args:
        service: What is known of the traces.
        settings: The goals.
        now: The time that all traces have.
        unknown: Questions of which the file says nothing.
    """
    moment = FileMoment(service, now)
    answers = []
    for question in QUESTIONS:
        answer = _answer(question, moment, settings)
        if question.name in unknown:
            answer = replace(answer, level=None, state="not enough", source=_UNTOLD, note=_UNTOLD)
        level = None if answer.level is None else replace(answer.level, window="file")
        answers.append(replace(answer, level=level, levels={}))
    return answers


def _answer(question: QuestionSpec, moment: Moment, settings: QuestionsSettings) -> Answer:
    goal = settings.goal(question.name)
    if question.name == "fast":
        levels = latency_levels(moment)
        # the shortest window whose interval has both ends
        both_ends = (one for one in levels.values() if one.upper is not None)
        level = next(both_ends, next(iter(levels.values()), None))
    else:
        level, levels = _levels(question, moment)
    movement, worse, usual = _movement(question, moment, level)
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
            row=moment.service.row,
        ),
        source=_describe_source(question, level),
        note=_note(question, level, movement),
        scores=scores_of(question.name),
    )


def _levels(question: QuestionSpec, moment: Moment) -> tuple[Level | None, dict[str, Level]]:
    """Return the level of a question, and the same by window for gauges."""
    source = moment.service.row.source(question.name)
    if source is None:
        # not chosen yet: so that a number does not wait for the next choice
        source = _choose_source(question, moment)
    level = None if source is None else level_by(question, source, moment)
    if level is None:
        return None, {}
    levels = {}
    for window in SHOWN:
        if window in moment.stretches:
            own = moment.level(question, level.source, window)
            if own is not None and _half(own, question) <= WIDEST:
                levels[window] = own
    levels.setdefault(level.window, level)
    if question.name == "cost" and moment.service.row.estimates_cost(moment.now):
        level = replace(level, source="estimate")
        levels = {window: replace(own, source="estimate") for window, own in levels.items()}
    return level, levels


def _level_in(question: QuestionSpec, source: Source, stretch: TimeStretch) -> Level | None:
    if source in BY_REQUEST:
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


def level_by(question: QuestionSpec, source: Source, moment: Moment) -> Level | None:
    """Return the level by a source over the shortest window in which it is narrow.

    If it is narrow in none, the narrowest; None if that is too wide as well.
    """
    best: Level | None = None
    for window in moment.stretches:
        level = moment.level(question, source, window)
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
    moment = Moment(service, now)
    changed = False
    for question in QUESTIONS:
        own = service.row.sources.get(question.name)
        if own is not None and now - own.since < SOURCE_SECONDS:
            continue
        source = _choose_source(question, moment)
        if source is None or (own is not None and own.source == source):
            continue
        if own is None:
            service.row.sources[question.name] = ChosenSource(source, float(now - SOURCE_SECONDS))
        else:
            service.row.sources[question.name] = ChosenSource(source, float(now), own.source)
        changed = True
    return changed


def source_changes(row: ServiceRow, first: float) -> list[SourceChange]:
    """Return the questions whose level rests on something else than before, the latest first.

    In the first hour, which began at `first`, a choice is mended and no change.
    """
    found = [
        SourceChange(own.since, question, own.source, own.before)
        for question, own in row.sources.items()
        if own.before is not None and own.since - first > HOUR
    ]
    return sorted(found, key=lambda change: -change.at)


def _choose_source(question: QuestionSpec, moment: Moment) -> Source | None:
    if question.sources == ("requests",):
        return "requests"
    found: list[Level] = []
    for source in question.sources:
        level = level_by(question, source, moment)
        if level is None:
            continue
        if source != "model" and _half(level, question) <= NARROW:
            return source
        found.append(level)

    def width(level: Level) -> float:
        return (1.0 if level.upper is None else level.upper) - level.lower

    return min(found, key=width).source if found else None


def latency_levels(moment: Moment) -> dict[str, Level]:
    """Return the p95 by window, where it is known."""
    service = moment.service
    found = {
        window: service.p95(last_buckets(WINDOWS[window], moment.now), window) for window in SHOWN
    }
    return {window: level for window, level in found.items() if level is not None}


def _movement(
    question: QuestionSpec, moment: Moment, level: Level | None
) -> tuple[Movement | None, bool, float | None]:
    """Return the movement, whether it counts as moved for the worse, and the usual."""
    movement: tuple[Movement, bool] | None = None
    usual: float | None = None
    by_request = level is not None and level.source in BY_REQUEST
    if question.name == "fast":
        if moment.usual is not None and moment.usual_sums is not None:
            service = moment.service
            movement = latency_movement(
                question,
                times=service.latency,
                recent=(moment.recent, moment.hour),
                usual=(moment.usual_sums, moment.usual),
            )
            before = service.p95(moment.usual)
            usual = None if before is None else before.value
    elif question.name != "complete" and moment.usual_sums is not None:
        movement = share_movement(question, moment.recent, moment.usual_sums)
        if by_request:
            moments = moment.usual_sums.of(question.name)
            usual = None if moments is None else moments.mean
    if level is not None and not by_request:
        usual = _usual_level(question, moment, level)
    if movement is None or (usual is not None and _leaves_the_scale(question, usual, movement[0])):
        return None, False, usual
    return movement[0], movement[1], usual


def _leaves_the_scale(question: QuestionSpec, usual: float, movement: Movement) -> bool:
    """Return whether a share would be below 0 or above 1 after a movement from its usual.

    The cheap score that tells the movement is wrong there by the source of the level.
    """
    if question.unit != "share":
        return False
    return 100 * usual + movement.lower > 100 or 100 * usual + movement.upper < 0


def _usual_level(question: QuestionSpec, moment: Moment, level: Level) -> float | None:
    """Return the level by the same source before the window of a level, if it is narrow enough."""
    before = moment.usual_before(WINDOWS[level.window])
    stretch = None if before is None else moment.service.stretch(before, "")
    if stretch is None:
        return None
    usual = _level_in(question, level.source, stretch)
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
    if "critical" in severities or misses(question.better, level, goal):
        return "bad"
    if severities or worse:
        return "moved"
    return "not enough" if level is None and movement is None else "good"


def _describe_source(question: QuestionSpec, level: Level | None) -> str:
    if level is None:
        return _UNTOLD
    if level.source == "requests":
        return "every request"
    if level.source == "estimate":
        return f"estimated from tokens, prices of {list_prices().date}"
    if level.source == "builtin":
        return "built-in rules, every answer"
    if level.source == "labels":
        kind = "label" if level.samples == 1 else "labels"
        few = level.samples < MANY_LABELS
        helped = " + model" if few and "model" in question.sources else ""
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
    width = bucket_width(seconds)
    size = max(1, -(-seconds // (POINTS * width))) * width
    end = (now // size + 1) * size
    found: list[tuple[float, Level]] = []
    start = end - -(-seconds // size) * size
    while start < end:
        level = _level_of(question, source, service, BucketRange(start, start + size, width))
        if level is not None:
            found.append((start, level))
        start += size
    return found


def _level_of(
    question: QuestionSpec, source: Source, service: AskedService, buckets: BucketRange
) -> Level | None:
    if question.name == "fast":
        return service.p95(buckets)
    stretch = service.stretch(buckets, "1h")
    return None if stretch is None else _level_in(question, source, stretch)


def compare(
    answers: Sequence[Answer], service: AskedService, at: float, now: float
) -> list[tuple[Answer, Level | None, Level | None]]:
    """Return each question with its levels in up to a day before and after a time."""
    length = max(HOUR, min(DAY, now - at))
    width = bucket_width(2 * length)
    cut = at // width * width
    start = (cut - length) // width * width
    end = cut - (cut - at - length) // width * width  # the newest requests are after the change
    before = BucketRange(start, cut, width)
    after = BucketRange(cut, end, width)
    rows: list[tuple[Answer, Level | None, Level | None]] = []
    for question, answer in zip(QUESTIONS, answers, strict=True):
        if answer.level is None:
            rows.append((answer, None, None))
            continue
        source = answer.level.source
        rows.append(
            (
                answer,
                _level_of(question, source, service, before),
                _level_of(question, source, service, after),
            )
        )
    return rows
