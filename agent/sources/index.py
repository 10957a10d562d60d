"""Index events over HTTP: `POST /v1/index`, answered when they are counted and durable."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from aiohttp import hdrs, web

from agent.counters import CounterKey
from agent.indexing.event import IndexEvent, decode
from agent.indexing.indexes import Outcome
from agent.ingest.bounds import TooMuch
from agent.ingest.native import Bad
from agent.intake import QueueFull, Unavailable
from agent.sources.body import READ_SECONDS, Bodies, Refused, go_on
from agent.sources.group_commit import GroupCommit

__all__ = ["PATH", "IndexEndpoint", "Indexing"]

PATH = "/v1/index"
GROUP = 1_000  # events in one shared commit
MAX_WAITING = 2_000  # events: jobs wait for their answers, so more are a mistake
MAX_REJECTED = 100  # events named in a reply; the rest are counted

Item = IndexEvent | Bad


class Indexing(Protocol):
    """Who counts events."""

    def index(
        self, events: Sequence[IndexEvent], counts: Mapping[CounterKey, float]
    ) -> list[Outcome]:
        """Durable on return, in any thread. Raises `Unavailable`."""


def _reply(status: int, body: dict[str, Any], retry_after: int | None = None) -> web.Response:
    headers = {} if retry_after is None else {hdrs.RETRY_AFTER: str(retry_after)}
    return web.json_response(body, status=status, headers=headers)


def _refuse(refused: Refused) -> web.Response:
    response = _reply(refused.status, {"error": str(refused)}, refused.retry_after)
    response.force_close()  # the rest of the body is not read
    return response


class IndexEndpoint:
    """The handler and the task behind it; `body_limit` bounds a body in bytes before and after
    decompression."""

    def __init__(
        self, instrument: Indexing, body_limit: int, read_seconds: float = READ_SECONDS
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
                if len(self._group) + len(items) > MAX_WAITING:
                    raise Refused(429, "too many index events at a time", QueueFull.retry_after)
                outcomes = await self._group.commit(items, len(items))
        except Refused as refused:
            return _refuse(refused)
        except Unavailable as error:
            return _reply(503, {"error": str(error)}, Unavailable.retry_after)
        return _answer(items, outcomes)

    def _write(self, requests: Sequence[list[Item]]) -> list[list[Outcome]]:
        """For each request, what became of its good events."""
        bad = Counter(item.reason for items in requests for item in items if isinstance(item, Bad))
        counts: dict[CounterKey, float] = {
            ("ragmeter_dead_letters_total", (("reason", reason),)): float(number)
            for reason, number in bad.items()
        }
        good = [[item for item in items if isinstance(item, IndexEvent)] for items in requests]
        done = iter(self._instrument.index([event for part in good for event in part], counts))
        return [[next(done) for _ in part] for part in good]


def _decode(body: bytes) -> list[Item]:
    try:
        return list(decode(body))
    except TooMuch as error:
        raise Refused(413, str(error)) from None


def _answer(items: list[Item], outcomes: list[Outcome]) -> web.Response:
    rejected = [(at, item) for at, item in enumerate(items) if isinstance(item, Bad)]
    found = Counter(outcomes)
    body: dict[str, Any] = {
        "accepted": found["counted"],
        "duplicates": found["duplicate"],
        "old_versions": found["old_version"],
        "rejected": len(rejected),
    }
    if rejected:
        body["errors"] = [{"index": at, **item.to_dict()} for at, item in rejected[:MAX_REJECTED]]
    return _reply(200 if outcomes else 400, body)
