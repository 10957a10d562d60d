"""Sources of the texts of passages, and how a lookup fails."""

from __future__ import annotations

from typing import Protocol

from ragmeter.core.errors import DataError


class LookupFailed(DataError):
    """The text could not be looked up; whether there is one is unknown."""


class InvalidPassageId(LookupFailed):
    """An id that must not be looked up."""


class PassageTooLarge(LookupFailed):
    """The text is over the limit of its source."""


class PassageLookup(Protocol):
    """A source of passage texts."""

    async def fetch(self, name: str) -> str | None:
        """Return the text of an id or None; raise `LookupFailed` or TimeoutError."""
        ...

    async def close(self) -> None:
        """Close its connections."""
        ...
