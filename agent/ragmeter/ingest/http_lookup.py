"""Look the text of a passage up over HTTP.

Passage ids come from outside: they are bounded, quoted in URLs and never paths.
"""

from __future__ import annotations

import asyncio
import json
import re
from typing import Any
from urllib.parse import quote

import httpx

from ragmeter.config.base import parse_headers, read_headers
from ragmeter.config.inputs import ID_PLACEHOLDER, ResolverSource
from ragmeter.core.errors import Unavailable
from ragmeter.core.outgoing import OutgoingTransport, find_proxy
from ragmeter.ingest.passage_lookup import InvalidPassageId, LookupFailed, PassageTooLarge

_MAX_ID = 512  # characters
_RETRIES = 1  # of a request that failed for a reason that may pass
_RETRY_SECONDS = 0.05


class HttpLookup:
    """Requests a URL template with GET; status 404 and 410 mean that there is no text."""

    def __init__(
        self, source: ResolverSource, transport: httpx.AsyncBaseTransport | None = None
    ) -> None:
        self._source = source
        self._template = source.url.get_secret_value()
        if transport is None:
            find_proxy(self._template)  # a mistake in the proxy is told at the start
        self._headers: dict[str, str] | None = None
        self._client = httpx.AsyncClient(
            transport=transport
            or OutgoingTransport(httpx.Limits(max_connections=source.concurrency)),
            timeout=source.timeout_seconds,
            follow_redirects=False,  # the headers must not go to another server
        )

    async def fetch(self, name: str) -> str | None:
        """Return the text of an id."""
        url = self._template.replace(ID_PLACEHOLDER, quote(_check_passage_id(name), safe=""))
        for attempt in range(_RETRIES + 1):
            try:
                return await self._get(url)
            except httpx.TimeoutException:
                raise TimeoutError from None
            except (httpx.TransportError, Unavailable):
                if attempt < _RETRIES:
                    await asyncio.sleep(_RETRY_SECONDS)
            except httpx.HTTPError:
                break
        raise LookupFailed

    async def close(self) -> None:
        """Close all connections."""
        await self._client.aclose()

    async def _get(self, url: str) -> str | None:
        headers = await asyncio.to_thread(self._read_headers)
        async with self._client.stream("GET", url, headers=headers) as reply:
            status = reply.status_code
            if status in (404, 410):
                return None
            if status in (401, 403):
                self._headers = None  # the file may hold a new key
            if status in (401, 403, 429) or status >= 500:
                raise Unavailable(f"status {status}")
            if status != 200:
                raise LookupFailed
            body = bytearray()
            async for part in reply.aiter_bytes():
                body += part
                if len(body) > self._source.max_bytes:
                    raise PassageTooLarge
            kind = reply.headers.get("content-type", "")
        try:
            text = body.decode("utf-8")
            if "json" not in kind:
                return text
            document = json.loads(text)
        except (ValueError, RecursionError):
            raise LookupFailed from None
        if isinstance(document, str):
            return document
        return _text_at(document, self._source.text_field)

    def _read_headers(self) -> dict[str, str]:
        if self._headers is None:
            source = self._source
            try:
                if source.headers_file is not None:
                    self._headers = read_headers(source.headers_file)
                else:
                    given = source.headers.get_secret_value() if source.headers else ""
                    self._headers = parse_headers(given)
            except (OSError, ValueError):
                raise LookupFailed from None
        return self._headers


def _check_passage_id(name: str) -> str:
    """Return the id; raise `InvalidPassageId` if a server could resolve it to something else.

    A server may resolve `..` between slashes, however they are quoted.
    """
    parts = re.split(r"[/\\]", name)
    if not name or len(name) > _MAX_ID or not name.isprintable() or {".", ".."} & set(parts):
        raise InvalidPassageId
    return name


def _text_at(value: Any, path: str) -> str | None:
    for key in path.split("."):
        value = value.get(key) if isinstance(value, dict) else None
    return value if isinstance(value, str) else None
