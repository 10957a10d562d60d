"""Read HTTP request bodies within bounds, and commit concurrent requests in one transaction."""

from __future__ import annotations

import asyncio
import contextlib
import math
import queue
import threading
import zlib
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import aiohttp
from aiohttp import hdrs, web
from aiohttp.http_exceptions import HttpProcessingError

from ragmeter.core.child_call import call_in_child, trim_memory
from ragmeter.core.errors import QueueFull, Unavailable, UsageError

READ_SECONDS = 30.0  # for a whole body: 20 MB at 5.6 Mbit/s
_IN_FLIGHT = 4  # bodies of the largest size in memory at a time, over all requests
_SHARE_OF_SMALL = 8  # one such part more is for small bodies alone
_SMALL = 64  # so many of them are one body of the largest size: 320 KB of 20 MB
_MAX_MEMBERS = 1_000  # of one gzip body: a hundred bytes of work each, whatever is in them
_SLICE = 64 * 2**10  # bytes given to zlib at a time: it copies the rest at a member's end
# Bodies up to this size are unpacked and decoded two at a time, larger ones one at a time beside
# them: more would only take turns, and a small body never waits for a large one.
_SHORT_BODY = 64 * 2**10
_UNPACKERS = 2
_STOP_SECONDS = 5.0  # for the last commit
_RETRY_SECONDS = 2  # after which a body that was too slow, or one too many, is sent again

# A body of traces up to this size is decoded where it was read: a thread would take 0.2 ms more,
# ten times what a trace of 5 KB takes to decode. Of empty objects it holds the loop for 50 ms.
SMALL_BODY = 16 * 2**10

# A body has to make progress: 50 KB in 5 s, or all of it. A client behind a modem is faster.
_STRIDE = 50_000
_STRIDE_SECONDS = 5.0
# One that makes less than this gives its place to another body after a second.
_SLOW = _STRIDE / _STRIDE_SECONDS
_STALLED_SECONDS = 1.0

# Bytes from which a body is decoded in another process and alone: below, no step of decoding holds
# the interpreter's lock for more than some 50 ms, and to start the process would take longer.
LARGE_BODY = 2 * 2**20

_T = TypeVar("_T")
_R = TypeVar("_R")


class RequestRefused(UsageError):
    """A request that its sender has to mend; it is answered with `status` and not read on."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class RequestDeferred(Unavailable):
    """A request to send again later; it is answered with `status` and not read on."""

    def __init__(self, status: int, message: str, retry_after: float) -> None:
        super().__init__(message)
        self.status = status
        self.retry_after = retry_after


def error_response(status: int, message: str) -> web.Response:
    """Return a JSON response with an error message."""
    return web.json_response({"error": message}, status=status)


def refuse_request(refused: RequestRefused) -> web.Response:
    """Return the JSON response to a request that its sender has to mend."""
    response = error_response(refused.status, str(refused))
    response.force_close()  # the rest of the body is not read
    return response


def defer_request(error: Unavailable) -> web.Response:
    """Return the JSON response to a request to send again later."""
    response = error_response(deferral_status(error), str(error))
    finish_deferral(response, error)
    return response


def deferral_status(error: Unavailable) -> int:
    """Return the HTTP status of a request to send again later."""
    if isinstance(error, RequestDeferred):
        return error.status
    return 429 if isinstance(error, QueueFull) else 503


def finish_deferral(response: web.Response, error: Unavailable) -> None:
    """Have a response say when to send the request again, and close if it was not read whole."""
    if error.retry_after is not None:
        response.headers[hdrs.RETRY_AFTER] = str(math.ceil(error.retry_after))
    if isinstance(error, RequestDeferred):
        response.force_close()  # the rest of the body is not read


async def defer_continue(request: web.Request) -> None:
    """Leave `Expect: 100-continue` to `BodyReader`: aiohttp asks before the listener's guard."""


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


def inflate(body: bytes | bytearray, limit: int) -> bytes:
    """Decompress a body in deflate, with zlib's header or without, as `gunzip` does."""
    with_header = len(body) > 1 and body[0] & 0x0F == 8 and (body[0] << 8 | body[1]) % 31 == 0
    inflater = zlib.decompressobj(wbits=15 if with_header else -15)
    try:
        out = inflater.decompress(body, limit + 1)
    except zlib.error as error:
        raise RequestRefused(400, f"broken deflate: {error}") from None
    if inflater.unconsumed_tail or len(out) > limit:
        raise RequestRefused(413, f"the body is over the limit of {limit} (limits.body_bytes)")
    if not inflater.eof or inflater.unused_data:
        raise RequestRefused(400, "broken deflate: the stream is cut off, or more follows it")
    return out


def expand_zstd(body: bytes | bytearray, limit: int) -> bytes:
    """Decompress a body in zstd, as `gunzip` does."""
    try:
        import zstandard
    except ImportError:
        raise RequestRefused(
            415, "Content-Encoding 'zstd': send gzip or deflate, or install the package zstandard"
        ) from None
    out = bytearray()
    try:
        with zstandard.ZstdDecompressor(max_window_size=2**27).stream_reader(
            bytes(body), read_across_frames=True
        ) as reader:
            while piece := reader.read(_SLICE):
                out += piece
                if len(out) > limit:
                    raise RequestRefused(
                        413, f"the body is over the limit of {limit} (limits.body_bytes)"
                    )
    except zstandard.ZstdError as error:
        raise RequestRefused(400, f"broken zstd: {error}") from None
    return bytes(out)


_DECOMPRESSORS: dict[str, Callable[[bytes | bytearray, int], bytes]] = {
    "gzip": gunzip,
    "x-gzip": gunzip,
    "deflate": inflate,
    "zlib": inflate,  # the Collector's other name for it
    "zstd": expand_zstd,
}


class _Transfer:
    """A body that is on its way, or in memory."""

    def __init__(self, peer: str, now: float) -> None:
        self.peer = peer
        self.held = 0
        self.deadline: asyncio.Timeout | None = None  # while it is read
        self.evicted = False
        self._stride = 0
        self._since = now

    def advance(self, size: int, now: float) -> None:
        """Note bytes that have come; enough of them put the deadline off."""
        self._stride += size
        if self._stride >= _STRIDE:
            self._stride = 0
            self._since = now

    @property
    def due(self) -> float:
        """The time by which it has to make progress."""
        return self._since + _STRIDE_SECONDS

    def rate(self, now: float) -> float:
        """Return the bytes a second of late."""
        return self._stride / max(now - self._since, 1e-3)

    def is_stalled(self, now: float) -> bool:
        """Return whether it may be evicted for any other."""
        return now - self._since > _STALLED_SECONDS and self.rate(now) < _SLOW

    def evict(self, now: float) -> None:
        """Stop reading it."""
        if self.deadline is None:
            raise RuntimeError("deadline is missing")
        self.evicted = True
        self.deadline.reschedule(now)


class BodyReader:
    """Reads request bodies within bounds, which all endpoints of a port share.

    Where memory is short, a body that has stalled gives way first, then the slowest one of a peer
    that holds more than the newcomer's.

    Args:
        limit: The most bytes of a body, before and after decompression; all bodies together have
            four times as many.
        seconds: The most seconds that a client may take to send one.
    """

    def __init__(self, limit: int, seconds: float = READ_SECONDS) -> None:
        self._limit = limit
        self._seconds = seconds
        self._transfers: set[_Transfer] = set()
        self._short = asyncio.Semaphore(_UNPACKERS)
        self._long = asyncio.Semaphore(1)
        self._large = asyncio.Lock()

    def _too_large(self, what: str) -> RequestRefused:
        return RequestRefused(413, f"{what} over the limit of {self._limit} (limits.body_bytes)")

    @contextlib.asynccontextmanager
    async def read(self, request: web.Request) -> AsyncIterator[bytes]:
        """Give the decompressed body; its bytes count as held until the context ends.

        Of large bodies one at a time is given, so that what they are decoded to is in memory once.

        Raises:
            RequestRefused: The body is broken or too large.
            RequestDeferred: It is too slow, or there are too many others.
        """
        if request.content_length is not None and request.content_length > self._limit:
            raise self._too_large(f"{request.content_length} bytes are")
        if hdrs.EXPECT in request.headers and request.transport is not None:
            request.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        transfer = _Transfer(request.remote or "", asyncio.get_running_loop().time())
        self._transfers.add(transfer)
        try:
            body = await self._receive(request, transfer)
            encoding = request.headers.get(hdrs.CONTENT_ENCODING, "").strip().lower()
            encoding = encoding or "identity"
            if decompress := _DECOMPRESSORS.get(encoding):
                async with self._lane(body):
                    text = await asyncio.to_thread(decompress, body, self._limit)
                    self._hold(transfer, max(0, len(text) - len(body)))
            elif encoding == "identity":
                text = bytes(body)
            else:
                raise RequestRefused(
                    415, f"Content-Encoding {encoding[:40]!r}: send gzip, deflate or zstd"
                )
            del body
            if len(text) < LARGE_BODY:
                yield text
                return
            async with self._large:
                if request.transport is None:  # the client has gone while it waited
                    raise RequestDeferred(503, "the connection is closed", 1)
                try:
                    yield text
                finally:
                    await asyncio.to_thread(trim_memory)
        finally:
            self._transfers.discard(transfer)

    async def _receive(self, request: web.Request, transfer: _Transfer) -> bytearray:
        body = bytearray()
        content = request.content
        now = asyncio.get_running_loop().time
        end = now() + self._seconds
        try:
            if content.is_eof() and content.exception() is None:  # it came with its head
                return self._take_whole(content, transfer)
            async with asyncio.timeout_at(min(end, transfer.due)) as transfer.deadline:
                async for chunk in content.iter_any():
                    if len(body) + len(chunk) > self._limit:
                        raise self._too_large("the body is")
                    self._hold(transfer, len(chunk))
                    body += chunk
                    transfer.advance(len(chunk), now())
                    if not transfer.evicted and not content.is_eof():
                        transfer.deadline.reschedule(min(end, transfer.due))
        except TimeoutError:
            if transfer.evicted:
                raise self._too_many() from None
            text = f"no whole body within {self._seconds:g} seconds"
            if now() < end:
                text = f"fewer than {_STRIDE} bytes of the body within {_STRIDE_SECONDS:g} seconds"
            raise RequestDeferred(503, text, _RETRY_SECONDS) from None
        # aiohttp raises a RuntimeError where the client has broken off while it was read
        except (aiohttp.ClientError, HttpProcessingError, ConnectionError, RuntimeError) as error:
            if request.transport is None or isinstance(error, RuntimeError):
                raise RequestDeferred(503, "the connection is closed", 1) from None
            # the error's own text quotes the body
            raise RequestRefused(400, f"broken body: {type(error).__name__}") from None
        finally:
            transfer.deadline = None
        return body

    def _take_whole(self, content: aiohttp.StreamReader, transfer: _Transfer) -> bytearray:
        """Return a body that is here whole: no deadline has to be set for it."""
        body = bytearray(content.read_nowait())
        if len(body) > self._limit:
            raise self._too_large("the body is")
        self._hold(transfer, len(body))
        return body

    def _too_many(self) -> RequestDeferred:
        return RequestDeferred(429, "too many bodies at a time", _RETRY_SECONDS)

    def _hold(self, transfer: _Transfer, size: int) -> None:
        """Count bytes of a body as held, or raise `RequestDeferred`."""
        bound = _IN_FLIGHT * self._limit
        if transfer.held + size <= self._limit // _SMALL:
            bound += bound // _SHARE_OF_SMALL
        while sum(one.held for one in self._transfers) + size > bound:
            if not self._make_room(transfer):
                raise self._too_many()
        transfer.held += size

    def _make_room(self, newcomer: _Transfer) -> bool:
        """Evict a body that is being read; return False if none has to give way."""
        now = asyncio.get_running_loop().time()
        peers: Counter[str] = Counter()
        for one in self._transfers:
            peers[one.peer] += one.held
        others = [
            one
            for one in self._transfers
            if one is not newcomer
            and one.deadline is not None
            and (one.is_stalled(now) or peers[one.peer] > 2 * peers[newcomer.peer] + self._limit)
        ]
        slowest = min(
            others, key=lambda one: (not one.is_stalled(now), one.rate(now)), default=None
        )
        if slowest is None:
            return False
        self._transfers.discard(slowest)
        slowest.evict(now)
        return True

    def _lane(self, body: bytes | bytearray) -> asyncio.Semaphore:
        return self._short if len(body) <= _SHORT_BODY else self._long

    async def decode(self, function: Callable[[bytes], _T], body: bytes) -> _T:
        """Return the result of a function that decodes a body below `LARGE_BODY`, in a thread."""
        async with self._lane(body):
            return await asyncio.to_thread(function, body)

    async def decode_apart(
        self, function: Callable[..., Iterable[_T]], *arguments: Any
    ) -> list[_T]:
        """Return the items that a function makes of a large body, in another process.

        Raises:
            ChildCallFailed: The process did not end well.
        """
        return await asyncio.to_thread(call_in_child, function, *arguments)


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
