"""Change a running agent: commands that other threads send to the worker, and settings reloaded on SIGHUP.

Orders to the worker from other threads: each is carried out by the worker between two batches,
committed, and only then answered.
"""

from __future__ import annotations

import logging
import queue
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import Any, Generic, Protocol, TypeVar

from ragmeter.config.loader import ConfigError
from ragmeter.config.privacy import PrivacySettings
from ragmeter.config.scoring import SamplingSettings
from ragmeter.config.settings import Settings
from ragmeter.embedded.intake import StateUnavailable

_Command = TypeVar("_Command")
_CommandResult = TypeVar("_CommandResult")

COMMAND_PATIENCE = 30.0
"""Seconds until somebody who waits is told that nothing happened: a batch takes well under one. For
the commit of what was begun there is as much again; the disk is tried every five."""


class UnknownService(Exception):
    """There is no service of this name."""


class CommandQueue(Generic[_Command, _CommandResult]):
    """Orders of one kind that wait for the worker: promotions of baselines, index events. `wake` is
    called when one is there."""

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        self._waiting: queue.SimpleQueue[tuple[_Command, Future[_CommandResult]]]
        self._waiting = queue.SimpleQueue()

    def submit(self, what: _Command, patience: float = COMMAND_PATIENCE) -> _CommandResult:
        """Ask and wait. Raises `UnknownService` and `Unavailable`."""
        future: Future[_CommandResult] = Future()
        self._waiting.put((what, future))
        self._wake()
        try:
            return future.result(patience)
        except TimeoutError:
            if future.cancel():
                raise StateUnavailable("the agent is busy: nothing was changed") from None
        try:
            return future.result(patience)
        except TimeoutError:
            raise StateUnavailable("applied, but the disk does not take it yet") from None

    def execute_pending(self, apply: Callable[[_Command], _CommandResult]) -> None:
        """By the worker: `apply` changes and commits. What it raises ends the worker, but for
        `UnknownService`."""
        while not self._waiting.empty():
            what, future = self._waiting.get()
            if not future.set_running_or_notify_cancel():
                continue
            try:
                future.set_result(apply(what))
            except UnknownService as error:
                future.set_exception(error)
            except BaseException:
                future.set_exception(StateUnavailable("the state could not be written"))
                raise

    def reject_pending(self, why: str) -> None:
        """The worker has ended."""
        while not self._waiting.empty():
            _, future = self._waiting.get()
            if future.set_running_or_notify_cancel():
                future.set_exception(StateUnavailable(why))


log = logging.getLogger("ragmeter")

_LIVE = ("sampling", "privacy.redact", "privacy.drop_attributes", "privacy.timeout_seconds")
"""What takes effect at once. Every draw carries the probability that held, so no estimate jumps,
and a rule that finds more is wanted now; other keys are built into windows, ports and files."""


class _ReloadTarget(Protocol):
    def resample(self, settings: SamplingSettings) -> None: ...
    def redact(self, settings: PrivacySettings) -> None: ...


class _ReloadableFile(Protocol):
    def reread(self) -> None:
        """Read again what is in files of its own."""


class SettingsReload:
    """Called for each SIGHUP. `files` are read first; `read` gives the settings as they are written
    now; a mistake in them is logged and changes nothing."""

    def __init__(
        self,
        settings: Settings,
        read: Callable[[], Settings],
        instrument: _ReloadTarget,
        files: _ReloadableFile | None = None,
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
    return any(key == name or key.startswith(f"{name}.") for name in _LIVE)


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
