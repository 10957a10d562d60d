"""What a receiver may answer, over real HTTP."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from aiohttp import web

from tests.exporters.otel.collector import PROTOBUF, rejecting, serve
from tests.exporters.otel.running import FULL_BATCHES, answering, awaited, exporting, raw
from tests.exporters.otel.scores import done
from tests.waiting import until_async


@pytest.mark.parametrize("status", [502, 503, 504])
@awaited
async def test_what_may_pass_is_tried_again(status: int) -> None:
    async with (
        serve(answering(web.Response(status=status))) as found,
        exporting(found.url) as (exporter, agent),
    ):
        exporter.put(done())
        await until_async(lambda: agent.counted() == {"sent": 1})
        assert len(found.raw) == 2
        assert len({body for _, body in found.raw}) == 1


@pytest.mark.parametrize("status", [301, 400, 401, 404, 408, 413, 500, 501])
@awaited
async def test_what_will_not_pass_is_tried_once(status: int) -> None:
    gone = web.Response(status=status, headers={"Location": "http://127.0.0.1:1/"})
    async with (
        serve(answering(gone)) as found,
        exporting(found.url, limits=FULL_BATCHES) as (exporter, agent),
    ):
        exporter.put(done(number=20))
        await until_async(lambda: agent.counted() == {"refused": 10, "sent": 10})
        assert len(found.raw) == 2


@awaited
async def test_a_receiver_that_is_too_slow_is_given_up() -> None:
    async with (
        serve(answering(600.0)) as found,
        exporting(found.url, limits={**FULL_BATCHES, "timeout_seconds": 1}) as (exporter, agent),
    ):
        exporter.put(done(number=20))
        await until_async(lambda: agent.counted() == {"gave_up": 10, "sent": 10})


@pytest.mark.parametrize(
    ("junk", "result"),
    [
        (b"", "gave_up"),
        (b"\x00\xff junk", "gave_up"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: -3\r\n\r\n", "sent"),
    ],
)
@awaited
async def test_what_is_no_http_is_given_up(junk: bytes, result: str) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(junk)

    async with (
        raw(answer) as url,
        exporting(url, limits={"timeout_seconds": 0.5}) as (exporter, agent),
    ):
        exporter.put(done())
        await until_async(lambda: agent.counted() == {result: 1})


@awaited
async def test_a_reply_without_end_is_not_read_to_its_end() -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(f"HTTP/1.1 200 OK\r\nContent-Type: {PROTOBUF}\r\n\r\n".encode())
        while True:
            writer.write(b"x" * 65_536)
            await writer.drain()

    async with raw(answer) as url, exporting(url) as (exporter, agent):
        exporter.put(done())
        await until_async(lambda: agent.counted() == {"sent": 1})


@pytest.mark.parametrize(
    "answer",
    [
        {"body": b"\xff\xff garbage", "content_type": PROTOBUF},
        {"body": b"x" * 1_000_000, "content_type": PROTOBUF},
        {"text": "<html>welcome</html>", "content_type": "text/html"},
        {"text": "{}", "content_type": "application/json"},
        {"status": 202, "body": b""},
    ],
)
@awaited
async def test_an_answer_of_200_took_it_whatever_else_it_says(answer: dict[str, Any]) -> None:
    reply = answering(web.Response(**answer))
    async with serve(reply) as found, exporting(found.url) as (exporter, agent):
        exporter.put(done())
        await until_async(lambda: agent.counted() == {"sent": 1})
        assert len(found.raw) == 1


@awaited
async def test_what_the_receiver_rejects_is_counted_and_its_words_are_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    reply = answering(rejecting(3, "quota\nINJECTED" + "x" * 500), rejecting(99, "more than all"))
    async with serve(reply) as found, exporting(found.url) as (exporter, agent):
        exporter.put(done(number=20))
        await until_async(lambda: agent.counted() == {"rejected": 13, "sent": 7})
    assert "quota\\nINJECTED" in caplog.text
    assert len(caplog.text) < 1000
