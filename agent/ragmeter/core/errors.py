"""The exceptions that ragmeter raises on purpose, by what the caller can do about them.

RagmeterError
├── UsageError              mend what you gave: options, settings, a request (exit status 2)
│   └── UnusableResource    mend what it names: a file, a model, a package, a topic (exit status 1)
├── Unavailable             try again, after `retry_after` seconds where they are known
└── DataError               go on without this item: it cannot be read, scored or kept

Every other exception class descends from exactly one of the three and is defined beside the code
that raises it, or here if several folders raise it. The exit statuses are those of a command that
the exception ends.
"""

from __future__ import annotations

from pydantic import ValidationError


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


class StateUnavailable(Unavailable):
    """The state cannot be written now; nothing was accepted."""

    retry_after = 5  # a full disk seldom recovers at once


class QueueFull(Unavailable):
    """Too many items wait already; nothing was accepted."""

    retry_after = 2


class UnknownVersion(UnusableResource, ValueError):
    """State in the format of another version; it is sound, so it must not be discarded."""


def describe_fault(error: ValidationError, whole: str = "content") -> str:
    """Return the first fault in a line; `whole` names what has no part to blame."""
    first = error.errors(include_url=False, include_context=False, include_input=False)[0]
    return f"{'.'.join(map(str, first['loc'])) or whole}: {first['msg']}"
