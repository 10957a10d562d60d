"""A receiver of notifications that counts each."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

__all__ = ["Received", "receiver"]


class Received:
    """`ids`: how often each notification came; `named`: (rule, service, event) of its id."""

    def __init__(self) -> None:
        self.url = ""
        self.ids: Counter[str] = Counter()
        self.named: dict[str, tuple[str, str, str]] = {}

    def take(self, body: dict[str, Any]) -> None:
        alert = body["alert"]
        self.ids[body["id"]] += 1
        self.named[body["id"]] = (alert["rule"], alert["service"], body["event"])

    def fired(self) -> Counter[tuple[str, str, str]]:
        """How many different notifications there were of each alert and event."""
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

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            with lock:
                received.take(json.loads(body))
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Silent."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    received.url = f"http://127.0.0.1:{server.server_address[1]}/"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield received
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
