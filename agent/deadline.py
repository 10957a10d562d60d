"""How long what is under way may take, known to whatever runs below."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextvars import ContextVar

__all__ = ["ends_in", "left"]

_END: ContextVar[float | None] = ContextVar("end", default=None)


@contextlib.asynccontextmanager
async def ends_in(seconds: float) -> AsyncIterator[None]:
    """The block is cut off after so long, with `TimeoutError`; what it calls can ask how long is
    `left`, and come back sooner with what it has."""
    end = asyncio.get_running_loop().time() + seconds
    mark = _END.set(end)
    try:
        async with asyncio.timeout_at(end):
            yield
    finally:
        _END.reset(mark)


def left(most: float) -> float:
    """Seconds until the end of the innermost block, `most` where there is none."""
    end = _END.get()
    return most if end is None else min(most, end - asyncio.get_running_loop().time())
