"""What a port bears: many connections, slow ones, silent ones, those that take nothing."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from aiohttp import web
from ragmeter.app.settings import load_settings
from ragmeter.server import connections as module
from ragmeter.server.access import AccessPolicy
from ragmeter.server.listener import listen

from tests.ports import free_port
from tests.real import require_module
from tests.server.ports import Port, asked_on
from tests.waiting import PATIENCE

ASK = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
Asked = Callable[..., Any]
Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@pytest.fixture(autouse=True)
def short_times(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tenths of seconds in place of ten and more; none for idleness, which a client on a busy
    machine cannot help."""
    monkeypatch.setattr(module, "CHECK_SECONDS", 0.05)
    monkeypatch.setattr(module, "IDLE_SECONDS", PATIENCE)
    monkeypatch.setattr(module, "WRITE_SECONDS", 0.5)
    monkeypatch.setattr(module, "HEAD_SECONDS", 0.5)


@pytest.fixture(params=["asyncio", "uvloop"])
def asked(request: pytest.FixtureRequest) -> Asked:
    """Asks on this event loop: `ragmeter worker` runs on uvloop."""
    loop = None
    if request.param == "uvloop":
        loop = require_module("uvloop").new_event_loop
    return partial(asked_on, loop)


async def ended(reader: asyncio.StreamReader) -> bytes:
    """All that comes until the other side closes."""
    try:
        async with asyncio.timeout(PATIENCE):
            return await reader.read()
    except ConnectionError:
        return b""


async def answered(streams: Streams) -> bytes:
    reader, writer = streams
    writer.write(ASK)
    async with asyncio.timeout(PATIENCE):
        return await reader.readuntil(b"this is /healthz")


def test_a_client_that_speaks_grpc_is_told_the_cure(
    asked: Asked, caplog: pytest.LogCaptureFixture
) -> None:
    async def ask(port: Port) -> tuple[list[bytes], Counter[str]]:
        replies = []
        for _ in range(3):
            reader, writer = await asyncio.open_connection(*port.address)
            writer.write(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0")
            replies.append(await ended(reader))
            writer.close()
        return replies, port.access.refused["metrics"]

    replies, refused = asked(ask)
    for reply in replies:
        assert reply.startswith(b"\0\0\0\4")  # SETTINGS, then GOAWAY
        assert reply.endswith(b"OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf")
    assert refused["grpc"] == 3
    lines = [record.getMessage() for record in caplog.records if "gRPC" in record.getMessage()]
    assert len(lines) == 1
    assert "OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf" in lines[0]


@pytest.mark.parametrize(
    "drip", [b"", b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX-a: "], ids=["silent", "slow"]
)
def test_who_does_not_finish_a_head_is_closed(drip: bytes, asked: Asked) -> None:
    async def ask(port: Port) -> tuple[bytes, Counter[str]]:
        reader, writer = await asyncio.open_connection(*port.address)
        writer.write(drip)

        async def slowly() -> None:
            while drip:
                writer.write(b"a")  # a byte at a time, so that it is never silent for long
                await asyncio.sleep(0.1)

        dripping = asyncio.create_task(slowly())
        try:
            return await ended(reader), port.access.refused["metrics"]
        finally:
            dripping.cancel()
            writer.close()

    found, refused = asked(ask)
    assert found == b""
    assert refused == {"slow": 1}


def test_who_asks_again_and_again_stays_and_an_idle_one_is_closed(
    monkeypatch: pytest.MonkeyPatch, asked: Asked
) -> None:
    async def ask(port: Port) -> Counter[str]:
        streams = await asyncio.open_connection(*port.address)
        for _ in range(2):
            await answered(streams)
            await asyncio.sleep(0.6)  # more than a head may take, less than idleness
        monkeypatch.setattr(module, "IDLE_SECONDS", 0.2)
        await answered(streams)
        await ended(streams[0])
        streams[1].close()
        return port.access.refused["metrics"]

    assert asked(ask)["slow"] == 0, "to be idle is no offence"


def test_a_second_head_may_not_be_slow_either(asked: Asked) -> None:
    async def ask(port: Port) -> Counter[str]:
        streams = await asyncio.open_connection(*port.address)
        await answered(streams)
        streams[1].write(ASK[:-4])
        await ended(streams[0])
        streams[1].close()
        return port.access.refused["metrics"]

    assert asked(ask)["slow"] == 1


def test_who_takes_nothing_of_an_answer_is_closed(asked: Asked) -> None:
    async def ask(port: Port) -> Counter[str]:
        _, writer = await asyncio.open_connection(*port.address, limit=2**10)
        writer.write(ASK.replace(b"healthz", b"large"))
        refused = port.access.refused["metrics"]
        deadline = time.monotonic() + PATIENCE
        while not refused["slow"] and time.monotonic() < deadline:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
        writer.close()
        return refused

    assert asked(ask)["slow"] == 1


def test_beyond_the_limit_the_idlest_goes_and_whoever_comes_is_served(
    monkeypatch: pytest.MonkeyPatch, asked: Asked
) -> None:
    monkeypatch.setattr(module, "HEAD_SECONDS", PATIENCE)  # nobody goes for being slow

    async def ask(port: Port) -> tuple[int, Counter[str]]:
        crowd = [await asyncio.open_connection(*port.address) for _ in range(20)]
        late = await asyncio.open_connection(*port.address)
        await answered(late)
        first = [await ended(reader) for reader, _ in crowd[:13]]
        last = [reader.at_eof() for reader, _ in crowd[13:]]
        for _, writer in [*crowd, late]:
            writer.close()
        assert set(first) == {b""}
        return sum(last), port.access.refused["metrics"]

    gone, refused = asked(ask, connections=8)
    assert gone == 0, "those that came last stay"
    assert refused == {"connections": 13}


def test_who_is_being_served_is_never_pushed_out(
    monkeypatch: pytest.MonkeyPatch, asked: Asked
) -> None:
    monkeypatch.setattr(module, "HEAD_SECONDS", PATIENCE)

    async def ask(port: Port) -> tuple[bytes, bytes]:
        busy = []
        for _ in range(8):
            streams = await asyncio.open_connection(*port.address)
            streams[1].write(ASK.replace(b"healthz", b"slow"))
            await streams[0].readuntil(b"begun")
            busy.append(streams)
        late = await asyncio.open_connection(*port.address)
        late[1].write(ASK)
        turned_away = await ended(late[0])
        busy[0][1].close()
        served = b""
        async with asyncio.timeout(PATIENCE):
            while not served:  # one goes, and there is room
                last = await asyncio.open_connection(*port.address)
                with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
                    served = await answered(last)
                last[1].close()
        for _, writer in [*busy, late]:
            writer.close()
        return turned_away, served

    turned_away, served = asked(ask, connections=8)
    assert turned_away == b""
    assert b"200 OK" in served


@pytest.mark.parametrize(
    "head",
    [
        b"GET /" + b"a" * 20_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: localhost\r\nX-a: " + b"a" * 20_000 + b"\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: localhost\r\n" + b"X-a: b\r\n" * 5_000 + b"\r\n",
    ],
    ids=["line", "field", "fields"],
)
def test_a_head_has_bounds(head: bytes, asked: Asked) -> None:
    async def ask(port: Port) -> bytes:
        reader, writer = await asyncio.open_connection(*port.address)
        writer.write(head)
        found = await ended(reader)
        writer.close()
        return found

    assert asked(ask).split(b" ")[1] == b"400"


def test_bodies_that_do_not_come_go_before_those_who_ask_again(
    monkeypatch: pytest.MonkeyPatch, asked: Asked
) -> None:
    monkeypatch.setattr(module, "HEAD_SECONDS", PATIENCE)
    unfinished = b"POST /read HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\nx"

    async def ask(port: Port) -> tuple[int, Counter[str]]:
        regular = [await asyncio.open_connection(*port.address) for _ in range(3)]
        for streams in regular:
            await answered(streams)
        crowd = []
        for _ in range(20):
            crowd.append(await asyncio.open_connection(*port.address))
            crowd[-1][1].write(unfinished)
            await asyncio.sleep(0.01)
        late = await asyncio.open_connection(*port.address)
        for streams in (late, *regular):
            await answered(streams)
        gone = [await ended(reader) for reader, _ in crowd[:16]]
        for _, writer in [*crowd, *regular, late]:
            writer.close()
        return len(gone), port.access.refused["metrics"]

    gone, refused = asked(ask, connections=8)
    assert (gone, refused["connections"]) == (16, 16)


def test_a_star_listens_on_both_families() -> None:
    async def ask() -> list[bytes]:
        settings = load_settings(
            environ={}, overrides={"http": {"host": "*", "accept": ["open", "plain"]}}
        )
        number = free_port()
        replies = []
        async with listen(web.Application(), "*", number, AccessPolicy(settings)) as url:
            assert url == f"http://localhost:{number}"
            for host in ("127.0.0.1", "::1"):
                reader, writer = await asyncio.open_connection(host, number)
                writer.write(
                    b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
                )
                replies.append(await ended(reader))
                writer.close()
        return replies

    assert all(reply.startswith(b"HTTP/1.1 404") for reply in asyncio.run(ask()))
