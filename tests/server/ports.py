"""A guarded port for tests: small handlers behind the real listener."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import httpx
from aiohttp import web
from ragmeter.app.parts import PARTS, AgentSettings
from ragmeter.app.settings import load_settings
from ragmeter.parts.collection import document_kinds, part_form_paths
from ragmeter.server.access import AccessPolicy
from ragmeter.server.listener import listen

__all__ = ["DOCUMENT_PATHS", "POSTS", "Loop", "Port", "asked", "asked_on", "port"]

Loop = Callable[[], asyncio.AbstractEventLoop] | None
"""What makes an event loop: `ragmeter worker` runs on uvloop, `ragmeter run` on Python's own."""

STREAMS = ("/v1/inspect", "/v1/results")

DOCUMENT_PATHS = [kind.path for kind in document_kinds(PARTS, AgentSettings()).values()]
FORM_PATHS = part_form_paths(PARTS)

POSTS = [
    "/v1/traces",
    "/v1/logs",
    "/v1/metrics",
    "/v1/rag/traces",
    *DOCUMENT_PATHS,
    "/v1/baselines/promote",
]


class Port:
    def __init__(self, url: str, access: AccessPolicy, client: httpx.AsyncClient) -> None:
        self.url = url
        self.access = access
        self.client = client

    @property
    def address(self) -> tuple[str, int]:
        parts = httpx.URL(self.url)
        assert parts.port is not None
        return parts.host, parts.port

    async def get(self, path: str, **headers: str) -> httpx.Response:
        return await self.client.get(f"{self.url}{path}", headers=headers)

    async def post(self, path: str, **headers: str) -> httpx.Response:
        return await self.send(path, b"{}", headers)

    async def send(self, path: str, body: bytes, headers: dict[str, str]) -> httpx.Response:
        return await self.client.post(f"{self.url}{path}", content=body, headers=headers)


def _app() -> web.Application:
    async def text(request: web.Request) -> web.Response:
        return web.Response(text=f"this is {request.path}")

    async def large(request: web.Request) -> web.Response:
        return web.Response(body=bytes(32 * 2**20))

    async def read(request: web.Request) -> web.Response:
        return web.Response(text=f"{len(await request.read())} bytes")

    async def slow(request: web.Request) -> web.StreamResponse:
        answer = web.StreamResponse()
        await answer.prepare(request)
        await answer.write(b"begun")
        await asyncio.sleep(100)
        return answer

    async def unready(request: web.Request) -> web.Response:
        return web.Response(status=503, text="the disk of /secret/path is full")

    app = web.Application()
    for path in (
        "/",
        "/metrics",
        "/metrics/detail",
        "/healthz",
        "/trace/{service}/{trace_id}",
        *STREAMS,
    ):
        app.router.add_get(path, text)
    for path in POSTS:
        app.router.add_post(path, text)
    app.router.add_post("/read", read)
    app.router.add_get("/readyz", unready)
    app.router.add_get("/large", large)
    app.router.add_get("/slow", slow)
    return app


@asynccontextmanager
async def port(connections: int = 400, host: str = "127.0.0.1", **http: Any) -> AsyncIterator[Port]:
    settings = load_settings(environ={}, overrides={"http": {"host": host, **http}})
    access = AccessPolicy(settings)
    async with (
        listen(
            _app(),
            host,
            0,
            access,
            connections=connections,
            send_paths=DOCUMENT_PATHS,
            form_paths=FORM_PATHS,
        ) as url,
        httpx.AsyncClient(trust_env=False) as client,
    ):
        yield Port(url.replace("0.0.0.0", "127.0.0.1"), access, client)


def asked_on(loop: Loop, ask: Callable[[Port], Awaitable[Any]], **settings: Any) -> Any:
    """What `ask` finds at a port with these settings."""

    async def run() -> Any:
        async with port(**settings) as found:
            return await ask(found)

    with asyncio.Runner(loop_factory=loop) as runner:
        return runner.run(run())


def asked(ask: Callable[[Port], Awaitable[Any]], **settings: Any) -> Any:
    return asked_on(None, ask, **settings)
