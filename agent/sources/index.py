"""Index events over HTTP: `POST /v1/index`, answered when they are counted and durable."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Protocol

from aiohttp import web

from agent.counters import CounterKey
from agent.indexing.event import IndexEvent, decode
from agent.indexing.indexes import Outcome
from agent.ingest.native import Bad
from agent.sources.body import READ_SECONDS
from agent.sources.endpoint import ItemsEndpoint

__all__ = ["IndexEndpoint", "Indexing"]

MAX_WAITING = 2_000  # events: jobs wait for their answers, so more are a mistake

Item = IndexEvent | Bad


class Indexing(Protocol):
    """Who counts events."""

    def index(
        self, events: Sequence[IndexEvent], counts: Mapping[CounterKey, float]
    ) -> list[Outcome]:
        """Durable on return, in any thread. Raises `Unavailable`."""


class IndexEndpoint(ItemsEndpoint[Item, list[Outcome]]):
    path = "/v1/index"
    full = "too many index events at a time"

    def __init__(
        self, instrument: Indexing, body_limit: int, read_seconds: float = READ_SECONDS
    ) -> None:
        super().__init__(body_limit, read_seconds)
        self._instrument = instrument

    def _decode(self, body: bytes) -> list[Item]:
        return list(decode(body))

    def _room(self, items: list[Item]) -> bool:
        return len(self._group) + len(items) <= MAX_WAITING

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

    def _answer(self, items: list[Item], done: list[Outcome]) -> web.Response:
        rejected = [(at, item) for at, item in enumerate(items) if isinstance(item, Bad)]
        found = Counter(done)
        counts = {
            "accepted": found["counted"],
            "duplicates": found["duplicate"],
            "old_versions": found["old_version"],
        }
        return self._reply(counts, rejected, good=bool(done))
