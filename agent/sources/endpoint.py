"""What the endpoints for JSON items share: a body is read within bounds, decoded in a thread,
committed together with those beside it, and answered when it is durable."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar, Generic, TypeVar

from aiohttp import hdrs, web

from agent.ingest.bounds import TooMuch
from agent.ingest.native import Bad
from agent.intake import QueueFull, Unavailable
from agent.sources.body import READ_SECONDS, Bodies, Refused, go_on
from agent.sources.group_commit import GroupCommit

__all__ = ["MAX_REJECTED", "ItemsEndpoint"]

GROUP = 1_000  # items in one shared commit
MAX_REJECTED = 100  # items named in a reply; the rest are counted

Item = TypeVar("Item")
Done = TypeVar("Done")  # what became of one request's items


class ItemsEndpoint(ABC, Generic[Item, Done]):
    """The handler of a path and the task behind it that commits.

    `body_limit` bounds a body before and after decompression, in bytes; `read_seconds` is how long
    a client may take to send one.
    """

    path: ClassVar[str]
    full: ClassVar[str]
    """What the client of a 429 is told."""

    def __init__(self, body_limit: int, read_seconds: float = READ_SECONDS) -> None:
        self._bodies = Bodies(body_limit, read_seconds)
        self._group: GroupCommit[list[Item], Done] = GroupCommit(self._write, GROUP)
        self.start, self.stop = self._group.start, self._group.stop

    @abstractmethod
    def _decode(self, body: bytes) -> list[Item]:
        """The items of a body, in a thread. Raises `TooMuch`."""

    @abstractmethod
    def _write(self, requests: Sequence[list[Item]]) -> Sequence[Done]:
        """Make the items of some requests durable, in a thread. Raises `QueueFull`,
        `Unavailable`."""

    @abstractmethod
    def _answer(self, items: list[Item], done: Done) -> web.Response: ...

    def _room(self, items: list[Item]) -> bool:
        """Whether there is room for them now, beside those that wait in the group."""
        return True

    def add_to(self, app: web.Application) -> None:
        app.router.add_post(self.path, self.handle, expect_handler=self._expect)

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
                if not self._room(items):
                    raise QueueFull
                done = await self._group.commit(items, len(items))
        except TooMuch as error:
            return _refuse(Refused(413, str(error)))
        except Refused as refused:
            return _refuse(refused)
        except QueueFull:
            return _error(429, self.full, QueueFull.retry_after)
        except Unavailable as error:
            return _error(503, str(error), Unavailable.retry_after)
        return self._answer(items, done)

    @staticmethod
    def _reply(
        counts: dict[str, int], rejected: Iterable[tuple[int, Bad]], good: bool
    ) -> web.Response:
        """`counts`, the number of the rejected and the first of them, with their index in the
        body; 400 where none was good."""
        listed = list(rejected)
        body: dict[str, Any] = {**counts, "rejected": len(listed)}
        if listed:
            body["errors"] = [{"index": at, **item.to_dict()} for at, item in listed[:MAX_REJECTED]]
        return web.json_response(body, status=200 if good else 400)


def _error(status: int, message: str, retry_after: int | None = None) -> web.Response:
    headers = {} if retry_after is None else {hdrs.RETRY_AFTER: str(retry_after)}
    return web.json_response({"error": message}, status=status, headers=headers)


def _refuse(refused: Refused) -> web.Response:
    response = _error(refused.status, str(refused), refused.retry_after)
    response.force_close()  # the rest of the body is not read
    return response
