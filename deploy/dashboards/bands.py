"""A number over time in the band of its 95 % interval, and what stands beside it."""

from __future__ import annotations

from collections.abc import Mapping

from grafana_foundation_sdk.builders import timeseries
from grafana_foundation_sdk.models.dashboard import DynamicConfigValue

from deploy.dashboards.panels import fixed, lines, on_page

__all__ = ["LOWER", "UPPER", "band"]

LOWER, UPPER = "lower", "upper"
"""The legends of the ends of the band."""


def band(
    title: str,
    text: str,
    queries: Mapping[str, str],
    *,
    unit: str,
    size: tuple[int, int],
    colours: Mapping[str, str],
    dashed: tuple[str, ...] = (),
    alerts: tuple[str, ...] = (),
    decimals: int | None = None,
) -> timeseries.Panel:
    """Lines over time; between those with the legends `lower` and `upper` the panel is filled."""
    panel = lines(
        title,
        f"{text} The band is the 95 % interval. A gap: not known well enough, or a scrape failed.",
        queries,
        unit=unit,
        size=size,
        alerts=alerts,
        decimals=decimals,
        links=[on_page()],
        fitted=True,
    )
    edge = [
        fixed("blue"),
        DynamicConfigValue("custom.lineWidth", 0),
        DynamicConfigValue("custom.showPoints", "never"),
        DynamicConfigValue("custom.hideFrom", {"legend": True, "tooltip": False, "viz": False}),
    ]
    fill = [
        DynamicConfigValue("custom.fillBelowTo", LOWER),
        DynamicConfigValue("custom.fillOpacity", 20),
    ]
    panel.override_by_name(UPPER, [*edge, *fill])
    panel.override_by_name(LOWER, edge)
    for name, colour in colours.items():
        look = [fixed(colour), DynamicConfigValue("custom.lineWidth", 1 if name in dashed else 2)]
        if name in dashed:
            style = {"fill": "dash", "dash": [8, 6]}
            look.append(DynamicConfigValue("custom.lineStyle", style))
        panel.override_by_name(name, look)
    return panel
