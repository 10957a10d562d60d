"""Traces over HTTP: `POST /v1/rag/traces`, answered when they are durable.

Requests that arrive together share one commit: an fsync each would cap a sidecar at a few
hundred requests a second.
"""

from __future__ import annotations

import asyncio
import zlib
from typing import Any

from aiohttp import hdrs, web

from agent.ingest.native import Bad, Good, decode
from agent.intake import Item, QueueFull, Unavailable
from agent.pipeline import Instrument

__all__ = ["TracesEndpoint"]

PATH = "/v1/rag/traces"
SOURCE = "http"
GROUP = 1_000  # traces in one shared commit
MAX_REJECTED = 100  # items named in a reply; the rest are counted

Waiting = tuple[list[Item], asyncio.Future[tuple[bool, ...]]]


def _reply(status: int, body: dict[str, Any], retry_after: int | None = None) -> web.Response:
    headers = {} if retry_after is None else {hdrs.RETRY_AFTER: str(retry_after)}
    return web.json_response(body, status=status, headers=headers)


def _error(status: int, message: str, retry_after: int | None = None) -> web.Response:
    return _reply(status, {"error": message}, retry_after)


class _TooLarge(Exception):
    pass


def _gunzip(body: bytes, limit: int) -> bytes:
    """The decompressed body. Never makes more than `limit` bytes: a bomb stops there."""
    out = bytearray()
    rest = body
    while rest:
        inflater = zlib.decompressobj(wbits=31)
        out += inflater.decompress(rest, limit + 1 - len(out))
        if inflater.unconsumed_tail or len(out) > limit:
            raise _TooLarge
        if not inflater.eof:
            raise zlib.error("the stream is cut off")
        rest = inflater.unused_data
    return bytes(out)


class TracesEndpoint:
    """The handler and the task behind it that commits.

    `body_limit` bounds a body before and after decompression, `trace_limit` one trace in it.
    """

    def __init__(self, instrument: Instrument, body_limit: int, trace_limit: int) -> None:
        self._instrument = instrument
        self._body_limit = body_limit
        self._trace_limit = trace_limit
        self._waiting: list[Waiting] = []
        self._some = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def add_to(self, app: web.Application) -> None:
        app.router.add_post(PATH, self.handle, expect_handler=self._expect)

    def _over(self, request: web.Request) -> web.Response | None:
        if request.content_length is None or request.content_length <= self._body_limit:
            return None
        return self._refuse(f"{request.content_length} bytes are over the limit")

    def _refuse(self, what: str) -> web.Response:
        response = _error(413, f"{what} of {self._body_limit} (limits.body_bytes)")
        response.force_close()  # the rest of the body is not read
        return response

    async def _expect(self, request: web.Request) -> web.StreamResponse | None:
        """`Expect: 100-continue`: a client that asks first is told before it sends."""
        response = self._over(request)
        if response is None and request.transport is not None:
            request.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        return response

    async def _read(self, request: web.Request) -> bytes:
        body = bytearray()
        async for chunk in request.content.iter_any():
            body += chunk
            if len(body) > self._body_limit:
                raise _TooLarge
        encoding = request.headers.get(hdrs.CONTENT_ENCODING, "identity").strip().lower()
        if encoding == "gzip":
            return await asyncio.to_thread(_gunzip, bytes(body), self._body_limit)
        if encoding != "identity":
            raise web.HTTPUnsupportedMediaType(text=f"Content-Encoding {encoding!r}: send gzip")
        return bytes(body)

    async def handle(self, request: web.Request) -> web.Response:
        refused = self._over(request)
        if refused is not None:
            return refused
        try:
            body = await self._read(request)
        except _TooLarge:
            return self._refuse("the body is over the limit")
        except zlib.error as error:
            return _error(400, f"broken gzip: {error}")
        except web.HTTPUnsupportedMediaType as error:
            return _error(415, error.text or "")
        items = await asyncio.to_thread(self._decode, body)
        if self._instrument.room() < sum(len(waiting) for waiting, _ in self._waiting) + 1:
            return _error(429, "the queue is full", QueueFull.retry_after)
        try:
            fresh = await self._commit(items)
        except QueueFull:
            return _error(429, "the queue is full", QueueFull.retry_after)
        except Unavailable as error:
            return _error(503, str(error), 5)
        return self._answer(items, fresh)

    def _decode(self, body: bytes) -> list[Item]:
        return [(item, index) for index, item in enumerate(decode(body, self._trace_limit))]

    @staticmethod
    def _answer(items: list[Item], fresh: tuple[bool, ...]) -> web.Response:
        rejected = [(item, index) for item, index in items if isinstance(item, Bad)]
        body: dict[str, Any] = {
            "accepted": sum(fresh),
            "duplicates": len(fresh) - sum(fresh),
            "rejected": len(rejected),
        }
        if rejected:
            body["errors"] = [
                {"index": index, **item.to_dict()} for item, index in rejected[:MAX_REJECTED]
            ]
        return _reply(200 if fresh else 400, body)

    # One commit for all that wait ---------------------------------------------------------------

    async def _commit(self, items: list[Item]) -> tuple[bool, ...]:
        future: asyncio.Future[tuple[bool, ...]] = asyncio.get_running_loop().create_future()
        self._waiting.append((items, future))
        self._some.set()
        return await future

    async def start(self) -> None:
        self._task = asyncio.create_task(self._commit_waiting())

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _commit_waiting(self) -> None:
        while True:
            await self._some.wait()
            self._some.clear()
            while self._waiting:
                group: list[Waiting] = []
                size = 0
                while self._waiting and (not group or size + len(self._waiting[0][0]) <= GROUP):
                    group.append(self._waiting.pop(0))
                    size += len(group[-1][0])
                await self._commit_group(group)

    async def _commit_group(self, group: list[Waiting]) -> None:
        together = [item for items, _ in group for item in items]
        try:
            done = await asyncio.to_thread(self._instrument.accept, together, SOURCE, live=True)
        except Exception as error:
            for _, future in group:
                if not future.done():
                    future.set_exception(error)
            return
        start = 0
        for items, future in group:
            end = start + sum(isinstance(item, Good) for item, _ in items)
            if not future.done():  # the client may have gone; its traces are kept all the same
                future.set_result(done.fresh[start:end])
            start = end
