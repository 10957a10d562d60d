"""From boards to files: identifiers, annotations, JSON."""

from __future__ import annotations

from copy import deepcopy
from itertools import count
from pathlib import Path

from grafana_foundation_sdk.builders import dashboard as builders
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.dashboard import DashboardCursorSync

from deploy.dashboards import itself, service
from deploy.dashboards.board import Board
from deploy.dashboards.panels import link

__all__ = ["BOARDS", "DASHBOARDS", "generated", "text"]

DASHBOARDS = Path(__file__).parents[2] / "helm" / "ragmeter" / "files" / "dashboards"
BOARDS: tuple[Board, ...] = (service.BOARD, itself.BOARD)
TAG = "ragmeter"


def generated() -> dict[Path, str]:
    """Every file, with what must stand in it."""
    return {DASHBOARDS / f"{board.name}.json": text(board) for board in BOARDS}


def text(board: Board) -> str:
    """A dashboard as Grafana's provisioning reads it."""
    made = (
        builders.Dashboard(board.title)
        .uid(f"ragmeter-{board.name}")
        .description(board.text)
        .tags([TAG])
        .readonly()
        .timezone("browser")
        .tooltip(DashboardCursorSync.CROSSHAIR)
        .time(board.since, "now")
        .refresh("30s")
        .variables(list(board.variables))
        .link(link("Status page", "${page}/"))
    )
    for annotation in board.annotations:
        made.annotation(annotation)
    for panel in board.panels:
        made.with_panel(panel)
    found = deepcopy(made.build())  # boards are built more than once from the same panels
    numbers = count(1)
    for one in found.panels or []:
        one.id_val = next(numbers)
    return JSONEncoder(sort_keys=True, indent=2).encode(found) + "\n"
