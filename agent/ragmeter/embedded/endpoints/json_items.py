"""The HTTP endpoints for JSON items: traces, and the documents that parts read.

A body is read within bounds, decoded in a thread, committed together with the bodies of concurrent
requests, and answered when it is durable. A request refused for good counts as a dead letter.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Generic, TypeVar

from aiohttp import web

from ragmeter.core.errors import QueueFull, Unavailable
from ragmeter.embedded.agent import EmbeddedAgent
from ragmeter.embedded.endpoints.request_bodies import (
    LARGE_BODY,
    SMALL_BODY,
    BodyReader,
    GroupCommit,
    RequestRefused,
    defer_continue,
    defer_request,
    refuse_request,
)
from ragmeter.embedded.intake import count_failures
from ragmeter.ingest.native import (
    MAX_ITEMS,
    BodyLimitExceeded,
    DecodedTrace,
    DecodeFailure,
    decode_trace_body,
    iterate_lines,
)
from ragmeter.parts.contract import Document, DocumentKind
from ragmeter.server.paths import TRACES_PATH

MAX_REJECTED = 100  # items named in a reply; the rest are counted
_SOURCE = "http"
_GROUP = 1_000  # items in one shared commit

# Reasons of dead letters for the requests that no repetition helps, by status.
_REFUSALS = {400: "broken_body", 413: "too_large", 415: "unsupported_encoding"}

_ItemT = TypeVar("_ItemT")
_ResultT = TypeVar("_ResultT")  # of the items of one request
_TraceItem = DecodedTrace | DecodeFailure
_DocumentItem = Document | DecodeFailure


class _JsonItemsEndpoint(ABC, Generic[_ItemT, _ResultT]):
    path: str

    def __init__(self, agent: EmbeddedAgent, bodies: BodyReader) -> None:
        self._agent = agent
        self._bodies = bodies
        self._group = GroupCommit(self._write, _GROUP)
        self.start = self._group.start
        self.stop = self._group.stop

    @abstractmethod
    def _decode(self, body: bytes) -> list[_ItemT | DecodeFailure]:
        """Decode the items of a body; may raise `BodyLimitExceeded`."""

    @abstractmethod
    def _write(self, requests: Sequence[list[_ItemT | DecodeFailure]]) -> Sequence[_ResultT]:
        """Make the items of requests durable, in a thread."""

    @abstractmethod
    def _reply(self, items: list[_ItemT | DecodeFailure], result: _ResultT) -> web.Response: ...

    def _check_room(self, items: list[_ItemT | DecodeFailure]) -> None:
        """Raise `QueueFull` if the items have to come later."""

    def add_to(self, app: web.Application) -> None:
        """Add the route to an application."""
        app.router.add_post(self.path, self.handle, expect_handler=defer_continue)

    async def _refuse(self, refused: RequestRefused) -> web.Response:
        failure = DecodeFailure.of_whole(_REFUSALS[refused.status], str(refused), b"")
        with suppress(Unavailable):
            await self._group.commit([failure], 0)
        return refuse_request(refused)

    async def handle(self, request: web.Request) -> web.Response:
        """Handle a request."""
        try:
            async with self._bodies.read(request) as body:
                if len(body) >= LARGE_BODY:
                    # item by item below, none of which holds the interpreter's lock for long
                    lines = await self._bodies.decode_apart(iterate_lines, body, MAX_ITEMS)
                    body = b"".join(lines)
                    del lines
                if len(body) <= SMALL_BODY:
                    items = self._decode(body)
                else:
                    items = await self._bodies.decode(self._decode, body)
                self._check_room(items)
                result = await self._group.commit(items, len(items))
        except BodyLimitExceeded as error:
            error.__traceback__ = None  # its frames hold the body as long as a thread's future it
            return await self._refuse(RequestRefused(413, str(error)))
        except RequestRefused as refused:
            return await self._refuse(refused)
        except Unavailable as error:
            return defer_request(error)
        return self._reply(items, result)


class TracesEndpoint(_JsonItemsEndpoint[DecodedTrace, tuple[bool, ...]]):
    """The endpoint for traces of at most `trace_limit` bytes."""

    path = TRACES_PATH

    def __init__(self, agent: EmbeddedAgent, bodies: BodyReader, trace_limit: int) -> None:
        super().__init__(agent, bodies)
        self._trace_limit = trace_limit

    def _check_room(self, items: list[_TraceItem]) -> None:
        if self._agent.room() <= len(self._group):
            raise QueueFull("the queue is full")

    def _decode(self, body: bytes) -> list[_TraceItem]:
        """Decode a body. Only the reason is kept of failures that the reply does not name."""
        items: list[_TraceItem] = []
        unnamed: dict[str, DecodeFailure] = {}
        failures = 0
        for item in decode_trace_body(body, self._trace_limit, MAX_ITEMS):
            if isinstance(item, DecodeFailure):
                failures += 1
                if failures <= MAX_REJECTED:
                    item = DecodeFailure(item.reason, item.errors, b"")
                else:
                    item = unnamed.setdefault(item.reason, DecodeFailure(item.reason, (), b""))
            items.append(item)
        return items

    def _write(self, requests: Sequence[list[_TraceItem]]) -> list[tuple[bool, ...]]:
        """Return for each request which of its good items were new."""
        together = [(item, 0) for items in requests for item in items]
        fresh = iter(self._agent.accept(together, _SOURCE, live=True).fresh)
        return [
            tuple(next(fresh) for item in items if isinstance(item, DecodedTrace))
            for items in requests
        ]

    def _reply(self, items: list[_TraceItem], result: tuple[bool, ...]) -> web.Response:
        counts = {"accepted": sum(result), "duplicates": len(result) - sum(result)}
        return _report(counts, items, good=bool(result))


class DocumentsEndpoint(_JsonItemsEndpoint[Document, list[str]]):
    """The endpoint for the documents of a part.

    Args:
        agent: The agent that counts them.
        bodies: Reads the bodies.
        part: The name of the part.
        kind: Its kind of documents.
    """

    def __init__(
        self, agent: EmbeddedAgent, bodies: BodyReader, part: str, kind: DocumentKind
    ) -> None:
        super().__init__(agent, bodies)
        self.path = kind.path
        self._part = part
        self._kind = kind

    def _decode(self, body: bytes) -> list[_DocumentItem]:
        return list(self._kind.decode_body(body))

    def _check_room(self, items: list[_DocumentItem]) -> None:
        if len(self._group) + len(items) > self._kind.max_waiting:
            raise QueueFull("too many documents at a time")

    def _write(self, requests: Sequence[list[_DocumentItem]]) -> list[list[str]]:
        """Return for each request the outcomes of its good documents."""
        counts = count_failures([item for items in requests for item in items])
        good = [
            [item for item in items if not isinstance(item, DecodeFailure)] for items in requests
        ]
        documents = [document for documents in good for document in documents]
        received = self._agent.receive(self._part, documents, _SOURCE, counts=counts)
        outcomes = iter(received)
        return [[next(outcomes) for _ in documents] for documents in good]

    def _reply(self, items: list[_DocumentItem], result: list[str]) -> web.Response:
        counts = dict.fromkeys(self._kind.replies.values(), 0)
        for outcome in result:
            counts[self._kind.replies[outcome]] += 1
        return _report(counts, items, good=bool(result))


def _report(counts: dict[str, int], items: Sequence[object], good: bool) -> web.Response:
    """Reply with counts, and the first failures with their index; 400 if no item was good."""
    rejected = [
        (index, item) for index, item in enumerate(items) if isinstance(item, DecodeFailure)
    ]
    body: dict[str, Any] = {**counts, "rejected": len(rejected)}
    if rejected:
        body["errors"] = [{"index": at, **item.to_dict()} for at, item in rejected[:MAX_REJECTED]]
    return web.json_response(body, status=200 if good else 400)
