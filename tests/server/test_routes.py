"""Every route of the real ports: closed without a token, and with the headers that a page needs."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path
from typing import Any

import httpx
import pytest
from aiohttp import web
from ragmeter.app.embedded_agent import serve_agent
from ragmeter.app.parts import PARTS
from ragmeter.app.settings import load_settings
from ragmeter.config.settings import Settings
from ragmeter.embedded.agent import EmbeddedAgent
from ragmeter.server import listener
from ragmeter.server.listener import OPEN_PATHS, PATH_SCOPES, SECURITY_HEADERS

from tests.server.ports import DOCUMENT_PATHS
from tests.waiting import PATIENCE

TOKEN = "a-token-of-some-length"


async def ask_all(settings: Any, apps: list[web.Application]) -> dict[Any, Any]:
    """What each route of both ports answers without a token, and whether with one it is let in."""
    running = EmbeddedAgent(settings, [], parts=PARTS)
    running.start()
    found: dict[Any, Any] = {}
    try:
        async with (
            serve_agent(running, settings) as (traces, page),
            httpx.AsyncClient(trust_env=False, timeout=PATIENCE) as client,
        ):
            for app, base in zip(apps, (page, traces), strict=True):
                for route in app.router.routes():
                    path = route.resource.canonical if route.resource else ""
                    if route.method == "HEAD" or path in ("/v1/inspect", "/v1/results"):
                        continue  # as GET; and streams that do not end
                    url = f"{base}{path.replace('{service}', 'a').replace('{trace_id}', 'b')}"
                    login = {"Authorization": f"Bearer {TOKEN}"}
                    bare = await client.request(route.method, url)
                    known = await client.request(route.method, url, headers=login)
                    found[base == page, route.method, path] = bare, known
    finally:
        await asyncio.to_thread(running.stop, 1)
    return found


def routes(tmp_path: Path, monkeypatch: Any) -> dict[Any, Any]:
    apps: list[web.Application] = []
    opened = listener.listen

    def listening(app: web.Application, *given: Any, **named: Any) -> Any:
        apps.append(app)
        return opened(app, *given, **named)

    monkeypatch.setattr(listener, "listen", listening)

    async def run() -> dict[Any, Any]:
        # the apps are known when both ports are open, which is before the first is asked
        return await ask_all(guarded(tmp_path), apps)

    return asyncio.run(run())


def guarded(tmp_path: Path) -> Settings:
    return load_settings(
        environ={},
        overrides={
            "http": {"otlp_port": 0, "metrics_port": 0, "token": TOKEN},
            "state": {"path": str(tmp_path / "s")},
        },
    )


@pytest.mark.parametrize("path", ["/v1/traces", "/v1/rag/traces", *DOCUMENT_PATHS])
def test_who_asks_before_sending_needs_a_token_too(tmp_path: Path, path: str) -> None:
    settings = guarded(tmp_path)
    agent = EmbeddedAgent(settings, [], parts=PARTS)

    def ask(url: str) -> bytes:
        parts = httpx.URL(url)
        with socket.create_connection(
            (parts.host, parts.port or 0), timeout=PATIENCE
        ) as connection:
            head = f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
            connection.sendall(
                f"{head}Expect: 100-continue\r\nContent-Length: 999999999\r\n\r\n".encode()
            )
            return connection.recv(100)

    async def run() -> bytes:
        async with serve_agent(agent, settings) as (traces, _):
            return await asyncio.to_thread(ask, traces)

    try:
        assert asyncio.run(run()).startswith(b"HTTP/1.1 401")
        assert not [
            key for key, _ in agent.counters.items() if "dead" in key[0] or "otlp" in key[0]
        ]
    finally:
        agent.stop(1)


def test_no_route_is_open_without_a_token(tmp_path: Path, monkeypatch: Any) -> None:
    found = routes(tmp_path, monkeypatch)
    paths = {path for _, _, path in found}
    assert (
        OPEN_PATHS
        | set(PATH_SCOPES)
        | set(DOCUMENT_PATHS)
        | {"/", "/api/windows.json", "/trace/{service}/{trace_id}"}
    ) <= paths
    for (_, method, path), (bare, known) in found.items():
        # 503: it is not ready yet, and says so
        assert bare.status_code in ((200, 503) if path in OPEN_PATHS else (401,)), (method, path)
        assert known.status_code not in (401, 403), (method, path)
        for answer in (bare, known):
            policy = answer.headers["Content-Security-Policy"]
            assert policy.startswith("default-src 'none'")
            assert "frame-ancestors 'none'" in policy
            assert "unsafe" not in policy
            others = {
                name: answer.headers[name] for name in SECURITY_HEADERS if "Policy" not in name
            }
            assert others == {name: SECURITY_HEADERS[name] for name in others}, (method, path)
            assert answer.headers["Cache-Control"] == "no-store"
            assert answer.headers["Referrer-Policy"] == "no-referrer"
            assert "Server" not in answer.headers
            if answer.headers["Content-Type"].startswith("text/html"):
                assert "<script" not in answer.text
                assert " style=" not in answer.text
                assert " on" not in answer.text.partition("<body")[2].partition(">")[0]
