"""Traces over HTTP: `POST /v1/rag/traces`, answered when they are durable."""

from __future__ import annotations

from collections.abc import Sequence

from aiohttp import web

from agent.ingest.bounds import MAX_ITEMS
from agent.ingest.native import Bad, Good, decode
from agent.intake import Item
from agent.pipeline import Instrument
from agent.sources.body import READ_SECONDS
from agent.sources.endpoint import MAX_REJECTED, ItemsEndpoint

__all__ = ["PATH", "TracesEndpoint"]

PATH = "/v1/rag/traces"
SOURCE = "http"


class TracesEndpoint(ItemsEndpoint[Item, tuple[bool, ...]]):
    """`trace_limit` bounds one trace of a body, in bytes."""

    path = PATH
    full = "the queue is full"

    def __init__(
        self,
        instrument: Instrument,
        body_limit: int,
        trace_limit: int,
        read_seconds: float = READ_SECONDS,
    ) -> None:
        super().__init__(body_limit, read_seconds)
        self._instrument = instrument
        self._trace_limit = trace_limit

    def _room(self, items: list[Item]) -> bool:
        return self._instrument.room() > len(self._group)

    def _decode(self, body: bytes) -> list[Item]:
        """The items of a body. What the reply will not name is kept by its reason only."""
        items: list[Item] = []
        counted: dict[str, Bad] = {}
        named = 0
        for index, item in enumerate(decode(body, self._trace_limit, MAX_ITEMS)):
            if isinstance(item, Bad):
                named += 1
                if named <= MAX_REJECTED:
                    item = Bad(item.reason, item.errors, b"")
                else:
                    item = counted.setdefault(item.reason, Bad(item.reason, (), b""))
            items.append((item, index))
        return items

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

    def _answer(self, items: list[Item], done: tuple[bool, ...]) -> web.Response:
        rejected = [(index, item) for item, index in items if isinstance(item, Bad)]
        counts = {"accepted": sum(done), "duplicates": len(done) - sum(done)}
        return self._reply(counts, rejected, good=bool(done))
