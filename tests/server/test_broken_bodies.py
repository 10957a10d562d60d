"""Bodies that their clients break off, at every path of the real ports that takes one."""

from __future__ import annotations

import asyncio
import logging
import socket
import struct
from collections import Counter
from pathlib import Path
from typing import Any

import httpx
import pytest
from aiohttp import web
from ragmeter.app.embedded_agent import serve_agent
from ragmeter.app.parts import PARTS
from ragmeter.app.settings import load_settings
from ragmeter.embedded.agent import EmbeddedAgent
from ragmeter.server import listener
from ragmeter.server.access import AccessPolicy

from tests.waiting import PATIENCE, until_async

PIECES = {
    "length": b"Content-Length: 1000\r\n\r\n{",
    "chunked": b"Transfer-Encoding: chunked\r\n\r\n5\r\n{    \r\n",
    "inside a chunk": b"Transfer-Encoding: chunked\r\n\r\nff\r\n{",
    "gzip": b"Content-Encoding: gzip\r\nContent-Length: 1000\r\n\r\n\x1f\x8b",
}
FORM = "application/x-www-form-urlencoded"


async def break_off(url: str, path: str, piece: bytes, *, reset: bool) -> None:
    """Send the head and a piece of the body, wait until it is read, and go."""
    parts = httpx.URL(url)
    _, writer = await asyncio.open_connection(parts.host, parts.port)
    kind = FORM if path.startswith("/label/") else "application/json"
    head = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: {kind}\r\n"
    writer.write(head.encode() + piece)
    await writer.drain()
    await asyncio.sleep(0.05)
    if reset:
        linger = struct.pack("ii", 1, 0)
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
    writer.transport.abort() if reset else writer.close()


@pytest.mark.parametrize("reset", [False, True])
def test_each_is_counted_and_leaves_no_traceback(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    reset: bool,
) -> None:
    apps: list[web.Application] = []
    opened = listener.listen

    def listening(app: web.Application, *given: Any, **named: Any) -> Any:
        apps.append(app)
        return opened(app, *given, **named)

    monkeypatch.setattr(listener, "listen", listening)
    settings = load_settings(
        environ={},
        overrides={
            "http": {"otlp_port": 0, "metrics_port": 0},
            "sampling": {"people": 0.1},  # so that people's forms are taken
            "state": {"path": str(tmp_path / "s")},
        },
    )
    agent = EmbeddedAgent(settings, [], parts=PARTS)
    agent.start()
    access = AccessPolicy(settings)

    async def run() -> int:
        sent = 0
        async with serve_agent(agent, settings, access) as (traces, page):
            for app, base in zip(apps, (page, traces), strict=True):
                paths = {
                    route.resource.canonical.replace("{service}", "a")
                    for route in app.router.routes()
                    if route.method == "POST" and route.resource is not None
                }
                assert "/v1/rag/traces" in paths
                for path in sorted(paths):
                    for piece in PIECES.values():
                        await break_off(base, path, piece, reset=reset)
                        sent += 1
            await until_async(lambda: broken(access).total() >= sent)
            async with httpx.AsyncClient(trust_env=False, timeout=PATIENCE) as client:
                assert (await client.get(f"{page}/healthz")).status_code == 200
        return sent

    with caplog.at_level(logging.INFO):
        try:
            sent = asyncio.run(run())
        finally:
            agent.stop(1)
    assert broken(access).total() == sent
    assert not [record for record in caplog.records if record.exc_info]
    lines = [one.getMessage() for one in caplog.records if "broke off" in one.getMessage()]
    assert len(lines) == 2  # one of each port, and no second one within a minute
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


def broken(access: AccessPolicy) -> Counter[str]:
    """Bodies that were broken off, by the port."""
    return Counter({port: counts["broken_off"] for port, counts in access.refused.items()})


def test_a_mistake_of_ours_stays_one_where_the_body_was_whole() -> None:
    async def run() -> int:
        access = AccessPolicy(load_settings(environ={}))

        async def fail(request: web.Request) -> web.Response:
            await request.read()
            raise RuntimeError("a bug")

        app = web.Application()
        app.router.add_post("/", fail)
        async with (
            listener.listen(app, "127.0.0.1", 0, access) as url,
            httpx.AsyncClient(trust_env=False, timeout=PATIENCE) as client,
        ):
            return (await client.post(url, content=b"whole")).status_code

    assert asyncio.run(run()) == 500
