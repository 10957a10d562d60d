"""Batch processing that isolates the item behind a failure."""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Callable, Sequence
from typing import TypeVar

from ragmeter.core.errors import StateLostError, Unavailable, UnknownVersion

log = logging.getLogger(__name__)

_BatchItem = TypeVar("_BatchItem")


def process_isolated(
    items: Sequence[_BatchItem],
    work: Callable[[Sequence[_BatchItem]], object],
    *,
    reset: Callable[[], object],
    give_up: Callable[[_BatchItem, Exception], object],
) -> None:
    """Process all items at once, or one by one if that fails.

    Args:
        items: The batch.
        work: Processes items; it either has its whole effect or raises.
        reset: Undoes what a failed `work` left half done; called before anything else is done.
        give_up: Called with an item that fails alone, and its error.

    A bad trace exposes a bug of ours. It must not stop the traces beside it, and without isolation
    its batch would be redone, and stop the agent again, at every restart.

    Raises:
        Exception: Any error that no item is to blame for, see `is_item_fault`.
    """
    try:
        work(items)
        return
    except Exception as error:
        if not is_item_fault(error):
            raise
        log.exception("a batch of %d failed; trying its items one by one", len(items))
    reset()
    for item in items:
        try:
            work([item])
        except Exception as error:
            if not is_item_fault(error):
                raise
            log.exception("this item of the batch fails alone, too; it is left out")
            reset()
            give_up(item, error)


def is_item_fault(error: Exception) -> bool:
    """Return whether an item may have caused the error.

    Errors of disk, memory and state file, and what is only unavailable now, stop the work instead
    and cost no item.
    """
    if isinstance(error, sqlite3.Error):
        kinds = (sqlite3.DataError, sqlite3.ProgrammingError, sqlite3.IntegrityError)
        return isinstance(error, (*kinds, sqlite3.InterfaceError))
    return not isinstance(
        error, OSError | MemoryError | Unavailable | StateLostError | UnknownVersion
    )
