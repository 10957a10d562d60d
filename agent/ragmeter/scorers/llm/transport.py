"""HTTP transport for model servers: an httpx client over aiohttp, and an API key that may rotate.

aiohttp's parser and writer are C, httpcore's are Python, and its pool looks through all connections
at every call: the same call costs a fraction of the CPU (docs/judge.md has the figures).
"""

from __future__ import annotations

import base64
import re
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote_to_bytes

import httpx
from pydantic import SecretStr

from ragmeter.core.connection_errors import explain_connection_error
from ragmeter.core.errors import Unavailable
from ragmeter.core.outgoing import find_proxy, make_tls_context

if TYPE_CHECKING:  # else where it is used: most agents have no model server, and it loads slowly
    import aiohttp

# Keys are short and printable; anything else in the file is a mistake, and no header.
_MAX_KEY_CHARS = 8192
_SCHEME = re.compile(r"(?:Authorization:\s*)?Bearer\s+", re.IGNORECASE)  # of the whole header
_VALID_KEY = re.compile(r"[\x21-\x7e]+")

# uvicorn, before most model servers, closes an idle connection after 5 seconds: sending on one
# that is about to close looks like a failure of the server.
_KEEP_ALIVE_SECONDS = 4.0

_CHUNK_BYTES = 64 * 1024

# Of an encoded reply, which nobody asked for: gzip swells to a thousand times its size, and a whole
# chunk is decoded before its size is seen.
_ENCODED_CHUNK_BYTES = 1024


class ApiKey:
    """The key of an API as the value of the `Authorization` header; shown nowhere.

    Without key, file and user there is no header, as local servers want no key.

    Args:
        file: File with the key, which can rotate while we run; wins over `key`.
        userinfo: User and password of the URL, for a gateway; used where there is no key.
    """

    def __init__(self, key: SecretStr | None, file: Path | None, userinfo: bytes = b"") -> None:
        self._file = file
        self.problem: str | None = None
        self._header: str | None = None
        if file is not None:
            self.reread()
        elif key is not None:
            self._set(key.get_secret_value())
        elif userinfo:
            self._header = f"Basic {base64.b64encode(unquote_to_bytes(userinfo)).decode()}"

    @property
    def header(self) -> str | None:
        """Value of the `Authorization` header, if any."""
        return self._header

    def reread(self) -> bool:
        """Read the file again; return whether the key has changed."""
        if self._file is None:
            return False
        before = self._header
        try:
            with self._file.open(encoding="utf-8-sig") as source:
                text = source.read(_MAX_KEY_CHARS + 1)
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "no UTF-8"
            self.problem = f"the key file {self._file} (api_key_file) cannot be read: {reason}"
            return False  # the file may be about to be replaced: the old key is better than none
        self._set(text)
        return self._header != before and self._header is not None

    def _set(self, text: str) -> None:
        text = _SCHEME.sub("", text.strip())
        if len(text) > _MAX_KEY_CHARS or not _VALID_KEY.fullmatch(text):
            self.problem = "the key is empty or no printable ASCII"
            return
        self.problem = None
        self._header = f"Bearer {text}"

    def __repr__(self) -> str:
        return f"ApiKey({'set' if self._header else 'none'})"


class _DirectClient(httpx.AsyncClient):
    # No redirects, cookies, hooks or auth flows: a judge has no use for them, and they cost more
    # than the rest of a call. Always streams.

    def __init__(self, transport: httpx.AsyncBaseTransport) -> None:
        super().__init__(transport=transport, timeout=None, trust_env=False)
        self._direct = transport

    async def send(self, request: httpx.Request, **_: Any) -> httpx.Response:
        return await self._direct.handle_async_request(request)


def make_http_client(base_url: str) -> httpx.AsyncClient:
    """Return a client for one server; the caller bounds time and concurrency."""
    return _DirectClient(_AiohttpTransport(find_proxy(base_url), make_tls_context()))


class _AiohttpTransport(httpx.AsyncBaseTransport):
    def __init__(self, proxy: str | None, context: ssl.SSLContext) -> None:
        self._proxy = proxy
        self._context = context
        self._session: aiohttp.ClientSession | None = None

    def _open(self) -> aiohttp.ClientSession:
        # here and not in the constructor: a session belongs to a running loop
        import aiohttp

        return aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(
                limit=0,
                keepalive_timeout=_KEEP_ALIVE_SECONDS,
                ssl=self._context,
            ),
            timeout=aiohttp.ClientTimeout(total=None, connect=None, sock_connect=None),
            auto_decompress=False,
            cookie_jar=aiohttp.DummyCookieJar(),
            skip_auto_headers=("User-Agent", "Accept", "Accept-Encoding"),
        )

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        if self._session is None:
            self._session = self._open()
        import aiohttp

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
            raise ExplainedConnectError(explain_connection_error(error), request=request) from None
        encoding = reply.headers.get("content-encoding", "identity").strip().lower()
        chunk = _CHUNK_BYTES if encoding == "identity" else _ENCODED_CHUNK_BYTES
        return httpx.Response(
            reply.status,
            headers=list(reply.raw_headers),
            stream=_ResponseBody(reply, chunk),
            request=request,
        )

    async def aclose(self) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None


class ExplainedConnectError(httpx.ConnectError, Unavailable):
    """A failure to connect whose text says why, and names no user or password of a proxy."""


class _ResponseBody(httpx.AsyncByteStream):
    def __init__(self, reply: aiohttp.ClientResponse, chunk: int) -> None:
        self._reply = reply
        self._chunk = chunk

    async def __aiter__(self) -> AsyncIterator[bytes]:
        import aiohttp

        try:
            while chunk := await self._reply.content.read(self._chunk):
                yield chunk
        except (aiohttp.ClientError, OSError) as error:
            raise httpx.ReadError(type(error).__name__) from None

    async def aclose(self) -> None:
        # a body read to its end has gone back to the pool; anything else is closed
        self._reply.close()
