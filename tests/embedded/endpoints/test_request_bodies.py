"""Bodies that would cost too much, come too slowly or not at all."""

from __future__ import annotations

import asyncio
import gzip
import random
import time
from pathlib import Path

import pytest

from ragmeter.embedded.endpoints.json_items import TracesEndpoint
from ragmeter.embedded.endpoints.request_bodies import BodyReader, RequestRefused, gunzip
from ragmeter.ingest.native import DecodeFailure
from ragmeter.server.listener import mute_protocol_errors
from tests.embedded.endpoints.test_traces import BODY_LIMIT, TRACE_LIMIT, Server, run
from tests.traces import trace_line


def test_a_body_of_very_many_items_is_refused_as_a_whole(tmp_path: Path) -> None:
    async def test(server: Server) -> None:
        for body in (b"[" + b"1," * 100_000 + b"1]", b"1\n" * 100_000 + b"{}"):
            status, reply = await server.post(gzip.compress(body), **{"Content-Encoding": "gzip"})
            assert status == 413
            assert "more than 100000 items" in reply["error"]
        assert not server.instrument.counters.get(
            "ragmeter_dead_letters_total", (("reason", "invalid_trace"),)
        )

    run(tmp_path, test, body_limit=1_000_000)


def test_bad_items_beyond_those_named_are_counted_by_reason(tmp_path: Path) -> None:
    async def test(server: Server) -> None:
        body = b"1\n{\n" * 500 + trace_line(1)
        status, reply = await server.post(body)
        assert (status, reply["accepted"], reply["rejected"]) == (200, 1, 1000)
        assert len(reply["errors"]) == 100
        for reason in ("invalid_trace", "invalid_json"):
            labels = (("reason", reason),)
            counted = server.instrument.counters.get("ragmeter_dead_letters_total", labels)
            assert counted == 500

    run(tmp_path, test)


def test_bad_items_beyond_those_named_keep_no_bytes(tmp_path: Path) -> None:
    async def test(server: Server) -> None:
        endpoint = TracesEndpoint(server.instrument, BodyReader(BODY_LIMIT), TRACE_LIMIT)
        items = endpoint._decode(b"nonsense\n" * 300 + trace_line(1))
        assert len({id(item) for item, _ in items}) == 102
        assert not any(item.raw for item, _ in items if isinstance(item, DecodeFailure))

    run(tmp_path, test)


def test_gzip_of_very_many_members_is_refused_at_once() -> None:
    member = gzip.compress(b"x")
    assert gunzip(member * 1_000, BODY_LIMIT) == b"x" * 1_000
    begun = time.process_time()
    with pytest.raises(RequestRefused, match="1000 gzip members"):
        gunzip(member * 900_000, 20 * 2**20)
    assert time.process_time() - begun < 1  # a minute where each member copies the rest


def test_gzip_members_may_end_anywhere() -> None:
    parts = [bytes([n % 251]) * (n * 37 % 3000) for n in range(900)]
    parts.append(random.Random(1).randbytes(200_000))
    body = b"".join(map(gzip.compress, parts))
    assert gunzip(body, 2**22) == b"".join(parts)
    with pytest.raises(RequestRefused, match="cut off"):
        gunzip(body[:-3], 2**22)


async def half(
    server: Server, sent: int, length: int = BODY_LIMIT
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A request that stops after `sent` bytes of its body."""
    host, port = server.url.split("/")[2].split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(
        f"POST /v1/rag/traces HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\n\r\n".encode()
    )
    writer.write(b" " * sent)
    await writer.drain()
    return reader, writer


def test_a_body_that_does_not_come_is_not_waited_for(tmp_path: Path) -> None:
    async def test(server: Server) -> None:
        reader, writer = await half(server, 10)
        assert b" 408 " in await asyncio.wait_for(reader.readline(), 10)
        writer.close()

    run(tmp_path, test, read_seconds=0.2)


def test_half_sent_bodies_together_are_bounded(tmp_path: Path) -> None:
    async def test(server: Server) -> None:
        clients = [await half(server, BODY_LIMIT - 10) for _ in range(6)]
        answers = [asyncio.create_task(reader.readline()) for reader, _ in clients]
        done, waiting = await asyncio.wait(answers, timeout=1)
        assert len(waiting) == 4
        assert all(b" 429 " in task.result() for task in done)
        for task in waiting:
            task.cancel()
        for _, writer in clients:
            writer.close()
        await asyncio.sleep(0.1)
        assert (await server.post(trace_line(1)))[0] == 200  # and what they held is free again

    run(tmp_path, test)


def test_a_broken_body_is_a_400_without_a_traceback(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def test(server: Server) -> None:
        host, port = server.url.split("/")[2].split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(
            b"POST /v1/rag/traces HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
        )
        writer.write(b"nonsense\r\n")
        assert b" 400 " in await asyncio.wait_for(reader.readline(), 10)
        writer.close()
        _, gone = await half(server, 10)
        gone.close()
        await asyncio.sleep(0.1)

    mute_protocol_errors()
    run(tmp_path, test)
    assert "Traceback" not in caplog.text
