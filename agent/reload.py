"""Settings that change without a restart: on SIGHUP the configuration is read again."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from agent.config import ConfigError, Sampling, Settings

__all__ = ["LIVE", "Reload"]

log = logging.getLogger("ragmeter")

LIVE = "sampling"
"""The section that takes effect at once. Every draw carries the probability that held, so no
estimate jumps; what the others say is built into windows, ports and files."""


class Resampled(Protocol):
    def resample(self, settings: Sampling) -> None: ...


class Reload:
    """Called for each SIGHUP. `read` gives the settings as they are written now; a mistake in them
    is logged and changes nothing."""

    def __init__(
        self, settings: Settings, read: Callable[[], Settings], instrument: Resampled
    ) -> None:
        self._started = settings
        self._sampling = settings.sampling
        self._read = read
        self._instrument = instrument

    def __call__(self) -> None:
        try:
            new = self._read()
        except (ConfigError, OSError) as error:
            log.error("configuration: %s; the settings stay as they were", error)
            return
        waiting = sorted(
            key
            for key in _changed(self._started.model_dump(), new.model_dump())
            if key != LIVE and not key.startswith(f"{LIVE}.")
        )
        if new.sampling != self._sampling:
            self._sampling = new.sampling
            self._instrument.resample(new.sampling)
            log.warning("configuration read again: sampling follows it from the next trace on")
        elif not waiting:
            log.warning("configuration read again: nothing has changed")
        if waiting:
            log.warning("changed, but only after a restart: %s", ", ".join(waiting))


def _changed(old: Mapping[str, Any], new: Mapping[str, Any], prefix: str = "") -> list[str]:
    """The keys whose values differ."""
    found: list[str] = []
    for name in old.keys() | new.keys():
        key, before, after = f"{prefix}{name}", old.get(name), new.get(name)
        if isinstance(before, Mapping) and isinstance(after, Mapping):
            found += _changed(before, after, f"{key}.")
        elif before != after:
            found.append(key)
    return found
