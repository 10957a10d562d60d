"""Traces over HTTP: `POST /v1/rag/traces`, answered when they are durable."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from aiohttp import hdrs, web

from agent.ingest.bounds import MAX_ITEMS, TooMuch
from agent.ingest.native import Bad, Good, decode
from agent.intake import Item, QueueFull, Unavailable
from agent.pipeline import Instrument
from agent.sources.body import READ_SECONDS, Bodies, Refused, go_on
from agent.sources.group_commit import GroupCommit

__all__ = ["TracesEndpoint"]

PATH = "/v1/rag/traces"
SOURCE = "http"
GROUP = 1_000  # traces in one shared commit
MAX_REJECTED = 100  # items named in a reply; the rest are counted


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
        self._group = GroupCommit(self._write, GROUP)
        self.start, self.stop = self._group.start, self._group.stop

    def add_to(self, app: web.Application) -> None:
        app.router.add_post(PATH, self.handle, expect_handler=self._expect)

    async def _expect(self, request: web.Request) -> web.StreamResponse | None:
        """`Expect: 100-continue`: a client that asks first is told before it sends."""
        try:
            self._bodies.check_length(request)
        except Refused as refused:
            return _refuse(refused)
        go_on(request)
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
        if self._instrument.room() < len(self._group) + 1:
            return _error(429, "the queue is full", QueueFull.retry_after)
        try:
            fresh = await self._group.commit(items, len(items))
        except QueueFull:
            return _error(429, "the queue is full", QueueFull.retry_after)
        except Unavailable as error:
            return _error(503, str(error), Unavailable.retry_after)
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

    def _write(self, requests: Sequence[list[Item]]) -> list[tuple[bool, ...]]:
        """For each request, which of its good items were new."""
        together = [item for items in requests for item in items]
        fresh = self._instrument.accept(together, SOURCE, live=True).fresh
        out = []
        start = 0
        for items in requests:
            end = start + sum(isinstance(item, Good) for item, _ in items)
            out.append(fresh[start:end])
            start = end
        return out
