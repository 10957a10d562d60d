"""Labels over HTTP: `POST /v1/feedback`, answered when they are durable."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from aiohttp import web

from agent.feedback.labels import Feedback
from agent.ingest.feedback import decode
from agent.ingest.native import Bad
from agent.sources.body import READ_SECONDS
from agent.sources.endpoint import ItemsEndpoint

__all__ = ["FeedbackEndpoint", "Hearing"]

SOURCE = "http"

Item = Feedback | Bad


class Hearing(Protocol):
    """Who takes labels."""

    def hear(self, items: Sequence[Item], source: str, *, live: bool) -> int:
        """How many of them are durable now; in any thread. Raises `QueueFull`, `Unavailable`."""


class FeedbackEndpoint(ItemsEndpoint[Item, None]):
    path = "/v1/feedback"
    full = "too much feedback waits to be counted"

    def __init__(
        self, instrument: Hearing, body_limit: int, read_seconds: float = READ_SECONDS
    ) -> None:
        super().__init__(body_limit, read_seconds)
        self._instrument = instrument

    def _decode(self, body: bytes) -> list[Item]:
        return list(decode(body))

    def _write(self, requests: Sequence[list[Item]]) -> list[None]:
        together = [item for items in requests for item in items]
        self._instrument.hear(together, SOURCE, live=True)
        return [None] * len(requests)

    def _answer(self, items: list[Item], done: None) -> web.Response:
        rejected = [(at, item) for at, item in enumerate(items) if isinstance(item, Bad)]
        accepted = len(items) - len(rejected)
        return self._reply({"accepted": accepted}, rejected, good=accepted > 0)
