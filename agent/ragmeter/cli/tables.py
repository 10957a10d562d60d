"""What a replay has measured, for the terminal, and the table of alerts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from ragmeter.alerts.alert import Alert
from ragmeter.console.terminal import add_text_row, build_table, escape_control
from ragmeter.core.label_bounds import bound_label, excerpt
from ragmeter.core.metric_specs import OWN_ERROR, base_name, display_rank, is_judged
from ragmeter.core.score import read_unsupported
from ragmeter.core.series import is_overflow_series, split_scorer
from ragmeter.metrics.registry import metric_specs

if TYPE_CHECKING:
    from ragmeter.aggregate.agent_view import AgentView
    from ragmeter.config.scoring import JudgeSettings
    from ragmeter.parts.segments.breakdown import Breakdown
    from ragmeter.windows.series import Estimate

STATE_COLUMNS = ("scored", "not_applicable", "unscored", "sampled_out", "shed")
_WORST_SHOWN = 3  # traces of an alert: where to look first; the page has the others
_FINDINGS_SHOWN = 3  # metrics whose change has a segment
_MAX_TEXT = 70
_WIDTH_OF_TWO = 133  # columns that a table of two windows may need
# Variants and parts of metrics that are shown; the page has them all.
_PARTS = frozenset(
    (
        "precision_at_k",
        "average_precision_at_k",
        "reciprocal_rank",
        "nugget_all",
        "nugget_all_strict",
        "nugget_vital_strict",
        "nugget_weighted",
        "nugget_weighted_strict",
        "nugget_count",
        "nugget_vital_count",
        "nugget_okay_count",
        "citation_precision",
        "citation_recall",
        "citation_passage_f1",
        "citation_fabricated",
        "citation_passage_precision",
        "source_indicators",
        "input_tokens",
        "output_tokens",
    )
)
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


def _format_clock(seconds: float) -> str:
    return f"{datetime.fromtimestamp(max(0.0, seconds), UTC):%a %d %b %H:%M} UTC"


def _in_display_order(view: AgentView, service: str) -> list[tuple[str, str]]:
    series = [pair for pair in view.windows.series(service) if not is_overflow_series(pair[1])]
    return sorted(series, key=lambda pair: (display_rank(pair[0]), pair))


def _format_estimate(metric: str, estimate: Estimate | None) -> tuple[str, str]:
    if estimate is None:
        return "–", ""
    lower, upper = (format_value(metric, x) for x in (estimate.lower, estimate.upper))
    return format_value(metric, estimate.value), f"{lower.removesuffix(' %')} … {upper}"


def _describe_scale(metric: str) -> str:
    spec = metric_specs()[base_name(metric)]
    arrow = {"higher": " ↑", "lower": " ↓", None: ""}[spec.good]
    if spec.unit and spec.high is None:
        return f"{spec.unit}{arrow}"
    return f"{'0 to 100 %' if spec.kind == 'ratio' else spec.range}{arrow}"


def _window_rows(view: AgentView, service: str, names: Sequence[str]) -> Iterator[Sequence[str]]:
    windows = view.windows
    for metric, scorer in _in_display_order(view, service):
        if base_name(metric) in _PARTS:
            continue
        by = scorer + "*" * is_judged(scorer)
        states = windows.states(service, "", metric, scorer, names[-1])
        out = states.get("sampled_out", 0)
        shown = f"{states.get('scored', 0):,}" + (f" of {sum(states.values()):,}" if out else "")
        if unscored := states.get("unscored"):
            shown += f", {unscored:,} unscored"
        estimates = [windows.estimate(service, "", metric, scorer, name) for name in names]
        if any(estimates) or states.get("unscored") or (out and states.get("scored")):
            cells = [cell for one in estimates for cell in _format_estimate(metric, one)]
            yield metric, by, _describe_scale(metric), *cells, shown
    for stage in windows.stages(service):
        values = list[str]()
        for name in names:
            at = [
                one for one in windows.quantiles(service, "", stage, name) if one.quantile == 0.95
            ]
            values += [f"{at[0].value:.3g} s" if at else "–", ""]
        yield "latency p95", bound_label(stage, 20), "seconds ↓", *values, ""


def windows_table(view: AgentView, service: str, width: int) -> Table:
    """Build the table of a service: scale, estimates with 95 % intervals, and states.

    It has the two longest windows, or one if the terminal is narrow: a table that does not fit
    would lose digits. A dash stands where fewer than `limits.min_samples` were scored.
    """
    names = view.windows.names[-2 if width >= _WIDTH_OF_TWO else -1 :]
    table = build_table(
        f"{bound_label(service, 60)}: what was measured",
        ("metric", {"overflow": "fold"}),
        ("by", {"overflow": "fold"}),
        ("scale", {"overflow": "fold"}),
        *((title, NUMBER_COLUMN) for name in names for title in (f"last {name}", "95 % interval")),
        ("scored", {"overflow": "fold"}),
    )
    for row in _window_rows(view, service, names):
        add_text_row(table, *row)
    from ragmeter.aggregate.agent_view import judge_spend

    use = judge_spend(view)
    judges = f" * judged by {bound_label(use.model, 80)}." if use else ""
    table.caption = Text(f"↑ higher is better, ↓ lower is better.{judges} {OWN_ERROR}")
    table.caption_justify = "left"
    return table


def _alert_lines(view: AgentView, service: str) -> Iterator[Text]:
    firing = [one for one in view.alerts() if one.service == service and one.state == "firing"]
    if not firing:
        yield Text("No alert is firing.")
    # What leads comes first. Of one notification the first may have ended before the others.
    firing.sort(key=lambda one: (one.severity != "critical", one.folded_under, one.fired_at or 0.0))
    groups = dict[str, list[Alert]]()
    for one in firing:
        groups.setdefault(one.folded_under or one.id, []).append(one)
    for alert, *others in groups.values():
        severe = alert.severity == "critical"
        line = Text(alert.severity.upper(), "bold red" if severe else "bold yellow")
        line.append(f" {bound_label(alert.rule, 120)}, since {_format_clock(alert.since)}", "bold")
        yield line
        yield Text(f"  {escape_control(bound_label(alert.summary, 700))}")
        if others:
            names = ", ".join(sorted({bound_label(one.rule, 120) for one in others}))
            yield Text(f"  announced with it: {names}")
        for trace_id in alert.worst[:_WORST_SHOWN]:
            trace = (view.evidence(service, trace_id) or {}).get("trace", {})
            text = excerpt(trace.get("query") or "", _MAX_TEXT)
            yield Text(f"    {bound_label(trace_id, 200)}  {escape_control(text)}")


def _segment_lines(breakdown: Breakdown, window: str) -> Iterator[Text]:
    shown = 0
    for series in breakdown.series:
        rows = (row for tag in series.tags for row in tag.rows if row.moved and row.stands_out)
        row = max(rows, key=lambda one: abs(one.added.value) if one.added else 0.0, default=None)
        if row is None or row.now is None or row.before is None or shown == _FINDINGS_SHOWN:
            continue
        if not shown:
            yield Text(f"What moved in the last {window}, by segment:", "bold")
        shown += 1
        now, before = (format_value(series.metric, one.value) for one in (row.now, row.before))
        went = "fell" if row.now.value < row.before.value else "rose"
        yield Text(
            f"  {bound_label(row.segment, 100)}: {series.metric} ({split_scorer(series.scorer)[0]})"
            f" {went} from {before} to {now}, unlike the rest of the traffic"
        )


def service_report(view: AgentView, service: str, width: int) -> Iterator[RenderableType]:
    """Yield what a replay has measured of a service, for a terminal of `width` columns."""
    from ragmeter.parts.segments.breakdown import build_breakdown
    from ragmeter.parts.segments.sources import WindowBreakdownSource

    windows = view.windows
    seen = windows.count_traces(service, "", windows.names[-1])
    name = bound_label(service, 60)
    yield Text(f"\n{name}: {seen:,} traces in the last {windows.names[-1]}", "bold underline")
    yield from _alert_lines(view, service)
    if view.segments:
        window = windows.names[-2:][0]
        source = WindowBreakdownSource(lambda: view.windows, service, window, view.lock)
        yield from _segment_lines(build_breakdown(source), window)
    yield windows_table(view, service, width)


def judge_report(view: AgentView, settings: JudgeSettings) -> Iterator[Text]:
    """Yield what was asked of the judge, and what it cost."""
    from ragmeter.aggregate.agent_view import judge_spend

    use = judge_spend(view)
    budget = settings.budget.usd_per_day
    if use is None:
        return
    limit = "" if budget is None else f" of a budget of {budget:g} USD a day"
    yield Text(
        f"\nJudge {bound_label(use.model, 80)}: {use.verdicts:,} verdicts, {use.cached:,} of"
        f" them from the cache; {use.usd:.3f} USD{limit}."
    )


def describe_progress(view: AgentView) -> str:
    """Return how far a replay is: the time it has reached, and a first number."""
    windows = view.windows
    longest = windows.names[-1]
    parts = list[str]()
    for service in windows.services()[:2]:
        seen = windows.count_traces(service, "", longest)
        text = f"{bound_label(service, 60)} {seen:,} traces"
        estimate = windows.estimate(service, "", "grounding", "builtin", longest)
        if estimate is not None:
            text += f", grounding (0 to 1) {estimate.value:.2f}"
        parts.append(text)
    return (
        f"replayed until {_format_clock(windows.now or 0.0)}: {'; '.join(parts)}" if parts else ""
    )


def _has_marked_words(view: AgentView, service: str, trace_id: str) -> bool:
    results = (view.evidence(service, trace_id) or {}).get("results", ())
    return any(read_unsupported(one.get("detail")) for one in results)


def page_links(view: AgentView, url: str) -> Iterator[str]:
    """Yield the pages to open: all services, the worst one, and a trace of its alert."""
    # late: most commands need no client
    from ragmeter.server.client import service_path, trace_path

    yield f"{url}/  all services, those in trouble first"
    alerts = [
        one
        for one in view.alerts()
        if one.state == "firing" and one.worst and base_name(one.metric) in metric_specs()
    ]
    # a score says more of its trace than an error does
    alerts.sort(key=lambda one: metric_specs()[base_name(one.metric)].kind == "ratio")
    for alert in alerts[:1]:
        marked = (one for one in alert.worst if _has_marked_words(view, alert.service, one))
        trace_id = next(marked, alert.worst[0])
        yield f"{url}{service_path(alert.service)}  its metrics, charts and segments"
        yield f"{url}{trace_path(alert.service, trace_id)}  one of the worst traces of {alert.rule}"


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
