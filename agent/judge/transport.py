"""HTTP for the judge: an `httpx` client whose requests travel through aiohttp.

aiohttp's parser and writer are C, httpcore's are Python, and its pool looks through all connections
at every call: the same call costs a fraction of the CPU (docs/judge.md has the figures).
"""

from __future__ import annotations

import urllib.request
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import httpx

__all__ = ["AiohttpTransport", "DirectClient", "make_client"]

# Seconds. uvicorn, before most model servers, closes an idle connection after 5: sending on one
# that is about to close looks like a failure of the server.
KEEP_ALIVE = 4.0

CHUNK = 64 * 1024

# Of an encoded reply, which nobody asked for: gzip swells to a thousand times its size, and a whole
# chunk is decoded before its size is seen.
ENCODED_CHUNK = 1024


class DirectClient(httpx.AsyncClient):
    """Hands requests straight to its transport: no redirects, cookies, hooks or auth flows, which
    a judge has no use for and which cost more than the rest of a call. Always streams."""

    def __init__(self, transport: httpx.AsyncBaseTransport) -> None:
        super().__init__(transport=transport, timeout=None, trust_env=False)
        self._direct = transport

    async def send(self, request: httpx.Request, **_: Any) -> httpx.Response:
        return await self._direct.handle_async_request(request)


def make_client(base_url: str) -> httpx.AsyncClient:
    """A client for one judge. The caller bounds time and concurrency."""
    return DirectClient(AiohttpTransport(_proxy(base_url)))


def _proxy(url: str) -> str | None:
    """The proxy that the environment names for a URL, by the usual variables."""
    parts = urlsplit(url)
    if not parts.hostname or urllib.request.proxy_bypass(parts.netloc):
        return None
    return urllib.request.getproxies().get(parts.scheme)


class AiohttpTransport(httpx.AsyncBaseTransport):
    """Sends the requests of an `httpx.AsyncClient` with an aiohttp session of its own.

    Failures to connect, read or write are `httpx.TransportError`.
    """

    def __init__(self, proxy: str | None = None) -> None:
        self._proxy = proxy
        self._session: aiohttp.ClientSession | None = None

    def _open(self) -> aiohttp.ClientSession:
        # here and not in the constructor: a session belongs to a running loop
        return aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=KEEP_ALIVE),
            timeout=aiohttp.ClientTimeout(total=None, connect=None, sock_connect=None),
            auto_decompress=False,
            cookie_jar=aiohttp.DummyCookieJar(),
            skip_auto_headers=("User-Agent", "Accept", "Accept-Encoding"),
        )

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        if self._session is None:
            self._session = self._open()
        headers = [
            (name.decode("ascii"), value.decode("ascii"))
            for name, value in request.headers.raw
            if name.lower() not in (b"host", b"content-length", b"connection")
        ]
        try:
            reply = await self._session.request(
                request.method,
                str(request.url),
                headers=headers,
                data=await request.aread(),
                allow_redirects=False,
                proxy=self._proxy,
            )
        except (aiohttp.ClientError, OSError, UnicodeError) as error:  # the last: of a host's name
            # the text names hosts and may name the user and password of a proxy
            raise httpx.ConnectError(type(error).__name__, request=request) from None
        encoding = reply.headers.get("content-encoding", "identity").strip().lower()
        body = _Body(reply, CHUNK if encoding == "identity" else ENCODED_CHUNK)
        return httpx.Response(
            reply.status, headers=list(reply.raw_headers), stream=body, request=request
        )

    async def aclose(self) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None


class _Body(httpx.AsyncByteStream):
    def __init__(self, reply: aiohttp.ClientResponse, chunk: int) -> None:
        self._reply = reply
        self._chunk = chunk

    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            while chunk := await self._reply.content.read(self._chunk):
                yield chunk
        except (aiohttp.ClientError, OSError) as error:
            raise httpx.ReadError(type(error).__name__) from None

    async def aclose(self) -> None:
        # what was read to its end has gone back to the pool; anything else is closed
        self._reply.close()
