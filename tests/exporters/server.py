"""The metrics app on a port of its own, in a thread, for programs that scrape or browse it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from aiohttp import web

from tests.exporters.fakes import FakeAgent, metrics_port
from tests.waiting import PATIENCE

__all__ = ["serving"]


@contextmanager
def serving(agent: FakeAgent) -> Iterator[int]:
    """The port on which it listens, on loopback; ended on leaving."""
    loop = asyncio.new_event_loop()
    ready = threading.Event()
    ports = []
    stop = asyncio.Event()

    async def run() -> None:
        runner = web.AppRunner(metrics_port(agent))
        await runner.setup()
        try:
            await web.TCPSite(runner, "127.0.0.1", 0).start()
            ports.append(runner.addresses[0][1])
            ready.set()
            await stop.wait()
        finally:
            await runner.cleanup()

    thread = threading.Thread(target=lambda: loop.run_until_complete(run()), daemon=True)
    thread.start()
    try:
        assert ready.wait(PATIENCE), "the app did not start"
        yield ports[0]
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(PATIENCE)
        loop.close()
