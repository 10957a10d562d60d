"""What may stand where ragmeter should: nothing, what never answers, answers late, or is full."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from ragmeter.core.errors import QueueFull

__all__ = ["Answering", "answering", "closed", "silent"]

PATH = "/v1/traces"


class Answering(ThreadingHTTPServer):
    """Answers each request with `status`, after `delay` seconds or as soon as `released` is set."""

    daemon_threads = True

    def __init__(self, status: int, delay: float) -> None:
        self.status, self.delay = status, delay
        self.released = threading.Event()
        self.asked = threading.Semaphore(0)  # one for each request that came
        self.answered = 0
        super().__init__(("127.0.0.1", 0), _Handler)

    def handle_error(self, *_: object) -> None:
        pass  # the client has gone, as its timeout says


class _Handler(BaseHTTPRequestHandler):
    server: Answering
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        self.server.asked.release()
        self.server.released.wait(self.server.delay)
        self.server.answered += 1
        self.send_response(self.server.status)
        if self.server.status == 429:
            self.send_header("Retry-After", str(QueueFull.retry_after))
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def answering(status: int, delay: float = 0) -> Iterator[tuple[str, Answering]]:
    server = Answering(status, delay)
    if not delay:
        server.released.set()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}{PATH}", server
    finally:
        server.released.set()
        server.shutdown()
        thread.join()
        server.server_close()


@contextmanager
def silent() -> Iterator[str]:
    """Connections are taken (by the kernel, as for a process that is stopped) and never read."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}{PATH}"


@contextmanager
def closed() -> Iterator[str]:
    """A port where nobody listens, and nobody else can: it is bound."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{bound.getsockname()[1]}{PATH}"
