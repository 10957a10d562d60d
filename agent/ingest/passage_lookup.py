"""Look up passage texts over HTTP, in a file or in a SQLite database.

Passage ids come from outside. They are bounded, quoted in URLs, parameters in SQL and never paths.
"""

from __future__ import annotations

import asyncio
import csv
import json
import re
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import quote

import httpx

from ragmeter.config.base import parse_headers, read_headers
from ragmeter.config.inputs import ID_PLACEHOLDER, ResolverSource
from ragmeter.core.errors import RagmeterError

_MAX_ID = 512  # characters
_RETRIES = 1  # of a request that failed for a reason that may pass
_RETRY_SECONDS = 0.05
_CHECK_SECONDS = 5.0  # between checks whether a file has changed
_STEPS = 10_000  # of SQLite between checks of the time limit
_LINE_MARGIN = 65_536  # bytes of a JSON line besides its text


class LookupFailed(RagmeterError):
    """The text could not be looked up; whether there is one is unknown."""


class InvalidPassageId(LookupFailed):
    """An id that must not be looked up."""


class PassageTooLarge(LookupFailed):
    """The text is over the limit of its source."""


class _RetryLater(RagmeterError):
    """A reply that may soon be a different one."""


class PassageLookup(Protocol):
    """A source of passage texts."""

    async def fetch(self, name: str) -> str | None:
        """Return the text of an id or None; raise `LookupFailed` or TimeoutError."""
        ...

    async def close(self) -> None:
        """Close connections and files."""
        ...


def open_lookup(source: ResolverSource) -> PassageLookup:
    """Return the lookup of a configured source."""
    if source.url is not None:
        return HttpLookup(source)
    return FileLookup(source) if source.file is not None else SqliteLookup(source)


class HttpLookup:
    """Requests a URL template with GET; status 404 and 410 mean that there is no text."""

    def __init__(
        self, source: ResolverSource, transport: httpx.AsyncBaseTransport | None = None
    ) -> None:
        self._source = source
        self._template = source.url or ""
        self._headers: dict[str, str] | None = None
        self._client = httpx.AsyncClient(
            transport=transport,
            timeout=source.timeout_seconds,
            follow_redirects=False,  # the headers must not go to another server
            limits=httpx.Limits(max_connections=source.concurrency),
        )

    async def fetch(self, name: str) -> str | None:
        """Return the text of an id."""
        url = self._template.replace(ID_PLACEHOLDER, quote(_check_passage_id(name), safe=""))
        for attempt in range(_RETRIES + 1):
            try:
                return await self._get(url)
            except httpx.TimeoutException:
                raise TimeoutError from None
            except (httpx.TransportError, _RetryLater):
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
                raise _RetryLater
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


class SqliteLookup:
    """Runs one statement on a database that is opened read-only."""

    def __init__(self, source: ResolverSource) -> None:
        self._source = source
        self._query = source.query or ""
        self._mutex = threading.Lock()
        self._db: sqlite3.Connection | None = None

    async def fetch(self, name: str) -> str | None:
        """Return the text of an id."""
        until = time.monotonic() + self._source.timeout_seconds
        return await asyncio.to_thread(self._get, _check_passage_id(name), until)

    async def close(self) -> None:
        """Close the database."""
        with self._mutex:
            self._close()

    def _get(self, name: str, until: float) -> str | None:
        if not self._mutex.acquire(timeout=max(0.0, until - time.monotonic())):
            raise TimeoutError
        try:
            db = self._open()
            db.set_progress_handler(lambda: time.monotonic() > until, _STEPS)
            row = db.execute(self._query, (name,)).fetchone()
        except (sqlite3.Error, OSError, ValueError) as error:
            if time.monotonic() > until:
                raise TimeoutError from None
            if isinstance(error, sqlite3.DatabaseError):
                self._close()  # a file that was replaced is opened anew
            raise LookupFailed from None
        finally:
            self._mutex.release()
        text = row[0] if row else None
        if isinstance(text, bytes):
            text = text.decode("utf-8", "replace")
        if not isinstance(text, str):
            return None
        if len(text.encode("utf-8", "replace")) > self._source.max_bytes:
            raise PassageTooLarge
        return text

    def _open(self) -> sqlite3.Connection:
        if self._db is None:
            path = quote(str(Path(self._source.sqlite or "").absolute()))
            self._db = sqlite3.connect(f"file:{path}?mode=ro", uri=True, check_same_thread=False)
            self._db.execute("PRAGMA query_only=ON")
        return self._db

    def _close(self) -> None:
        if self._db is not None:
            self._db.close()
            self._db = None


class FileLookup(SqliteLookup):
    """Looks up in JSON lines or CSV of any size, by a temporary database on disk.

    A changed file is loaded again. Lines that cannot be read are skipped.
    """

    def __init__(
        self, source: ResolverSource, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        super().__init__(source)
        self._query = "SELECT text FROM texts WHERE id = ?"
        self._path = source.file or Path()
        self._monotonic = monotonic
        self._loaded: tuple[int, int] | None = None  # modification time and size
        self._checked_at = float("-inf")

    def _open(self) -> sqlite3.Connection:
        now = self._monotonic()
        if self._db is None or now - self._checked_at >= _CHECK_SECONDS:
            self._checked_at = now
            stat = self._path.stat()
            state = (stat.st_mtime_ns, stat.st_size)
            if self._db is None or state != self._loaded:
                self._load()
                self._loaded = state
        assert self._db is not None
        return self._db

    def _load(self) -> None:
        db = sqlite3.connect("", check_same_thread=False)  # an unnamed file, deleted on close
        try:
            db.execute("CREATE TABLE texts(id TEXT PRIMARY KEY, text TEXT) WITHOUT ROWID")
            db.executemany("INSERT OR REPLACE INTO texts VALUES(?, ?)", self._rows())
            db.commit()
        except BaseException:
            db.close()
            raise
        self._close()
        self._db = db

    def _rows(self) -> Iterator[tuple[str, str]]:
        source = self._source
        with self._path.open(encoding="utf-8", errors="replace", newline="") as file:
            if self._path.suffix.lower() == ".csv":
                try:
                    for row in csv.DictReader(file):
                        name, text = row.get(source.id_field), row.get(source.text_field)
                        if name and isinstance(text, str):
                            yield name, text
                except csv.Error as error:
                    raise ValueError(str(error)) from None
                return
            while line := file.readline(source.max_bytes + _LINE_MARGIN):
                try:
                    item = json.loads(line)
                except (ValueError, RecursionError):
                    continue
                name = item.get(source.id_field) if isinstance(item, dict) else None
                text = _text_at(item, source.text_field)
                if isinstance(name, str | int) and text is not None:
                    yield str(name), text


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
