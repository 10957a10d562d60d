from __future__ import annotations

import asyncio
import gzip
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from ragmeter.app.parts import PARTS
from ragmeter.app.settings import load_settings
from ragmeter.embedded.agent import EmbeddedAgent
from ragmeter.embedded.endpoints.json_items import TracesEndpoint
from ragmeter.embedded.endpoints.request_bodies import BodyReader

from tests.traces import trace_dict, trace_line
from tests.waiting import PATIENCE

BODY_LIMIT = 100_000
TRACE_LIMIT = 20_000


class Server:
    """A live endpoint with an agent behind it that does not process: the queue only fills."""

    def __init__(self, running: EmbeddedAgent, session: aiohttp.ClientSession, url: str) -> None:
        self.running = running
        self.session = session
        self.url = url

    async def post(self, body: bytes, **headers: str) -> tuple[int, dict[str, Any]]:
        async with self.session.post(self.url, data=body, headers=headers) as reply:
            return reply.status, await reply.json()

    def dead(self, reason: str) -> float:
        return self.running.counters.get("ragmeter_dead_letters_total", (("reason", reason),))


@asynccontextmanager
async def serving(
    tmp_path: Path, queue: int = 100, body_limit: int = BODY_LIMIT, read_seconds: float = 30
) -> AsyncIterator[Server]:
    paths = {"path": str(tmp_path / "s.sqlite")}
    settings = load_settings(environ={}, overrides={"state": paths, "limits": {"queue": queue}})
    running = EmbeddedAgent(settings, [], parts=PARTS)
    endpoint = TracesEndpoint(running, BodyReader(body_limit, read_seconds), TRACE_LIMIT)
    app = web.Application()
    endpoint.add_to(app)
    await endpoint.start()
    runner = web.AppRunner(app, auto_decompress=False, lingering_time=0.5)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    async with aiohttp.ClientSession() as session:
        yield Server(running, session, f"http://127.0.0.1:{port}/v1/rag/traces")
    await runner.cleanup()
    await endpoint.stop()
    running._store.close()


def run(tmp_path: Path, test: Callable[[Server], Awaitable[None]], **changes: Any) -> None:
    async def body() -> None:
        async with serving(tmp_path, **changes) as server:
            await test(server)

    asyncio.run(body())


@pytest.mark.parametrize(
    "body",
    [
        trace_line(1) + b"\n" + trace_line(2),
        json.dumps([trace_dict(1), trace_dict(2)]).encode(),
    ],
)
def test_traces_are_durable_when_answered(tmp_path: Path, body: bytes) -> None:
    async def test(server: Server) -> None:
        assert await server.post(body) == (200, {"accepted": 2, "duplicates": 0, "rejected": 0})
        queued = server.running._store.take(0, 10)
        assert [json.loads(item.body)["trace_id"] for item in queued] == ["t1", "t2"]

    run(tmp_path, test)


def test_gzip(tmp_path: Path) -> None:
    async def test(server: Server) -> None:
        status, reply = await server.post(
            gzip.compress(trace_line()), **{"Content-Encoding": "gzip"}
        )
        assert (status, reply["accepted"]) == (200, 1)
        status, reply = await server.post(b"no gzip", **{"Content-Encoding": "gzip"})
        assert status == 400
        status, _ = await server.post(b"x", **{"Content-Encoding": "br"})
        assert status == 415
        assert (server.dead("broken_body"), server.dead("unsupported_encoding")) == (1, 1)

    run(tmp_path, test)


def test_a_gzip_bomb_stops_at_the_limit(tmp_path: Path) -> None:
    async def test(server: Server) -> None:
        bomb = gzip.compress(b" " * 50_000_000)
        assert len(bomb) < BODY_LIMIT
        status, _ = await server.post(bomb, **{"Content-Encoding": "gzip"})
        assert (status, server.dead("too_large")) == (413, 1)

    run(tmp_path, test)


def test_the_good_ones_of_a_batch_are_kept_and_the_bad_ones_named(tmp_path: Path) -> None:
    async def test(server: Server) -> None:
        body = json.dumps([trace_dict(1), trace_dict(2, status="odd"), {"x": 1}]).encode()
        status, reply = await server.post(body)
        assert status == 200
        assert (reply["accepted"], reply["rejected"]) == (1, 2)
        assert reply["errors"][0]["index"] == 1
        assert reply["errors"][0]["errors"][0]["field"] == "status"
        assert {error["field"] for error in reply["errors"][1]["errors"]} == {
            "trace_id",
            "service",
            "timestamp",
        }
        assert server.dead("invalid_trace") == 2

    run(tmp_path, test)


def test_nothing_good_is_a_400(tmp_path: Path) -> None:
    async def test(server: Server) -> None:
        assert (await server.post(b"{"))[0] == 400
        assert (await server.post(b""))[0] == 400

    run(tmp_path, test)


def test_a_body_over_the_limit_is_refused_before_it_is_read(tmp_path: Path) -> None:
    async def test(server: Server) -> None:
        host, port = server.url.split("/")[2].split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        head = (
            f"POST /v1/rag/traces HTTP/1.1\r\nHost: x\r\nContent-Length: {BODY_LIMIT + 1}\r\n\r\n"
        )
        writer.write(head.encode())  # and not one byte of the body
        assert b" 413 " in await asyncio.wait_for(reader.readline(), PATIENCE)
        writer.close()

    run(tmp_path, test)


def test_a_client_that_asks_first_is_told_before_it_sends(tmp_path: Path) -> None:
    async def test(server: Server) -> None:
        host, port = server.url.split("/")[2].split(":")
        for length, expected in ((BODY_LIMIT + 1, b" 413 "), (10, b" 100 ")):
            reader, writer = await asyncio.open_connection(host, int(port))
            head = (
                "POST /v1/rag/traces HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\n"
                f"Content-Length: {length}\r\n\r\n"
            )
            writer.write(head.encode())
            assert expected in await asyncio.wait_for(reader.readline(), PATIENCE)
            writer.close()
        assert server.dead("too_large") == 1

    run(tmp_path, test)


def test_a_body_without_length_is_bounded_too(tmp_path: Path) -> None:
    async def chunks() -> AsyncIterator[bytes]:
        for _ in range(20):
            yield b" " * 10_000

    async def test(server: Server) -> None:
        async with server.session.post(server.url, data=chunks()) as reply:
            assert reply.status == 413

    run(tmp_path, test)


def test_a_full_queue_asks_to_come_back(tmp_path: Path) -> None:
    async def test(server: Server) -> None:
        for number in range(3):
            assert (await server.post(trace_line(number)))[0] == 200
        async with server.session.post(server.url, data=trace_line(9)) as reply:
            assert reply.status == 429
            assert int(reply.headers["Retry-After"]) > 0
        assert server.running._store.depth == 3

    run(tmp_path, test, queue=3)


def test_duplicates_are_counted_and_change_nothing(tmp_path: Path) -> None:
    async def test(server: Server) -> None:
        await server.post(trace_line(1))
        status, reply = await server.post(trace_line(1))
        assert (status, reply["accepted"], reply["duplicates"]) == (200, 0, 1)
        labels = (("source", "http"),)
        counters = server.running.counters
        assert counters.get("ragmeter_traces_received_total", labels) == 2
        assert counters.get("ragmeter_traces_duplicate_total", labels) == 1

    run(tmp_path, test)


def test_requests_at_once_each_get_their_own_answer(tmp_path: Path) -> None:
    async def test(server: Server) -> None:
        bodies = [trace_line(n % 20) + b"\n" + trace_line(100 + n) for n in range(40)]
        replies = await asyncio.gather(*(server.post(body) for body in bodies))
        assert sum(reply["accepted"] for _, reply in replies) == 60
        assert sum(reply["duplicates"] for _, reply in replies) == 20
        assert all(reply["accepted"] >= 1 for _, reply in replies)

    run(tmp_path, test)


def test_a_timestamp_from_the_future_is_set_to_its_arrival_and_counted(tmp_path: Path) -> None:
    async def test(server: Server) -> None:
        await server.post(trace_line(1, timestamp="2199-01-01T00:00:00Z"))
        (queued,) = server.running._store.take(0, 1)
        assert queued.timestamp == queued.received
        skewed = server.running.counters.get("ragmeter_clock_skew_total", (("source", "http"),))
        assert skewed == 1

    run(tmp_path, test)


def test_a_state_that_cannot_be_written_is_a_503(tmp_path: Path) -> None:
    async def test(server: Server) -> None:
        server.running._store._db.execute("PRAGMA max_page_count=1")
        async with server.session.post(server.url, data=trace_line(1) * 1) as reply:
            first = reply.status
        big = trace_line(2, answer="x" * 15_000)
        statuses = [(await server.post(big))[0] for _ in range(3)]
        assert 503 in [first, *statuses]
        assert not server.running.health().ready

    run(tmp_path, test)
