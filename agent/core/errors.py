"""Shared exceptions, and batch processing that isolates the item that causes a failure.

One bad item must not stop the others: a batch that fails is tried item by item.

What fails then is a mistake of ours that one trace has found. Without this it would be redone at
every restart and stop the agent for good.
"""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Callable, Sequence
from typing import TypeVar


class RagmeterError(Exception):
    """Base of every exception that ragmeter raises on purpose."""


class StateError(RagmeterError):
    """The state file cannot be used, and why."""


class StateLostError(RagmeterError):
    """The state file was moved or deleted while it was in use: what is written to it is lost."""


class UnknownVersion(RagmeterError, ValueError):
    """State in a format of another version: it is sound, and not ours to throw away."""


log = logging.getLogger(__name__)

_BatchItem = TypeVar("_BatchItem")


def process_isolated(
    items: Sequence[_BatchItem],
    work: Callable[[Sequence[_BatchItem]], object],
    *,
    reset: Callable[[], object],
    give_up: Callable[[_BatchItem, Exception], object],
) -> None:
    """`work` on all of the items, which either has its whole effect or raises; where it raises,
    on each alone. `reset` takes back what a failure has left half done, before anything else is
    done; `give_up` gets the item that fails alone. Raises what no item is to blame for.
    """
    try:
        work(items)
    except Exception as error:
        if not is_item_fault(error):
            raise
        log.exception("a batch of %d failed; trying its items one by one", len(items))
        reset()
        for item in items:
            _process_alone(item, work, reset, give_up)


def _process_alone(
    item: _BatchItem,
    work: Callable[[Sequence[_BatchItem]], object],
    reset: Callable[[], object],
    give_up: Callable[[_BatchItem, Exception], object],
) -> None:
    try:
        work([item])
    except Exception as error:
        if not is_item_fault(error):
            raise
        log.exception("it is this one")
        reset()
        give_up(item, error)


def is_item_fault(error: Exception) -> bool:
    """Not a disk, a memory or a state file at its end: those stop the work, and cost no item."""
    if isinstance(error, sqlite3.Error):
        kinds = (sqlite3.DataError, sqlite3.ProgrammingError, sqlite3.IntegrityError)
        return isinstance(error, (*kinds, sqlite3.InterfaceError))
    return not isinstance(error, OSError | MemoryError | StateLostError | UnknownVersion)
