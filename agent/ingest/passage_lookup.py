"""Look up passage texts over HTTP, in a file or in a SQLite database.

An id comes from outside. It is bounded, never a path, quoted in a URL and a parameter in SQL.
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

_MAX_ID = 512  # characters
_RETRIES = 1  # of a request that failed in a way that may pass
_RETRY_SECONDS = 0.05
_LOOK_SECONDS = 5.0  # between two looks whether a file has changed
_STEPS = 10_000  # of SQLite between two looks at the clock


class LookupFailed(Exception):
    """The text could not be looked up; whether there is one is not known."""


class InvalidPassageId(LookupFailed):
    """An id that no text is looked up by."""


class PassageTooLarge(LookupFailed):
    """The text is over the limit."""


class PassageLookup(Protocol):
    async def fetch(self, name: str) -> str | None:
        """The text of an id; None where there is none. Raises `Failed` or `TimeoutError`."""
        ...

    async def close(self) -> None: ...


def _check_passage_id(name: str) -> str:
    """The id. Raises `BadId` where it could mean more than itself: a server may resolve `..`
    between slashes however they are quoted."""
    parts = re.split(r"[/\\]", name)
    if not name or len(name) > _MAX_ID or not name.isprintable() or {".", ".."} & set(parts):
        raise InvalidPassageId
    return name


def _at(value: Any, path: str) -> str | None:
    """The text at `a.b` of nested maps."""
    for part in path.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    return value if isinstance(value, str) else None


class HttpLookup:
    """`GET` of a template. 404 and 410 say that there is none."""

    def __init__(
        self, source: ResolverSource, transport: httpx.AsyncBaseTransport | None = None
    ) -> None:
        self._source = source
        self._template = source.url or ""
        self._headers: dict[str, str] | None = None
        self._client = httpx.AsyncClient(
            transport=transport,
            timeout=source.timeout_seconds,
            follow_redirects=False,  # to where the headers must not go
            limits=httpx.Limits(max_connections=source.concurrency),
        )

    async def fetch(self, name: str) -> str | None:
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

    async def _get(self, url: str) -> str | None:
        headers = await asyncio.to_thread(self._read_headers)
        async with self._client.stream("GET", url, headers=headers) as reply:
            status = reply.status_code
            if status in (404, 410):
                return None
            if status in (401, 403):
                self._headers = None  # a key that was changed is in the file
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
            found = json.loads(text)
        except (ValueError, RecursionError):
            raise LookupFailed from None
        return found if isinstance(found, str) else _at(found, self._source.text_field)

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

    async def close(self) -> None:
        await self._client.aclose()


class _RetryLater(Exception):
    """An answer that may be another one soon."""


class SqliteLookup:
    """One statement on a database that is opened for reading."""

    def __init__(self, source: ResolverSource) -> None:
        self._source = source
        self._query = source.query or ""
        self._mutex = threading.Lock()
        self._db: sqlite3.Connection | None = None

    async def fetch(self, name: str) -> str | None:
        until = time.monotonic() + self._source.timeout_seconds
        return await asyncio.to_thread(self._get, _check_passage_id(name), until)

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
        if text is None or not isinstance(text, str):
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

    async def close(self) -> None:
        with self._mutex:
            self._close()


class FileLookup(SqliteLookup):
    """JSON lines or CSV, read into a temporary database on the disk: of any size, and read anew
    when it has changed. Lines that cannot be read are none."""

    def __init__(
        self, source: ResolverSource, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        super().__init__(source)
        self._query = "SELECT text FROM texts WHERE id = ?"
        self._path = source.file or Path()
        self._monotonic = monotonic
        self._known: tuple[int, int] | None = None
        self._looked = float("-inf")

    def _open(self) -> sqlite3.Connection:
        now = self._monotonic()
        if self._db is None or now - self._looked >= _LOOK_SECONDS:
            self._looked = now
            found = self._path.stat()
            state = (found.st_mtime_ns, found.st_size)
            if self._db is None or state != self._known:
                self._load()
                self._known = state
        assert self._db is not None
        return self._db

    def _load(self) -> None:
        db = sqlite3.connect("", check_same_thread=False)  # a file without a name, gone with us
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
            while line := file.readline(source.max_bytes + 65_536):
                try:
                    item = json.loads(line)
                except (ValueError, RecursionError):
                    continue
                given = item.get(source.id_field) if isinstance(item, dict) else None
                found = _at(item, source.text_field)
                if isinstance(given, str | int) and found is not None:
                    yield str(given), found


def open_lookup(source: ResolverSource) -> PassageLookup:
    if source.url is not None:
        return HttpLookup(source)
    return FileLookup(source) if source.file is not None else SqliteLookup(source)
