"""Alerts as cards: firing, pending and recently resolved."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ragmeter.core.metric_specs import find_spec
from ragmeter.exporters.page.markup import Child, Markup, el, one_line
from ragmeter.exporters.page.numbers import (
    format_age,
    format_count,
    format_interval,
    format_seconds,
    format_seconds_interval,
    format_time,
    format_value,
)
from ragmeter.exporters.page.tables import LABEL, metric_words, service_url, trace_url
from ragmeter.metrics.registry import METRICS

if TYPE_CHECKING:
    from ragmeter.alerts.alert import Alert
    from ragmeter.core.metric_specs import MetricSpec

SHOWN = 50
OPS = {"<=": "≤", ">=": "≥"}
MARKS = {"critical": "■ Critical", "warning": "▲ Warning"}


def firing_counts(alerts: Sequence[Alert]) -> dict[str, tuple[int, int]]:
    """(critical, warning) alerts that fire, by service."""
    out: dict[str, tuple[int, int]] = {}
    for alert in alerts:
        if alert.state == "firing":
            critical, warning = out.get(alert.service, (0, 0))
            serious = alert.severity == "critical"
            out[alert.service] = (critical + serious, warning + (not serious))
    return out


def alerts_section(alerts: Sequence[Alert], now: float | None) -> Markup:
    by_state = {
        state: sorted(
            (alert for alert in alerts if alert.state == state),
            key=lambda alert: (alert.severity != "critical", -(alert.fired_at or alert.since)),
        )
        for state in ("firing", "pending", "resolved")
    }
    firing = by_state["firing"]
    title = f"{len(firing)} alert{'' if len(firing) == 1 else 's'} firing"
    parts: list[Child] = [el("h2", title if firing else "Alerts")]
    if firing:
        parts.append(el("div", [_card(item, now) for item in firing[:SHOWN]], class_="alerts"))
    else:
        parts.append(el("p", "No alert is firing.", class_="quiet"))
    if len(firing) > SHOWN:
        parts.append(el("p", f"and {len(firing) - SHOWN} more", class_="soft"))
    for state, label in (("pending", "Pending"), ("resolved", "Resolved lately")):
        if by_state[state]:
            cards = [_card(item, now) for item in by_state[state][:SHOWN]]
            heading = f"{label}: {len(by_state[state])}"
            parts.append(
                el(
                    "details",
                    el("summary", heading),
                    el("div", cards, class_="alerts"),
                    open=state == "pending" and not firing,
                )
            )
    return el("section", parts, aria_label="Alerts")


def _card(alert: Alert, now: float | None) -> Markup:
    where: list[Child] = [
        el("a", one_line(alert.service, LABEL), href=service_url(alert.service))
        if alert.service
        else None
    ]
    if alert.segment:
        where.append(f" · {one_line(alert.segment, LABEL)}")
    return el(
        "article",
        el(
            "div",
            el("span", MARKS.get(alert.severity, alert.severity), class_="sev"),
            el("span", one_line(alert.rule, LABEL), class_="rule"),
            where,
            class_="what",
        ),
        el("div", _estimate_change(alert), class_="num"),
        el("div", one_line(alert.summary, 400), class_="said") if alert.summary else None,
        el("div", _more(alert, now), class_="more"),
        el("div", _worst(alert), class_="more") if alert.worst else None,
        class_=f"alert {alert.severity}",
    )


def _estimate_change(alert: Alert) -> list[Child]:
    """From what to what, how sure, and beyond which limit."""
    if alert.drift is not None:
        return _drift_change(alert, alert.drift)
    bound = {"lower": ", even the lower end", "upper": ", even the upper end"}
    beyond = f"{OPS.get(alert.op, alert.op)} {_number(alert, alert.threshold)} "
    if alert.metric == "traces":
        beyond = ""  # that none is too few goes without saying
    limit = el("span", f"{beyond}in {alert.window}{bound.get(alert.statistic, '')}", class_="soft")
    if alert.value is None:
        return [el("b", "no data"), " ", limit]
    band = ""
    if alert.lower is not None and alert.upper is not None:
        if alert.metric == "latency":
            band = f" ({format_seconds_interval(alert.lower, alert.upper)})"
        else:
            band = f" ({format_interval(alert.lower, alert.upper, _spec(alert))})"
    was = "" if alert.baseline is None else f"{_number(alert, alert.baseline)} → "
    shown: list[Child] = [was, el("b", _number(alert, alert.value)), band, " ", limit]
    if alert.metric == "error_budget":
        return [*_burn(alert), *shown]
    return shown


def _burn(alert: Alert) -> list[Child]:
    """`burn 14.4×`: the budget's own unit."""
    rate = alert.annotations.get("burn_rate")
    return [el("b", f"burn {one_line(rate, 12)}×"), " · "] if rate else []


def _drift_change(alert: Alert, found: dict[str, Any]) -> list[Child]:
    """From what to what; of a distribution or latency that is the share above an edge."""
    edge = found["edge"]
    above = ""
    if edge is not None:
        above = f" above {format_seconds(edge) if alert.metric == 'latency' else f'{edge:.3g}'}"
    band = ""
    if alert.lower is not None and alert.upper is not None:
        band = f" ({alert.lower:.3g} – {alert.upper:.3g})"
    was = "" if alert.baseline is None else f"{alert.baseline:.3g} → "
    value = "" if alert.value is None else f"{alert.value:.3g}"
    statistic = f" · detector {format_count(found['statistic'])} ≥ {format_count(alert.threshold)}"
    return [was, el("b", value), f"{band}{above}", el("span", statistic, class_="soft")]


def _number(alert: Alert, number: float) -> str:
    if alert.metric == "latency":
        return format_seconds(number)
    spec = _spec(alert)
    return format_count(number) if spec is None else format_value(number, spec)


def _spec(alert: Alert) -> MetricSpec | None:
    """How its value is written: a share of results or events as that of failed requests."""
    share = alert.unscored is not None or alert.metric == "error_budget"
    return find_spec(METRICS, "error" if share else alert.metric)


def _more(alert: Alert, now: float | None) -> list[Child]:
    begin = alert.since if alert.fired_at is None else alert.fired_at
    end = alert.resolved_at if alert.resolved_at is not None else now
    lasted = f" ({format_age(end - begin)})" if end is not None and end >= begin else ""
    word = {"pending": "Pending", "firing": "Firing"}.get(alert.state, "Fired")
    parts: list[Child] = [f"{word} since {format_time(begin)}{lasted}"]
    if alert.drift is not None:
        early, late = alert.drift["since_earliest"], alert.drift["since_latest"]
        parts.append(
            f" · changed {format_time(alert.since)} ({format_time(early)} – {format_time(late)})"
        )
    elif alert.fired_at is not None:
        parts.append(f" · true since {format_time(alert.since)}")
    if alert.state == "resolved":
        parts[0] = f"Resolved {format_time(alert.resolved_at)}{lasted}"
        if alert.reason:
            parts.append(f" · {one_line(alert.reason, LABEL)}")
    parts.append(f" · {_subject(alert)}")
    if alert.samples:
        parts.append(f", {alert.samples:,} samples")
        if abs(alert.effective_samples - alert.samples) >= 1:
            parts.append(f" ({format_count(round(alert.effective_samples))} effective)")
    parts += _evidence(alert)
    if alert.no_data:
        parts.append(" · no data now: the condition cannot be judged")
    return parts


def _worst(alert: Alert) -> list[Child]:
    """Each opens the whole trace."""
    links: list[Child] = [
        [
            ", " if index else "",
            el("a", one_line(trace_id, 36), href=trace_url(alert.service, trace_id)),
        ]
        for index, trace_id in enumerate(alert.worst[:5])
    ]
    return ["Worst: ", links]


def _evidence(alert: Alert) -> list[Child]:
    """Where it is worst, who says so, why; of a budget how much of it is gone."""
    parts: list[Child] = []
    if alert.top_segment and alert.top_segment != alert.segment:
        name, how = one_line(alert.top_segment, LABEL), one_line(alert.top_segment_words, 300)
        parts.append([" · most in ", el("bdi", name, title=how or None)])
    if alert.fingerprint:
        parts.append(f" · instrument {one_line(alert.fingerprint, LABEL)}")
    if alert.unscored:
        told = ", ".join(f"{name} {number:,}" for name, number in alert.unscored.items())
        parts.append(f" · {one_line(told.replace('_', ' '), 200)}")
    try:
        spent = format_value(float(alert.annotations["budget_spent"]), find_spec(METRICS, "error"))
    except (KeyError, ValueError):
        return parts
    if alert.metric == "error_budget":
        parts.append(f" · {spent} of 30 days’ error budget spent in the last 3 d")
    return parts


def _subject(alert: Alert) -> str:
    if alert.metric != "latency":
        return (
            f"{metric_words(alert.metric)} ({alert.scorer})"
            if alert.scorer
            else metric_words(alert.metric)
        )
    labels = alert.labels
    try:
        quantile = f" p{100 * float(labels['quantile']):g}"
    except (KeyError, ValueError):
        quantile = ""
    return f"latency {one_line(labels.get('stage', ''), LABEL)}{quantile}"
