"""A receiver of notifications that counts each."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from werkzeug import Request, Response

from tests.http_stub import http_stub

__all__ = ["Received", "receiver"]


class Received:
    """`ids`: how often each notification came; `named`: (kind, service, event) of its id."""

    def __init__(self) -> None:
        self.url = ""
        self.ids: Counter[str] = Counter()
        self.named: dict[str, tuple[str, str, str]] = {}

    def take(self, body: dict[str, Any]) -> None:
        incident = body["incident"]
        self.ids[body["id"]] += 1
        self.named[body["id"]] = (incident["kind"], incident["service"], body["event"])

    def fired(self) -> Counter[tuple[str, str, str]]:
        """How many different notifications there were of each incident and event."""
        return Counter(self.named.values())

    @property
    def repeated(self) -> int:
        """Deliveries beyond the first, with the same id."""
        return sum(self.ids.values()) - len(self.ids)


@contextmanager
def receiver() -> Iterator[Received]:
    """Listening on loopback."""
    received = Received()
    lock = threading.Lock()

    def take(request: Request) -> Response:
        with lock:
            received.take(request.get_json())
        return Response(status=204)

    with http_stub(take) as server:
        received.url = server.url_for("/")
        yield received
