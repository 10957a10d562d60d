"""Time limits of asynchronous calls, and what is left of them."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextvars import ContextVar

_DEADLINE: ContextVar[float | None] = ContextVar("end", default=None)


@contextlib.asynccontextmanager
async def time_limit(seconds: float) -> AsyncIterator[None]:
    """Cancel the block after `seconds` with `TimeoutError`.

    Code inside may ask for `remaining_seconds`, to return earlier with a partial result.
    """
    end = asyncio.get_running_loop().time() + seconds
    token = _DEADLINE.set(end)
    try:
        async with asyncio.timeout_at(end):
            yield
    finally:
        _DEADLINE.reset(token)


def remaining_seconds(most: float) -> float:
    """Return the seconds until the innermost `time_limit` ends, at most `most`."""
    end = _DEADLINE.get()
    return most if end is None else min(most, end - asyncio.get_running_loop().time())
