"""An embeddings server for tests: it answers by a table or by words, hangs, lies and babbles."""

from __future__ import annotations

import json
import math
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from zlib import crc32

from tests.waiting import PATIENCE

__all__ = ["Stub", "by_words", "stub_embeddings"]

# Each gives another index than it should.
INDEXES: dict[str, Callable[[int], object]] = {
    "same_index": lambda at: 0,
    "bool_index": bool,
    "list_index": lambda at: [at],
    "text_index": str,
}


def by_words(text: str) -> list[float]:
    """Texts of the same words have the same direction."""
    vector = [0.01] * 32
    for word in text.lower().split():
        vector[crc32(word.encode()) % 32] += 1.0
    return vector


class Stub:
    """`table`: vectors of single texts. `fault` is what happens to every request while it is set,
    `script` to the next ones. `free` lets go of what hangs."""

    def __init__(self, table: Mapping[str, Sequence[float]]) -> None:
        self.table = dict(table)
        self.fault = ""
        self.script: deque[str] = deque()
        self.model = "stub-embed"
        self.key: str | None = None
        self.bodies: list[dict[str, Any]] = []
        self.texts: Counter[str] = Counter()
        self.free = threading.Event()
        self.base_url = ""
        self._lock = threading.Lock()

    def reply(self, body: dict[str, Any], authorization: str | None) -> tuple[int, bytes] | None:
        """Status and body; None: the connection ends."""
        with self._lock:
            self.bodies.append(body)
            self.texts.update(body["input"])
            fault = self.script.popleft() if self.script else self.fault
        if self.key is not None and authorization != f"Bearer {self.key}":
            return 401, b'{"error": {"message": "wrong key"}}'
        if fault == "hang":
            self.free.wait(PATIENCE)
        if fault in ("hang", "disconnect"):
            return None
        if fault.startswith("http_"):
            return int(fault[5:]), b'{"error": {"message": "went wrong"}}'
        if fault in ("no_json", "huge"):
            return 200, b"<html>" * (1 if fault == "no_json" else 500_000)
        vectors: list[Any] = [
            list(self.table.get(text) or by_words(text)) for text in body["input"]
        ]
        vectors = self._spoilt(vectors, fault)
        rows: list[Any] = [{"index": at, "embedding": one} for at, one in enumerate(vectors)]
        if fault == "no_index":
            rows = [{"embedding": one} for one in vectors]
        elif fault in INDEXES:
            rows = [
                {"index": INDEXES[fault](at), "embedding": one} for at, one in enumerate(vectors)
            ]
        rows.reverse()  # the order is that of `index`
        reply: Any = {"object": "list", "model": self.model, "data": rows}
        if fault == "list":
            reply = rows
        return 200, json.dumps(reply).encode()

    @staticmethod
    def _spoilt(vectors: list[Any], fault: str) -> list[Any]:
        if fault == "short":
            return vectors[:-1]
        if fault == "long":
            return [*vectors, vectors[0]]
        if fault == "constant":
            return [vectors[0]] * len(vectors)
        if fault == "ragged":
            return [vectors[0][:-1], *vectors[1:]]
        spoilt = {
            "nan": [math.nan] * 32, "infinite": [math.inf] * 32, "zero": [0.0] * 32,
            "text": ["0.5"] * 32, "bool": [True] * 32, "empty": [], "one": [1.0], "null": None,
            "base64": "AACAPwAAgD8=", "great": [10**400] * 32, "wide": [1.0] * 5000,
        }  # fmt: skip
        return [*vectors[:-1], spoilt[fault]] if fault in spoilt else vectors


@contextmanager
def stub_embeddings(**table: Sequence[float]) -> Iterator[Stub]:
    """A running one; `base_url` has its `/v1`."""
    stub = Stub(table)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            assert self.path == "/v1/embeddings"
            found = stub.reply(body, self.headers["authorization"])
            if found is None:
                self.close_connection = True
                return
            self.send_response(found[0])
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(found[1])))
            self.end_headers()
            self.wfile.write(found[1])

        def log_message(self, *_: Any) -> None:
            pass

        def handle(self) -> None:
            try:
                super().handle()
            except (BrokenPipeError, ConnectionResetError):
                self.close_connection = True  # who asked has given up

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    stub.base_url = f"http://127.0.0.1:{server.server_address[1]}/v1"
    try:
        yield stub
    finally:
        stub.free.set()
        server.shutdown()
        thread.join()
        server.server_close()
