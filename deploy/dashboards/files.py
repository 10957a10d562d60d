"""From boards to files: identifiers, annotations, JSON."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from itertools import count
from pathlib import Path

from grafana_foundation_sdk.builders import dashboard as builders
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.dashboard import (
    DashboardCursorSync,
    DashboardLinkType,
    RowPanel,
)

from deploy.dashboards import agent_health, judge, overview, quality, retrieval
from deploy.dashboards.board import Board, Row
from deploy.dashboards.panels import link
from deploy.dashboards.promql import target
from deploy.dashboards.variables import DATASOURCE

__all__ = ["BOARDS", "DASHBOARDS", "generated", "text"]

DASHBOARDS = Path(__file__).parents[2] / "helm" / "ragmeter" / "files" / "dashboards"
BOARDS: tuple[Board, ...] = (
    overview.BOARD, quality.BOARD, retrieval.BOARD, judge.BOARD, agent_health.BOARD,
)  # fmt: skip
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
        .annotation(_alerts(board.services))
        .link(_others())
        .link(link("Status page", "${page}/"))
    )
    for row in board.rows:
        _add(made, row)
    found = deepcopy(made.build())  # boards are built more than once from the same panels
    numbers = count(1)
    hidden = 0  # height of the panels in folded rows above, for which the builder leaves room
    for panel in found.panels or []:
        panel.id_val = next(numbers)
        assert panel.grid_pos is not None
        panel.grid_pos.y -= hidden
        if isinstance(panel, RowPanel):
            panel.datasource = DATASOURCE
            bottom = 0
            for inside in panel.panels:
                inside.id_val = next(numbers)
                assert inside.grid_pos is not None
                inside.grid_pos.y -= hidden
                bottom = max(bottom, inside.grid_pos.y + inside.grid_pos.h)
            if panel.panels:
                hidden += bottom - panel.grid_pos.y - panel.grid_pos.h
    return JSONEncoder(sort_keys=True, indent=2).encode(found) + "\n"


def _add(made: builders.Dashboard, row: Row) -> None:
    panels = [panel.no_value(row.empty) if row.empty else panel for panel in row.panels]
    head = builders.Row(row.title)
    if row.repeat:
        head = head.repeat(row.repeat)
    if row.folded:
        for panel in panels:
            head.with_panel(panel)
    if row.title:
        made.with_row(head)
    if not row.folded:
        for panel in panels:
            made.with_panel(panel)


def _alerts(services: bool) -> builders.AnnotationQuery:
    """Where an alert of the rule file fired: a vertical line over every panel."""
    return (
        builders.AnnotationQuery()
        .name("Alerts")
        .datasource(DATASOURCE)
        .enable(True)
        .icon_color("red")
        .expr(firing(services))
    )


def firing(services: bool) -> str:
    where = ['alertname=~"Rag.+"', 'alertstate="firing"']
    return target("ALERTS", *where) if not services else _of_services(where)


def _of_services(where: Sequence[str]) -> str:
    return f'ALERTS{{service=~"$service",{",".join(where)}}}'


def _others() -> builders.DashboardLink:
    return (
        builders.DashboardLink("ragmeter")
        .type(DashboardLinkType.DASHBOARDS)
        .tags([TAG])
        .as_dropdown(True)
        .include_vars(True)
        .keep_time(True)
    )
