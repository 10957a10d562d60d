"""Settings that change without a restart: on SIGHUP the configuration is read again."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from agent.config import ConfigError, Sampling, Settings
from agent.settings.privacy import Privacy

__all__ = ["LIVE", "Reload"]

log = logging.getLogger("ragmeter")

LIVE = ("sampling", "privacy.redact", "privacy.drop_attributes", "privacy.timeout_seconds")
"""What takes effect at once. Every draw carries the probability that held, so no estimate jumps,
and a rule that finds more is wanted now; other keys are built into windows, ports and files."""


class Adjusted(Protocol):
    def resample(self, settings: Sampling) -> None: ...
    def redact(self, settings: Privacy) -> None: ...


class Reread(Protocol):
    def reread(self) -> None:
        """Read again what is in files of its own."""


class Reload:
    """Called for each SIGHUP. `files` are read first; `read` gives the settings as they are written
    now; a mistake in them is logged and changes nothing."""

    def __init__(
        self,
        settings: Settings,
        read: Callable[[], Settings],
        instrument: Adjusted,
        files: Reread | None = None,
    ) -> None:
        self._files = files
        self._started = self._last = settings
        self._read = read
        self._instrument = instrument

    def __call__(self) -> None:
        if self._files is not None:
            self._files.reread()
        try:
            new = self._read()
        except (ConfigError, OSError) as error:
            log.error("configuration: %s; the settings stay as they were", error)
            return
        # of what waits for a restart all is named, of the rest what is new
        waiting = [key for key in _changed(self._started, new) if not _is_live(key)]
        moved = [key for key in _changed(self._last, new) if _is_live(key)]
        if moved:
            self._instrument.redact(new.privacy)
            self._instrument.resample(new.sampling)
            self._last = new
            log.warning("configuration read again, holds from now on: %s", ", ".join(moved))
        elif not waiting:
            log.warning("configuration read again: nothing has changed")
        if waiting:
            log.warning("changed, but only after a restart: %s", ", ".join(waiting))


def _is_live(key: str) -> bool:
    return any(key == name or key.startswith(f"{name}.") for name in LIVE)


def _changed(old: Settings, new: Settings) -> list[str]:
    """The keys whose values differ, in order."""
    return sorted(_differing(old.model_dump(), new.model_dump(), ""))


def _differing(old: Mapping[str, Any], new: Mapping[str, Any], prefix: str) -> list[str]:
    found: list[str] = []
    for name in old.keys() | new.keys():
        key, before, after = f"{prefix}{name}", old.get(name), new.get(name)
        if isinstance(before, Mapping) and isinstance(after, Mapping):
            found += _differing(before, after, f"{key}.")
        elif before != after:
            found.append(key)
    return found
