"""`ragmeter backtest`: run a backtest and write its JSON document, table and timeline."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich.table import Table

from ragmeter.alerts.alert import Alert
from ragmeter.alerts.rules import AlertRule
from ragmeter.config.settings import Settings
from ragmeter.console import terminal
from ragmeter.core.arithmetic import finite_values
from ragmeter.core.files import write_atomically
from ragmeter.core.label_bounds import bound_label
from ragmeter.core.metric_specs import MetricSpec, base_name, find_spec, parse_cutoff
from ragmeter.core.series import split_scorer
from ragmeter.ingest.files import MAX_SHOWN, STDIN, InputFile
from ragmeter.metrics.registry import metric_specs
from ragmeter.offline import scored_lines
from ragmeter.offline.backtest import Backtest, EstimatePoint, EstimateTracks, find_rule
from ragmeter.parts.collection import PartKinds
from ragmeter.windows.windows import Windows


@dataclass(frozen=True, slots=True)
class TimelineLane:
    """One alert of one service with its estimates.

    Args:
        about: Metric, segment, window and condition.
        alerts: Each time that it was pending or fired.
        points: (time, value, lower, upper) in order; NaN for a gap.
        threshold: Value beyond which it fires.
        spec: How its numbers are written; None for an unknown metric.
        seconds: Its numbers are seconds.
    """

    name: str
    severity: str
    about: str
    alerts: Sequence[Alert]
    points: Sequence[EstimatePoint] = ()
    threshold: float | None = None
    spec: MetricSpec | None = None
    seconds: bool = False


@dataclass(frozen=True, slots=True)
class Timeline:
    """Services in the order in which they are drawn, each with its lanes."""

    title: str
    start: float
    end: float
    services: Sequence[tuple[str, Sequence[TimelineLane]]]
    notes: Sequence[str] = field(default_factory=tuple)


VERSION = 1
MAX_SERVICES_DRAWN = 100
TABLE_ROWS = 500  # alerts; --format json has them all
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


def _backtest_table(backtest: Backtest) -> Table:
    alerts = backtest.alerts()
    fired = sum(alert.fired_at is not None for alert in alerts)
    title = f"alerts that would have fired: {fired}"
    if len(alerts) > TABLE_ROWS:
        title += f" (the first {TABLE_ROWS} are shown)"
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
            "\n".join(alert_times(alert)),
            f"{bound_label(alert.rule, 120)}\n{alert.severity}, {alert.state}",
            bound_label(alert.service, 60)
            + (f"\n{bound_label(alert.segment, 60)}" * bool(alert.segment)),
            bound_label(alert.summary, 500),
            "\n".join(bound_label(trace_id, 80) for trace_id in alert.worst),
        )
        terminal.add_text_row(out, *cells)
    return out


def alert_times(alert: Alert) -> Iterator[str]:
    """Yield the times at which an alert was pending, fired and was resolved."""
    for state, time in (
        ("pending", alert.since),
        ("fired", alert.fired_at),
        ("resolved", alert.resolved_at),
    ):
        if time is not None:
            yield f"{state:<8} {datetime.fromtimestamp(time, UTC):%Y-%m-%d %H:%M:%S}"


def build_timeline(
    backtest: Backtest, rules: Sequence[AlertRule], tracks: EstimateTracks
) -> Timeline:
    """Build the timeline of all services in the windows at the end or in an alert."""
    windows = backtest.windows
    alerts = backtest.alerts()
    start, end = backtest.first or 0.0, windows.now or 0.0
    lanes: dict[tuple[str, str, str], list[Alert]] = {}
    for alert in alerts:
        lanes.setdefault((alert.service, alert.rule, alert.segment), []).append(alert)
    services = sorted({*windows.services(), *(service for service, _, _ in lanes)})
    # Services with alerts come first: there may not be room for all.
    loud = {service for service, _, _ in lanes}
    services.sort(key=lambda name: (name not in loud, name))
    drawn = [
        (name, [_lane(group, rules, tracks) for key, group in lanes.items() if key[0] == name])
        for name in services[:MAX_SERVICES_DRAWN]
    ]
    counts = backtest.counts
    notes = [
        f"{counts.traces} traces, {_format_utc(math.floor(start))}"
        f" to {_format_utc(math.floor(end))}; times are UTC"
    ]
    if len(services) > len(drawn):
        notes.append(f"{len(services) - len(drawn)} more services are not drawn")
    fired = sum(alert.fired_at is not None for alert in alerts)
    title = f"ragmeter backtest: {fired} alert{'' if fired == 1 else 's'} would have fired"
    return Timeline(title=title, start=start, end=end, services=drawn, notes=notes)


def _lane(
    alerts: Sequence[Alert], rules: Sequence[AlertRule], tracks: EstimateTracks
) -> TimelineLane:
    first = alerts[0]
    rule = find_rule(rules, first)
    watched = first.metric
    if rule is not None and rule.latency is not None:
        watched = f"{rule.latency.stage} p{100 * rule.latency.quantile:g}"
    labels = (first.segment, watched, first.scorer and f"({first.scorer})", first.window)
    condition = f"; {first.statistic} {first.op} {first.threshold:g}"
    return TimelineLane(
        name=first.rule,
        severity=first.severity,
        about=" ".join(label for label in labels if label) + condition,
        alerts=alerts,
        points=tracks.points((first.rule, first.service, first.segment)),
        threshold=None if rule is not None and rule.absence else first.threshold,
        spec=find_spec(metric_specs(), first.metric),
        seconds=rule is not None and rule.latency is not None,
    )


def run_backtest(
    path: Path,
    settings: Settings,
    rules: Sequence[AlertRule],
    form: str,
    drawing: Path | None,
    say: Callable[[str], None],
    render_picture: Callable[[Timeline], str],
    apart: Sequence[Path] = (),
    parts: PartKinds = (),
) -> bool:
    """Replay a scored file, print the alerts to stdout and draw the timeline.

    Without a `drawing` there is no timeline; it must not overwrite a file that is read, nor one of
    `apart`. `form` is `json`, or a table; `parts` are the features that raise alerts of their own.

    Returns:
        False where no line could be read; nothing is printed then.

    Raises:
        UsageError: The timeline would overwrite a file that is read.
        OSError: A file cannot be read or written.
    """
    if drawing is not None:
        terminal.check_output_path("--picture", drawing, [path, *apart])
    tracks = (
        EstimateTracks(rules, settings.alerts.evaluation_seconds) if drawing is not None else None
    )
    backtest = Backtest(settings, rules, tracks, parts)
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
    if drawing is not None and tracks is not None:
        write_atomically(drawing, render_picture(build_timeline(backtest, rules, tracks)).encode())
    if form == "json":
        terminal.print_text("".join(f"{line}\n" for line in backtest_document(backtest)))
    else:
        terminal.print_tables([_backtest_table(backtest)])
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
