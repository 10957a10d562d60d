from __future__ import annotations

import asyncio
import gzip
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
from aiohttp import web
from ragmeter.app.parts import PARTS
from ragmeter.config.loader import load_settings
from ragmeter.embedded.agent import EmbeddedAgent
from ragmeter.embedded.endpoints.json_items import FeedbackEndpoint
from ragmeter.embedded.endpoints.request_bodies import BodyReader
from ragmeter.store.pending import FeedbackTable
from ragmeter.store.sqlite import SqliteStore

ONE: dict[str, Any] = {"trace_id": "t1", "timestamp": 1, "answer": {"helpful": True}}


class Server:
    """A live endpoint with an agent behind it that does not process."""

    def __init__(self, running: EmbeddedAgent, session: aiohttp.ClientSession, url: str) -> None:
        self.running = running
        self.session = session
        self.url = url

    async def post(self, body: bytes, **headers: str) -> tuple[int, dict[str, Any]]:
        async with self.session.post(self.url, data=body, headers=headers) as reply:
            return reply.status, await reply.json()


@asynccontextmanager
async def serving(tmp_path: Path, body_limit: int = 10_000) -> AsyncIterator[Server]:
    paths = {"path": str(tmp_path / "s.sqlite"), "dead_letters": str(tmp_path / "d.jsonl")}
    settings = load_settings(environ={}, overrides={"state": paths, "feedback": {"waiting": 10}})
    running = EmbeddedAgent(settings, [], parts=PARTS)
    endpoint = FeedbackEndpoint(running, BodyReader(body_limit))
    app = web.Application()
    endpoint.add_to(app)
    await endpoint.start()
    runner = web.AppRunner(app, auto_decompress=False, lingering_time=0.5)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    port = runner.addresses[0][1]
    async with aiohttp.ClientSession() as session:
        yield Server(running, session, f"http://127.0.0.1:{port}/v1/feedback")
    await runner.cleanup()
    await endpoint.stop()
    running._store.close()


def run(tmp_path: Path, test: Callable[[Server], Awaitable[None]], **changes: Any) -> None:
    async def body() -> None:
        async with serving(tmp_path, **changes) as server:
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
    rows = FeedbackTable(store).rows(0, 10)
    assert [(row.new.scorer, row.new.service) for row in rows] == [
        *(("human", None), ("tickets", "bot"), ("human", None)),
    ]
    counters = dict(store.saved().counters)
    assert counters["ragmeter_feedback_received_total", (("source", "http"),)] == 3
    store.close()


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
        assert (await server.post(gzip.compress(b" " * 1_000_000), **ZIPPED))[0] == 413
        body = b"\n".join([line()] * 8)
        assert (await server.post(body))[0] == 200
        assert (await server.post(body))[0] == 429  # nobody counts here: the first ones wait
        assert (await server.post(line()))[0] == 200

    run(tmp_path, test)


ZIPPED = {"Content-Encoding": "gzip"}


def test_a_state_that_cannot_be_written_is_no_200(tmp_path: Path) -> None:
    async def test(server: Server) -> None:
        (tmp_path / "s.sqlite").rename(tmp_path / "elsewhere")
        assert (await server.post(line()))[0] == 503

    run(tmp_path, test)
