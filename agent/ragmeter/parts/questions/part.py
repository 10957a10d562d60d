"""The part `questions`."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from hashlib import blake2b
from typing import Any, ClassVar, Self, TypeVar, cast

import numpy as np

from ragmeter.alerts.alert import Alert
from ragmeter.config.settings import Settings
from ragmeter.core.counters import Counters, GaugeSample
from ragmeter.core.durations import parse_window
from ragmeter.core.feedback import PEOPLE
from ragmeter.core.score import BUILTIN_SCORER, Score, ScoredTrace, ScoreState
from ragmeter.core.series import split_scorer
from ragmeter.parts.contract import Arrival, Event, Part, PartContext, ScoredBatch, section_of
from ragmeter.parts.questions.answers import (
    CHANGE_TAGS,
    AskedService,
    CompleteFrom,
    ServiceRow,
    answer_all,
    choose_sources,
    compare,
    history,
    source_changes,
)
from ragmeter.parts.questions.catalogue import BY_NAME, QUESTION_OF, READERS, ScoreReader
from ragmeter.parts.questions.clusters import find_slot
from ragmeter.parts.questions.files import FileQuestions
from ragmeter.parts.questions.goals import (
    GOAL_RULE,
    LOOK_SECONDS,
    WatchedGoal,
    follow_goal,
    withdraw,
)
from ragmeter.parts.questions.levels import change_effect, dependence_of
from ragmeter.parts.questions.movements import TotalTimes
from ragmeter.parts.questions.requests import (
    UNTOLD,
    RequestScores,
    read_requests,
    within_unit,
)
from ragmeter.parts.questions.samples import (
    SampleName,
    Valuation,
    Valuations,
    ValuedTrace,
    ValuedTraces,
)
from ragmeter.parts.questions.segment_levels import WINDOW, segment_levels
from ragmeter.parts.questions.settings import QuestionsSettings
from ragmeter.parts.questions.traffic import (
    COARSE,
    HOUR,
    KEPT_FINE,
    KEPT_SLOTS,
    SHARES,
    TRACKED,
    BucketRange,
    RequestBuckets,
    RequestColumns,
    TrafficKey,
    TrafficRow,
    bucket_width,
    last_buckets,
)
from ragmeter.parts.views import (
    Answer,
    Change,
    FileAnswers,
    Level,
    QuestionAnswers,
    RequestHistory,
    RequestSeries,
    SegmentAnswer,
    Source,
    SourceChange,
)
from ragmeter.windows.sums import stratum_key
from ragmeter.windows.windows import Windows

QuestionsState = TrafficRow | ValuedTrace | ServiceRow | CompleteFrom
"""A row of the state: a bucket of a service or segment, a valued trace, or about a service."""

_KeptT = TypeVar("_KeptT")

# What the names of rows begin with.
_TRAFFIC = "traffic"
_SAMPLE = "sample"
_SERVICE = "service"
_COMPLETE = "complete"

_CHOICE_SECONDS = 300  # of event time between two looks at which source a number rests on
_NEW_TAG_SECONDS = 3600  # a value that a service had within its first hour is no change
_MAX_SEEN = 200  # segments of a service whose first time is kept

# Gauges by segment: of the old and the new value of a tag, and of the questions that tell most. All
# others are in /api/questions.json: a service has 150 samples with a judge, labels and three tags.
_SHOWN_VALUES = 2
_BY_SEGMENT = ("works", "answered", "grounded", "retrieved")

_BUILTIN = {one.question: one for one in READERS.values() if one.source == "builtin"}

# Seconds of the least stretch of time that tells how alike requests are: a bucket that has just
# begun and the five before it. Shorter windows have fewer requests of a session, so that they are
# no more alike.
_LEAST_STRETCH = 1800


class QuestionsPart(Part[QuestionsState], QuestionAnswers, RequestHistory):
    """The eight questions of all services.

    Args:
        settings: The goals.
        windows: The windows of all services, for latency.
        counters: Where good events are counted.
        samples: The valued traces.
    """

    name = "questions"
    package = __package__
    settings = QuestionsSettings
    state: ClassVar[Any] = QuestionsState

    def __init__(
        self,
        settings: QuestionsSettings,
        windows: Windows,
        counters: Counters,
        samples: ValuedTraces | None = None,
    ) -> None:
        self._settings = settings
        self._windows = windows
        self._counters = counters
        self._traffic: dict[tuple[str, str], RequestBuckets] = {}
        self._samples = ValuedTraces() if samples is None else samples
        self._rows: dict[str, ServiceRow] = {}
        self._touched: dict[str, None] = {}
        self._gone: dict[str, None] = {}
        self._now = 0.0
        self._tidied_at = -float(_CHOICE_SECONDS)
        self._kept: dict[str, dict[Hashable, tuple[tuple[int, int, float], Any]]] = {}

    @classmethod
    def build(cls, context: PartContext) -> Self:
        """Build the part, which knows of no service yet."""
        return cls(context.section(QuestionsSettings), context.windows, context.counters)

    @classmethod
    def of_file(cls, settings: Settings) -> FileAnswers:
        """Return what answers the questions of a file, however many traces it has."""
        own = section_of(settings, QuestionsSettings)
        windows = Windows(settings.windows)
        part = cls(own, windows, Counters(), ValuedTraces(limit=sys.maxsize))
        return FileQuestions(own, windows, part.observe, part._service)

    def observe(self, run: ScoredBatch, now: float | None) -> None:
        """Count requests, and remember what slow scorers and people say of them."""
        if run.arrivals:
            self._count_requests(run.arrivals)
        labelled: dict[str, None] = {}
        for arrival in run.later:
            self._count_values(arrival)
            if any(score.scorer == PEOPLE for score in arrival.trace.results):
                labelled[arrival.trace.service] = None
        # labels may come when no trace does any more, at the end of a replay
        for name in labelled:
            if now is not None and name in self._rows:
                self._choose_sources(name, now)

    def _choose_sources(self, name: str, now: float) -> None:
        if choose_sources(self._service(name), now):
            self._touched[name] = None

    def _count_requests(self, arrivals: Sequence[Arrival]) -> None:
        """Count requests, and what slow scorers have already told of them."""
        traces = [arrival.trace for arrival in arrivals]
        scores = read_requests(traces)
        clusters = [find_slot(one.cluster or one.trace_id) for one in traces]
        requests = RequestColumns(
            at=[one.timestamp for one in traces],
            weights=scores.weights,
            values=scores.values | {"cost": self._count_costs(traces, scores)},
            clusters=clusters,
            tenants=[
                slot if one.tenant in ("", one.cluster) else find_slot(one.tenant)
                for one, slot in zip(traces, clusters, strict=True)
            ],
            strata=[
                [
                    f"{source}:{stratum_key(stratum, None if math.isnan(answered) else answered)}"
                    for source, stratum in sorted(strata.items())
                ]
                for strata, answered in zip(scores.strata, scores.values["answered"], strict=True)
            ],
        )
        by_service: dict[str, dict[str, list[int]]] = {}
        for number, (trace, segments, _) in enumerate(arrivals):
            by_segment = by_service.setdefault(trace.service, {})
            for segment in ("", *dict.fromkeys(segments)):
                by_segment.setdefault(segment, []).append(number)
        for service, by_segment in by_service.items():
            self._count_segments(service, by_segment, requests)
            self._count_good(service, by_segment[""], scores)
        for number in scores.told:
            self._count_values(arrivals[number])

    def _count_costs(self, traces: Sequence[ScoredTrace], scores: RequestScores) -> list[float]:
        """Return the cost of each request that counts, NaN for others."""
        costs = [math.nan] * len(traces)
        for number in sorted(scores.given.keys() | scores.estimated.keys()):
            trace = traces[number]
            row = self._row(trace.service)
            before = (row.cost_given_at, row.cost_estimated_at)
            given, estimated = scores.given.get(number), scores.estimated.get(number)
            cost = row.count_cost(trace.timestamp, given, estimated)
            if cost is not None:
                costs[number] = cost
            if before != (row.cost_given_at, row.cost_estimated_at):
                self._touched[trace.service] = None
        return costs

    def _count_segments(
        self, service: str, by_segment: Mapping[str, Sequence[int]], requests: RequestColumns
    ) -> None:
        """Count requests of a service, of the whole of it and by segment, and note its goals."""
        row = self._row(service)
        for segment, own in by_segment.items():
            key = (service, segment)
            traffic = self._traffic.get(key)
            if traffic is None:
                traffic = self._traffic[key] = RequestBuckets(whole=not segment)
            traffic.add(requests.take(own, whole=not segment))
            if segment not in row.first_seen and len(row.first_seen) < _MAX_SEEN:
                row.first_seen[segment] = requests.at[own[0]]
                self._touched[service] = None
        if self._settings.goals and row.goals_due is None:  # there is a request to look at
            row.goals_due = (requests.at[by_segment[""][0]] // LOOK_SECONDS + 1) * LOOK_SECONDS
            self._touched[service] = None

    def _count_good(self, service: str, own: Sequence[int], scores: RequestScores) -> None:
        """Count requests of a service for the questions whose number rests on every request."""
        goods = {"works": scores.values["works"]}
        longest = self._settings.goal("fast")
        if longest is not None:
            goods["fast"] = [
                one if math.isnan(one) else float(one <= longest) for one in scores.totals
            ]
        if self._source(service, "answered") in (None, "builtin"):
            goods["answered"] = scores.values["answered"]
        for question, good in goods.items():
            events = [(scores.weights[one], good[one]) for one in own if not math.isnan(good[one])]
            self._count_events(service, question, events)

    def _count_events(
        self, service: str, question: str, events: Sequence[tuple[float, float]]
    ) -> None:
        """Count events of a question: their weights, and how good each is."""
        if not events:
            return
        labels = (("service", service), ("question", question))
        weights = [weight for weight, _ in events]
        self._counters.inc_by_each("rag_question_events_total", labels, weights)
        # a series that starts at 0 loses no first increase to `rate()`
        good = [weight * good for weight, good in events]
        self._counters.inc_by_each("rag_question_good_total", labels, good)

    def _source(self, service: str, question: str) -> Source | None:
        row = self._rows.get(service)
        return None if row is None else row.source(question)

    def _count_values(self, arrival: Arrival) -> None:
        trace = arrival.trace
        values: Valuations = {}
        for score in trace.results:
            if score.scorer == BUILTIN_SCORER:
                continue
            scorer, version = split_scorer(score.scorer)
            reader = READERS.get((score.metric, scorer))
            if reader is None:
                continue
            if score.state in UNTOLD:
                continue
            valuation = _read(score, reader, version or score.fingerprint or "")
            values.setdefault(reader.question, {})[reader.source] = valuation
            chosen = self._source(trace.service, reader.question) == reader.source
            if chosen and valuation.value is not None:
                weight = 1 / valuation.probability
                self._count_events(trace.service, reader.question, [(weight, valuation.value)])
        if values:
            self._samples.add(
                SampleName(trace.service, _hash(trace.trace_id)),
                at=trace.timestamp,
                segments=arrival.segments,
                values=values,
            )

    def _row(self, service: str) -> ServiceRow:
        row = self._rows.get(service)
        if row is None:
            row = self._rows[service] = ServiceRow.empty()
            self._touched[service] = None
        return row

    def advance(self, now: float) -> Sequence[Event]:
        """Choose sources where they are due, and drop what is too old."""
        self._now = now
        if now // _CHOICE_SECONDS == self._tidied_at // _CHOICE_SECONDS:
            return ()
        self._tidied_at = now
        for traffic in self._traffic.values():
            traffic.expire(now)
        self._samples.expire(now)
        for name, row in self._rows.items():
            # when it was done last is saved: a restart must not make it be done sooner
            if now // _CHOICE_SECONDS != row.looked_at // _CHOICE_SECONDS:
                row.looked_at = now
                self._touched[name] = None
                self._choose_sources(name, now)
        return ()

    def evaluate(self, now: float, changed: Mapping[str, Collection[str]]) -> Sequence[Event]:
        """Look at the goals of services that had requests, every five minutes of event time."""
        moved: list[Alert] = []
        for service, row in sorted(self._rows.items()):
            if row.goals_due is not None and now >= row.goals_due:
                row.goals_due = None
                self._touched[service] = None
                moved += self._follow_goals(service, row, now)
        return moved

    def _follow_goals(self, service: str, row: ServiceRow, now: float) -> list[Alert]:
        moved: list[Alert] = []
        for answer in self.answers(service):
            if answer.question in self._settings.goals:
                watched = row.goals.setdefault(answer.question, WatchedGoal())
                moved += follow_goal(watched, answer, service, now)
        for question, watched in row.goals.items():
            if question not in self._settings.goals:
                moved += withdraw(watched, now)
        return moved

    def next_due(self) -> float:
        """Return when the goals of a service are next looked at."""
        due = (row.goals_due for row in self._rows.values())
        return min((one for one in due if one is not None), default=math.inf)

    def alerts(self) -> Sequence[Alert]:
        """Return copies of the alerts of goals: those that are missed, and those lately met."""
        return [
            watched.alert.copy()
            for _, row in sorted(self._rows.items())
            for _, watched in sorted(row.goals.items())
            if watched.alert is not None and not watched.alert.is_expired(self._time)
        ]

    def hear(self, moved: Sequence[Event], at: float) -> Sequence[Event]:
        """Note the incidents of services: their onset freezes what is usual."""
        for alert in moved:
            row = self._rows.get(alert.service)
            if row is None or alert.rule == GOAL_RULE:  # a goal is no usual
                continue
            question = alert.question or QUESTION_OF.get(alert.metric)
            if alert.state == "firing" and question is not None:
                since = at if alert.since is None else alert.since
                row.incidents[alert.id] = (question, alert.severity, since)
            elif alert.id in row.incidents:
                del row.incidents[alert.id]
            else:
                continue
            self._touched[alert.service] = None
            self._kept.pop(alert.service, None)
        return ()

    def retain(self, services: Collection[str]) -> None:
        """Forget every other service."""
        for name in [name for name in self._rows if name not in services]:
            for key in [key for key in self._traffic if key[0] == name]:
                for bucket in self._traffic.pop(key).all_keys():
                    self._gone[_traffic_row(*key, bucket)] = None
            if self._samples.complete_from(name) > 0:
                self._gone[json.dumps([_COMPLETE, name])] = None
            self._samples.forget(name)
            del self._rows[name]
            self._kept.pop(name, None)
            self._gone[json.dumps([_SERVICE, name])] = None

    def _service(self, name: str) -> AskedService:
        traffic = self._traffic.get((name, "")) or RequestBuckets(whole=True)
        return AskedService(
            name=name,
            traffic=traffic,
            samples=self._samples,
            latency=TotalTimes(self._windows, traffic, name),
            row=self._row(name),
        )

    @property
    def _time(self) -> float:
        return max(self._now, self._windows.now or 0.0)

    def answers(self, service: str) -> Sequence[Answer]:
        """Return every question of a service, in order; empty for an unknown service."""
        if service not in self._rows or (service, "") not in self._traffic:
            return ()
        return self._keep(
            service,
            "answers",
            lambda: answer_all(self._service(service), self._settings, self._time),
        )

    def _keep(self, service: str, what: Hashable, make: Callable[[], _KeptT]) -> _KeptT:
        """Return what is known of a service, made anew where anything has changed."""
        traffic = self._traffic.get((service, ""))
        version = (
            0 if traffic is None else traffic.version,
            self._samples.versions.get(service, 0),
            self._time,
        )
        kept = self._kept.setdefault(service, {})
        known = kept.get(what)
        if known is not None and known[0] == version:
            return cast(_KeptT, known[1])
        found = make()
        kept[what] = (version, found)
        return found

    def history(self, service: str, question: str, seconds: int) -> list[tuple[float, Level]]:
        """Return (start in Unix seconds, level) of the parts of a stretch of time that have one."""
        for answer in self.answers(service):
            if answer.question == question and answer.level is not None:
                return history(
                    BY_NAME[question],
                    answer.level.source,
                    self._service(service),
                    seconds=seconds,
                    now=self._time,
                )
        return []

    def segment_answers(self, service: str) -> Sequence[SegmentAnswer]:
        """Return the questions by segment."""
        if service not in self._rows:
            return ()
        return self._keep(service, "segments", lambda: self._segment_answers(service))

    def _segment_answers(self, service: str) -> Sequence[SegmentAnswer]:
        segments = {
            segment: traffic
            for (name, segment), traffic in self._traffic.items()
            if name == service and segment and not traffic.empty
        }
        return list(
            segment_levels(
                service=self._service(service),
                answers=self.answers(service),
                segments=segments,
                windows=self._windows,
                now=self._time,
            )
        )

    def tag_changes(self, service: str) -> Sequence[Change]:
        """Return the new values of tags, the latest first."""
        row = self._rows.get(service)
        if row is None:
            return ()
        first = row.first_seen.get("", 0.0)
        changes = []
        for segment, at in row.first_seen.items():
            tag, _, value = segment.partition("=")
            if tag in CHANGE_TAGS and at - first > _NEW_TAG_SECONDS:
                changes.append(Change(at, tag, value))
        return sorted(changes, key=lambda change: -change.at)

    def source_changes(self, service: str) -> Sequence[SourceChange]:
        """Return the questions whose level rests on something else now, the latest first."""
        row = self._rows.get(service)
        return () if row is None else source_changes(row, row.first_seen.get("", 0.0))

    def before_and_after(
        self, service: str, at: float
    ) -> Sequence[tuple[Answer, Level | None, Level | None]]:
        """Return each question with its levels in the hours before and after a time."""
        answers = self.answers(service)
        if not answers:
            return ()
        return compare(answers, self._service(service), at, self._time)

    def request_sums(
        self, service: str, width: int, first: float, last: float
    ) -> RequestSeries | None:
        """Return the sums of requests by bucket, None where there is no request."""
        traffic = self._traffic.get((service, ""))
        if traffic is None:
            return None
        numbers, moments = traffic.moments(width, first, last)
        if not numbers:
            return None
        starts = width * np.array(numbers, dtype=float)
        return RequestSeries(TRACKED, starts, moments)

    def design_effects(
        self, service: str, width: int, first: float, last: float
    ) -> Mapping[str, float]:
        """Return the design effect of a change of each share in some buckets."""
        traffic = self._traffic.get((service, ""))
        if traffic is None:
            return {}
        before, after = traffic.halves(BucketRange(first, last, width))
        effects = {name: change_effect(before, after, name) for name in SHARES}
        return {name: effect for name, effect in effects.items() if effect is not None}

    def dependence(self, service: str, metric: str | None, window: str) -> float:
        """Return how many requests are worth one independent one, at least 1."""
        traffic = self._traffic.get((service, ""))
        if traffic is None:
            return 1.0
        seconds = max(_LEAST_STRETCH, parse_window(window))
        buckets = last_buckets(seconds, self._time)
        by_question: dict[str, float] = self._keep(service, ("dependence", seconds), dict)
        return _dependence(traffic, metric, buckets, by_question)

    def dependence_within(
        self, service: str, metric: str | None, start: float, end: float
    ) -> float:
        """Return how many requests of [start, end) are worth one independent one, at least 1."""
        traffic = self._traffic.get((service, ""))
        if traffic is None:
            return 1.0
        known_from = self._time - KEPT_SLOTS
        if end < known_from + _LEAST_STRETCH:  # its clusters are forgotten: as of those known
            end = self._time
        start = max(known_from, min(start, end - _LEAST_STRETCH))
        width = bucket_width(end - start) if start >= self._time - KEPT_FINE else COARSE
        buckets = BucketRange(start // width * width, -(-end // width) * width, width)
        kept: dict[BucketRange, dict[str, float]] = self._keep(service, "dependence within", dict)
        return _dependence(traffic, metric, buckets, kept.setdefault(buckets, {}))

    def samples(self) -> Iterable[GaugeSample]:
        """Return the gauges of every service."""
        for service in sorted(self._rows):
            for answer in self.answers(service):
                yield from _gauges(service, answer)
            by_segment = self.segment_answers(service)
            shown = _busiest(by_segment)
            for one in by_segment:
                if one.segment in shown and one.question in _BY_SEGMENT:
                    tag, _, value = one.segment.partition("=")
                    labels = (
                        ("service", service),
                        ("question", one.question),
                        ("tag", tag),
                        ("value", value),
                        ("window", WINDOW),
                    )
                    yield "rag_segment_ratio", labels, one.level.value

    def changes(self) -> Mapping[str, QuestionsState | None]:
        """Return the rows that changed since the last call, None for deleted ones."""
        rows: dict[str, QuestionsState | None] = dict.fromkeys(self._gone)
        self._gone = {}
        for key, traffic in self._traffic.items():
            for bucket, row in traffic.changes().items():
                rows[_traffic_row(*key, bucket)] = row
        for name, sample in self._samples.changes().items():
            rows[json.dumps([_SAMPLE, *name])] = sample
        for service in self._touched:
            if service in self._rows:
                rows[json.dumps([_SERVICE, service])] = self._rows[service]
        self._touched = {}
        for service, since in self._samples.take_shortened().items():
            rows[json.dumps([_COMPLETE, service])] = CompleteFrom(since)
        return rows

    def restore(self, rows: Mapping[str, QuestionsState]) -> None:
        """Load rows as `changes` returned them."""
        samples: dict[SampleName, ValuedTrace] = {}
        complete: dict[str, float] = {}
        for name, row in rows.items():
            kind, *key = json.loads(name)
            if isinstance(row, TrafficRow) and kind == _TRAFFIC:
                service, segment, width, index = key
                traffic = self._traffic.setdefault(
                    (service, segment), RequestBuckets(whole=not segment)
                )
                traffic.restore(TrafficKey(width, index), row)
            elif isinstance(row, ValuedTrace) and kind == _SAMPLE:
                samples[SampleName(*key)] = row
            elif isinstance(row, ServiceRow) and kind == _SERVICE:
                self._rows[key[0]] = row
            elif isinstance(row, CompleteFrom) and kind == _COMPLETE:
                complete[key[0]] = row.complete_from
            else:
                raise ValueError(f"a row of the questions makes no sense: {name[:100]}")
        self._samples.restore(samples, complete)


def _dependence(
    traffic: RequestBuckets, metric: str | None, buckets: BucketRange, known: dict[str, float]
) -> float:
    """Return the dependence in some buckets for a metric, and keep it in `known` by question."""
    question = "fast" if metric is None else QUESTION_OF.get(metric)
    wanted = (question,) if question in TRACKED else TRACKED
    if missing := [name for name in wanted if name not in known]:
        sums = traffic.sums(buckets)
        tenants = buckets.end - buckets.start <= 6 * HOUR
        for name in missing:
            known[name] = dependence_of(sums, name, tenants=tenants)
    return max(known[name] for name in wanted)


def _traffic_row(service: str, segment: str, bucket: TrafficKey) -> str:
    return json.dumps([_TRAFFIC, service, segment, *bucket])


def _hash(trace_id: str) -> str:
    return blake2b(trace_id.encode("utf-8", "replace"), digest_size=8).hexdigest()


def _read(score: Score, reader: ScoreReader, version: str) -> Valuation:
    scored = score.state is ScoreState.SCORED and score.value is not None
    builtin = _BUILTIN.get(reader.question)
    cheap = None
    if score.cheap is not None and builtin is not None:
        cheap = within_unit(builtin.convert(score.cheap))
    return Valuation(
        value=within_unit(reader.convert(score.value))
        if scored and score.value is not None
        else None,
        applies=score.state is not ScoreState.NOT_APPLICABLE,
        probability=score.probability if 0 < score.probability <= 1 else 1.0,
        stratum=score.stratum,
        cheap=cheap,
        version=version,
    )


def _busiest(answers: Iterable[SegmentAnswer]) -> set[str]:
    """Return the segments of the values of each tag with most requests."""
    requests: dict[str, int] = {}
    for one in answers:  # a question may have no level; what every request tells has most samples
        requests[one.segment] = max(requests.get(one.segment, 0), one.level.samples)
    by_tag: dict[str, list[str]] = {}
    for segment in sorted(requests, key=lambda name: (-requests[name], name)):
        by_tag.setdefault(segment.partition("=")[0], []).append(segment)
    return {segment for found in by_tag.values() for segment in found[:_SHOWN_VALUES]}


def _gauges(service: str, answer: Answer) -> Iterator[GaugeSample]:
    own = (("service", service),)
    name = answer.question
    if answer.level is not None:
        rests_on = (
            ("question", name),
            ("source", answer.level.source),
            ("window", answer.level.window),
        )
        yield "rag_question_source_info", (*own, *rests_on), 1.0
    for window, level in answer.levels.items():
        labels = (*own, ("window", window))
        if answer.unit == "share":
            yield f"rag_{name}_ratio", labels, level.value
            yield f"rag_{name}_lower_ratio", labels, level.lower
            if level.upper is not None:
                yield f"rag_{name}_upper_ratio", labels, level.upper
        elif answer.unit == "usd":
            yield "rag_cost_per_answer_usd", labels, level.value
    if answer.unit != "share":
        return
    if answer.usual is not None:
        yield f"rag_{name}_usual_ratio", own, answer.usual
    if answer.goal is not None:
        yield f"rag_{name}_goal_ratio", own, answer.goal
    if answer.movement is not None:
        labels = (*own, ("window", "1h"))
        yield f"rag_{name}_change_points", labels, answer.movement.change
        yield f"rag_{name}_change_lower_points", labels, answer.movement.lower
        yield f"rag_{name}_change_upper_points", labels, answer.movement.upper
