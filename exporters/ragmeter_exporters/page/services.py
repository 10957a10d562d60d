"""View models of the page of a service, which is one screen, and of the page of all services."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from ragmeter.aggregate.agent_view import AgentView
from ragmeter.parts.collection import PartPage
from ragmeter.parts.views import Answer

from ragmeter_exporters.page.numbers import format_age
from ragmeter_exporters.page.questions import QuestionsView, read_questions
from ragmeter_exporters.page.views import (
    DEFAULT_OPTIONS,
    STALE_SECONDS,
    PageBase,
    PageOptions,
    base_view,
    read_each,
)

_NAMED = 1  # questions that a status names; of more it gives the number


@dataclass(slots=True)
class ServicePageView:
    """The page of one service; without questions where the part that answers them is off.

    Args:
        seen: Requests by window.
    """

    base: PageBase
    name: str
    seen: dict[str, int]
    questions: QuestionsView | None


@dataclass(frozen=True, slots=True)
class FleetRow:
    """A service among others.

    Args:
        seen: Requests in the window of the page.
        age: Seconds since the newest one; None without any.
        standing: Its open pages and warnings.
    """

    name: str
    answers: Sequence[Answer]
    seen: int
    age: float | None
    standing: tuple[int, int]

    @property
    def severity(self) -> str:
        """How bad it is: `critical`, `warning` or nothing."""
        states = {answer.state for answer in self.answers}
        if "bad" in states or self.standing[0]:
            return "critical"
        return "warning" if "moved" in states or self.standing[1] else ""

    @property
    def status(self) -> str:
        """How it is, in words."""
        words = [
            _name_some([one.question for one in self.answers if one.state == state], state)
            for state in ("bad", "moved")
        ]
        incidents = sum(self.standing)
        if not any(words) and incidents:
            words.append(f"{incidents} incident{'' if incidents == 1 else 's'}")
        if self.age is not None and self.age > STALE_SECONDS:
            words.append(f"no request for {format_age(self.age)}")
        found = ", ".join(word for word in words if word)
        if found:
            return found
        known = any(one.state == "good" for one in self.answers)
        return "OK" if known else "not enough yet"


@dataclass(slots=True)
class FleetView:
    """The page of all services, those in trouble first.

    Args:
        columns: The questions; of the first service that has any.
        unnamed: Names of services without series of their own.
        parts: What parts show of all services.
    """

    base: PageBase
    rows: list[FleetRow]
    columns: Sequence[Answer] = ()
    unnamed: list[str] = field(default_factory=list)
    parts: list[PartPage] = field(default_factory=list)


def _name_some(names: Sequence[str], state: str) -> str:
    if not names:
        return ""
    return f"{' and '.join(names) if len(names) <= _NAMED else len(names)} {state}"


def service_view(
    agent: AgentView,
    service: str,
    options: PageOptions = DEFAULT_OPTIONS,
    question: str = "",
    span: str | None = None,
) -> ServicePageView | None:
    """Copy what the page of a service shows; None where no window has a request of it.

    `question` and `span` choose the large chart, see `read_questions`.
    """
    base = base_view(agent, options)
    if service not in base.services:
        return None
    with agent.lock():
        windows = agent.windows
        seen = {name: windows.count_traces(service, "", name) for name in base.windows}
    questions = read_questions(
        agent=agent,
        service=service,
        windows=tuple(dict.fromkeys((base.window, base.windows[-1]))),
        question=question,
        span=span,
    )
    return ServicePageView(base=base, name=service, seen=seen, questions=questions)


def fleet_view(agent: AgentView, options: PageOptions = DEFAULT_OPTIONS) -> FleetView:
    """Copy what the page of all services shows."""
    base = base_view(agent, options)
    # what stands still as a whole says so itself: of that moment only who was silent then
    moment = base.now if base.state == "still" and base.now is not None else base.clock

    def read(name: str) -> FleetRow:
        newest = base.newest.get(name)
        return FleetRow(
            name=name,
            answers=tuple(agent.questions(name).answers(name)),
            seen=agent.windows.count_traces(name, "", base.window),
            age=None if newest is None else max(0.0, moment - newest),
            standing=base.standing.get(name, (0, 0)),
        )

    rows = read_each(agent, base.services, read)
    order = ("critical", "warning", "")
    rows.sort(key=lambda row: (order.index(row.severity), -row.seen, row.name))
    with agent.lock():
        unnamed = list(agent.unnamed_services())
    return FleetView(
        base=base,
        rows=rows,
        columns=next((row.answers for row in rows if row.answers), ()),
        unnamed=unnamed,
        parts=list(agent.part_pages()),
    )
