"""What the boards show of the parts of the agent, in the module of the name of each part."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec

from ragmeter.app.parts import PARTS

from deploy.dashboards.panels import Panel

__all__ = ["overview_panels"]


def overview_panels() -> list[Panel]:
    """What the board `overview` shows of each service, by the parts that the agent has."""
    names = [f"{__name__}.{part.name}" for part in PARTS]
    return [panel for name in names if find_spec(name) for panel in import_module(name).overview()]
