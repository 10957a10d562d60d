"""The exceptions that ragmeter raises on purpose, by what the caller can do about them.

RagmeterError
├── UsageError              mend what you gave: options, settings, a request (exit status 2)
│   └── UnusableResource    mend what it names: a file, a model, a package, a topic (exit status 1)
├── Unavailable             try again, after `retry_after` seconds where they are known
└── DataError               go on without this item: it cannot be read, scored or kept

Every other exception class descends from exactly one of the three and is defined beside the code
that raises it. The exit statuses are those of a command that the exception ends.
"""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Callable, Sequence
from typing import TypeVar

from pydantic import ValidationError

log = logging.getLogger(__name__)

_BatchItem = TypeVar("_BatchItem")


class RagmeterError(Exception):
    """Base of every exception that ragmeter raises on purpose."""


class UsageError(RagmeterError):
    """What the caller gave cannot be used: options, settings, rules or a request.

    The caller has to mend it; to try again is no use.
    """


class UnusableResource(UsageError):
    """What the input names is not there or cannot be used: a file, a model, a package, a topic."""


class Unavailable(RagmeterError):
    """Something that is needed cannot serve now; the same call may succeed later.

    Attributes:
        retry_after: The seconds after which to try again; None: not known.
    """

    retry_after: float | None = None


class DataError(RagmeterError):
    """One item cannot be read, scored or kept and is lost; the others are not affected."""


class StateError(UnusableResource):
    """A state file that cannot be used; the text says why."""


class StateLostError(UnusableResource):
    """A state file that was moved or deleted while in use, so that writes to it are lost."""


class UnknownVersion(UnusableResource, ValueError):
    """State in the format of another version; it is sound, so it must not be discarded."""


def describe_fault(error: ValidationError, whole: str = "content") -> str:
    """Return the first fault in a line; `whole` names what has no part to blame."""
    first = error.errors(include_url=False, include_context=False, include_input=False)[0]
    return f"{'.'.join(map(str, first['loc'])) or whole}: {first['msg']}"


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
