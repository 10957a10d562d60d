"""Print a replay for `ragmeter run`: its progress, every service at its end, pages to open."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from rich.console import RenderableType
from rich.text import Text

from ragmeter.cli.question_table import service_lines
from ragmeter.core.label_bounds import bound_label
from ragmeter.core.metric_specs import base_name
from ragmeter.core.score import read_unsupported
from ragmeter.metrics.registry import metric_specs

if TYPE_CHECKING:
    from ragmeter.aggregate.agent_view import AgentView
    from ragmeter.config.scoring import JudgeSettings


def service_report(view: AgentView, service: str) -> Iterator[RenderableType]:
    """Yield what is known of a service. Hold the lock of the agent."""

    def question_of(service: str, trace_id: str) -> str:
        trace = (view.evidence(service, trace_id) or {}).get("trace", {})
        query = trace.get("query")
        return query if isinstance(query, str) else ""

    from ragmeter.aggregate.agent_view import judge_spend  # late, as most commands need no agent

    window = view.windows.names[-1]
    seen = view.windows.count_traces(service, "", window)
    spend = judge_spend(view)
    yield Text()
    yield from service_lines(
        name=service,
        requests=f"{seen:,} requests in the last {window}",
        answers=view.questions(service).answers(service),
        alerts=[alert for alert in view.alerts() if alert.service == service],
        now=view.windows.now,
        question_of=question_of,
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
    """Yield the pages to open: all services, the worst one, and a trace of its alert."""
    # late: most commands need no client
    from ragmeter.server.client import details_path, trace_path

    yield f"{url}/  all services, those in trouble first"
    alerts = [
        one
        for one in view.alerts()
        if one.state == "firing" and one.worst and base_name(one.metric) in metric_specs()
    ]
    # a score says more of its trace than an error does
    alerts.sort(key=lambda one: metric_specs()[base_name(one.metric)].kind == "ratio")
    for alert in alerts[:1]:
        marked = (one for one in alert.worst if _has_marked_words(view, alert.service, one))
        trace_id = next(marked, alert.worst[0])
        yield f"{url}{details_path(alert.service)}  details: charts, segments, every metric"
        yield f"{url}{trace_path(alert.service, trace_id)}  one of the worst traces of {alert.rule}"
