"""What stands where an agent should: it takes traces, or answers as the test says."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ragmeter.ingest.native import DecodedTrace, decode_trace_body
from ragmeter.server.paths import TRACES_PATH
from werkzeug import Request, Response

from tests.http_stub import http_stub

__all__ = ["Taking", "taking"]

Answer = tuple[int, dict[str, str], Any]
"""Status, headers and JSON."""


class Taking:
    """Reads bodies as the agent does. `answers` are given first, without anything being taken."""

    def __init__(self) -> None:
        self.port = 0
        self.answers: deque[Answer] = deque()
        self.bodies: list[list[DecodedTrace]] = []
        self.tokens: list[str | None] = []
        self.refuse: set[str] = set()
        self.most = 10_000
        self.asked = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def took(self) -> list[str]:
        return [item.trace.trace_id for body in self.bodies for item in body]

    def take(self, request: Request) -> Response:
        assert request.path == TRACES_PATH
        self.tokens.append(request.headers.get("Authorization"))
        status, headers, found = self.answer(request.get_data())
        return Response(json.dumps(found), status, headers, content_type="application/json")

    def answer(self, body: bytes) -> Answer:
        self.asked += 1
        if self.answers:
            return self.answers.popleft()
        items = list(decode_trace_body(body, 2**20))
        if len(items) > self.most:
            return 413, {}, {"error": "too large"}
        good = [item for item in items if isinstance(item, DecodedTrace)]
        known = set(self.took)
        fresh = [item for item in good if item.trace.trace_id not in known | self.refuse]
        errors = [
            {"index": at, "reason": "invalid_trace", "errors": [{"field": "x", "why": "no"}]}
            for at, item in enumerate(items)
            if not isinstance(item, DecodedTrace) or item.trace.trace_id in self.refuse
        ]
        self.bodies.append(fresh)
        counts = {
            "accepted": len(fresh),
            "duplicates": len(items) - len(fresh) - len(errors),
            "rejected": len(errors),
        }
        return 200 if good else 400, {}, {**counts, "errors": errors}


@contextmanager
def taking(port: int = 0) -> Iterator[Taking]:
    """After it nobody listens at its port."""
    found = Taking()
    with http_stub(found.take, port) as server:
        found.port = server.port
        yield found
