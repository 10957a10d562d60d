from __future__ import annotations

import asyncio
import gzip
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
from ragmeter.app.embedded_agent import serve_agent
from ragmeter.app.parts import PARTS
from ragmeter.app.settings import load_settings
from ragmeter.embedded.agent import EmbeddedAgent
from ragmeter.store.sqlite import SqliteStore

ONE: dict[str, Any] = {"trace_id": "t1", "timestamp": 1, "answer": {"helpful": True}}


class Server:
    """The ports of a running agent."""

    def __init__(self, running: EmbeddedAgent, session: aiohttp.ClientSession, url: str) -> None:
        self.running = running
        self.session = session
        self.url = url

    async def post(self, body: bytes, **headers: str) -> tuple[int, dict[str, Any]]:
        async with self.session.post(self.url, data=body, headers=headers) as reply:
            return reply.status, await reply.json()


@asynccontextmanager
async def serving(tmp_path: Path) -> AsyncIterator[Server]:
    tree = {
        "http": {"otlp_port": 0, "metrics_port": 0},
        "state": {"path": str(tmp_path / "s.sqlite")},
        "limits": {"body_bytes": 10_000},
    }
    settings = load_settings(environ={}, overrides=tree)
    running = EmbeddedAgent(settings, [], parts=PARTS)
    running.start()
    try:
        async with (
            serve_agent(running, settings) as (traces, _),
            aiohttp.ClientSession() as session,
        ):
            yield Server(running, session, f"{traces}/v1/feedback")
    finally:
        await asyncio.to_thread(running.stop, 5)


def run(tmp_path: Path, test: Callable[[Server], Awaitable[None]]) -> None:
    async def body() -> None:
        async with serving(tmp_path) as server:
            await test(server)

    asyncio.run(body())


def line(**fields: Any) -> bytes:
    return json.dumps({**ONE, **fields}).encode()


def test_labels_are_durable_when_answered(tmp_path: Path) -> None:
    async def test(server: Server) -> None:
        body = line() + b"\n" + line(trace_id="t2", scorer="tickets", service="bot")
        assert await server.post(body) == (200, {"accepted": 2, "rejected": 0})
        assert (await server.post(gzip.compress(line()), **{"Content-Encoding": "gzip"}))[0] == 200

    run(tmp_path, test)
    store = SqliteStore(tmp_path / "s.sqlite")
    saved = store.saved()
    store.close()
    rows = [row for name, row in saved.meta.items() if name.startswith('labels/["waiting"')]
    assert [(row["scorer"], row["service"]) for row in rows] == [
        ("human", None),
        ("tickets", "bot"),
        ("human", None),
    ]
    counters = dict(saved.counters)
    assert counters["ragmeter_feedback_received_total", (("source", "http"),)] == 3


def test_bad_items_are_named_and_the_good_ones_kept(tmp_path: Path) -> None:
    async def test(server: Server) -> None:
        status, reply = await server.post(line() + b"\n" + line(answer={"useful": True}))
        assert (status, reply["accepted"], reply["rejected"]) == (200, 1, 1)
        assert reply["errors"][0]["index"] == 1
        assert reply["errors"][0]["errors"][0]["field"] == "answer.useful"
        status, reply = await server.post(b"{}")
        assert (status, reply["accepted"]) == (400, 0)
        key = ("ragmeter_dead_letters_total", (("reason", "invalid_feedback"),))
        assert dict(server.running.counters.items())[key] == 2

    run(tmp_path, test)


def test_limits(tmp_path: Path) -> None:
    async def test(server: Server) -> None:
        assert (await server.post(b" " * 10_001))[0] == 413
        zipped = {"Content-Encoding": "gzip"}
        assert (await server.post(gzip.compress(b" " * 1_000_000), **zipped))[0] == 413
        assert (await server.post(line()))[0] == 200

    run(tmp_path, test)
