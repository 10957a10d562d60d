"""Read HTTP request bodies within bounds, and commit concurrent requests in one transaction."""

from __future__ import annotations

import asyncio
import contextlib
import queue
import threading
import zlib
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
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
_STOP_SECONDS = 5.0  # for the last commit

# A body up to this size is decoded where it was read: to hand it to a thread takes 0.2 ms, which is
# ten times as long as to decode a trace of 5 KB.
SMALL_BODY = 64 * 2**10

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


@dataclass(frozen=True, slots=True)
class _Request(Generic[_T, _R]):
    item: _T
    size: int
    result: asyncio.Future[_R]


class GroupCommit(Generic[_T, _R]):
    """Commits of concurrent requests in one transaction, of at most `most` in size.

    `write` makes the items of several requests durable and returns a result for each. It runs in a
    thread of its own: to hand each group to a pool of threads costs as much as to write it.
    """

    def __init__(self, write: Callable[[Sequence[_T]], Sequence[_R]], most: int) -> None:
        self._write = write
        self._most = most
        self._requests: queue.SimpleQueue[_Request[_T, _R] | None] = queue.SimpleQueue()
        self._put = self._taken = 0  # sizes; each is changed by one thread alone
        self._thread = threading.Thread(target=self._run, name="ragmeter-intake", daemon=True)

    def __len__(self) -> int:
        """Return the size of the requests that wait."""
        return self._put - self._taken

    async def commit(self, item: _T, size: int) -> _R:
        """Return the result of `write` for an item of this size, or raise its exception."""
        result: asyncio.Future[_R] = self._loop.create_future()
        self._put += size
        self._requests.put(_Request(item, size, result))
        return await result

    async def start(self) -> None:
        """Start the thread that commits."""
        self._loop = asyncio.get_running_loop()
        self._thread.start()

    async def stop(self) -> None:
        """Commit what waits, and end the thread."""
        if self._thread.ident is not None:
            self._requests.put(None)
            await asyncio.to_thread(self._thread.join, _STOP_SECONDS)

    def _run(self) -> None:
        waiting: deque[_Request[_T, _R] | None] = deque()
        while True:
            if not waiting:
                waiting.append(self._requests.get())
            while not self._requests.empty():
                waiting.append(self._requests.get())
            group: list[_Request[_T, _R]] = []
            size = 0
            while waiting and (request := waiting[0]) is not None:
                if group and size + request.size > self._most:
                    break
                group.append(request)
                size += request.size
                waiting.popleft()
            if not group:
                return
            self._taken += size
            self._commit(group)

    def _commit(self, group: Sequence[_Request[_T, _R]]) -> None:
        results: Sequence[_R] | Exception
        try:
            results = self._write([request.item for request in group])
        except Exception as error:  # for those who wait
            results = error
        with contextlib.suppress(RuntimeError):  # the loop has ended, and nobody waits
            self._loop.call_soon_threadsafe(_resolve, group, results)


def _resolve(group: Sequence[_Request[_T, _R]], results: Sequence[_R] | Exception) -> None:
    for number, request in enumerate(group):
        if request.result.done():  # the client may have gone; its items are durable all the same
            continue
        if isinstance(results, Exception):
            request.result.set_exception(results)
        else:
            request.result.set_result(results[number])
