"""Orders to the worker from other threads: each is carried out by the worker between two batches,
committed, and only then answered."""

from __future__ import annotations

import queue
from collections.abc import Callable
from concurrent.futures import Future
from typing import Generic, TypeVar

from agent.intake import Unavailable

__all__ = ["Orders", "UnknownService"]

Asked = TypeVar("Asked")
Told = TypeVar("Told")

PATIENCE = 30.0
"""Seconds until somebody who waits is told that nothing happened: a batch takes well under one. For
the commit of what was begun there is as much again; the disk is tried every five."""


class UnknownService(Exception):
    """There is no service of this name."""


class Orders(Generic[Asked, Told]):
    """Orders of one kind that wait for the worker: promotions of baselines, index events. `wake` is
    called when one is there."""

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        self._waiting: queue.SimpleQueue[tuple[Asked, Future[Told]]]
        self._waiting = queue.SimpleQueue()

    def ask(self, what: Asked, patience: float = PATIENCE) -> Told:
        """Ask and wait. Raises `UnknownService` and `Unavailable`."""
        future: Future[Told] = Future()
        self._waiting.put((what, future))
        self._wake()
        try:
            return future.result(patience)
        except TimeoutError:
            if future.cancel():
                raise Unavailable("the agent is busy: nothing was changed") from None
        try:
            return future.result(patience)
        except TimeoutError:
            raise Unavailable("applied, but the disk does not take it yet") from None

    def carry_out(self, apply: Callable[[Asked], Told]) -> None:
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
                future.set_exception(Unavailable("the state could not be written"))
                raise

    def refuse(self, why: str) -> None:
        """The worker has ended."""
        while not self._waiting.empty():
            _, future = self._waiting.get()
            if future.set_running_or_notify_cancel():
                future.set_exception(Unavailable(why))
