"""One bad item must not stop the others: a batch that fails is tried item by item.

What fails then is a mistake of ours that one trace has found. Without this it would be redone at
every restart and stop the agent for good.
"""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Callable, Sequence
from typing import TypeVar

from agent.errors import UnknownVersion
from agent.store.open import StateLost

__all__ = ["isolated", "items_fault"]

log = logging.getLogger("ragmeter")

Item = TypeVar("Item")


def isolated(
    items: Sequence[Item],
    work: Callable[[Sequence[Item]], object],
    *,
    reset: Callable[[], object],
    give_up: Callable[[Item, Exception], object],
) -> None:
    """`work` on all of the items, which either has its whole effect or raises; where it raises,
    on each alone. `reset` takes back what a failure has left half done, before anything else is
    done; `give_up` gets the item that fails alone. Raises what no item is to blame for.
    """
    try:
        work(items)
    except Exception as error:
        if not items_fault(error):
            raise
        log.exception("a batch of %d failed; trying its items one by one", len(items))
        reset()
        for item in items:
            _alone(item, work, reset, give_up)


def _alone(
    item: Item,
    work: Callable[[Sequence[Item]], object],
    reset: Callable[[], object],
    give_up: Callable[[Item, Exception], object],
) -> None:
    try:
        work([item])
    except Exception as error:
        if not items_fault(error):
            raise
        log.exception("it is this one")
        reset()
        give_up(item, error)


def items_fault(error: Exception) -> bool:
    """Not a disk, a memory or a state file at its end: those stop the work, and cost no item."""
    if isinstance(error, sqlite3.Error):
        kinds = (sqlite3.DataError, sqlite3.ProgrammingError, sqlite3.IntegrityError)
        return isinstance(error, (*kinds, sqlite3.InterfaceError))
    return not isinstance(error, OSError | MemoryError | StateLost | UnknownVersion)
