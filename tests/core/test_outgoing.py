"""The proxies and the certificate authorities of the environment, for all clients alike."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest
from aiohttp import web
from ragmeter.core.errors import UnusableResource
from ragmeter.core.outgoing import OutgoingTransport, find_proxy, make_tls_context
from ragmeter.scorers.llm.transport import make_http_client
from ragmeter_exporters.endpoint import DeliveryEndpoint
from ragmeter_exporters.otel.headers import ReceiverHeaders
from ragmeter_exporters.otel.receiver import CountingExporter

from tests.exporters.stub import serve
from tests.kafka_security import make_certificates

PROXY = "http://proxy.invalid:3128"


@pytest.fixture(autouse=True)
def _bare_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    monkeypatch.delenv("SSL_CERT_FILE", raising=False)
    monkeypatch.delenv("REQUESTS_CA_BUNDLE", raising=False)


@pytest.mark.parametrize(
    ("exceptions", "url", "direct"),
    [
        ("", "http://am:9093", False),
        ("*", "http://am:9093", True),
        ("other, am", "http://am:9093", True),
        ("other am", "http://AM:9093", True),
        ("am", "http://team:9093", False),
        ("example.com", "https://a.example.com/v1", True),
        ("example.com", "https://example.com./v1", True),
        (".example.com", "https://a.example.com/v1", True),
        ("example.com", "https://anexample.com/v1", False),
        ("*.svc.cluster.local", "http://am.mon.svc.cluster.local", True),
        ("*.internal:9093", "http://am.internal:9093", True),
        ("*.internal", "http://aminternal", False),
        ("fe80::1", "http://[fe80::1%eth0]:9093", True),
        ("fe80::/10", "http://[fe80::1%eth0]:9093", True),
        ("am:9093", "http://am:9093", True),
        ("am:9094", "http://am:9093", False),
        ("am:443", "https://am", True),
        ("10.0.0.0/8", "http://10.96.0.1:9093", True),
        ("10.0.0.0/8", "http://11.96.0.1:9093", False),
        ("10.0.0.0/8", "http://am:9093", False),  # no name is looked up
        ("10.1.2.3/8", "http://10.96.0.1:9093", True),
        ("10.0.0.0/33,172.16.0.0/12", "http://172.31.0.1", True),
        ("10.96.0.1", "http://10.96.0.1:9093", True),
        ("10.96.0.1:9093", "http://10.96.0.1:9093", True),
        ("10.96.0", "http://10.96.0.1:9093", False),
        ("fd00::/8", "http://[fd12::1]:9093", True),
        ("fd00::/8", "http://[fe80::1]:9093", False),
        ("fd00::/8", "http://10.0.0.1:9093", False),
        ("::1", "http://[::1]:9093", True),
        ("[::1]", "http://[::1]:9093", True),
        ("[::1]:9093", "http://[::1]:9093", True),
        ("[::1]:9094", "http://[::1]:9093", False),
        ("10.0.0.0/8", "http://[::ffff:10.0.0.1]:9093", True),
        ("192.168.*", "http://192.168.7.1:9093", True),
        ("192.168.*", "http://192.169.7.1:9093", False),
        ("10.*|192.168.*|*.corp", "http://192.168.7.1:9093", True),
        ("10.*|192.168.*|*.corp", "https://a.corp", True),
        ("10.*|192.168.*|*.corp", "https://a.example", False),
        ("localhost;am.*", "http://am.example", True),
        ("fd00:*", "http://[fd00::1]:9093", True),
    ],
)
def test_exceptions_are_read_as_curl_and_go_read_them(
    monkeypatch: pytest.MonkeyPatch, exceptions: str, url: str, direct: bool
) -> None:
    monkeypatch.setenv("HTTP_PROXY", PROXY)
    monkeypatch.setenv("https_proxy", PROXY)
    monkeypatch.setenv("NO_PROXY", exceptions)
    assert find_proxy(url) == (None if direct else PROXY)


def test_the_proxy_is_that_of_the_scheme_or_of_all(monkeypatch: pytest.MonkeyPatch) -> None:
    assert find_proxy("http://am") is None
    monkeypatch.setenv("ALL_PROXY", "proxy:1")
    assert find_proxy("http://am") == "http://proxy:1"
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy:2")
    assert find_proxy("https://am") == "http://proxy:2"


@pytest.mark.parametrize(
    "proxy",
    ["http://u:hush@px:99999", "http://[::1", "socks5://u:hush@px:1", "http://", "u:hush@px:x"],
)
def test_what_is_no_proxy_is_told_without_a_word_of_it(
    proxy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", proxy)
    with pytest.raises(UnusableResource, match="HTTP_PROXY: what it holds is no proxy") as raised:
        find_proxy("http://am")
    assert "hush" not in str(raised.value)
    monkeypatch.setenv("NO_PROXY", "am")
    assert find_proxy("http://am") is None

    async def request() -> None:
        async with httpx.AsyncClient(transport=OutgoingTransport()) as client:
            await client.get("http://far")

    with pytest.raises(httpx.ProxyError):
        asyncio.run(request())


def test_each_request_goes_by_its_own_way(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        async with serve() as proxy, serve() as near:
            monkeypatch.setenv("HTTP_PROXY", proxy.url)
            monkeypatch.setenv("NO_PROXY", "127.0.0.0/8")
            async with httpx.AsyncClient(transport=OutgoingTransport()) as client:
                await client.post(f"{near.url}/near", json={})
                await client.post("http://far.invalid/far", json={})
            assert near.paths == ["/near"]
            assert [headers["Host"] for headers in proxy.headers] == ["far.invalid"]
            async with make_http_client(near.url) as judge:
                await judge.post(f"{near.url}/judge", json={})
            assert near.paths == ["/near", "/judge"]

    asyncio.run(scenario())


@asynccontextmanager
async def serve_tls(folder: Path) -> AsyncIterator[tuple[str, list[str]]]:
    """A server with a certificate of an authority of its own; gives its URL and what was asked."""
    asked: list[str] = []

    async def handle(request: web.Request) -> web.Response:
        asked.append(request.path)
        return web.Response()

    app = web.Application()
    app.router.add_post("/{tail:.*}", handle)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(folder / "server.pem")
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context).start()
    try:
        yield f"https://127.0.0.1:{runner.addresses[0][1]}", asked
    finally:
        await runner.cleanup()


def export(url: str) -> list[str]:
    counted: list[str] = []
    endpoint = DeliveryEndpoint.parse(url)
    exporter = CountingExporter(
        endpoint,
        ReceiverHeaders(None, None),
        lambda result, number: counted.append(result),
        timeout=1,
    )
    exporter.export([])
    exporter.shutdown()
    return counted


@pytest.mark.parametrize("name", ["SSL_CERT_FILE", "REQUESTS_CA_BUNDLE"])
def test_every_client_trusts_the_authority_of_the_environment(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str
) -> None:
    make_certificates(tmp_path)

    async def scenario() -> None:
        async with serve_tls(tmp_path) as (url, asked):
            for untrusting in (
                httpx.AsyncClient(transport=OutgoingTransport()),
                make_http_client(url),
            ):
                async with untrusting:
                    with pytest.raises(httpx.ConnectError):
                        await untrusting.post(f"{url}/untrusted")
            monkeypatch.setenv(name, str(tmp_path / "ca.pem"))
            async with httpx.AsyncClient(transport=OutgoingTransport()) as client:
                await client.post(f"{url}/sender")
            async with make_http_client(url) as judge:
                await judge.post(f"{url}/judge")
            await asyncio.to_thread(export, url)
            assert asked == ["/sender", "/judge", "/v1/logs"]

    asyncio.run(scenario())


def test_authorities_that_cannot_be_read_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", "/nowhere.pem")
    with pytest.raises(UnusableResource, match=r"/nowhere\.pem: certificate authorities"):
        make_tls_context()
