"""Settings for tests, of what is given and the defaults."""

from __future__ import annotations

from typing import Any

from agent.config import Settings, load

__all__ = ["settings_of"]


def settings_of(**tree: Any) -> Settings:
    return load(environ={}, overrides=tree)
