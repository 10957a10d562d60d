"""What a dashboard is made of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from deploy.dashboards.panels import Panel

__all__ = ["Board", "Row"]


@dataclass(frozen=True, slots=True)
class Row:
    """Panels from left to right, 24 wide.

    Args:
        title: The title; without one the panels go on with the row before.
        panels: The panels.
        repeat: The variable each of whose values gets such a row.
        empty: What panels without data say: what they need, and the setting.
        folded: Opens folded. Grafana cannot fold by what a query returns, so what most agents lack
            is folded for all, and its title says for whom it is.
    """

    title: str
    panels: Sequence[Panel]
    repeat: str = ""
    empty: str = ""
    folded: bool = False


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
