"""Incidents as lines of a list and as a page of their own, with their signals as evidence."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ragmeter.aggregate.agent_view import AgentView
from ragmeter.alerts.alert import Alert
from ragmeter.alerts.rule_sets import incident_runbook, runbook_link
from ragmeter.config.reporting import RUNBOOK_PATH
from ragmeter.core.metric_specs import MetricSpec, find_spec
from ragmeter.metrics.registry import metric_specs
from ragmeter.parts.incident_words import (
    EVERYWHERE,
    MARKS,
    clock,
    describe_change,
    describe_since,
    headline,
    is_closed,
    length,
)
from ragmeter.parts.views import Incident

from ragmeter_exporters.page.numbers import (
    format_count,
    format_interval,
    format_moment,
    format_seconds,
    format_seconds_interval,
    format_value,
)
from ragmeter_exporters.page.texts import metric_words, one_line
from ragmeter_exporters.page.views import DEFAULT_OPTIONS, PageBase, PageOptions, base_view

MAX_TITLE = 160  # characters of a line
MAX_LINE = 400  # characters of a line of the details
# Lines of the details that have a place of their own on the page.
_ELSEWHERE = ("Changed: ", "Worst question")

OPERATORS = {"<=": "≤", ">=": "≥"}
SEVERITIES = {"page": "critical", "warning": "warning"}
"""The class of an incident on a page, by its severity."""


@dataclass(frozen=True, slots=True)
class IncidentLine:
    """An incident on a line.

    Args:
        severity: The class of its colour: `critical`, `warning`, or `over`.
        words: Its severity and state in words.
        title: What is wrong.
        summary: The levels, since when and where.
        when: Since when, and for how long that is.
    """

    incident: Incident
    severity: str
    mark: str
    words: str
    title: str
    summary: str
    when: str
    runbook: str


@dataclass(frozen=True, slots=True)
class SignalChange:
    """The numbers of a signal: from what to what, how sure, and beyond which limit."""

    value: str
    before: str = ""
    band: str = ""
    limit: str = ""


@dataclass(frozen=True, slots=True)
class SignalLine:
    """A signal as evidence: what was measured, and what it says."""

    alert: Alert
    subject: str
    change: SignalChange
    since: str
    evidence: str
    runbook: str


@dataclass(slots=True)
class IncidentView:
    """The page of an incident.

    Args:
        change: What changed with the onset; empty if nothing is known.
        where: The requests that it is about.
        onset: The time in which it began, in words.
        detail: What else to know, a line each.
        signals: The evidence.
        worst: Ids of the worst traces with what was asked; the id where that is not kept.
    """

    base: PageBase
    line: IncidentLine
    change: str
    where: str
    onset: str
    detail: list[str]
    signals: list[SignalLine]
    worst: list[tuple[str, str]]


def incident_lines(incidents: Sequence[Incident], now: float | None) -> list[IncidentLine]:
    """Return a line for each incident; `now` is stream time, until which open ones have lasted."""
    return [_line(incident, now) for incident in incidents]


def incident_view(
    agent: AgentView, service: str, name: str, options: PageOptions = DEFAULT_OPTIONS
) -> IncidentView | None:
    """Copy what the page of an incident shows; None where it is not held."""
    base = base_view(agent, options)
    found = (one for one in base.incidents if (one.service, one.id) == (service, name))
    incident = next(found, None)
    if incident is None:
        return None
    return IncidentView(
        base=base,
        line=_line(incident, base.now),
        change=one_line(describe_change(incident), MAX_TITLE),
        where=one_line(incident.segment, MAX_TITLE) or EVERYWHERE,
        onset=_onset(incident),
        detail=[
            one_line(text, MAX_LINE) for text in incident.detail if not text.startswith(_ELSEWHERE)
        ],
        signals=[_signal(alert, base.now) for alert in incident.signals],
        worst=[(one, _asked(agent, service, one)) for one in incident.worst],
    )


def _asked(agent: AgentView, service: str, trace_id: str) -> str:
    trace = (agent.evidence(service, trace_id) or {}).get("trace")
    query = trace.get("query") if isinstance(trace, dict) else None
    return query if isinstance(query, str) and query else trace_id


def _line(incident: Incident, now: float | None) -> IncidentLine:
    return IncidentLine(
        incident=incident,
        severity="over" if is_closed(incident) else SEVERITIES[incident.severity],
        mark="✓" if incident.over else MARKS[incident.severity],
        words=incident.severity if incident.state == "open" else incident.state,
        title=one_line(headline(incident), MAX_TITLE),
        summary=one_line(incident.summary, MAX_TITLE),
        when=describe_since(incident, now),
        runbook=incident.runbook or incident_runbook(incident.kind, RUNBOOK_PATH),
    )


def _onset(incident: Incident) -> str:
    early, late = clock(incident.since_lower), clock(incident.since_upper)
    between = "" if early == late else f"estimated, between {early} and {late}; "
    return f"{between}told {length(incident.opened_at - incident.since)} later"


def _signal(alert: Alert, now: float | None) -> SignalLine:
    facts = [*_times(alert, now), *_evidence(alert)]
    return SignalLine(
        alert=alert,
        subject=_subject(alert) + (f", {one_line(alert.segment)}" if alert.segment else ""),
        change=_change(alert),
        since=format_moment(alert.since, now),
        evidence=" · ".join(fact for fact in facts if fact),
        runbook=alert.runbook or runbook_link(alert.rule, RUNBOOK_PATH),
    )


def _change(alert: Alert) -> SignalChange:
    beyond = f"{OPERATORS.get(alert.op, alert.op)} {_number(alert, alert.threshold)} "
    if alert.metric == "traces":
        beyond = ""  # that none is too few goes without saying
    sure = " (95 % sure)" if alert.statistic in ("lower", "upper") else ""
    limit = "" if alert.drift is not None else f"{beyond}in {alert.window}{sure}"
    if alert.value is None:
        return SignalChange("no data", limit=limit)
    band = ""
    if alert.lower is not None and alert.upper is not None:
        if alert.metric == "latency":
            band = f" ({format_seconds_interval(alert.lower, alert.upper)})"
        else:
            band = f" ({format_interval(alert.lower, alert.upper, _spec(alert))})"
    before = "" if alert.baseline is None else f"{_number(alert, alert.baseline)} → "
    return SignalChange(_number(alert, alert.value), before, band, limit)


def _number(alert: Alert, number: float) -> str:
    if alert.metric == "latency":
        return format_seconds(number)
    spec = _spec(alert)
    return format_count(number) if spec is None else format_value(number, spec)


def _spec(alert: Alert) -> MetricSpec | None:
    # A share of results is written as that of failed requests.
    return find_spec(metric_specs(), alert.metric if alert.unscored is None else "error")


def _times(alert: Alert, now: float | None) -> list[str]:
    """Return what is told of the time of a signal, and of how many answers it is."""
    drift = alert.drift or {}
    early, late = drift.get("since_earliest"), drift.get("since_latest")
    facts = []
    if early is not None and late is not None:
        facts.append(f"between {clock(early)} and {clock(late)}")
    if alert.state == "resolved":
        reason = f" ({one_line(alert.reason)})" if alert.reason else ""
        facts.append(f"ended {format_moment(alert.resolved_at, now)}{reason}")
    if alert.samples:
        noun = "answer" if alert.samples == 1 else "answers"
        text = f"based on {alert.samples:,} {noun}"
        if abs(alert.effective_samples - alert.samples) >= 1:
            text += f", worth {format_count(round(alert.effective_samples))}"
        facts.append(text)
    return facts


def _evidence(alert: Alert) -> list[str]:
    """List who measured it, where, and why it failed."""
    facts = []
    if alert.top_segment and alert.top_segment != alert.segment:
        facts.append(f"most in {one_line(alert.top_segment)}")
    if alert.fingerprint:
        facts.append(f"instrument {one_line(alert.fingerprint)}")
    if alert.unscored:
        reasons = ", ".join(f"{name} {number:,}" for name, number in alert.unscored.items())
        facts.append(one_line(reasons.replace("_", " "), 200))
    if alert.no_data:
        facts.append("no traffic now: last known value")
    return facts


def _subject(alert: Alert) -> str:
    if alert.metric != "latency":
        return metric_words(alert.metric) + (f" ({alert.scorer})" if alert.scorer else "")
    try:
        quantile = f" p{100 * float(alert.labels['quantile']):g}"
    except (KeyError, ValueError):
        quantile = ""
    return f"latency {one_line(alert.labels.get('stage', ''))}{quantile}"
