"""An exporter that runs against a receiver which answers as a test tells it to."""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web
from ragmeter.config.reporting import ResultsExportSettings
from ragmeter_exporters.otel.exporter import ResultsExporter
from ragmeter_exporters.otel.pipeline import ExportLimits

from tests.exporters.otel.collector import Reply, taken
from tests.exporters.otel.scores import Agent
from tests.waiting import until_async

__all__ = ["FULL_BATCHES", "answering", "awaited", "exporting", "raw"]

# A receiver that is well answers when the machine lets it: nothing is sent twice for that.
FAST: dict[str, Any] = {"linger_seconds": 0.01, "timeout_seconds": 60, "batch": 10}

# While results are put, a busy machine would begin a batch with those that are there by then.
FULL_BATCHES: dict[str, Any] = {"linger_seconds": 60.0}


def awaited(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    @functools.wraps(test)
    def run(*args: Any, **kwargs: Any) -> None:
        async def whole() -> None:
            await test(*args, **kwargs)

        asyncio.run(whole())

    return run


@asynccontextmanager
async def exporting(
    url: str, *, limits: Mapping[str, Any] | None = None, **settings: Any
) -> AsyncIterator[tuple[ResultsExporter, Agent]]:
    agent = Agent()
    exporter = ResultsExporter(
        ResultsExportSettings(endpoint=url, **settings),
        limits=ExportLimits(**{**FAST, **(limits or {})}),
    )
    exporter.start(agent)
    try:
        yield exporter, agent
    finally:
        await exporter.stop(0.2)


def answering(*replies: web.Response | float) -> Reply:
    """One after the other, and then as a receiver that is well. A number is a nap before it."""

    async def reply(number: int) -> web.Response:
        if number < len(replies):
            now = replies[number]
            if isinstance(now, web.Response):
                return now
            await asyncio.sleep(now)
        return await taken(number)

    return reply


Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def raw(answer: Handler) -> AsyncIterator[str]:
    """A server that speaks what a test wants; its URL."""
    handled: set[asyncio.Task[None] | None] = set()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        handled.add(asyncio.current_task())
        with contextlib.suppress(OSError):
            await answer(reader, writer)
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()

    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        await asyncio.sleep(0.02)  # for the last to begin
        # a connection that is left open would be found in whatever test comes next
        await until_async(lambda: all(task is None or task.done() for task in handled))
