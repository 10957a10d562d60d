"""The settings of an agent: those of the core with those of its parts."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ragmeter.config import loader
from ragmeter.config.settings import Settings

__all__ = ["load_settings", "render_reference"]


def load_settings(
    path: Path | None = None,
    environ: Mapping[str, str] = os.environ,
    overrides: Mapping[str, Any] | None = None,
) -> Settings:
    """Load the settings of a YAML file, then the environment, then a tree; the last one wins.

    Raises:
        ConfigError: The text names the key, the value and what is allowed.
    """
    # late: a command that needs no settings starts without the parts
    from ragmeter.app.parts import AgentSettings

    return loader.load_settings(path, environ, overrides, model=AgentSettings)


def render_reference() -> str:
    """Return the configuration reference as Markdown."""
    from ragmeter.app.parts import AgentSettings

    return loader.render_reference(AgentSettings)
