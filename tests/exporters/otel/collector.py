"""A stub OTLP receiver over real HTTP, which decodes what it gets with the official definitions."""

from __future__ import annotations

import gzip
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from aiohttp import web
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import (
    ExportLogsServiceRequest,
    ExportLogsServiceResponse,
)
from opentelemetry.proto.common.v1.common_pb2 import KeyValue
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord
from opentelemetry.proto.resource.v1.resource_pb2 import Resource

__all__ = [
    "LOGS",
    "PROTOBUF",
    "Collector",
    "Reply",
    "plain",
    "rejecting",
    "serve",
    "taken",
]

PROTOBUF = "application/x-protobuf"
LOGS = "/v1/logs"


@dataclass
class Collector:
    """What came in. `raw` are (path, uncompressed body) in order; `records` those of requests that
    were answered 200."""

    url: str = ""
    raw: list[tuple[str, bytes]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    records: list[LogRecord] = field(default_factory=list)
    resources: list[Resource] = field(default_factory=list)
    scopes: list[str] = field(default_factory=list)

    def take(self, body: bytes) -> None:
        for logs in ExportLogsServiceRequest.FromString(body).resource_logs:
            self.resources.append(logs.resource)
            for scoped in logs.scope_logs:
                self.scopes.append(scoped.scope.name)
                self.records.extend(scoped.log_records)


Reply = Callable[[int], Awaitable[web.Response]]
"""From the number of the request (0, 1, ...) to its answer."""


def plain(pairs: object) -> dict[str, str | float]:
    """Attributes by name."""
    found: dict[str, str | float] = {}
    for pair in pairs:  # type: ignore[attr-defined]
        assert isinstance(pair, KeyValue)
        kind = pair.value.WhichOneof("value")
        assert kind in ("string_value", "double_value"), kind
        assert pair.key not in found
        found[pair.key] = getattr(pair.value, kind)
    return found


async def taken(_: int) -> web.Response:
    return web.Response(body=b"", content_type=PROTOBUF)


def rejecting(number: int, words: str) -> web.Response:
    """A partial success."""
    reply = ExportLogsServiceResponse()
    reply.partial_success.rejected_log_records = number
    reply.partial_success.error_message = words
    return web.Response(body=reply.SerializeToString(), content_type=PROTOBUF)


@asynccontextmanager
async def serve(reply: Reply = taken, port: int = 0) -> AsyncIterator[Collector]:
    found = Collector()

    async def handle(request: web.Request) -> web.Response:
        number = len(found.raw)
        assert request.headers["Content-Type"] == PROTOBUF
        body = await request.read()  # aiohttp has undone the compression
        assert request.headers["Content-Encoding"] == "gzip"
        assert not body.startswith(gzip.compress(b"")[:2])
        found.raw.append((request.path, body))
        found.headers.append({name.lower(): text for name, text in request.headers.items()})
        answer = await reply(number)
        if answer.status == 200:
            found.take(body)
        return answer

    app = web.Application(client_max_size=64 * 2**20)
    app.router.add_post("/{tail:.*}", handle)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", port)
    await site.start()
    found.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield found
    finally:
        await runner.cleanup()
