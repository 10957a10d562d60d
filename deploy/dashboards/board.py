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
    """

    title: str
    panels: Sequence[Panel]
    repeat: str = ""
    empty: str = ""


@dataclass(frozen=True, slots=True)
class Board:
    """A dashboard."""

    name: str
    title: str
    text: str
    variables: Sequence[Any]
    rows: Sequence[Row]
    since: str = "now-6h"
