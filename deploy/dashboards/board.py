"""What a dashboard is made of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from grafana_foundation_sdk.builders.dashboard import AnnotationQuery

from deploy.dashboards.panels import Panel

__all__ = ["Board"]


@dataclass(frozen=True, slots=True)
class Board:
    """A dashboard.

    Args:
        name: The name of its file, and the end of its identifier.
        title: What Grafana lists.
        text: What it is for.
        variables: What is chosen at the top.
        panels: The panels from left to right, 24 wide.
        annotations: What is marked over every chart.
        since: The range that it opens with.
    """

    name: str
    title: str
    text: str
    variables: Sequence[Any]
    panels: Sequence[Panel]
    annotations: Sequence[AnnotationQuery]
    since: str = "now-24h"
