"""A small real HTTP server on a loopback port that answers as a test tells it to."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web

Answer = Callable[[int], Awaitable[web.Response]]
"""From the number of the request (0, 1, ...) to its answer."""


class Stub:
    """What came in, and where to send more."""

    def __init__(self) -> None:
        self.url = ""
        self.paths: list[str] = []
        self.headers: list[dict[str, str]] = []
        self.bodies: list[Any] = []


async def ok(_: int) -> web.Response:
    return web.Response()


@asynccontextmanager
async def serve(answer: Answer = ok) -> AsyncIterator[Stub]:
    stub = Stub()

    async def handle(request: web.Request) -> web.Response:
        number = len(stub.bodies)
        stub.paths.append(request.path_qs)
        stub.headers.append(dict(request.headers))
        stub.bodies.append(json.loads(await request.text()))
        return await answer(number)

    app = web.Application()
    app.router.add_post("/{tail:.*}", handle)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    host, port = runner.addresses[0][:2]
    stub.url = f"http://{host}:{port}"
    try:
        yield stub
    finally:
        await runner.cleanup()
