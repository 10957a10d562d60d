"""Terminal tables of windows, worst traces and alerts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from rich.table import Table

from ragmeter.aggregate.agent_view import AgentView
from ragmeter.alerts.alert import Alert
from ragmeter.console.terminal import add_text_row, build_table
from ragmeter.core.label_bounds import bound_label, excerpt
from ragmeter.core.metric_specs import OWN_ERROR, base_name, display_rank
from ragmeter.core.series import is_overflow_series
from ragmeter.metrics.registry import metric_specs
from ragmeter.windows.series import Estimate

STATE_COLUMNS = ("scored", "not_applicable", "unscored", "sampled_out", "shed")
WORST_METRICS = ("grounding", "relevance", "citation_f1")
WORST_SHOWN = 3  # traces a metric: the terminal shows where to look, the page shows the rest
MAX_TEXT = 70
NUMBER_COLUMN: dict[str, Any] = {"justify": "right", "no_wrap": True}


def format_value(metric: str, value: float) -> str:
    """Format a value of a metric, shares in percent."""
    spec = metric_specs()[base_name(metric)]
    if spec.kind == "ratio":
        return f"{100 * value:.1f} %"
    return f"{value:.3g}" if spec.high is None else f"{value:.2f}"


def format_states(states: Mapping[str, int]) -> str:
    """Format the numbers of traces by state."""
    return ", ".join(f"{states[name]} {name}" for name in STATE_COLUMNS if states.get(name))


def _in_display_order(view: AgentView, service: str) -> list[tuple[str, str]]:
    series = [pair for pair in view.windows.series(service) if not is_overflow_series(pair[1])]
    return sorted(series, key=lambda pair: (display_rank(pair[0]), pair))


def _window_rows(view: AgentView, service: str) -> Iterator[tuple[str, ...]]:
    windows = view.windows
    nothing: dict[str, list[str]] = {}
    for metric, scorer in _in_display_order(view, service):
        estimates: dict[str, Estimate] = {}
        for window in windows.names:
            current = windows.estimate(service, "", metric, scorer, window)
            if current is not None:
                estimates[window] = current
        name = f"{metric} ({scorer})"
        if not estimates:
            longest = windows.states(service, "", metric, scorer, windows.names[-1])
            nothing.setdefault(format_states(longest), []).append(metric)
        for window, estimate in estimates.items():
            lower, upper = (format_value(metric, x) for x in (estimate.lower, estimate.upper))
            interval = f"{lower} … {upper}"
            value = format_value(metric, estimate.value)
            yield (
                name,
                window,
                value,
                interval,
                str(estimate.samples),
                format_states(estimate.states),
            )
            name = ""
    for stage in windows.stages(service):
        name = f"latency, {bound_label(stage, 20)}"
        for window in windows.names:
            for quantile in windows.quantiles(service, "", stage, window):
                label = f"{window} p{100 * quantile.quantile:.0f}"
                value = f"{quantile.value:.3g} s"
                interval = (
                    f"{quantile.lower:.3g} … {quantile.upper:.3g} s"
                    if quantile.lower is not None and quantile.upper is not None
                    else ""
                )
                yield name, label, value, interval, str(quantile.samples), ""
                name = ""
    for states, metrics in nothing.items():
        yield "no estimate: " + ", ".join(metrics), windows.names[-1], "–", "", "", states


def windows_table(view: AgentView, service: str) -> Table:
    """Build the table of a service: estimates, 95 % intervals, samples and states by window.

    A window is left out where fewer traces than `limits.min_samples` were scored.
    """
    windows = view.windows
    seen = windows.count_traces(service, "", windows.names[-1])
    table = build_table(
        f"{bound_label(service, 60)}: {seen} traces in {windows.names[-1]}",
        ("metric (scorer)", {"overflow": "fold", "max_width": 30}),
        ("window", {"no_wrap": True}),
        ("estimate", NUMBER_COLUMN),
        ("95 % interval", NUMBER_COLUMN),
        ("samples", NUMBER_COLUMN),
        ("states", {"overflow": "fold", "max_width": 34}),
    )
    for row in _window_rows(view, service):
        add_text_row(table, *row)
    table.caption = OWN_ERROR
    table.caption_justify = "left"
    return table


def worst_table(view: AgentView, service: str) -> Table | None:
    """Build the table of the worst traces of a service, or None if nothing was scored."""
    windows = view.windows
    table = build_table(
        f"{bound_label(service, 60)}: worst traces",
        ("metric", {"no_wrap": True}),
        ("score", NUMBER_COLUMN),
        ("trace", {"overflow": "fold", "max_width": 30}),
        ("query and answer", {"overflow": "fold"}),
    )
    for metric in WORST_METRICS:
        name = metric
        for worst in windows.worst(service, metric, "builtin", windows.names[-1], WORST_SHOWN):
            evidence = view.evidence(service, worst.trace_id) or {}
            trace = evidence.get("trace", {})
            texts = [trace.get(name) or "" for name in ("query", "answer")]
            shown = "\n".join(excerpt(text, MAX_TEXT) for text in texts if text)
            value = format_value(metric, worst.value)
            add_text_row(table, name, value, bound_label(worst.trace_id, 200), shown)
            name = ""
    return table if table.row_count else None


def alerts_table(alerts: Iterable[Alert]) -> Table | None:
    """Build the table of the pending and firing alerts, or None if there are none."""
    alerts = [alert for alert in alerts if alert.state != "resolved"]
    if not alerts:
        return None
    table = Table(title="alerts", title_justify="left", title_style="bold")
    for column in ("severity", "state", "alert", "service", "what", "worst traces"):
        table.add_column(column, overflow="fold")
    for alert in alerts:
        add_text_row(
            table,
            alert.severity,
            alert.state,
            bound_label(alert.rule, 120),
            bound_label(alert.service, 60),
            bound_label(alert.summary, 500),
            "\n".join(bound_label(trace_id, 80) for trace_id in alert.worst),
        )
    return table
