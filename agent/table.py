"""The windows as a table for the terminal."""

from __future__ import annotations

from rich.table import Table

from agent.alerts import Alert
from agent.labels import bounded
from agent.metrics import METRICS
from agent.reading import Reading
from agent.windows import Estimate

__all__ = ["alerts_table", "windows_tables"]

STATES = ("scored", "not_applicable", "unscored", "sampled_out", "shed")


def _number(metric: str, value: float) -> str:
    spec = METRICS[metric]
    if spec.kind == "ratio":
        return f"{100 * value:.1f} %"
    return f"{value:.3g}" if spec.high is None else f"{value:.2f}"


def _cells(metric: str, estimate: Estimate | None) -> list[str]:
    if estimate is None:
        return ["–", "", ""]
    interval = f"{_number(metric, estimate.lower)} … {_number(metric, estimate.upper)}"
    return [_number(metric, estimate.value), interval, str(estimate.samples)]


def windows_tables(reading: Reading) -> list[Table]:
    """One table per service: each metric with its estimate, 95 % interval and samples by window,
    and the state counts of the longest one.

    `–` where fewer traces than `limits.min_samples` were scored.
    """
    windows = reading.windows
    tables = []
    for service in windows.services():
        table = Table(
            title=f"{bounded(service, 60)}: {windows.seen(service, '', windows.names[-1])} traces",
            title_justify="left",
            title_style="bold",
        )
        table.add_column("metric (scorer)", no_wrap=True)
        for name in windows.names:
            table.add_column(name, justify="right", no_wrap=True)
            table.add_column("95 %", justify="right", no_wrap=True, style="dim")
            table.add_column("n", justify="right", no_wrap=True)
        table.add_column(f"states, {windows.names[-1]}", overflow="fold")
        for metric, scorer in windows.series(service):
            row = [f"{metric} ({scorer})"]
            for name in windows.names:
                row += _cells(metric, windows.estimate(service, "", metric, scorer, name))
            states = windows.states(service, "", metric, scorer, windows.names[-1])
            row.append(_states(states))
            table.add_row(*row)
        for stage in windows.stages(service):
            quantiles = {
                name: windows.quantiles(service, "", stage, name) for name in windows.names
            }
            row = [f"latency {bounded(stage, 30)}"]
            for name in windows.names:
                shown = " ".join(
                    f"p{100 * item.quantile:.0f} {item.value:.3g} s" for item in quantiles[name]
                )
                samples = str(quantiles[name][0].samples) if quantiles[name] else ""
                row += [shown or "–", "", samples]
            table.add_row(*row, "")
        tables.append(table)
    return tables


def _states(states: dict[str, int]) -> str:
    return ", ".join(f"{states[name]} {name}" for name in STATES if states.get(name))


def alerts_table(reading: Reading) -> Table | None:
    """The alerts that are pending or firing, or None."""
    alerts: list[Alert] = [alert for alert in reading.alerts() if alert.state != "resolved"]
    if not alerts:
        return None
    table = Table(title="alerts", title_justify="left", title_style="bold")
    for column in ("severity", "state", "alert", "service", "what", "worst traces"):
        table.add_column(column, overflow="fold")
    for alert in alerts:
        table.add_row(
            alert.severity,
            alert.state,
            alert.rule,
            bounded(alert.service, 60),
            alert.summary,
            "\n".join(bounded(trace_id, 80) for trace_id in alert.worst),
        )
    return table
