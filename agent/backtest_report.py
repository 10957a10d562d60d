"""What a backtest has found: a JSON document, a table for the terminal, a picture. Pure."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

from rich import box
from rich.table import Table
from rich.text import Text

from agent.alerts import Alert, Rule
from agent.backtest import Backtest
from agent.fingerprints import split_scorer
from agent.labels import bounded
from agent.metrics import METRICS
from agent.metrics.names import base, cutoff, spec_of
from agent.timeline import Lane, Picture, Span
from agent.timeline_tracks import Tracks, rule_of
from agent.windows import Windows

__all__ = ["document", "picture", "table", "utc"]

VERSION = 1
MAX_SERVICES_DRAWN = 100
TABLE_ROWS = 500  # alerts; --format json has them all


def utc(time: float | None) -> str | None:
    """ISO 8601, as `ragmeter score` writes it."""
    if time is None:
        return None
    return datetime.fromtimestamp(time, UTC).isoformat().replace("+00:00", "Z")


def document(backtest: Backtest) -> Iterator[str]:
    """The lines of one JSON object, one estimate, quantile or alert a line. ASCII only: no name
    from outside steers a terminal, and no encoding changes a byte."""
    windows = backtest.windows
    head = {
        "version": VERSION,
        "from": utc(backtest.first),
        "to": utc(windows.now),
        "windows": list(windows.names),
        "counts": asdict(backtest.counts),
    }
    yield "{"
    for key, value in head.items():
        yield f" {_dump(key)}: {_dump(value)},"
    lists = {
        "traces": _traces(windows),
        "estimates": _estimates(windows),
        "latency": _latency(windows),
        "alerts": map(_alert, backtest.alerts()),
    }
    for number, (key, items) in enumerate(lists.items(), start=1):
        yield f" {_dump(key)}: ["
        last: str | None = None
        for item in items:
            if last is not None:
                yield f"  {last},"
            last = _dump(_finite(item))
        if last is not None:
            yield f"  {last}"
        yield " ]," if number < len(lists) else " ]"
    yield "}"


def _dump(value: object) -> str:
    return json.dumps(value, ensure_ascii=True, allow_nan=False)


def _finite(item: Mapping[str, Any]) -> dict[str, Any]:
    """JSON has no NaN and no infinity: null."""
    return {
        key: None if isinstance(value, float) and not math.isfinite(value) else value
        for key, value in item.items()
    }


def _owners(windows: Windows) -> Iterator[tuple[str, str]]:
    for service in windows.services():
        for segment in ("", *windows.segments(service)):
            yield service, segment


def _traces(windows: Windows) -> Iterator[dict[str, Any]]:
    for service, segment in _owners(windows):
        for name in windows.names:
            seen = windows.seen(service, segment, name)
            yield {"service": service, "segment": segment, "window": name, "traces": seen}


def _estimates(windows: Windows) -> Iterator[dict[str, Any]]:
    for service, segment in _owners(windows):
        for metric, scorer in sorted(windows.series(service, segment)):
            who, fingerprint = split_scorer(windows.named(metric, scorer))
            labels = {"service": service, "segment": segment, **_metric(metric), "scorer": who}
            if fingerprint:
                labels["fingerprint"] = fingerprint
            for name in windows.names:
                found = windows.estimate(service, segment, metric, scorer, name)
                states = windows.states(service, segment, metric, scorer, name)
                yield {
                    **labels,
                    "window": name,
                    "value": found and found.value,
                    "lower": found and found.lower,
                    "upper": found and found.upper,
                    "effective_samples": found and found.effective_samples,
                    "samples": states["scored"],
                    "unscored": found and found.unscored,
                    "states": dict(states),
                }


def _metric(metric: str) -> dict[str, Any]:
    k = cutoff(metric)
    return {"metric": base(metric), **({"k": int(k)} if k and k.isdigit() else {})}


def _latency(windows: Windows) -> Iterator[dict[str, Any]]:
    for service, segment in _owners(windows):
        for stage in windows.stages(service, segment):
            for name in windows.names:
                for item in windows.quantiles(service, segment, stage, name):
                    yield {
                        "service": service,
                        "segment": segment,
                        "stage": stage,
                        "window": name,
                        **asdict(item),
                    }


def _alert(alert: Alert) -> dict[str, Any]:
    known = alert.to_dict()
    for name in ("since", "fired_at", "resolved_at", "updated_at", "no_data", "metric"):
        known.pop(name)
    first = ("id", "rule", "severity", "state", "service", "segment")
    return {
        **{name: known.pop(name) for name in first},
        "pending_at": utc(alert.since),
        "fired_at": utc(alert.fired_at),
        "resolved_at": utc(alert.resolved_at),
        **_metric(alert.metric),
        **known,
    }


# For people -------------------------------------------------------------------------------------


def table(backtest: Backtest) -> Table:
    """What would have fired, in the order of time."""
    alerts = backtest.alerts()
    fired = sum(alert.fired_at is not None for alert in alerts)
    title = f"alerts that would have fired: {fired}"
    if len(alerts) > TABLE_ROWS:
        title += f" (the first {TABLE_ROWS} are shown)"
    if fired < len(alerts):
        title += f"; pending at the end: {len(alerts) - fired}"
    out = Table(title=Text(title, "bold"), title_justify="left", box=box.SIMPLE_HEAD)
    out.add_column("when (UTC)", no_wrap=True)
    out.add_column("alert", overflow="fold", max_width=28)
    out.add_column("service", overflow="fold", max_width=24)
    out.add_column("what", overflow="fold")
    out.add_column("worst traces", overflow="fold", max_width=28)
    for alert in alerts[:TABLE_ROWS]:
        cells = (
            "\n".join(_times(alert)),
            f"{bounded(alert.rule, 120)}\n{alert.severity}, {alert.state}",
            bounded(alert.service, 60) + (f"\n{bounded(alert.segment, 60)}" * bool(alert.segment)),
            bounded(alert.summary, 500),
            "\n".join(bounded(trace_id, 80) for trace_id in alert.worst),
        )
        out.add_row(*map(Text, cells))  # as text: names from outside must not be read as markup
    return out


def _times(alert: Alert) -> Iterator[str]:
    for word, time in (
        ("pending", alert.since),
        ("fired", alert.fired_at),
        ("resolved", alert.resolved_at),
    ):
        if time is not None:
            yield f"{word:<8} {datetime.fromtimestamp(time, UTC):%Y-%m-%d %H:%M:%S}"


def picture(backtest: Backtest, rules: Sequence[Rule], tracks: Tracks) -> Picture:
    """Every service that the windows hold at the end or that an alert names."""
    windows, alerts = backtest.windows, backtest.alerts()
    start, end = backtest.first or 0.0, windows.now or 0.0
    lanes: dict[tuple[str, str, str], list[Alert]] = {}
    for alert in alerts:
        lanes.setdefault((alert.service, alert.rule, alert.segment), []).append(alert)
    services = sorted({*windows.services(), *(service for service, _, _ in lanes)})
    # those with alerts first where there is no room for all
    loud = {service for service, _, _ in lanes}
    services.sort(key=lambda name: (name not in loud, name))
    drawn = [
        (name, [_lane(group, rules, tracks) for key, group in lanes.items() if key[0] == name])
        for name in services[:MAX_SERVICES_DRAWN]
    ]
    counts = backtest.counts
    notes = [
        f"{counts.traces} traces, {utc(math.floor(start))} to {utc(math.floor(end))}; times are UTC"
    ]
    if len(services) > len(drawn):
        notes.append(f"{len(services) - len(drawn)} more services are not drawn")
    fired = sum(alert.fired_at is not None for alert in alerts)
    title = f"ragmeter backtest: {fired} alert{'' if fired == 1 else 's'} would have fired"
    return Picture(title, start, end, drawn, notes)


def _lane(alerts: Sequence[Alert], rules: Sequence[Rule], tracks: Tracks) -> Lane:
    first = alerts[0]
    rule = rule_of(rules, first)
    watched = first.metric
    if rule is not None and rule.latency is not None:
        watched = f"{rule.latency.stage} p{100 * rule.latency.quantile:g}"
    parts = (first.segment, watched, first.scorer and f"({first.scorer})", first.window)
    condition = f"; {first.statistic} {first.op} {first.threshold:g}"
    return Lane(
        name=first.rule,
        severity=first.severity,
        about=" ".join(part for part in parts if part) + condition,
        spans=[
            Span(
                alert.since,
                alert.fired_at,
                alert.resolved_at,
                "; ".join([*_times(alert), alert.summary]),
            )
            for alert in alerts
        ],
        points=tracks.points((first.rule, first.service, first.segment)),
        threshold=None if rule is not None and rule.absence else first.threshold,
        spec=spec_of(METRICS, first.metric),
        seconds=rule is not None and rule.latency is not None,
    )
