"""The windows as a table for the terminal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from rich import box
from rich.table import Table
from rich.text import Text

from agent.alerts import Alert
from agent.fingerprints import is_mixture
from agent.labels import bounded
from agent.metrics import METRICS
from agent.metrics.names import base
from agent.presentation import rank
from agent.reading import Reading
from agent.windows import Estimate

__all__ = ["alerts_table", "windows_table", "worst_table"]

STATES = ("scored", "not_applicable", "unscored", "sampled_out", "shed")
WORST_METRICS = ("grounding", "relevance", "citation_f1")
WORST_SHOWN = 3  # traces a metric: the terminal shows where to look, the page shows the rest
MAX_TEXT = 70


def _add_row(table: Table, *cells: str) -> None:
    """Cells as text: what comes from traces and rules must not be read as markup."""
    table.add_row(*map(Text, cells))


def _number(metric: str, value: float) -> str:
    spec = METRICS[base(metric)]
    if spec.kind == "ratio":
        return f"{100 * value:.1f} %"
    return f"{value:.3g}" if spec.high is None else f"{value:.2f}"


def _states(states: Mapping[str, int]) -> str:
    return ", ".join(f"{states[name]} {name}" for name in STATES if states.get(name))


def _ordered(reading: Reading, service: str) -> list[tuple[str, str]]:
    found = [pair for pair in reading.windows.series(service) if not is_mixture(pair[1])]
    return sorted(found, key=lambda pair: (rank(pair[0]), pair))


def _rows(reading: Reading, service: str) -> Iterator[tuple[str, ...]]:
    windows = reading.windows
    nothing: dict[str, list[str]] = {}
    for metric, scorer in _ordered(reading, service):
        estimates: dict[str, Estimate] = {}
        for window in windows.names:
            found = windows.estimate(service, "", metric, scorer, window)
            if found is not None:
                estimates[window] = found
        name = f"{metric} ({scorer})"
        if not estimates:
            longest = windows.states(service, "", metric, scorer, windows.names[-1])
            nothing.setdefault(_states(longest), []).append(metric)
        for window, estimate in estimates.items():
            interval = f"{_number(metric, estimate.lower)} … {_number(metric, estimate.upper)}"
            value = _number(metric, estimate.value)
            yield name, window, value, interval, str(estimate.samples), _states(estimate.states)
            name = ""
    for stage in windows.stages(service):
        name = f"latency, {bounded(stage, 20)}"
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


def windows_table(reading: Reading, service: str) -> Table:
    """Each metric of a service by window: estimate, 95 % interval, scored samples, state counts.

    A window is left out where fewer traces than `limits.min_samples` were scored.
    """
    windows = reading.windows
    seen = windows.seen(service, "", windows.names[-1])
    table = Table(
        title=Text(f"{bounded(service, 60)}: {seen} traces in {windows.names[-1]}", "bold"),
        title_justify="left",
        box=box.SIMPLE_HEAD,
    )
    table.add_column("metric (scorer)", overflow="fold", max_width=30)
    table.add_column("window", no_wrap=True)
    table.add_column("estimate", justify="right", no_wrap=True)
    table.add_column("95 % interval", justify="right", no_wrap=True)
    table.add_column("samples", justify="right", no_wrap=True)
    table.add_column("states", overflow="fold", max_width=34)
    for row in _rows(reading, service):
        _add_row(table, *row)
    return table


def _excerpt(text: str) -> str:
    """The start of a text of a trace, on one line and free of terminal control."""
    line = bounded(" ".join(text[: 2 * MAX_TEXT].split()), 2 * MAX_TEXT)
    return line if len(line) <= MAX_TEXT else line[: MAX_TEXT - 1] + "…"


def worst_table(reading: Reading, service: str) -> Table | None:
    """The worst traces of a service by its main metrics, or None where nothing was scored."""
    windows = reading.windows
    table = Table(
        title=Text(f"{bounded(service, 60)}: worst traces", "bold"),
        title_justify="left",
        box=box.SIMPLE_HEAD,
    )
    table.add_column("metric", no_wrap=True)
    table.add_column("score", justify="right", no_wrap=True)
    table.add_column("trace", overflow="fold", max_width=30)
    table.add_column("query and answer", overflow="fold")
    for metric in WORST_METRICS:
        name = metric
        for worst in windows.worst(service, metric, "builtin", windows.names[-1], WORST_SHOWN):
            kept = reading.evidence(service, worst.trace_id) or {}
            trace = kept.get("trace", {})
            texts = [trace.get(part) or "" for part in ("query", "answer")]
            shown = "\n".join(_excerpt(text) for text in texts if text)
            value = _number(metric, worst.value)
            _add_row(table, name, value, bounded(worst.trace_id, 200), shown)
            name = ""
    return table if table.row_count else None


def alerts_table(reading: Reading) -> Table | None:
    """The alerts that are pending or firing, or None."""
    alerts: list[Alert] = [alert for alert in reading.alerts() if alert.state != "resolved"]
    if not alerts:
        return None
    table = Table(title="alerts", title_justify="left", title_style="bold")
    for column in ("severity", "state", "alert", "service", "what", "worst traces"):
        table.add_column(column, overflow="fold")
    for alert in alerts:
        _add_row(
            table,
            alert.severity,
            alert.state,
            bounded(alert.rule, 120),
            bounded(alert.service, 60),
            bounded(alert.summary, 500),
            "\n".join(bounded(trace_id, 80) for trace_id in alert.worst),
        )
    return table
