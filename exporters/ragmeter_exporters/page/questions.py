"""What the page of a service shows of its questions, copied from the running agent.

The lock is held for one question at a time, and not at all while kept traces are read.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from statistics import NormalDist
from typing import Any

from ragmeter.aggregate.agent_view import AgentView
from ragmeter.core.durations import parse_window
from ragmeter.core.metric_specs import find_spec
from ragmeter.metrics.registry import metric_specs
from ragmeter.parts.answer_texts import format_number, format_ratio
from ragmeter.parts.views import Answer, Change, Level, SegmentAnswer, SourceChange
from ragmeter.windows.estimators import Z_95

from ragmeter_exporters.page.numbers import format_seconds, format_trace_value
from ragmeter_exporters.page.texts import metric_words

RANGES: Mapping[str, int] = {name: parse_window(name) for name in ("1h", "6h", "24h", "7d", "14d")}
"""The lengths of time that charts show, in seconds."""

USUAL_RANGE = "24h"
DEFAULT_QUESTION = "grounded"  # that is shown large where all is well

ENOUGH = 5  # bad traces that tell what is asked; a more trusted source with fewer does not lead
WORST = 25  # traces that are grouped by their question: of so many the texts are kept
ROWS = 6  # of worst questions, and of segments
MARKS = 6  # changes in a chart

_PARTS = 24  # of a stretch of time in a chart
_FINEST = 300.0  # seconds of the shortest of them, as long as the finest buckets

_STATES = ("bad", "moved")  # the worst first


@dataclass(frozen=True, slots=True)
class QuestionChange:
    """A question before and after a change.

    Args:
        change: How it differs, in words; empty where one of both is not known.
        beyond: Whether it differs beyond chance.
        worse: Whether it is worse beyond chance.
    """

    answer: Answer
    before: Level | None
    after: Level | None
    change: str = ""
    beyond: bool = False
    worse: bool = False


@dataclass(frozen=True, slots=True)
class WorstQuestion:
    """What was asked, how often among the worst traces, and the worst of them."""

    text: str
    count: int
    value: str
    trace_id: str
    kept: bool


@dataclass(frozen=True, slots=True)
class WorstQuestions:
    """The worst traces of one question, grouped by what was asked, the worst first.

    Args:
        series: The (metric, scorer) that calls them the worst.
        window: The window that they are of.
        traces: How many there are.
    """

    series: tuple[str, str]
    window: str
    traces: int
    rows: list[WorstQuestion]


@dataclass(frozen=True, slots=True)
class SegmentLine:
    """A segment with its answers by question; `moved` counts those that differ from the rest."""

    segment: str
    cells: dict[str, SegmentAnswer]
    moved: int


@dataclass(slots=True)
class QuestionsView:
    """The questions of a service.

    Args:
        lines: By question the levels of the last 24 hours, None where there is none.
        shown: The question that is shown large.
        span: The length of time of the large chart, one of `RANGES`.
        chart: Its levels.
        changes: New values of tags, the latest first.
        switches: Since when the question that is shown large rests on something else.
        compared: The questions before and after the latest change.
        segments: The segments, the worst first; `hidden` more are not shown.
        columns: The questions that some segment has an answer to.
    """

    answers: Sequence[Answer]
    lines: dict[str, list[tuple[float, Level | None]]]
    shown: Answer
    span: str
    chart: list[tuple[float, Level | None]]
    changes: Sequence[Change] = ()
    switches: Sequence[SourceChange] = ()
    compared: list[QuestionChange] = field(default_factory=list)
    segments: list[SegmentLine] = field(default_factory=list)
    hidden: int = 0
    columns: list[Answer] = field(default_factory=list)
    worst: WorstQuestions | None = None


def read_questions(
    agent: AgentView,
    service: str,
    windows: Sequence[str],
    question: str = "",
    span: str | None = None,
) -> QuestionsView | None:
    """Copy the questions of a service; None where there are none.

    Args:
        agent: What is shown.
        service: The service.
        windows: The windows of worst traces, the first that has some is used.
        question: The question to show large; any other text: the one that needs a look.
        span: The length of time of its chart; any other text: a day.
    """
    with agent.lock():
        questions = agent.questions(service)
        answers = tuple(questions.answers(service))
        changes = tuple(questions.tag_changes(service)) if answers else ()
        switches = questions.source_changes(service) if answers else ()
        now = agent.windows.now or 0.0
    if not answers:
        return None
    shown = next((one for one in answers if one.question == question), None) or choose(answers)
    length = span if span in RANGES and span is not None else USUAL_RANGE

    def read_line(name: str, span: str) -> list[tuple[float, Level | None]]:
        with agent.lock():
            found = agent.questions(service).history(service, name, RANGES[span])
        return with_gaps(found, now, RANGES[span])

    view = QuestionsView(
        answers=answers,
        lines={one.question: read_line(one.question, USUAL_RANGE) for one in answers},
        shown=shown,
        span=length,
        chart=read_line(shown.question, length),
        changes=changes,
        switches=[one for one in switches if one.question == shown.question],
    )
    if changes:
        with agent.lock():
            rows = agent.questions(service).before_and_after(service, changes[0].at)
        view.compared = compare_all(rows)
    with agent.lock():
        segments = agent.questions(service).segment_answers(service)
    lines = sort_segments(segments, shown)
    view.segments = lines[:ROWS]
    view.hidden = max(0, len(lines) - ROWS)
    view.columns = [
        one for one in answers if any(one.question in line.cells for line in view.segments)
    ]
    view.worst = _read_worst(agent, service, shown, windows)
    return view


def choose(answers: Sequence[Answer]) -> Answer:
    """Return the question that needs a look most: the first of the worst state."""
    for state in _STATES:
        for answer in answers:
            if answer.state == state:
                return answer
    return next((one for one in answers if one.question == DEFAULT_QUESTION), answers[0])


def with_gaps(
    found: Sequence[tuple[float, Level]], now: float, seconds: int
) -> list[tuple[float, Level | None]]:
    """Return a stretch of time up to now, each level in the middle of its part, None in gaps."""
    width = max(_FINEST, seconds / _PARTS)
    points: list[tuple[float, Level | None]] = [(now - seconds, None)]
    last = None
    for start, level in found:
        if last is not None and start - last > 1.5 * width:
            points.append(((last + start + width) / 2, None))
        at = min(now, start + width / 2)
        points.append((at, level))
        last = start
    if points[-1][0] < now:
        points.append((now, None))
    return points


def compare_all(
    rows: Sequence[tuple[Answer, Level | None, Level | None]],
) -> list[QuestionChange]:
    """Compare every question; of those without any difference at most one in twenty pages errs."""
    known = sum(1 for _, before, after in rows if before is not None and after is not None)
    return [_compare(answer, before, after, known) for answer, before, after in rows]


def _compare(
    answer: Answer, before: Level | None, after: Level | None, comparisons: int
) -> QuestionChange:
    if before is None or after is None:
        return QuestionChange(answer, before, after)
    lower, upper = difference_interval(before, after, comparisons)
    rose = after.value > before.value
    beyond = lower > 0 or upper < 0
    return QuestionChange(
        answer=answer,
        before=before,
        after=after,
        change=describe_change(answer, before.value, after.value) if beyond else "within chance",
        beyond=beyond,
        worse=beyond and rose == (answer.better == "lower"),
    )


def difference_interval(before: Level, after: Level, comparisons: int) -> tuple[float, float]:
    """Return the interval of `after - before`, which holds for all comparisons at once at 95 %.

    It is Newcombe's (1998): the distances from the values to the ends of their own intervals,
    squared and added, which allows for intervals that are not symmetrical. They are widened for the
    number of comparisons (Bonferroni). An end that is not known is as far away as can be.
    """
    wider = NormalDist().inv_cdf(1 - 0.025 / max(1, comparisons)) / Z_95

    def above(level: Level) -> float:
        return math.inf if level.upper is None else level.upper - level.value

    difference = after.value - before.value
    down = math.hypot(after.value - after.lower, above(before))
    up = math.hypot(above(after), before.value - before.lower)
    return difference - wider * down, difference + wider * up


def describe_change(answer: Answer, before: float, after: float) -> str:
    """Return a change in points of a share, else as a share of the value before."""
    if answer.unit == "share":
        change = 100 * (after - before)
        digits = 0 if abs(change) >= 1 else 1
        points = "point" if f"{abs(change):.{digits}f}" == "1" else "points"
        return f"{change:+.{digits}f} {points}".replace("-", "\u2212")
    if before <= 0:
        return f"from {format_number(answer, before)}"
    return format_ratio(after / before).replace("-", "\u2212")


def sort_segments(segments: Sequence[SegmentAnswer], shown: Answer) -> list[SegmentLine]:
    """Return a line for each segment: those that differ most from the rest, then the worst."""
    cells: dict[str, dict[str, SegmentAnswer]] = {}
    for one in segments:
        cells.setdefault(one.segment, {})[one.question] = one
    lines = [
        SegmentLine(segment, found, sum(one.moved for one in found.values()))
        for segment, found in cells.items()
    ]
    sign = 1 if shown.better == "higher" else -1

    def rank(line: SegmentLine) -> tuple[bool, int, float, str]:
        own = line.cells.get(shown.question)
        moved = own is not None and own.moved
        return (
            not moved,
            -line.moved,
            math.inf if own is None else sign * own.level.value,
            line.segment,
        )

    return sorted(lines, key=rank)


def _read_worst(
    agent: AgentView, service: str, shown: Answer, windows: Sequence[str]
) -> WorstQuestions | None:
    """Group the worst traces of the most trusted score that knows enough of them."""
    most: tuple[str, str, str, list[tuple[str, float]]] | None = None
    for window in windows:
        for metric, scorer in shown.scores:
            ranked = _worst_traces(
                agent=agent, service=service, metric=metric, scorer=scorer, window=window
            )
            if ranked and (most is None or len(ranked) > len(most[3])):
                most = metric, scorer, window, ranked
            if most is not None and len(most[3]) >= ENOUGH:
                break
        if most is not None:
            break
    if most is None:
        return None
    metric, scorer, window, ranked = most
    texts = {name: _query(agent.evidence(service, name)) for name, _ in ranked}
    rows = group_by_query(ranked, texts, partial(format_bad, metric))
    return WorstQuestions((metric, scorer), window, len(ranked), rows[:ROWS])


def _worst_traces(
    agent: AgentView, service: str, metric: str, scorer: str, window: str
) -> list[tuple[str, float]]:
    """Return (id, value) of the worst traces, perfect ones left out."""
    spec = find_spec(metric_specs(), metric)
    best = None
    if spec is not None:
        best = spec.high if spec.good == "higher" else spec.low
    with agent.lock():
        found = agent.windows.worst(service, metric, scorer, window, WORST)
        return [(item.trace_id, item.value) for item in found if item.value != best]


def format_bad(metric: str, value: float) -> str:
    """Format a bad value of one trace: of a yes or no what went wrong."""
    if metric == "latency":
        return format_seconds(value)
    spec = find_spec(metric_specs(), metric)
    if spec is not None and spec.kind == "ratio" and value in (0, 1):
        return f"{'' if value else 'not '}{metric_words(metric)}"
    return format_trace_value(value, spec)


def group_by_query(
    ranked: Sequence[tuple[str, float]],
    texts: Mapping[str, str | None],
    write: Callable[[float], str],
) -> list[WorstQuestion]:
    """Group traces, the worst first, by what was asked, up to case and white space.

    Traces without a text stand for themselves. Of equally bad groups the larger comes first.
    """
    groups: dict[str, list[tuple[str, float]]] = {}
    for trace_id, value in ranked:
        text = texts[trace_id]
        key = f"={trace_id}" if text is None else " ".join(text.casefold().split())
        groups.setdefault(key, []).append((trace_id, value))
    order = {value: place for place, (_, value) in reversed([*enumerate(ranked)])}
    found = sorted(groups.values(), key=lambda group: (order[group[0][1]], -len(group)))
    rows = []
    for group in found:
        trace_id, value = group[0]
        text = texts[trace_id]
        rows.append(
            WorstQuestion(
                text=trace_id if text is None else text,
                count=len(group),
                value=write(value),
                trace_id=trace_id,
                kept=text is not None,
            )
        )
    return rows


def _query(document: Mapping[str, Any] | None) -> str | None:
    """Return what was asked in a kept trace, empty if it was not told; None if it is not kept."""
    if document is None:
        return None
    trace = document.get("trace")
    query = trace.get("query") if isinstance(trace, dict) else None
    return query if isinstance(query, str) else ""
