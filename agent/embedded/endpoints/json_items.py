"""The HTTP endpoints for JSON items: `/v1/rag/traces`, `/v1/feedback` and `/v1/index`.

What the endpoints for JSON items share: a body is read within bounds, decoded in a thread,
committed together with those beside it, and answered when it is durable.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar, Generic, Protocol, TypeVar

from aiohttp import hdrs, web

from ragmeter.aggregate.index_events import IndexEvent, decode_index_events
from ragmeter.aggregate.indexes import IndexOutcome
from ragmeter.core.counters import CounterKey
from ragmeter.core.feedback import Feedback
from ragmeter.embedded.agent import EmbeddedAgent
from ragmeter.embedded.endpoints.request_bodies import (
    READ_SECONDS,
    BodyReader,
    GroupCommit,
    RequestRefused,
    send_continue,
)
from ragmeter.embedded.intake import IntakeItem, QueueFull, StateUnavailable
from ragmeter.ingest.feedback import decode_feedback_body
from ragmeter.ingest.native import (
    MAX_ITEMS,
    BodyLimitExceeded,
    DecodedTrace,
    DecodeFailure,
    decode_trace_body,
)

_GROUP = 1_000  # items in one shared commit
MAX_REJECTED = 100  # items named in a reply; the rest are counted

_ItemT = TypeVar("_ItemT")
_DoneT = TypeVar("_DoneT")  # what became of one request's items


class _JsonItemsEndpoint(ABC, Generic[_ItemT, _DoneT]):
    """The handler of a path and the task behind it that commits.

    `body_limit` bounds a body before and after decompression, in bytes; `read_seconds` is how long
    a client may take to send one.
    """

    path: ClassVar[str]
    full: ClassVar[str]
    """What the client of a 429 is told."""

    def __init__(self, body_limit: int, read_seconds: float = READ_SECONDS) -> None:
        self._bodies = BodyReader(body_limit, read_seconds)
        self._group: GroupCommit[list[_ItemT], _DoneT] = GroupCommit(self._write, _GROUP)
        self.start, self.stop = self._group.start, self._group.stop

    @abstractmethod
    def _decode(self, body: bytes) -> list[_ItemT]:
        """The items of a body, in a thread. Raises `TooMuch`."""

    @abstractmethod
    def _write(self, requests: Sequence[list[_ItemT]]) -> Sequence[_DoneT]:
        """Make the items of some requests durable, in a thread. Raises `QueueFull`,
        `Unavailable`."""

    @abstractmethod
    def _answer(self, items: list[_ItemT], done: _DoneT) -> web.Response: ...

    def _room(self, items: list[_ItemT]) -> bool:
        """Whether there is room for them now, beside those that wait in the group."""
        return True

    def add_to(self, app: web.Application) -> None:
        app.router.add_post(self.path, self.handle, expect_handler=self._expect)

    async def _expect(self, request: web.Request) -> web.StreamResponse | None:
        """`Expect: 100-continue`: a client that asks first is told before it sends."""
        try:
            self._bodies.check_length(request)
        except RequestRefused as refused:
            return _refuse(refused)
        send_continue(request)
        return None

    async def handle(self, request: web.Request) -> web.Response:
        try:
            async with self._bodies.read(request) as body:
                async with self._bodies.busy:
                    items = await asyncio.to_thread(self._decode, body)
                if not self._room(items):
                    raise QueueFull
                done = await self._group.commit(items, len(items))
        except BodyLimitExceeded as error:
            return _refuse(RequestRefused(413, str(error)))
        except RequestRefused as refused:
            return _refuse(refused)
        except QueueFull:
            return _error(429, self.full, QueueFull.retry_after)
        except StateUnavailable as error:
            return _error(503, str(error), StateUnavailable.retry_after)
        return self._answer(items, done)

    @staticmethod
    def _reply(
        counts: dict[str, int], rejected: Iterable[tuple[int, DecodeFailure]], good: bool
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


def _refuse(refused: RequestRefused) -> web.Response:
    response = _error(refused.status, str(refused), refused.retry_after)
    response.force_close()  # the rest of the body is not read
    return response


TRACES_PATH = "/v1/rag/traces"
_TRACES_SOURCE = "http"


class TracesEndpoint(_JsonItemsEndpoint[IntakeItem, tuple[bool, ...]]):
    """`trace_limit` bounds one trace of a body, in bytes."""

    path = TRACES_PATH
    full = "the queue is full"

    def __init__(
        self,
        instrument: EmbeddedAgent,
        body_limit: int,
        trace_limit: int,
        read_seconds: float = READ_SECONDS,
    ) -> None:
        super().__init__(body_limit, read_seconds)
        self._instrument = instrument
        self._trace_limit = trace_limit

    def _room(self, items: list[IntakeItem]) -> bool:
        return self._instrument.room() > len(self._group)

    def _decode(self, body: bytes) -> list[IntakeItem]:
        """The items of a body. What the reply will not name is kept by its reason only."""
        items: list[IntakeItem] = []
        counted: dict[str, DecodeFailure] = {}
        named = 0
        for index, item in enumerate(decode_trace_body(body, self._trace_limit, MAX_ITEMS)):
            if isinstance(item, DecodeFailure):
                named += 1
                if named <= MAX_REJECTED:
                    item = DecodeFailure(item.reason, item.errors, b"")
                else:
                    item = counted.setdefault(item.reason, DecodeFailure(item.reason, (), b""))
            items.append((item, index))
        return items

    def _write(self, requests: Sequence[list[IntakeItem]]) -> list[tuple[bool, ...]]:
        """For each request, which of its good items were new."""
        together = [item for items in requests for item in items]
        fresh = self._instrument.accept(together, _TRACES_SOURCE, live=True).fresh
        out = []
        start = 0
        for items in requests:
            end = start + sum(isinstance(item, DecodedTrace) for item, _ in items)
            out.append(fresh[start:end])
            start = end
        return out

    def _answer(self, items: list[IntakeItem], done: tuple[bool, ...]) -> web.Response:
        rejected = [(index, item) for item, index in items if isinstance(item, DecodeFailure)]
        counts = {"accepted": sum(done), "duplicates": len(done) - sum(done)}
        return self._reply(counts, rejected, good=bool(done))


_FEEDBACK_SOURCE = "http"

_FeedbackItem = Feedback | DecodeFailure


class _FeedbackSink(Protocol):
    """Who takes labels."""

    def accept_feedback(self, items: Sequence[_FeedbackItem], source: str, *, live: bool) -> int:
        """How many of them are durable now; in any thread. Raises `QueueFull`, `Unavailable`."""


class FeedbackEndpoint(_JsonItemsEndpoint[_FeedbackItem, None]):
    path = "/v1/feedback"
    full = "too much feedback waits to be counted"

    def __init__(
        self, instrument: _FeedbackSink, body_limit: int, read_seconds: float = READ_SECONDS
    ) -> None:
        super().__init__(body_limit, read_seconds)
        self._instrument = instrument

    def _decode(self, body: bytes) -> list[_FeedbackItem]:
        return list(decode_feedback_body(body))

    def _write(self, requests: Sequence[list[_FeedbackItem]]) -> list[None]:
        together = [item for items in requests for item in items]
        self._instrument.accept_feedback(together, _FEEDBACK_SOURCE, live=True)
        return [None] * len(requests)

    def _answer(self, items: list[_FeedbackItem], done: None) -> web.Response:
        rejected = [(at, item) for at, item in enumerate(items) if isinstance(item, DecodeFailure)]
        accepted = len(items) - len(rejected)
        return self._reply({"accepted": accepted}, rejected, good=accepted > 0)


_MAX_WAITING = 2_000  # events: jobs wait for their answers, so more are a mistake

_IndexItem = IndexEvent | DecodeFailure


class _IndexSink(Protocol):
    """Who counts events."""

    def index(
        self, events: Sequence[IndexEvent], counts: Mapping[CounterKey, float]
    ) -> list[IndexOutcome]:
        """Durable on return, in any thread. Raises `Unavailable`."""


class IndexEndpoint(_JsonItemsEndpoint[_IndexItem, list[IndexOutcome]]):
    path = "/v1/index"
    full = "too many index events at a time"

    def __init__(
        self, instrument: _IndexSink, body_limit: int, read_seconds: float = READ_SECONDS
    ) -> None:
        super().__init__(body_limit, read_seconds)
        self._instrument = instrument

    def _decode(self, body: bytes) -> list[_IndexItem]:
        return list(decode_index_events(body))

    def _room(self, items: list[_IndexItem]) -> bool:
        return len(self._group) + len(items) <= _MAX_WAITING

    def _write(self, requests: Sequence[list[_IndexItem]]) -> list[list[IndexOutcome]]:
        """For each request, what became of its good events."""
        bad = Counter(
            item.reason for items in requests for item in items if isinstance(item, DecodeFailure)
        )
        counts: dict[CounterKey, float] = {
            ("ragmeter_dead_letters_total", (("reason", reason),)): float(number)
            for reason, number in bad.items()
        }
        good = [[item for item in items if isinstance(item, IndexEvent)] for items in requests]
        done = iter(self._instrument.index([event for part in good for event in part], counts))
        return [[next(done) for _ in part] for part in good]

    def _answer(self, items: list[_IndexItem], done: list[IndexOutcome]) -> web.Response:
        rejected = [(at, item) for at, item in enumerate(items) if isinstance(item, DecodeFailure)]
        found = Counter(done)
        counts = {
            "accepted": found["counted"],
            "duplicates": found["duplicate"],
            "old_versions": found["old_version"],
        }
        return self._reply(counts, rejected, good=bool(done))
