"""Settings for tests, of what is given and the defaults."""

from __future__ import annotations

from typing import Any

from ragmeter.app.settings import load_settings
from ragmeter.config.settings import Settings

__all__ = ["settings_of"]


def settings_of(**tree: Any) -> Settings:
    return load_settings(environ={}, overrides=tree)
