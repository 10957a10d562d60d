"""What runs beside the stages of a worker: nothing that is counted waits for any of it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable
from typing import Any

__all__ = ["Job", "beside"]

log = logging.getLogger("ragmeter.kafka")

AGAIN_SECONDS = 10.0
END_SECONDS = 5.0  # for connections to be closed, which may wait for a broker that is down

Job = Callable[[], Coroutine[Any, Any, None]]


@contextlib.asynccontextmanager
async def beside(
    jobs: Iterable[Job], again: float = AGAIN_SECONDS, end: float = END_SECONDS
) -> AsyncIterator[None]:
    """Run the jobs until the end of the block; one that fails is told of and begins anew."""
    tasks = [asyncio.create_task(_kept(job, again)) for job in jobs]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=end)


async def _kept(job: Job, again: float) -> None:
    while True:
        try:
            await job()
            return
        except Exception:
            log.exception("a job beside the stages has failed; it begins anew in %.0f s", again)
        await asyncio.sleep(again)
