"""Alerts as cards, one for each cause: firing, pending and recently resolved."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ragmeter.alerts.alert import Alert, format_days
from ragmeter.alerts.rule_sets import runbook_link
from ragmeter.config.reporting import RUNBOOK_PATH
from ragmeter.core.metric_specs import MetricSpec, find_spec
from ragmeter.metrics.registry import metric_specs

from ragmeter_exporters.page.numbers import (
    format_age,
    format_count,
    format_interval,
    format_moment,
    format_seconds,
    format_seconds_interval,
    format_time,
    format_value,
)
from ragmeter_exporters.page.texts import metric_words, one_line

MAX_TITLE = 160  # characters of a line
OPERATORS = {"<=": "≤", ">=": "≥"}
SEVERITIES = {"critical": "■ Critical", "warning": "▲ Warning"}


@dataclass(frozen=True, slots=True)
class AlertChange:
    """The numbers of an alert: from what to what, how sure, and beyond which limit."""

    value: str
    before: str = ""
    band: str = ""
    limit: str = ""


@dataclass(frozen=True, slots=True)
class IncidentLine:
    """What one cause did to a service, on a line.

    Args:
        mark: What stands before it, by its severity.
        title: What is wrong.
        since: When it began, and how long ago that is.
        worst: Ids of its worst traces.
        also: What else it moved, in words.
    """

    service: str
    severity: str
    mark: str
    title: str
    since: str
    runbook: str
    worst: list[str]
    also: str


@dataclass(frozen=True, slots=True)
class AlertCard:
    """One alert as the page shows it; `times` and `evidence` stand around the top segment."""

    alert: Alert
    severity: str
    change: AlertChange
    times: str
    evidence: str
    runbook: str


def firing_counts(alerts: Sequence[Alert]) -> dict[str, tuple[int, int]]:
    """Count the (critical, warning) alerts that fire, by service."""
    counts: dict[str, tuple[int, int]] = {}
    for alert in alerts:
        if alert.state == "firing":
            critical, warning = counts.get(alert.service, (0, 0))
            serious = alert.severity == "critical"
            counts[alert.service] = (critical + serious, warning + (not serious))
    return counts


def alerts_view(alerts: Sequence[Alert], now: float | None) -> dict[str, list[list[AlertCard]]]:
    """Format the alerts of each cause, by state; services with critical alerts come first.

    `now` is stream time, up to which those that stand have lasted.
    """
    ordered = sorted(alerts, key=lambda a: (a.severity != "critical", -(a.fired_at or a.since)))
    return {
        state: [
            [_card(alert, now) for alert in cause]
            for cause in _causes([alert for alert in ordered if alert.state == state])
        ]
        for state in ("firing", "pending", "resolved")
    }


def incident_lines(alerts: Sequence[Alert], now: float | None) -> list[IncidentLine]:
    """Return a line for each cause that stands, those of services with critical alerts first."""
    ordered = sorted(alerts, key=lambda a: (a.severity != "critical", -(a.fired_at or a.since)))
    return [
        _line(cause, now) for cause in _causes([one for one in ordered if one.state == "firing"])
    ]


def _line(cause: Sequence[Alert], now: float | None) -> IncidentLine:
    first = cause[0]
    critical = any(alert.severity == "critical" for alert in cause)
    lasted = f" ({format_age(now - first.since)})" if now is not None and now >= first.since else ""
    title = first.summary.removeprefix(f"{first.service}: ") or first.rule
    return IncidentLine(
        service=first.service,
        severity="critical" if critical else "warning",
        mark="■" if critical else "▲",
        title=one_line(title, MAX_TITLE),
        since=f"since {format_moment(first.since, now)}{lasted}",
        runbook=first.runbook or runbook_link(first.rule, RUNBOOK_PATH),
        worst=list(dict.fromkeys(name for alert in cause for name in alert.worst)),
        also=_others(cause),
    )


def _others(cause: Sequence[Alert]) -> str:
    """Return what other alerts of a cause are about."""
    metrics = (one.metric for one in cause[1:] if one.metric not in ("", cause[0].metric))
    words = map(metric_words, metrics)
    return one_line(", ".join(dict.fromkeys(words)), MAX_TITLE)


def _causes(alerts: Sequence[Alert]) -> list[list[Alert]]:
    """Group alerts by service and cause, the announced one or else the worst first.

    The causes of a service with a critical alert come before its others.

    Of one cause are those that one notification announces, and those that name a trace of them as
    one of the worst: a warning may be announced minutes before the critical alert.
    """
    groups: list[list[Alert]] = []
    for alert in sorted(alerts, key=lambda alert: bool(alert.folded_under)):
        own = next((of for of in groups if any(_same_cause(alert, one) for one in of)), None)
        if own is None:
            groups.append([alert])
        else:
            own.append(alert)
    services = list(dict.fromkeys(alert.service for alert in alerts))
    return sorted(
        groups,
        key=lambda of: (
            services.index(of[0].service),
            not any(alert.severity == "critical" for alert in of),
        ),
    )


def _same_cause(alert: Alert, other: Alert) -> bool:
    if alert.service != other.service:
        return False
    leaders = {alert.folded_under or alert.id, other.folded_under or other.id}
    return len(leaders) == 1 or not set(alert.worst).isdisjoint(other.worst)


def _card(alert: Alert, now: float | None) -> AlertCard:
    return AlertCard(
        alert=alert,
        severity=SEVERITIES.get(alert.severity, alert.severity),
        change=_change(alert) if alert.drift is None else _drift_change(alert),
        times=" · ".join(_times(alert, now)) + _samples(alert),
        evidence="".join(f" · {text}" for text in _evidence(alert)),
        runbook=alert.runbook or runbook_link(alert.rule, RUNBOOK_PATH),
    )


def _change(alert: Alert) -> AlertChange:
    beyond = f"{OPERATORS.get(alert.op, alert.op)} {_number(alert, alert.threshold)} "
    if alert.metric == "traces":
        beyond = ""  # that none is too few goes without saying
    sure = " (95 % sure)" if alert.statistic in ("lower", "upper") else ""
    limit = f"{beyond}in {alert.window}{sure}"
    if alert.value is None:
        return AlertChange("no data", limit=limit)
    band = ""
    if alert.lower is not None and alert.upper is not None:
        if alert.metric == "latency":
            band = f" ({format_seconds_interval(alert.lower, alert.upper)})"
        else:
            band = f" ({format_interval(alert.lower, alert.upper, _spec(alert))})"
    before = "" if alert.baseline is None else f"{_number(alert, alert.baseline)} → "
    return AlertChange(_number(alert, alert.value), before, band, limit)


def _drift_change(alert: Alert) -> AlertChange:
    """Format a drift alert: of a distribution or latency it is the share above an edge."""
    if alert.drift is None:
        raise RuntimeError("drift is missing")
    edge = alert.drift["edge"]
    band = ""
    if alert.lower is not None and alert.upper is not None:
        band = f" ({alert.lower:.3g} – {alert.upper:.3g})"
    if edge is not None:
        band += f" above {format_seconds(edge) if alert.metric == 'latency' else f'{edge:.3g}'}"
    days = alert.drift["expected_days"]
    return AlertChange(
        "" if alert.value is None else f"{alert.value:.3g}",
        "" if alert.baseline is None else f"{alert.baseline:.3g} → ",
        band,
        f"· false alarm at most every {format_days(days)}" if days else "",
    )


def _number(alert: Alert, number: float) -> str:
    if alert.metric == "latency":
        return format_seconds(number)
    spec = _spec(alert)
    return format_count(number) if spec is None else format_value(number, spec)


def _spec(alert: Alert) -> MetricSpec | None:
    # A share of results is written as that of failed requests.
    return find_spec(metric_specs(), alert.metric if alert.unscored is None else "error")


def _times(alert: Alert, now: float | None) -> list[str]:
    begin = alert.since if alert.fired_at is None else alert.fired_at
    end = alert.resolved_at if alert.resolved_at is not None else now
    lasted = f" ({format_age(end - begin)})" if end is not None and end >= begin else ""
    if alert.state == "resolved":
        facts = [f"Resolved {format_time(alert.resolved_at)}{lasted}"]
    else:
        state = "Alerting" if alert.state == "firing" else alert.state.capitalize()
        facts = [f"{state} since {format_time(begin)}{lasted}"]
    if alert.drift is not None:
        early = alert.drift["since_earliest"]
        late = alert.drift["since_latest"]
        least = " or earlier" if alert.drift.get("since_at_least") else ""
        facts.append(
            f"changed {format_time(alert.since)}{least}"
            f" ({format_time(early)} – {format_time(late)}, estimated)"
        )
    elif alert.fired_at is not None:
        facts.append(f"began {format_time(alert.since)}")
    if alert.state == "resolved" and alert.reason:
        facts.append(one_line(alert.reason))
    return [*facts, _subject(alert)]


def _samples(alert: Alert) -> str:
    if not alert.samples:
        return ""
    noun = "answer" if alert.samples == 1 else "answers"
    text = f", based on {alert.samples:,} {noun}"
    if abs(alert.effective_samples - alert.samples) >= 1:
        text += f", worth {format_count(round(alert.effective_samples))}"
    return text


def _evidence(alert: Alert) -> list[str]:
    """List who measured it and why it failed."""
    facts = []
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
