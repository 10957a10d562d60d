"""Traces over HTTP: `POST /v1/rag/traces`, answered when they are durable.

Requests that arrive together share one commit: an fsync each would cap a sidecar at a few
hundred requests a second.
"""

from __future__ import annotations

import asyncio
from typing import Any

from aiohttp import hdrs, web

from agent.ingest.bounds import MAX_ITEMS, TooMuch
from agent.ingest.native import Bad, Good, decode
from agent.intake import Item, QueueFull, Unavailable
from agent.pipeline import Instrument
from agent.sources.body import READ_SECONDS, Bodies, Refused

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


def _refuse(refused: Refused) -> web.Response:
    response = _error(refused.status, str(refused), refused.retry_after)
    response.force_close()  # the rest of the body is not read
    return response


class TracesEndpoint:
    """The handler and the task behind it that commits.

    `body_limit` bounds a body before and after decompression, `trace_limit` one trace in it, both
    in bytes; `read_seconds` is how long a client may take to send one.
    """

    def __init__(
        self,
        instrument: Instrument,
        body_limit: int,
        trace_limit: int,
        read_seconds: float = READ_SECONDS,
    ) -> None:
        self._instrument = instrument
        self._bodies = Bodies(body_limit, read_seconds)
        self._trace_limit = trace_limit
        self._waiting: list[Waiting] = []
        self._some = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def add_to(self, app: web.Application) -> None:
        app.router.add_post(PATH, self.handle, expect_handler=self._expect)

    async def _expect(self, request: web.Request) -> web.StreamResponse | None:
        """`Expect: 100-continue`: a client that asks first is told before it sends."""
        try:
            self._bodies.check_length(request)
        except Refused as refused:
            return _refuse(refused)
        if request.transport is not None:
            request.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        return None

    async def handle(self, request: web.Request) -> web.Response:
        try:
            async with self._bodies.read(request) as body:
                async with self._bodies.busy:
                    items = await asyncio.to_thread(self._decode, body)
                return await self._take(items)
        except Refused as refused:
            return _refuse(refused)

    async def _take(self, items: list[Item]) -> web.Response:
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
        """The items of a body. What the reply will not name is kept by its reason only."""
        items: list[Item] = []
        counted: dict[str, Bad] = {}
        named = 0
        try:
            for index, item in enumerate(decode(body, self._trace_limit, MAX_ITEMS)):
                if isinstance(item, Bad):
                    named += 1
                    if named <= MAX_REJECTED:
                        item = Bad(item.reason, item.errors, b"")
                    else:
                        item = counted.setdefault(item.reason, Bad(item.reason, (), b""))
                items.append((item, index))
        except TooMuch as error:
            raise Refused(413, str(error)) from None
        return items

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
