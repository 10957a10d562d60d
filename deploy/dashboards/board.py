"""What a dashboard is made of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from deploy.dashboards.panels import Panel

__all__ = ["Board", "Row"]


@dataclass(frozen=True, slots=True)
class Row:
    """Panels from left to right, 24 wide; `repeat` names the variable whose every value gets"
    " one."""

    title: str
    panels: Sequence[Panel]
    repeat: str = ""


@dataclass(frozen=True, slots=True)
class Board:
    """A dashboard. `services`: it looks at services, and marks alerts of the chosen ones."""

    name: str
    title: str
    text: str
    variables: Sequence[Any]
    rows: Sequence[Row]
    services: bool = True
    since: str = "now-6h"
