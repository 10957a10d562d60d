"""The terminal view of a service: its incidents, and a row for each of its eight questions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from textwrap import wrap
from typing import Any

from rich import box
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from ragmeter.console.streams import escape_control
from ragmeter.console.terminal import add_text_row
from ragmeter.core.label_bounds import bound_label, excerpt
from ragmeter.parts.answer_texts import (
    MARKS,
    format_change,
    format_judge_cost,
    format_level,
    format_number,
    format_usual,
)
from ragmeter.parts.incident_words import MARKS as INCIDENT_MARKS
from ragmeter.parts.incident_words import (
    describe_change,
    describe_since,
    headline,
    still_open,
)
from ragmeter.parts.views import Answer, Incident

WIDTH = 100  # columns of a terminal that nothing may need more than

_INCIDENTS = 3  # that are shown, each on five lines: all of a service fit into thirty
_TITLE = WIDTH - 12
_LEAST_QUESTION = 16  # characters by which a question is known
_SUMMARY = 160  # characters: two lines
_NUMBER: dict[str, Any] = {"justify": "left", "no_wrap": True}


def question_table(answers: Sequence[Answer], judge_usd: float | None = None) -> Table:
    """Build the table of the questions of a service.

    Args:
        answers: The questions.
        judge_usd: What judging adds to the cost of an answer; None if that is not known.
    """
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("question", no_wrap=True)
    table.add_column("last hour", **_NUMBER)
    table.add_column("usual", **_NUMBER)
    table.add_column("change in 1h", **_NUMBER)
    table.add_column("rests on", overflow="fold")
    for answer in answers:
        mark = MARKS[answer.state]
        add_text_row(
            table,
            answer.question,
            format_level(answer),
            format_usual(answer),
            f"{format_change(answer)} {mark}".strip(),
            "; ".join(_sources(answer, judge_usd)),
        )
    return table


def _sources(answer: Answer, judge_usd: float | None) -> Iterator[str]:
    if answer.level is not None:
        yield answer.source
    if answer.unit == "usd" and judge_usd is not None:
        yield format_judge_cost(judge_usd)


def incident_lines(incidents: Sequence[Incident], now: float | None) -> Iterator[Text]:
    """Yield the lines of the open incidents of a service; `now` is event time."""
    standing = still_open(incidents)
    if not standing:
        yield Text("No incident.")
    for incident in standing[:_INCIDENTS]:
        yield from _incident(incident, now)
    hidden = len(standing) - _INCIDENTS
    if hidden > 0:
        yield Text(f"and {hidden} more on the page")


def _incident(incident: Incident, now: float | None) -> Iterator[Text]:
    page = incident.severity == "page"
    words = f"{INCIDENT_MARKS[incident.severity]} {'PAGE' if page else 'WARN'} "
    line = Text(words, "bold red" if page else "bold yellow")
    line.append(escape_control(excerpt(headline(incident), _TITLE)), "bold")
    if incident.state != "open":
        line.append(f" ({incident.state})")
    yield line
    parts = [describe_since(incident, now), f"incident {incident.id}"]
    if change := describe_change(incident):
        parts.append(change)
    below = [incident.summary, "; ".join(parts)]
    below.append(_last_line(incident))
    for text in below:
        if text:
            for part in wrap(escape_control(excerpt(text, _SUMMARY)), WIDTH - 8):
                yield Text(f"       {part}")


def _last_line(incident: Incident) -> str:
    """Return the worst question and what to do: of a long advice that alone, in one line."""
    advice = f"do: {incident.advice}" if incident.advice else ""
    if not incident.worst_questions:
        return advice
    text, count = incident.worst_questions[0]
    times = f" {count}×" if count > 1 else ""
    room = WIDTH - 24 - (len(advice) + 2 if advice else 0)
    if room < _LEAST_QUESTION:
        return advice
    return f"worst:{times} “{excerpt(text, room)}”" + (f"; {advice}" if advice else "")


def fleet_table(answers: Mapping[str, Sequence[Answer]], incidents: Sequence[Incident]) -> Table:
    """Build the table of several services: a line each, those with an incident first."""
    standing = still_open(incidents)
    number = Counter(one.service for one in standing)
    severe = {one.service for one in standing if one.severity == "page"}
    names = [answer.question for answer in next(iter(answers.values()), ())]
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("service", overflow="ellipsis", max_width=18, no_wrap=True)
    for name in names:
        table.add_column(name, no_wrap=True)
    for service in sorted(answers, key=lambda one: (one not in severe, not number[one], one)):
        cells = [f"{_short(answer)}{MARKS[answer.state]}" for answer in answers[service]]
        add_text_row(table, bound_label(service, 60), *cells)
    return table


def _short(answer: Answer) -> str:
    """Return the number of a question, or what is known of it otherwise, in few characters."""
    if answer.level is not None:
        return format_number(answer, answer.level.value)
    if answer.movement is not None and answer.unit == "share":
        return f"{answer.movement.change:+.0f} pts"
    return "–"


def service_lines(
    *,
    name: str,
    requests: str,
    answers: Sequence[Answer],
    incidents: Sequence[Incident],
    now: float | None,
    judge_usd: float | None = None,
) -> Iterator[RenderableType]:
    """Yield a service: its name and state in words, its incidents, and its questions.

    Args:
        name: The service.
        requests: How many requests it had, in words.
        answers: Its questions.
        incidents: Its incidents.
        now: Event time.
        judge_usd: What judging adds to the cost of an answer.
    """
    states = [answer.state for answer in answers]
    verdict = Text("OK", "bold green")
    if "bad" in states:
        verdict = Text(f"{states.count('bad')} bad", "bold red")
    elif "moved" in states:
        verdict = Text(f"{states.count('moved')} moved", "bold yellow")
    elif not answers or set(states) == {"not enough"}:
        verdict = Text("not enough yet")
    head = Text(escape_control(bound_label(name, 50)), "bold underline")
    yield Text.assemble(head, f": {requests}  ", verdict)
    yield from incident_lines(incidents, now)
    yield question_table(answers, judge_usd)
