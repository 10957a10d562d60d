"""What stands where an agent should: it takes traces, or answers as the test says."""

from __future__ import annotations

import json
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from ragmeter.ingest.native import DecodedTrace, decode_trace_body
from ragmeter.server.client import TRACES_PATH

from tests.ports import free_port

__all__ = ["Taking", "taking"]

Answer = tuple[int, dict[str, str], Any]
"""Status, headers and JSON."""


class Taking(ThreadingHTTPServer):
    """Reads bodies as the agent does. `answers` are given first, without anything being taken."""

    daemon_threads = True
    allow_reuse_address = True

    def __init__(self, port: int) -> None:
        self.answers: deque[Answer] = deque()
        self.bodies: list[list[DecodedTrace]] = []
        self.tokens: list[str | None] = []
        self.refuse: set[str] = set()
        self.most = 10_000
        self.asked = 0
        super().__init__(("127.0.0.1", port), _Handler)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    @property
    def took(self) -> list[str]:
        return [item.trace.trace_id for body in self.bodies for item in body]

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


class _Handler(BaseHTTPRequestHandler):
    server: Taking

    def do_POST(self) -> None:
        assert self.path == TRACES_PATH
        self.server.tokens.append(self.headers["authorization"])
        body = self.rfile.read(int(self.headers["content-length"]))
        status, headers, found = self.server.answer(body)
        text = json.dumps(found).encode()
        self.send_response(status)
        for name, value in {**headers, "content-length": str(len(text))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def taking(port: int | None = None) -> Iterator[Taking]:
    """After it nobody listens at its port."""
    server = Taking(port or free_port())
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
