"""What a port bears: many connections, slow ones, silent ones, those that take nothing."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import subprocess
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
from aiohttp import web
from ragmeter.app.settings import load_settings
from ragmeter.server import connections as module
from ragmeter.server.access import AccessPolicy
from ragmeter.server.listener import listen

from tests.ports import free_port
from tests.real import require, require_module
from tests.server.ports import Port, asked_on
from tests.waiting import PATIENCE

ASK = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
Asked = Callable[..., Any]
Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@pytest.fixture(autouse=True)
def short_times(monkeypatch: pytest.MonkeyPatch) -> None:
    """Look often, but give a client on a busy machine all the time that it may need."""
    monkeypatch.setattr(module, "CHECK_SECONDS", 0.05)
    for name in ("IDLE_SECONDS", "WRITE_SECONDS", "HEAD_SECONDS"):
        monkeypatch.setattr(module, name, PATIENCE)


@pytest.fixture
def short_heads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Half a second for a head, in tests that are about slow ones."""
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
@pytest.mark.usefixtures("short_heads")
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


@pytest.mark.usefixtures("short_heads")
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


@pytest.mark.usefixtures("short_heads")
def test_a_second_head_may_not_be_slow_either(asked: Asked) -> None:
    async def ask(port: Port) -> Counter[str]:
        streams = await asyncio.open_connection(*port.address)
        await answered(streams)
        streams[1].write(ASK[:-4])
        await ended(streams[0])
        streams[1].close()
        return port.access.refused["metrics"]

    assert asked(ask)["slow"] == 1


def test_who_takes_nothing_of_an_answer_is_closed(
    monkeypatch: pytest.MonkeyPatch, asked: Asked
) -> None:
    monkeypatch.setattr(module, "WRITE_SECONDS", 0.5)

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


def test_beyond_the_limit_the_idlest_goes_and_whoever_comes_is_served(asked: Asked) -> None:
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


def test_who_is_being_served_is_never_pushed_out(asked: Asked) -> None:
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


def test_bodies_that_do_not_come_go_before_those_who_ask_again(asked: Asked) -> None:
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


@pytest.mark.parametrize("every", ["*", "::"])
def test_every_address_is_of_both_families(every: str) -> None:
    async def ask() -> list[bytes]:
        settings = load_settings(
            environ={}, overrides={"http": {"host": every, "accept": ["open", "plain"]}}
        )
        number = free_port()
        replies = []
        async with listen(web.Application(), every, number, AccessPolicy(settings)) as url:
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


async def asks(port: Port, first: bytes, *, times: int = 1) -> bytes:
    """Return the reply to the last of some connections that begin so."""
    reply = b""
    for _ in range(times):
        reader, writer = await asyncio.open_connection(*port.address)
        writer.write(first)
        reply = await ended(reader)
        writer.close()
    return reply


def logged(caplog: pytest.LogCaptureFixture, words: str) -> list[str]:
    lines = [record.getMessage() for record in caplog.records]
    return [line for line in lines if words in line]


# the head of a record of TLS, and of a ClientHello
HELLO = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(40)


def test_a_client_that_speaks_tls_to_a_plain_port_is_told_the_cure(
    asked: Asked, caplog: pytest.LogCaptureFixture
) -> None:
    async def ask(port: Port) -> tuple[bytes, Counter[str]]:
        return await asks(port, HELLO, times=3), port.access.refused["metrics"]

    reply, refused = asked(ask)
    assert reply.startswith(b"HTTP/1.1 400 ")
    assert b"send to http://" in reply
    assert refused == {"tls": 3}
    (line,) = logged(caplog, "speaks TLS")
    assert "http.tls.cert_file" in line


def test_bytes_of_tls_or_grpc_within_a_body_are_a_body(asked: Asked) -> None:
    async def ask(port: Port) -> list[bytes]:
        replies = []
        for body in (HELLO, b"PRI * HTTP/2.0\r\n"):
            reader, writer = await asyncio.open_connection(*port.address)
            head = "POST /v1/traces HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
            writer.write(f"{head}Content-Length: {len(body)}\r\n\r\n".encode())
            await asyncio.sleep(0.05)  # so that the body is a piece of its own
            writer.write(body)
            replies.append(await ended(reader))
            writer.close()
        return replies

    assert [reply.split(b" ")[1] for reply in asked(ask)] == [b"200", b"200"]


@pytest.mark.parametrize(
    "first",
    [
        b"\0\0\0\x1b\0\x12\0\3\0\0\0\1\0\7console\0\0\0\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\nContent-Length: -5 console\r\n\r\n",
        b"POST /read HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nconsole\r\n",
    ],
    ids=["kafka", "length", "chunk"],
)
def test_what_is_no_http_is_counted_and_named_without_a_word_of_it(
    first: bytes, asked: Asked, caplog: pytest.LogCaptureFixture
) -> None:
    async def ask(port: Port) -> tuple[bytes, Counter[str]]:
        return await asks(port, first, times=3), port.access.refused["metrics"]

    with caplog.at_level("INFO"):
        reply, refused = asked(ask)
    assert b" 400 " in reply
    assert refused == {"protocol": 3}
    (line,) = logged(caplog, "no HTTP request")
    assert "console" not in line
    assert not logged(caplog, "Error handling")


@pytest.mark.parametrize(
    ("path", "method", "status", "words"),
    [
        ("/v1/traces/v1/traces", "POST", 404, "POST to "),
        ("/v1/traces/", "POST", 404, "/v1/rag/traces"),
        ("/", "POST", 405, "nothing is received at /;"),
        ("/v1/traces", "GET", 405, "takes POST alone"),
        ("/v1/\u202ex", "POST", 404, "nothing is received at /v1/"),
    ],
)
def test_a_sender_at_a_wrong_path_is_told_the_right_ones(
    path: str, method: str, status: int, words: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def ask(port: Port) -> tuple[httpx.Response, Counter[str]]:
        reply = await port.client.request(method, f"{port.url}{path}")
        return reply, port.access.refused["metrics"]

    reply, refused = asked_on(None, ask)
    assert reply.status_code == status
    assert words in reply.text
    assert refused == ({"path": 1} if method == "POST" else {})
    lines = logged(caplog, "wrong path")
    assert len(lines) == (method == "POST")
    assert "\u202e" not in reply.text + "".join(lines)


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    require("openssl")
    file = tmp_path_factory.mktemp("tls") / "both.pem"
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"]
    command += ["-nodes", "-subj", "/CN=localhost", "-keyout", str(file), "-out", f"{file}.crt"]
    subprocess.run(command, check=True, capture_output=True)
    with file.open("a") as whole:
        whole.write(Path(f"{file}.crt").read_text("ascii"))
    return file


def client_context(*protocols: str, trusting: bool = True) -> ssl.SSLContext:
    context = ssl.create_default_context()
    if trusting:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if protocols:
        context.set_alpn_protocols(protocols)
    return context


def test_grpc_over_tls_is_told_the_cure_and_others_get_http_1(
    certificate: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def ask(port: Port) -> tuple[bytes, bytes]:
        replies = []
        for protocols, first in (
            (("h2",), b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0"),
            (("h2", "http/1.1"), ASK.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")),
        ):
            context = client_context(*protocols)
            reader, writer = await asyncio.open_connection(*port.address, ssl=context)
            writer.write(first)
            replies.append(await ended(reader))
            writer.close()
        return replies[0], replies[1]

    grpc, http = asked_on(None, ask, tls={"cert_file": str(certificate)})
    assert grpc.endswith(b"OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf")
    assert len(logged(caplog, "speaks gRPC")) == 1
    assert http.startswith(b"HTTP/1.1 200 ")


def distrust(address: tuple[str, int]) -> None:
    """Find the certificate bad, and wait until the other side knows it."""
    with socket.create_connection(address, PATIENCE) as raw:
        secure = ssl.MemoryBIO(), ssl.MemoryBIO()
        client = client_context(trusting=False).wrap_bio(*secure, server_hostname="localhost")
        data: bytes | None = None
        while data != b"":
            try:
                client.do_handshake()
            except ssl.SSLWantReadError:
                pass
            except ssl.SSLCertVerificationError:
                raw.sendall(secure[1].read())
                with contextlib.suppress(ConnectionError):
                    while raw.recv(65_536):
                        pass
                return
            raw.sendall(secure[1].read())
            secure[0].write(data := raw.recv(65_536))
        raise AssertionError("there was no certificate")


@pytest.mark.parametrize("plain", [True, False], ids=["http", "distrust"])
def test_who_comes_without_tls_or_without_trust_is_named_once(
    plain: bool,
    certificate: Path,
    asked: Asked,
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def ask(port: Port) -> Counter[str]:
        for _ in range(3):
            if plain:
                assert await asks(port, ASK) == b""
            else:
                await asyncio.to_thread(distrust, port.address)
        return port.access.refused["metrics"]

    assert asked(ask, tls={"cert_file": str(certificate)}) == {"tls": 3}
    words = "send to https://" if plain else "does not trust the certificate"
    assert len(logged(caplog, words)) == 1
