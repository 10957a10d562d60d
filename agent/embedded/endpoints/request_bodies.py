"""Read HTTP request bodies within bounds, and commit concurrent requests in one transaction."""

from __future__ import annotations

import asyncio
import contextlib
import zlib
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Generic, TypeVar

import aiohttp
from aiohttp import hdrs, web
from aiohttp.http_exceptions import HttpProcessingError

from ragmeter.core.errors import RagmeterError
from ragmeter.embedded.intake import QueueFull

READ_SECONDS = 30.0  # for a whole body: 20 MB at 5.6 Mbit/s
_IN_FLIGHT = 4  # bodies of the largest size in memory at a time, over all requests
_MAX_MEMBERS = 1_000  # of one gzip body: a hundred bytes of work each, whatever is in them
_SLICE = 64 * 2**10  # bytes given to zlib at a time: it copies the rest at a member's end
_UNPACKERS = 2  # bodies unpacked or decoded at a time: more would only take turns

_T = TypeVar("_T")
_R = TypeVar("_R")


class RequestRefused(RagmeterError):
    """A request is answered with `status` and not read on."""

    def __init__(self, status: int, message: str, retry_after: int | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.retry_after = retry_after


def error_response(status: int, message: str, retry_after: int | None = None) -> web.Response:
    """Return a JSON response with an error message."""
    headers = {} if retry_after is None else {hdrs.RETRY_AFTER: str(retry_after)}
    return web.json_response({"error": message}, status=status, headers=headers)


def refuse_request(refused: RequestRefused) -> web.Response:
    """Return the JSON response to a refused request."""
    response = error_response(refused.status, str(refused), refused.retry_after)
    response.force_close()  # the rest of the body is not read
    return response


def send_continue(request: web.Request) -> None:
    """Tell a client that expects `100-continue` to send its body."""
    if request.transport is not None:
        request.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")


def gunzip(body: bytes | bytearray, limit: int) -> bytes:
    """Decompress a body; `RequestRefused` stops a bomb at `limit` bytes."""
    out = bytearray()
    whole = memoryview(body)
    at = members = 0
    inflater = zlib.decompressobj(wbits=31)
    complete = True
    while at < len(whole):
        piece = whole[at : at + _SLICE]
        try:
            out += inflater.decompress(piece, limit + 1 - len(out))
        except zlib.error as error:
            raise RequestRefused(400, f"broken gzip: {error}") from None
        if inflater.unconsumed_tail or len(out) > limit:
            raise RequestRefused(413, f"the body is over the limit of {limit} (limits.body_bytes)")
        at += len(piece) - len(inflater.unused_data)
        complete = inflater.eof
        if complete:
            members += 1
            if members > _MAX_MEMBERS:
                raise RequestRefused(400, f"more than {_MAX_MEMBERS} gzip members in one body")
            inflater = zlib.decompressobj(wbits=31)
    if not complete:
        raise RequestRefused(400, "broken gzip: the stream is cut off")
    return bytes(out)


class BodyReader:
    """Reads request bodies within bounds.

    Args:
        limit: The most bytes of a body, before and after decompression; all bodies together have
            four times as many.
        seconds: The most seconds that a client may take to send one.

    Attributes:
        busy: Hold it while a body is decoded.
    """

    def __init__(self, limit: int, seconds: float = READ_SECONDS) -> None:
        self._limit = limit
        self._seconds = seconds
        self._held = 0
        self.busy = asyncio.Semaphore(_UNPACKERS)

    def check_length(self, request: web.Request) -> None:
        """Raise `RequestRefused` if the Content-Length is too large."""
        if request.content_length is not None and request.content_length > self._limit:
            raise self._too_large(f"{request.content_length} bytes are")

    def _too_large(self, what: str) -> RequestRefused:
        return RequestRefused(413, f"{what} over the limit of {self._limit} (limits.body_bytes)")

    @contextlib.asynccontextmanager
    async def read(self, request: web.Request) -> AsyncIterator[bytes]:
        """Give the decompressed body; its bytes count as held until the context ends.

        Raises:
            RequestRefused: The body is broken, too large or too slow.
        """
        self.check_length(request)
        held = 0

        def hold(size: int) -> None:
            nonlocal held
            if self._held + size > _IN_FLIGHT * self._limit:
                raise RequestRefused(429, "too many bodies at a time", QueueFull.retry_after)
            self._held += size
            held += size

        try:
            body = bytearray()
            try:
                async with asyncio.timeout(self._seconds):
                    async for chunk in request.content.iter_any():
                        if len(body) + len(chunk) > self._limit:
                            raise self._too_large("the body is")
                        hold(len(chunk))
                        body += chunk
            except TimeoutError:
                raise RequestRefused(
                    408, f"no whole body within {self._seconds:g} seconds"
                ) from None
            except (aiohttp.ClientError, HttpProcessingError, ConnectionError) as error:
                raise RequestRefused(400, f"broken body: {error}") from None
            encoding = request.headers.get(hdrs.CONTENT_ENCODING, "identity").strip().lower()
            if encoding == "gzip":
                async with self.busy:
                    text = await asyncio.to_thread(gunzip, body, self._limit)
                    hold(max(0, len(text) - len(body)))
            elif encoding == "identity":
                text = bytes(body)
            else:
                raise RequestRefused(415, f"Content-Encoding {encoding[:40]!r}: send gzip")
            del body
            yield text
        finally:
            self._held -= held


class GroupCommit(Generic[_T, _R]):
    """Commits of concurrent requests in one transaction, of at most `most` in size.

    `write` makes the items of several requests durable, in a thread; it returns a result for each.
    """

    def __init__(self, write: Callable[[Sequence[_T]], Sequence[_R]], most: int) -> None:
        self._write = write
        self._most = most
        self._waiting: list[tuple[_T, int, asyncio.Future[_R]]] = []
        self._some = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def __len__(self) -> int:
        """Return the size of the requests that wait."""
        return sum(size for _, size, _ in self._waiting)

    async def commit(self, item: _T, size: int) -> _R:
        """Return the result of `write` for an item of this size, or raise its exception."""
        future: asyncio.Future[_R] = asyncio.get_running_loop().create_future()
        self._waiting.append((item, size, future))
        self._some.set()
        return await future

    async def start(self) -> None:
        """Start the task that commits."""
        self._task = asyncio.create_task(self._run())

    async def stop(self) -> None:
        """Cancel the task that commits."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        while True:
            await self._some.wait()
            self._some.clear()
            while self._waiting:
                group = [self._waiting.pop(0)]
                size = group[0][1]
                while self._waiting and size + self._waiting[0][1] <= self._most:
                    group.append(self._waiting.pop(0))
                    size += group[-1][1]
                await self._commit(group)

    async def _commit(self, group: Sequence[tuple[_T, int, asyncio.Future[_R]]]) -> None:
        try:
            results = await asyncio.to_thread(self._write, [item for item, _, _ in group])
        except Exception as error:
            for _, _, future in group:
                if not future.done():
                    future.set_exception(error)
            return
        for (_, _, future), result in zip(group, results, strict=True):
            if not future.done():  # the client may have gone; its items are durable all the same
                future.set_result(result)
