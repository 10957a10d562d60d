"""`ragmeter backtest`: run a backtest and write its JSON document or table."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich.table import Table

from ragmeter.alerts.alert import Alert
from ragmeter.alerts.rules import AlertRule
from ragmeter.config.settings import Settings
from ragmeter.console import terminal
from ragmeter.core.json_values import finite_values
from ragmeter.core.label_bounds import bound_label
from ragmeter.core.metric_specs import base_name, parse_cutoff
from ragmeter.core.series import split_scorer
from ragmeter.ingest.files import MAX_SHOWN, STDIN, InputFile
from ragmeter.offline import scored_lines
from ragmeter.offline.backtest import Backtest
from ragmeter.parts.collection import PartKinds
from ragmeter.parts.views import Incident
from ragmeter.windows.windows import Windows

VERSION = 1
TABLE_ROWS = 500  # alerts or incidents; --format json has them all
REPORT_EVERY = 256  # lines between two updates of the progress bar


def _format_utc(time: float | None) -> str | None:
    """ISO 8601, as `ragmeter score` writes it."""
    if time is None:
        return None
    return datetime.fromtimestamp(time, UTC).isoformat().replace("+00:00", "Z")


def backtest_document(backtest: Backtest) -> Iterator[str]:
    """Yield the lines of one JSON object, one estimate, quantile or alert a line.

    They are ASCII only, so that names from outside cannot control a terminal.
    """
    windows = backtest.windows
    head = {
        "version": VERSION,
        "from": _format_utc(backtest.first),
        "to": _format_utc(windows.now),
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
        "incidents": map(_incident, backtest.incidents()),
    }
    for number, (key, items) in enumerate(lists.items(), start=1):
        yield f" {_dump(key)}: ["
        last: str | None = None
        for item in items:
            if last is not None:
                yield f"  {last},"
            last = _dump(finite_values(item))
        if last is not None:
            yield f"  {last}"
        yield " ]," if number < len(lists) else " ]"
    yield "}"


def _dump(value: object) -> str:
    return json.dumps(value, ensure_ascii=True, allow_nan=False)


def _owners(windows: Windows) -> Iterator[tuple[str, str]]:
    for service in windows.services():
        for segment in ("", *windows.segments(service)):
            yield service, segment


def _traces(windows: Windows) -> Iterator[dict[str, Any]]:
    for service, segment in _owners(windows):
        for name in windows.names:
            seen = windows.count_traces(service, segment, name)
            yield {"service": service, "segment": segment, "window": name, "traces": seen}


def _estimates(windows: Windows) -> Iterator[dict[str, Any]]:
    for service, segment in _owners(windows):
        for metric, scorer in sorted(windows.series(service, segment)):
            who, fingerprint = split_scorer(windows.current_scorer(metric, scorer))
            labels = {"service": service, "segment": segment, **_metric(metric), "scorer": who}
            if fingerprint:
                labels["fingerprint"] = fingerprint
            for name in windows.names:
                estimate = windows.estimate(service, segment, metric, scorer, name)
                states = windows.states(service, segment, metric, scorer, name)
                yield {
                    **labels,
                    "window": name,
                    "value": estimate and estimate.value,
                    "lower": estimate and estimate.lower,
                    "upper": estimate and estimate.upper,
                    "effective_samples": estimate and estimate.effective_samples,
                    "samples": states["scored"],
                    "unscored": estimate and estimate.unscored,
                    "states": dict(states),
                }


def _metric(metric: str) -> dict[str, Any]:
    k = parse_cutoff(metric)
    return {"metric": base_name(metric), **({"k": int(k)} if k and k.isdigit() else {})}


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
                        **item._asdict(),
                    }


def _alert(alert: Alert) -> dict[str, Any]:
    fields = alert.to_dict()
    for name in ("since", "fired_at", "resolved_at", "updated_at", "no_data", "metric"):
        fields.pop(name)
    first = ("id", "rule", "severity", "state", "service", "segment")
    return {
        **{name: fields.pop(name) for name in first},
        "pending_at": _format_utc(alert.since),
        "fired_at": _format_utc(alert.fired_at),
        "resolved_at": _format_utc(alert.resolved_at),
        **_metric(alert.metric),
        **fields,
    }


def _incident(incident: Incident) -> dict[str, Any]:
    return {
        "id": incident.id,
        "service": incident.service,
        "title": incident.title,
        "summary": incident.summary,
        "severity": incident.severity,
        "state": incident.state,
        "since": _format_utc(incident.since),
        "opened_at": _format_utc(incident.opened_at),
        "ended_at": _format_utc(incident.ended_at),
        "segment": incident.segment,
    }


def _incident_table(incidents: Sequence[Incident]) -> Table:
    title = f"incidents that people would have been told of: {len(incidents)}"
    out = terminal.build_table(
        title + _cut_note(incidents),
        ("since (UTC)", {"no_wrap": True}),
        ("until (UTC)", {"no_wrap": True}),
        ("incident", {"overflow": "fold"}),
        ("where", {"overflow": "fold", "max_width": 28}),
    )
    for incident in incidents[:TABLE_ROWS]:
        times = (
            "open" if time is None else f"{datetime.fromtimestamp(time, UTC):%Y-%m-%d %H:%M}"
            for time in (incident.since, incident.ended_at)
        )
        text = f"{bound_label(incident.title, 200)}\n{bound_label(incident.summary, 300)}"
        where = bound_label(incident.segment, 120) if incident.segment else "all requests"
        terminal.add_text_row(out, *times, text, where)
    return out


def _cut_note(rows: Sequence[Alert] | Sequence[Incident]) -> str:
    """Return what the title of a table says of rows that it does not show."""
    return f" (the first {TABLE_ROWS} are shown)" if len(rows) > TABLE_ROWS else ""


def _backtest_table(backtest: Backtest) -> Table:
    alerts = backtest.alerts()
    fired = sum(alert.fired_at is not None for alert in alerts)
    title = f"alerts that would have fired: {fired}"
    title += _cut_note(alerts)
    if fired < len(alerts):
        title += f"; pending at the end: {len(alerts) - fired}"
    out = terminal.build_table(
        title,
        ("when (UTC)", {"no_wrap": True}),
        ("alert", {"overflow": "fold", "max_width": 28}),
        ("service", {"overflow": "fold", "max_width": 24}),
        ("what", {"overflow": "fold"}),
        ("worst traces", {"overflow": "fold", "max_width": 28}),
    )
    for alert in alerts[:TABLE_ROWS]:
        cells = (
            "\n".join(_alert_times(alert)),
            f"{bound_label(alert.rule, 120)}\n{alert.severity}, {alert.state}",
            bound_label(alert.service, 60)
            + (f"\n{bound_label(alert.segment, 60)}" * bool(alert.segment)),
            bound_label(alert.summary, 500),
            "\n".join(bound_label(trace_id, 80) for trace_id in alert.worst),
        )
        terminal.add_text_row(out, *cells)
    return out


def _alert_times(alert: Alert) -> Iterator[str]:
    """Yield the times at which an alert was pending, fired and was resolved."""
    for state, time in (
        ("pending", alert.since),
        ("fired", alert.fired_at),
        ("resolved", alert.resolved_at),
    ):
        if time is not None:
            yield f"{state:<8} {datetime.fromtimestamp(time, UTC):%Y-%m-%d %H:%M:%S}"


def run_backtest(
    path: Path,
    settings: Settings,
    rules: Sequence[AlertRule],
    form: str,
    say: Callable[[str], None],
    parts: PartKinds = (),
) -> bool:
    """Replay a scored file and print the alerts to stdout.

    `form` is `json`, or a table; `parts` are the features that raise alerts of their own.

    Returns:
        False where no line could be read; nothing is printed then.

    Raises:
        OSError: The file cannot be read.
    """
    backtest = Backtest(settings, rules, parts)
    counts = backtest.counts
    limit = settings.limits.trace_bytes
    position = 0
    name = "standard input" if path == STDIN else path.name
    with terminal.FileProgress(name, InputFile(path).size) as progress:
        for line, number in scored_lines.read_scored_lines(path, limit):
            counts.lines += 1
            position += len(line) + 1
            try:
                backtest.feed(scored_lines.decode_scored_line(line, limit))
            except scored_lines.InvalidScoredLine as error:
                counts.bad += 1
                if counts.bad <= MAX_SHOWN:
                    say(f"line {number}: {error}")
            if counts.lines % REPORT_EVERY == 0:
                progress.read(counts.lines, position)
    backtest.finish()
    _report_counts(backtest, say)
    if not counts.traces:
        return False
    if form == "json":
        terminal.print_text("".join(f"{line}\n" for line in backtest_document(backtest)))
    else:
        incidents = backtest.incidents()
        tables = [_incident_table(incidents)] if incidents else []
        terminal.print_tables([*tables, _backtest_table(backtest)])
    return True


def _report_counts(backtest: Backtest, say: Callable[[str], None]) -> None:
    counts = backtest.counts
    messages = [f"{counts.traces} traces"]
    for number, what in (
        (counts.bad, "lines unreadable"),
        (counts.duplicates, "duplicates left out"),
        (counts.late, "too late for every window"),
        (counts.unknown_results, "results of unknown metrics or scorers left out"),
        (counts.invalid_values, "values that are none, counted as unscored"),
        (counts.alerts_left_out, "alerts beyond the limit left out"),
    ):
        if number:
            messages.append(f"{number} {what}")
    say(", ".join(messages))
