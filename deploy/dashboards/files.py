"""From boards to files: identifiers, annotations, JSON."""

from __future__ import annotations

from copy import deepcopy
from itertools import count
from pathlib import Path

from grafana_foundation_sdk.builders import dashboard as builders
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.dashboard import DashboardCursorSync, RowPanel

from deploy.dashboards import overview
from deploy.dashboards.board import Board, Row
from deploy.dashboards.panels import link
from deploy.dashboards.variables import DATASOURCE

__all__ = ["BOARDS", "DASHBOARDS", "generated", "text"]

DASHBOARDS = Path(__file__).parents[2] / "helm" / "ragmeter" / "files" / "dashboards"
BOARDS: tuple[Board, ...] = (overview.BOARD,)
TAG = "ragmeter"


def generated() -> dict[Path, str]:
    """Every file, with what must stand in it."""
    return {DASHBOARDS / f"{board.name}.json": text(board) for board in BOARDS}


def text(board: Board) -> str:
    """A dashboard as Grafana's provisioning reads it."""
    made = (
        builders.Dashboard(f"ragmeter / {board.title}")
        .uid(f"ragmeter-{board.name}")
        .description(board.text)
        .tags([TAG])
        .readonly()
        .timezone("browser")
        .tooltip(DashboardCursorSync.CROSSHAIR)
        .time(board.since, "now")
        .refresh("30s")
        .variables(list(board.variables))
        .annotation(_alerts())
        .link(link("Status page", "${page}/"))
    )
    for row in board.rows:
        _add(made, row)
    found = deepcopy(made.build())  # boards are built more than once from the same panels
    numbers = count(1)
    for panel in found.panels or []:
        panel.id_val = next(numbers)
        if isinstance(panel, RowPanel):
            panel.datasource = DATASOURCE
    return JSONEncoder(sort_keys=True, indent=2).encode(found) + "\n"


def _add(made: builders.Dashboard, row: Row) -> None:
    panels = [panel.no_value(row.empty) if row.empty else panel for panel in row.panels]
    if row.title:
        head = builders.Row(row.title)
        made.with_row(head.repeat(row.repeat) if row.repeat else head)
    for panel in panels:
        made.with_panel(panel)


def _alerts() -> builders.AnnotationQuery:
    """Where an alert of the rule file fired: a vertical line over every panel."""
    return (
        builders.AnnotationQuery()
        .name("Alerts")
        .datasource(DATASOURCE)
        .enable(True)
        .icon_color("red")
        .expr('ALERTS{service=~"$service",alertname=~"Rag.+",alertstate="firing"}')
    )
