"""The terminal view of a service: its incidents, and a row for each of its eight questions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from rich import box
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from ragmeter.alerts.alert import Alert
from ragmeter.console.terminal import add_text_row, escape_control
from ragmeter.core.label_bounds import bound_label, excerpt
from ragmeter.parts.answer_texts import (
    MARKS,
    format_change,
    format_judge_cost,
    format_level,
    format_number,
    format_usual,
)
from ragmeter.parts.views import Answer

WIDTH = 100  # columns of a terminal that nothing may need more than

_INCIDENTS = 5  # that are shown, each on two lines: all of a service fit into thirty
_SUMMARY = WIDTH - 12
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
    table.add_column("change", **_NUMBER)
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


def incident_lines(
    alerts: Sequence[Alert], now: float | None, question_of: Callable[[str, str], str]
) -> Iterator[Text]:
    """Yield the lines of the firing alerts of a service, folded by what they were told with.

    Args:
        alerts: Its alerts.
        now: Event time.
        question_of: Returns the question of a trace by service and id, empty if it is not kept.
    """
    firing = [one for one in alerts if one.state == "firing"]
    firing.sort(key=lambda one: (one.severity != "critical", one.folded_under, one.fired_at or 0.0))
    groups: dict[str, list[Alert]] = {}
    for one in firing:
        groups.setdefault(one.folded_under or one.id, []).append(one)
    if not groups:
        yield Text("No incident.")
    for alert, *others in list(groups.values())[:_INCIDENTS]:
        yield from _incident(alert, others, now, question_of)
    hidden = len(groups) - _INCIDENTS
    if hidden > 0:
        yield Text(f"and {hidden} more on the page")


def _incident(
    alert: Alert, others: Sequence[Alert], now: float | None, question_of: Callable[[str, str], str]
) -> Iterator[Text]:
    page = alert.severity == "critical"
    line = Text("■ PAGE " if page else "▲ WARN ", "bold red" if page else "bold yellow")
    summary = alert.summary.removeprefix(f"{alert.service}: ")
    line.append(escape_control(excerpt(summary, _SUMMARY)), "bold")
    yield line
    parts = [f"since {_clock(alert.since)}{_lasts(alert.since, now)}", bound_label(alert.rule, 60)]
    names = sorted({bound_label(one.rule, 60) for one in others} - {alert.rule})
    if names:
        parts.append(f"also: {', '.join(names)}")
    asked = next((text for one in alert.worst if (text := question_of(alert.service, one))), "")
    if asked:
        parts.append(f"worst: “{excerpt(asked, 60)}”")
    yield Text(f"       {escape_control(excerpt('; '.join(parts), WIDTH - 8))}")


def _clock(seconds: float | None) -> str:
    return f"{datetime.fromtimestamp(max(0.0, seconds or 0.0), UTC):%H:%M} UTC"


def _lasts(since: float | None, now: float | None) -> str:
    if since is None or now is None or now < since:
        return ""
    minutes = round((now - since) / 60)
    return f" ({minutes} min)" if minutes < 120 else f" ({minutes / 60:.0f} h)"


def fleet_table(answers: Mapping[str, Sequence[Answer]], alerts: Sequence[Alert]) -> Table:
    """Build the table of several services: a line each, those with an incident first."""
    firing = Counter(one.service for one in alerts if one.state == "firing")
    severe = {one.service for one in alerts if one.state == "firing" and one.severity == "critical"}
    names = [answer.question for answer in next(iter(answers.values()), ())]
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("service", overflow="ellipsis", max_width=18, no_wrap=True)
    for name in names:
        table.add_column(name, no_wrap=True)
    for service in sorted(answers, key=lambda one: (one not in severe, not firing[one], one)):
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
    alerts: Sequence[Alert],
    now: float | None,
    question_of: Callable[[str, str], str],
    judge_usd: float | None = None,
) -> Iterator[RenderableType]:
    """Yield a service: its name and state in words, its incidents, and its questions.

    Args:
        name: The service.
        requests: How many requests it had, in words.
        answers: Its questions.
        alerts: Its alerts.
        now: Event time.
        question_of: As in `incident_lines`.
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
    yield from incident_lines(alerts, now, question_of)
    yield question_table(answers, judge_usd)
