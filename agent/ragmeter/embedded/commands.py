"""Change a running agent: commands to the worker, and settings reloaded on SIGHUP.

The worker executes commands between two batches, commits, and only then returns the result.
"""

from __future__ import annotations

import logging
import queue
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Future
from typing import Any, Generic, Protocol, TypeVar

from ragmeter.aggregate.commands import COMMAND_PATIENCE, UnknownService
from ragmeter.config.inputs import PrivacySettings
from ragmeter.config.loader import ConfigError
from ragmeter.config.scoring import SamplingSettings
from ragmeter.config.settings import Settings
from ragmeter.core.errors import StateUnavailable
from ragmeter.server.access import AccessPolicy

log = logging.getLogger(__name__)

_Command = TypeVar("_Command")
_Result = TypeVar("_Result")

# Settings that take effect at once. Every draw carries the probability that held, so no estimate
# jumps, and a rule that redacts more is wanted now; others are built into windows, ports and files.
_LIVE = ("sampling", "privacy.redact", "privacy.drop_attributes")

_MODEL_RATE = "sampling.model"


class CommandQueue(Generic[_Command, _Result]):
    """Commands of one kind that wait for the worker; `wake` is called after one was added."""

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        self._waiting: queue.SimpleQueue[tuple[_Command, Future[_Result]]] = queue.SimpleQueue()

    def submit(self, command: _Command, patience: float = COMMAND_PATIENCE) -> _Result:
        """Have the worker execute a command within twice `patience` seconds; return its result.

        Raises:
            UnknownService: The command names a service that does not exist.
            StateUnavailable: It was not executed, or its commit takes too long.
        """
        future: Future[_Result] = Future()
        self._waiting.put((command, future))
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

    def execute_pending(self, execute: Callable[[_Command], _Result]) -> None:
        """Execute the waiting commands in the worker's thread.

        `execute` changes and commits. Its exceptions end the worker, but for `UnknownService`.
        """
        while not self._waiting.empty():
            command, future = self._waiting.get()
            if not future.set_running_or_notify_cancel():
                continue
            try:
                future.set_result(execute(command))
            except UnknownService as error:
                future.set_exception(error)
            except BaseException:
                future.set_exception(StateUnavailable("the state could not be written"))
                raise

    def reject_pending(self, why: str) -> None:
        """Reject the waiting commands, as the worker has ended."""
        while not self._waiting.empty():
            _, future = self._waiting.get()
            if future.set_running_or_notify_cancel():
                future.set_exception(StateUnavailable(why))


class _ReloadTarget(Protocol):
    def resample(self, settings: SamplingSettings) -> None: ...
    def redact(self, settings: PrivacySettings) -> None: ...


class SettingsReload:
    """The handler of SIGHUP: it reads certificates, tokens and settings again.

    `read` returns the settings as they are written now; a mistake in them changes nothing.
    """

    def __init__(
        self,
        settings: Settings,
        read: Callable[[], Settings],
        target: _ReloadTarget,
        files: AccessPolicy | None = None,
    ) -> None:
        self._started = self._last = settings
        self._read = read
        self._target = target
        self._files = files

    def __call__(self) -> None:
        """Read the files and settings, and apply what may change while the agent runs."""
        if self._files is not None:
            self._files.reread()
        try:
            new = self._read()
        except (ConfigError, OSError) as error:
            log.error("configuration: %s; the settings stay as they were", error)
            return
        # all changes that wait for a restart, but only the new ones of those that do not
        started, last, read = (
            settings.model_dump() for settings in (self._started, self._last, new)
        )
        fixed = self._fixed_keys(new)
        waiting = [key for key in _changed_keys(started, read) if not _is_live(key, fixed)]
        applied = [key for key in _changed_keys(last, read) if _is_live(key, fixed)]
        if applied:
            kept = {"model": self._started.sampling.model} if _MODEL_RATE in fixed else {}
            self._target.redact(new.privacy)
            self._target.resample(new.sampling.model_copy(update=kept))
            self._last = new
            log.warning("configuration read again, holds from now on: %s", ", ".join(applied))
        elif not waiting:
            log.warning("configuration read again: nothing has changed")
        if waiting:
            log.warning("changed, but only after a restart: %s", ", ".join(waiting))

    def _fixed_keys(self, new: Settings) -> set[str]:
        """Return the ends of keys of sampling that change only after a restart."""
        started = self._started.sampling
        fixed = set()
        if not started.draws_people:  # neither scorer nor page is there for it
            fixed.add(".people")
        if bool(started.model) != bool(new.sampling.model):  # a model is loaded at the start only
            fixed.add(_MODEL_RATE)
        return fixed


def _is_live(key: str, fixed: Collection[str]) -> bool:
    if any(key.endswith(end) for end in fixed):
        return False
    return any(key == name or key.startswith(f"{name}.") for name in _LIVE)


def _changed_keys(old: Mapping[str, Any], new: Mapping[str, Any], prefix: str = "") -> list[str]:
    keys: list[str] = []
    for name in old.keys() | new.keys():
        key = f"{prefix}{name}"
        before = old.get(name)
        after = new.get(name)
        if isinstance(before, Mapping) and isinstance(after, Mapping):
            keys += _changed_keys(before, after, f"{key}.")
        elif before != after:
            keys.append(key)
    return sorted(keys)
