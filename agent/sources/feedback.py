"""Labels over HTTP: `POST /v1/feedback`, answered when they are durable."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Protocol

from aiohttp import hdrs, web

from agent.feedback.labels import Feedback
from agent.ingest.bounds import TooMuch
from agent.ingest.feedback import decode
from agent.ingest.native import Bad
from agent.intake import QueueFull, Unavailable
from agent.sources.body import READ_SECONDS, Bodies, Refused, go_on
from agent.sources.group_commit import GroupCommit

__all__ = ["PATH", "FeedbackEndpoint", "Hearing"]

PATH = "/v1/feedback"
SOURCE = "http"
GROUP = 1_000  # items in one shared commit
MAX_REJECTED = 100  # items named in a reply; the rest are counted

Item = Feedback | Bad


class Hearing(Protocol):
    """Who takes labels."""

    def hear(self, items: Sequence[Item], source: str, *, live: bool) -> int:
        """How many of them are durable now; in any thread. Raises `QueueFull`, `Unavailable`."""


def _reply(status: int, body: dict[str, Any], retry_after: int | None = None) -> web.Response:
    headers = {} if retry_after is None else {hdrs.RETRY_AFTER: str(retry_after)}
    return web.json_response(body, status=status, headers=headers)


def _refuse(refused: Refused) -> web.Response:
    response = _reply(refused.status, {"error": str(refused)}, refused.retry_after)
    response.force_close()  # the rest of the body is not read
    return response


class FeedbackEndpoint:
    """The handler and the task behind it; `body_limit` bounds a body in bytes before and after
    decompression."""

    def __init__(
        self, instrument: Hearing, body_limit: int, read_seconds: float = READ_SECONDS
    ) -> None:
        self._instrument = instrument
        self._bodies = Bodies(body_limit, read_seconds)
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
                    items = await asyncio.to_thread(_decode, body)
                await self._group.commit(items, len(items))
        except Refused as refused:
            return _refuse(refused)
        except QueueFull:
            error = {"error": "too much feedback waits to be counted"}
            return _reply(429, error, QueueFull.retry_after)
        except Unavailable as unavailable:
            return _reply(503, {"error": str(unavailable)}, Unavailable.retry_after)
        return _answer(items)

    def _write(self, requests: Sequence[list[Item]]) -> list[None]:
        together = [item for items in requests for item in items]
        self._instrument.hear(together, SOURCE, live=True)
        return [None] * len(requests)


def _decode(body: bytes) -> list[Item]:
    try:
        return list(decode(body))
    except TooMuch as error:
        raise Refused(413, str(error)) from None


def _answer(items: list[Item]) -> web.Response:
    rejected = [(at, item) for at, item in enumerate(items) if isinstance(item, Bad)]
    accepted = len(items) - len(rejected)
    body: dict[str, Any] = {"accepted": accepted, "rejected": len(rejected)}
    if rejected:
        body["errors"] = [{"index": at, **item.to_dict()} for at, item in rejected[:MAX_REJECTED]]
    return _reply(200 if accepted else 400, body)
