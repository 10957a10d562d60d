"""A server of pytest-httpserver beside its fixture: several at once, or at a port that is given.

The fixture `httpserver` is for a test that needs one. What hangs, garbles or breaks off is no
matter for either: that takes a socket of its own.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from pytest_httpserver import HTTPServer
from werkzeug import Request, Response

__all__ = ["ANY_PATH", "http_stub"]

ANY_PATH = re.compile(".*")

logging.getLogger("werkzeug").setLevel(logging.WARNING)  # not a line for each request


class _Stub(HTTPServer):
    """Keeps nothing of what came, and ends at once (half a second otherwise)."""

    def application(self, request: Request) -> Response:
        response = super().application(request)
        self.log.clear()
        request.environ.pop("werkzeug.request")  # a circle, which would wait for the collector
        return response

    def thread_target(self) -> None:
        assert self.server is not None
        self.server.serve_forever(poll_interval=0.02)


@contextmanager
def http_stub(answer: Callable[[Request], Response], port: int = 0) -> Iterator[HTTPServer]:
    """A server that answers all requests so, several at a time; after it nobody listens there."""
    server = _Stub("127.0.0.1", port, threaded=True)
    server.expect_request(ANY_PATH).respond_with_handler(answer)
    with server:
        yield server
