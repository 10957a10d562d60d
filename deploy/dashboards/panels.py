"""The kinds of panels: lines, single numbers, tables. `bands.py` has those with an interval.

Every one has a description in plain words: what the number is, and what to do about it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from grafana_foundation_sdk.builders import common as look
from grafana_foundation_sdk.builders import dashboard as builders
from grafana_foundation_sdk.builders import prometheus, stat, table, timeseries
from grafana_foundation_sdk.models import common
from grafana_foundation_sdk.models.dashboard import (
    DataTransformerConfig,
    DynamicConfigValue,
    Threshold,
    ThresholdsMode,
)
from grafana_foundation_sdk.models.prometheus import PromQueryFormat
from ragmeter.alerts.rule_sets import runbook_pages

from deploy.dashboards.variables import DATASOURCE

__all__ = [
    "Column",
    "Panel",
    "columns",
    "fixed",
    "lines",
    "link",
    "mark",
    "number",
    "on_page",
    "tile",
]

Panel = timeseries.Panel | stat.Panel | table.Panel
_Any = TypeVar("_Any", timeseries.Panel, stat.Panel, table.Panel)
NONE = "transparent"

STANDS = {"plain": "text", "kept": "green", "missed": "red"}
"""How a number stands to its goal, and the colour of it."""


def link(title: str, url: str) -> builders.DashboardLink:
    return builders.DashboardLink(title).url(url).target_blank(True)


def on_page(service: str = "${service:percentencode}") -> builders.DashboardLink:
    """To the service on the status page: its worst traces are there, each with a page of its"
    " own."""
    return link("Worst traces on the status page", f"${{page}}/service/{service}")


def fixed(colour: str) -> DynamicConfigValue:
    return DynamicConfigValue("color", {"mode": "fixed", "fixedColor": colour})


def lines(
    title: str,
    text: str,
    queries: Mapping[str, str],
    *,
    unit: str = "short",
    size: tuple[int, int] = (8, 7),
    alerts: Sequence[str] = (),
    stacked: bool = False,
    top: float | None = None,
    decimals: int | None = None,
    exemplars: bool = False,
    fitted: bool = False,
    links: Sequence[builders.DashboardLink] = (),
    colours: Mapping[str, str] | None = None,
) -> timeseries.Panel:
    """Lines over time, from expressions by their legend.

    The axis holds 0, unless it is `fitted` to the lines.
    """
    panel = _common(timeseries.Panel(), title, text, unit=unit, size=size, alerts=alerts)
    panel.line_width(1).fill_opacity(35 if stacked else 0)
    if not fitted:
        panel.axis_soft_min(0)
    panel.show_points(common.VisibilityMode.AUTO).span_nulls(False)
    tooltip = look.VizTooltipOptions().mode(common.TooltipDisplayMode.MULTI)
    panel.tooltip(tooltip.sort(common.SortOrder.DESCENDING))
    legend = look.VizLegendOptions().show_legend(True)
    panel.legend(
        legend.display_mode(common.LegendDisplayMode.LIST).placement(common.LegendPlacement.BOTTOM)
    )
    if stacked:
        panel.stacking(look.StackingConfig().mode(common.StackingMode.NORMAL).group("A"))
    if top is not None:
        panel.axis_soft_max(top)
    if decimals is not None:
        panel.decimals(decimals)
    if links:
        panel.data_links(list(links))
    for number_, (name, expr) in enumerate(queries.items()):
        query = prometheus.Dataquery().expr(expr).legend_format(name).range().exemplar(exemplars)
        panel.with_target(query.ref_id(_ref(number_)))
    for name, colour in (colours or {}).items():
        panel.override_by_name(name, [fixed(colour)])
    return panel


def number(
    title: str,
    text: str,
    expr: str,
    *,
    unit: str = "short",
    size: tuple[int, int] = (4, 4),
    red_from: float | None = None,
    alerts: Sequence[str] = (),
    decimals: int | None = None,
    sparkline: bool = False,
) -> stat.Panel:
    """The number of now, large; red from a value on."""
    panel = _common(
        stat.Panel(),
        title,
        text,
        unit=unit,
        size=size,
        alerts=alerts,
        red_from=red_from,
    )
    graph = common.BigValueGraphMode.AREA if sparkline else common.BigValueGraphMode.NONE
    panel.graph_mode(graph).color_mode(common.BigValueColorMode.VALUE)
    panel.reduce_options(look.ReduceDataOptions().calcs(["lastNotNull"]))
    if decimals is not None:
        panel.decimals(decimals)
    query = prometheus.Dataquery().expr(expr).legend_format("__auto")
    return panel.with_target((query.range() if sparkline else query.instant()).ref_id("A"))


def tile(
    title: str,
    text: str,
    queries: Mapping[str, str],
    *,
    unit: str,
    size: tuple[int, int],
    decimals: int,
) -> stat.Panel:
    """The number of a question, from queries by what they say of it: `missed` is red, `kept` green,
    `plain` has its window below it; any other name stands there itself."""
    panel = _common(stat.Panel(), title, text, unit=unit, size=size)
    panel.graph_mode(common.BigValueGraphMode.NONE).color_mode(common.BigValueColorMode.VALUE)
    panel.reduce_options(look.ReduceDataOptions().calcs(["lastNotNull"]))
    panel.text_mode(common.BigValueTextMode.VALUE_AND_NAME).decimals(decimals)
    panel.data_links([on_page()])
    for place, (name, expr) in enumerate(queries.items()):
        legend = "{{window}}" if name in STANDS else name
        query = prometheus.Dataquery().expr(expr).legend_format(legend).instant()
        panel.with_target(query.ref_id(_ref(place)))
        panel.override_by_query(_ref(place), [fixed(STANDS.get(name, "text"))])
    return panel


def mark(name: str, colour: str, expr: str) -> builders.AnnotationQuery:
    """A vertical line over every chart, where something is."""
    found = builders.AnnotationQuery().name(name).datasource(DATASOURCE).enable(True)
    return found.icon_color(colour).expr(expr)


@dataclass(frozen=True, slots=True)
class Column:
    """A column with a query of its own, or (`expr` empty) the label that rows are joined by."""

    name: str
    expr: str = ""
    unit: str = "short"
    decimals: int | None = None
    width: int | None = None
    label: str = ""
    links: tuple[builders.DashboardLink, ...] = ()


def columns(
    title: str,
    text: str,
    shown: Sequence[Column],
    *,
    size: tuple[int, int],
    sort: str,
) -> table.Panel:
    """A table of now: what has the same labels stands in one row."""
    panel = _common(table.Panel(), title, text, unit="short", size=size)
    values = [one for one in shown if one.expr]
    names, order = {}, {}
    for number_, one in enumerate(values):
        query = prometheus.Dataquery().expr(one.expr).instant().format(PromQueryFormat.TABLE)
        panel.with_target(query.ref_id(_ref(number_)))
        # a single query keeps its plain name
        names["Value" if len(values) == 1 else f"Value #{_ref(number_)}"] = one.name
    names |= {one.label: one.name for one in shown if one.label}
    for place, one in enumerate(shown):
        source = next(raw for raw, name in names.items() if name == one.name)
        order[source] = place
        properties = [DynamicConfigValue("unit", one.unit)] if one.expr else []
        if one.decimals is not None:
            properties.append(DynamicConfigValue("decimals", one.decimals))
        if one.width is not None:
            properties.append(DynamicConfigValue("custom.width", one.width))
        if one.links:
            properties.append(
                DynamicConfigValue("links", [dict(each.build().to_json()) for each in one.links])
            )
        if properties:
            panel.override_by_name(one.name, properties)
    left_out = {"Time": True, "__name__": True}
    panel.with_transformation(DataTransformerConfig(id_val="merge", options={}))
    organize: dict[str, Any] = {
        "excludeByName": left_out,
        "indexByName": order,
        "renameByName": names,
    }
    panel.with_transformation(DataTransformerConfig(id_val="organize", options=organize))
    panel.sort_by([look.TableSortByFieldState().display_name(sort).desc(False)])
    return panel.show_header(True)


def _common(
    panel: _Any,
    title: str,
    text: str,
    *,
    unit: str,
    size: tuple[int, int],
    alerts: Sequence[str] = (),
    red_from: float | None = None,
) -> _Any:
    told = f"{text}\n\nAlerts: {', '.join(alerts)}." if alerts else text
    panel.title(title).description(told)
    panel.datasource(DATASOURCE).unit(unit).span(size[0]).height(size[1])
    pages = dict.fromkeys(runbook_pages()[name] for name in alerts)
    panel.links([link(f"Runbook: {page}", f"${{runbooks}}/{page}") for page in pages])
    # on a number the colour is that of its digits
    none = NONE if isinstance(panel, timeseries.Panel) else "text" if red_from is None else "green"
    steps = [Threshold(None, none)]
    if red_from is not None:
        steps.append(Threshold(red_from, "red"))
    panel.thresholds(builders.ThresholdsConfig().mode(ThresholdsMode.ABSOLUTE).steps(steps))
    return panel


def _ref(place: int) -> str:
    return "ABCDEFGHIJKLMNOPQRSTUVWXYZ"[place]
