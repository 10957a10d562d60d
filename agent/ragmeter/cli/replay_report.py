"""Print a replay for `ragmeter run`: its progress, every service at its end, pages to open."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from rich.console import RenderableType
from rich.text import Text

from ragmeter.cli.question_table import service_lines
from ragmeter.core.label_bounds import bound_label
from ragmeter.core.score import read_unsupported
from ragmeter.parts.incident_words import still_open

if TYPE_CHECKING:
    from ragmeter.aggregate.agent_view import AgentView
    from ragmeter.config.scoring import JudgeSettings


def service_report(view: AgentView, service: str) -> Iterator[RenderableType]:
    """Yield what is known of a service. Hold the lock of the agent."""
    from ragmeter.aggregate.agent_view import judge_spend  # late, as most commands need no agent

    window = view.windows.names[-1]
    seen = view.windows.count_traces(service, "", window)
    spend = judge_spend(view)
    yield Text()
    yield from service_lines(
        name=service,
        requests=f"{seen:,} requests in the last {window}",
        answers=view.questions(service).answers(service),
        incidents=[one for one in view.incidents() if one.service == service],
        now=view.windows.now,
        judge_usd=None if spend is None else spend.usd_per_answer,
    )


def judge_report(view: AgentView, settings: JudgeSettings) -> Iterator[Text]:
    """Yield what was asked of the judge, and what it cost."""
    from ragmeter.aggregate.agent_view import judge_spend

    use = judge_spend(view)
    budget = settings.budget.usd_per_day
    if use is None:
        return
    limit = "" if budget is None else f" of a budget of {budget:g} USD a day"
    yield Text(
        f"Judge {bound_label(use.model, 40)}: {use.verdicts:,} verdicts, {use.cached:,} of them"
        f" from the cache; {use.usd:.3f} USD{limit}."
    )


def describe_progress(view: AgentView) -> str:
    """Return how far a replay is: the time that it has reached, and the requests so far."""
    windows = view.windows
    services = windows.services()[:2]
    if not services:
        return ""
    counts = [
        f"{bound_label(name, 60)} {windows.count_traces(name, '', windows.names[-1]):,} requests"
        for name in services
    ]
    reached = datetime.fromtimestamp(max(0.0, windows.now or 0.0), UTC)
    return f"replayed until {reached:%a %d %b %H:%M} UTC: {'; '.join(counts)}"


def _has_marked_words(view: AgentView, service: str, trace_id: str) -> bool:
    results = (view.evidence(service, trace_id) or {}).get("results", ())
    return any(read_unsupported(one.get("detail")) for one in results)


def page_links(view: AgentView, url: str) -> Iterator[str]:
    """Yield the pages to open: all services, the worst incident, and a trace of it."""
    # late: most commands need no client
    from ragmeter.server.paths import details_path, incident_path, trace_path

    yield f"{url}/  all services, those in trouble first"
    for incident in [one for one in still_open(view.incidents()) if one.worst][:1]:
        marked = (one for one in incident.worst if _has_marked_words(view, incident.service, one))
        trace_id = next(marked, incident.worst[0])
        yield f"{url}{incident_path(incident.service, incident.id)}  the worst incident, and why"
        yield f"{url}{details_path(incident.service)}  details: charts, segments, every metric"
        yield f"{url}{trace_path(incident.service, trace_id)}  one of its worst requests"
