"""Tables of the status page: overview, quality, latency and segments."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

from ragmeter.core.metric_specs import METRIC_GROUPS, OTHER_GROUP
from ragmeter.exporters.page.charts import sparkline
from ragmeter.exporters.page.markup import Child, Markup, el, join, one_line
from ragmeter.exporters.page.numbers import (
    format_count,
    format_interval,
    format_seconds,
    format_seconds_interval,
    format_value,
)
from ragmeter.exporters.page.views import LatencyRow, MetricRow, SegmentRow, ServiceView, WindowCell

LABEL = 80  # characters of a service, segment or id in a table
STATE_NAMES = {
    "scored": "scored",
    "not_applicable": "not applicable",
    "sampled_out": "sampled out",
    "unscored": "unscored",
    "shed": "shed",
    "late": "late",
}
# What the one-line overview shows of a service, in this order, where it is measured.
OVERVIEW = ("answered", "grounding", "relevance", "citation_f1", "error")
QUANTILES = (0.5, 0.95, 0.99)


def service_url(service: str) -> str:
    return f"/service/{_segment(service)}"


def trace_url(service: str, trace_id: str) -> str:
    return f"/trace/{_segment(service)}/{_segment(trace_id)}"


def _segment(text: str) -> str:
    """One path segment; lone surrogates cannot stand in a URL."""
    return quote(text.encode("utf-8", "replace"), safe="")


def scroll_box(label: str, *children: Child, class_: str = "box") -> Markup:
    """A frame that scrolls sideways on its own; it takes the focus so that keys can scroll it."""
    return el("div", *children, class_=class_, role="region", aria_label=label, tabindex=0)


def _th(*children: Child, class_: str | None = None, **attributes: Any) -> Markup:
    return el("th", *children, scope="col", class_=class_, **attributes)


def _estimate(cell: WindowCell, row: MetricRow, edge: bool = False) -> Markup:
    found = cell.estimate
    name = "n edge" if edge else "n"
    if found is None:
        of = "" if cell.needed is None else f" of {cell.needed}"
        note = f"too few: {cell.scored:,}{of}" if cell.scored else "no score"
        return el("td", "—", el("small", note), class_=name)
    return el(
        "td",
        el("b", format_value(found.value, row.spec)),
        el("small", format_interval(found.lower, found.upper, row.spec)),
        class_=name,
        title=f"{found.samples:,} scored traces, {format_count(found.effective_samples)} effective",
    )


def quality_table(view: ServiceView, windows: Sequence[str]) -> Markup:
    """Metric, scorer, estimates by window, sparkline, effective samples, states."""
    head = el(
        "tr",
        _th("Metric"),
        [_th(name, class_="n") for name in windows],
        _th(f"Last {view.window}"),
        _th("Effective", el("br"), "samples", class_="n"),
        _th(f"Traces in {view.window}"),
    )
    bodies = []
    shown = [row for row in view.rows if row.measured]
    order = [*METRIC_GROUPS, OTHER_GROUP]
    for group in sorted({row.group for row in shown}, key=order.index):
        rows = [
            el("tr", el("th", group, scope="rowgroup", colspan=len(windows) + 4), class_="group")
        ]
        rows += [_metric(row, view, windows) for row in shown if row.group == group]
        bodies.append(el("tbody", rows))
    table = el("table", el("thead", head), bodies, class_="stick")
    framed = scroll_box(f"Metrics of {one_line(view.name, LABEL)}", table) if shown else None
    return join(framed, _unmeasured(view, windows[-1]))


def _unmeasured(view: ServiceView, window: str) -> Markup | None:
    """One line for the metrics that no trace has a value of, and why."""
    rows = [row for row in view.rows if not row.measured]
    if not rows:
        return None
    parts: list[Child] = [el("b", f"Without a score in {window}: ")]
    for index, row in enumerate(rows):
        name = f"{'; ' if index else ''}{metric_words(row.spec.name)} "
        parts += [name, el("span", "(", _states(row.cells[window].states), ")", class_="soft")]
    return el("p", parts, class_="note")


def _metric(row: MetricRow, view: ServiceView, windows: Sequence[str]) -> Markup:
    spec, cell = row.spec, row.cells[view.window]
    better = {"higher": "↑ better", "lower": "↓ better", None: ""}[spec.good]
    note = "\u00a0· ".join(part.replace(" ", "\u00a0") for part in (row.scorer, better) if part)
    chart = sparkline(row.history, spec, f"{metric_words(spec.name)} ({row.scorer})")
    effective = "—" if cell.estimate is None else format_count(cell.estimate.effective_samples)
    return el(
        "tr",
        el("th", metric_words(spec.name), el("small", note), scope="row", title=spec.meaning,
           class_="name"),
        [_estimate(row.cells[name], row) for name in windows],
        el("td", chart if chart is not None else el("span", "—", class_="soft")),
        el("td", effective, class_="n"),
        el("td", _states(cell.states), class_="states"),
    )  # fmt: skip


def metric_words(name: str) -> str:
    """A metric's name as people read it."""
    text = name.replace("_at_k:", " at ").replace("_usd", " (USD)").replace("_f1", " F1")
    return text.replace("_", " ")


def _states(states: dict[str, int]) -> Markup:
    parts: list[Child] = []
    for name, text in STATE_NAMES.items():
        if states.get(name):
            parts.append([", " if parts else "", el("b", f"{states[name]:,}"), f" {text}"])
    return join(parts) if parts else join("none")


def latency_table(rows: Sequence[LatencyRow], windows: Sequence[str]) -> Markup:
    """Quantiles by stage and window."""
    head = [
        el(
            "tr",
            el("th", "Stage", scope="col", rowspan=2),
            [
                el("th", name, scope="colgroup", colspan=len(QUANTILES), class_="span edge")
                for name in windows
            ],
        ),
        el(
            "tr",
            [
                _th(f"p{100 * quantile:g}", class_="n edge" if quantile == 0.5 else "n")
                for _ in windows
                for quantile in QUANTILES
            ],
        ),
    ]
    body = [
        el(
            "tr",
            el("th", one_line(row.stage, LABEL), scope="row", class_="long"),
            [
                _quantile(row.quantiles[name].get(quantile), quantile == 0.5)
                for name in windows
                for quantile in QUANTILES
            ],
        )
        for row in rows
    ]
    return scroll_box("Latency", el("table", el("thead", head), el("tbody", body), class_="stick"))


def _quantile(item: Any, edge: bool) -> Markup:
    name = "n edge" if edge else "n"
    if item is None:
        return el("td", "—", class_=name, title="too few samples for this quantile")
    both = format_seconds_interval(item.lower, item.upper)
    return el(
        "td", el("b", format_seconds(item.value)), el("small", both) if both else None, class_=name,
        title=f"{item.samples:,} samples",
    )  # fmt: skip


def segments_table(view: ServiceView) -> Markup:
    """The segments that have traffic side by side, in the window of the sparklines."""
    rows = [row for row in view.rows if row.group != "Use" and row.measured]
    head = el(
        "tr", _th("Segment"), _th("Traces", class_="n"),
        [_th(metric_words(row.spec.name), class_="n") for row in rows], _th("p95 total", class_="n"),
    )  # fmt: skip
    body = [_segment_row(item, rows) for item in view.segments if item.seen]
    table = el("table", el("thead", head), el("tbody", body), class_="stick")
    return scroll_box(f"Segments of {one_line(view.name, LABEL)}", table)


def _segment_row(item: SegmentRow, rows: Sequence[MetricRow]) -> Markup:
    cells = []
    for row in rows:
        found = item.estimates.get((row.spec.name, row.scorer))
        cells.append(
            el("td", "—", class_="n", title="too few samples")
            if found is None
            else el(
                "td",
                el("b", format_value(found.value, row.spec)),
                el("small", format_interval(found.lower, found.upper, row.spec)),
                class_="n",
            )
        )
    return el(
        "tr",
        el("th", one_line(item.segment, LABEL), scope="row", class_="long segment"),
        el("td", f"{item.seen:,}", class_="n"),
        cells,
        _quantile(item.p95, False),
    )


def overview_table(
    views: Sequence[ServiceView], window: str, firing: dict[str, tuple[int, int]]
) -> Markup:
    """One line a service; `firing` counts its critical and warning alerts."""
    shown = [m for m in OVERVIEW if any(row.spec.name == m for v in views for row in v.rows)]
    head = el(
        "tr", _th("Service"), _th("Alerts"), _th(f"Traces in {window}", class_="n"),
        [_th(metric_words(name), class_="n") for name in shown], _th("p95 total", class_="n"),
    )  # fmt: skip
    body = []
    for view in views:
        cells = []
        for name in shown:
            row = next((row for row in view.rows if row.spec.name == name), None)
            cells.append(
                el("td", "—", class_="n") if row is None else _estimate(row.cells[window], row)
            )
        total = next((row for row in view.latency if row.stage == "total"), None)
        critical, warning = firing.get(view.name, (0, 0))
        marks = [
            el("span", f"{mark} {number} {word} ", class_=f"mark {word}")
            for mark, number, word in (("■", critical, "critical"), ("▲", warning, "warning"))
            if number
        ]
        body.append(
            el(
                "tr",
                el("th", el("a", one_line(view.name, LABEL), href=service_url(view.name)),
                   scope="row", class_="long"),
                el("td", marks or el("span", "none", class_="soft")),
                el("td", f"{view.seen.get(window, 0):,}", class_="n"),
                cells,
                _quantile(None if total is None else total.quantiles[window].get(0.95), False),
            )
        )  # fmt: skip
    return scroll_box("Services", el("table", el("thead", head), el("tbody", body), class_="stick"))
