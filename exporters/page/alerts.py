"""Alerts as cards: firing first, then pending, then those resolved lately."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from agent.metrics import METRICS
from agent.metrics.names import spec_of
from exporters.page.markup import Child, Markup, el, one_line
from exporters.page.numbers import ago, count, interval, moment, seconds, seconds_interval, value
from exporters.page.tables import LABEL, service_url, trace_url, words

if TYPE_CHECKING:
    from agent.alerts.alert import Alert

__all__ = ["alerts_section", "firing_counts"]

SHOWN = 50
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
        el("div", _reading(alert), class_="num"),
        el("div", one_line(alert.summary, 400)) if alert.summary else None,
        el("div", _more(alert, now), class_="more"),
        class_=f"alert {alert.severity}",
    )


def _reading(alert: Alert) -> list[Child]:
    if alert.drift is not None:
        return _drift_reading(alert, alert.drift)
    limit = f" {alert.op} {_number(alert, alert.threshold)} in {alert.window}"
    if alert.value is None:
        return [el("b", "no data"), el("span", limit, class_="soft")]
    band = ""
    if alert.lower is not None and alert.upper is not None:
        spec = spec_of(METRICS, alert.metric)
        if alert.metric == "latency":
            band = f" ({seconds_interval(alert.lower, alert.upper)})"
        else:
            band = f" ({interval(alert.lower, alert.upper, spec)})"
    return [el("b", _number(alert, alert.value)), band, el("span", limit, class_="soft")]


def _drift_reading(alert: Alert, found: dict[str, Any]) -> list[Child]:
    """From what to what; of a distribution or latency that is the share above an edge."""
    edge = found["edge"]
    above = ""
    if edge is not None:
        above = f" above {seconds(edge) if alert.metric == 'latency' else f'{edge:.3g}'}"
    band = ""
    if alert.lower is not None and alert.upper is not None:
        band = f" ({alert.lower:.3g} – {alert.upper:.3g})"
    was = f"{found['baseline']:.3g} → "
    value = "" if alert.value is None else f"{alert.value:.3g}"
    statistic = f" · detector {found['statistic']:.3g} ≥ {alert.threshold:.3g}"
    return [was, el("b", value), f"{band}{above}", el("span", statistic, class_="soft")]


def _number(alert: Alert, number: float) -> str:
    if alert.metric == "latency":
        return seconds(number)
    spec = spec_of(METRICS, alert.metric)
    return count(number) if spec is None else value(number, spec)


def _more(alert: Alert, now: float | None) -> list[Child]:
    begin = alert.since if alert.fired_at is None else alert.fired_at
    end = alert.resolved_at if alert.resolved_at is not None else now
    lasted = f" ({ago(end - begin)})" if end is not None and end >= begin else ""
    word = {"pending": "Pending", "firing": "Firing"}.get(alert.state, "Fired")
    parts: list[Child] = [f"{word} since {moment(begin)}{lasted}"]
    if alert.drift is not None:
        early, late = alert.drift["since_earliest"], alert.drift["since_latest"]
        parts.append(f" · changed {moment(alert.since)} ({moment(early)} – {moment(late)})")
        if alert.drift["segment"]:
            parts.append(f" · most in {one_line(alert.drift['segment'], LABEL)}")
        if alert.drift["fingerprint"]:
            parts.append(f" · judge {one_line(alert.drift['fingerprint'], LABEL)}")
    if alert.state == "resolved":
        parts[0] = f"Resolved {moment(alert.resolved_at)}{lasted}"
        if alert.reason:
            parts.append(f" · {one_line(alert.reason, LABEL)}")
    parts.append(f" · {_what(alert)}")
    if alert.samples:
        parts.append(f", {alert.samples:,} samples")
    if alert.no_data:
        parts.append(" · no data now: the condition cannot be judged")
    if alert.worst:
        parts.append(" · worst: ")
        parts += [
            [
                ", " if index else "",
                el("a", one_line(trace_id, 24), href=trace_url(alert.service, trace_id)),
            ]
            for index, trace_id in enumerate(alert.worst[:5])
        ]
    return parts


def _what(alert: Alert) -> str:
    if alert.metric != "latency":
        return f"{words(alert.metric)} ({alert.scorer})" if alert.scorer else words(alert.metric)
    labels = alert.labels
    try:
        quantile = f" p{100 * float(labels['quantile']):g}"
    except (KeyError, ValueError):
        quantile = ""
    return f"latency {one_line(labels.get('stage', ''), LABEL)}{quantile}"
