"""The operator endpoints on the metrics port: `/v1/baselines`, `/v1/inspect` and `/v1/results`."""

from __future__ import annotations

import asyncio
import json
from typing import Any, Protocol

from aiohttp import web

from ragmeter.aggregate.commands import UnknownService
from ragmeter.core.errors import Unavailable
from ragmeter.embedded.endpoints.request_bodies import (
    READ_SECONDS,
    BodyReader,
    RequestRefused,
    defer_request,
    error_response,
    refuse_request,
)
from ragmeter.ingest.live_inspection import LiveFeed

_BASELINES_PATH = "/v1/baselines"
INSPECT_PATH = "/v1/inspect"
RESULTS_PATH = "/v1/results"
_BODY_BYTES = 4096
_BEAT_SECONDS = 10.0  # between empty lines while no trace comes: they show that a client has gone


class _BaselineControl(Protocol):
    """The agent or a Kafka worker; both methods may be called in any thread."""

    def baselines(self) -> list[dict[str, Any]]:
        """Return a row a series."""

    def promote(self, service: str | None) -> dict[str, Any]:
        """Promote, durable on return; may raise `UnknownService` or `StateUnavailable`."""


class BaselinesEndpoint:
    """The endpoint for the baselines of the drift detectors.

    `GET /v1/baselines` returns them; `POST /v1/baselines/promote` makes the current values the new
    ones and is answered when that is durable.
    """

    def __init__(self, baselines: _BaselineControl, read_seconds: float = READ_SECONDS) -> None:
        self._baselines = baselines
        self._bodies = BodyReader(_BODY_BYTES, read_seconds)

    def add_to(self, app: web.Application) -> None:
        """Add the routes to an application."""
        app.router.add_get(_BASELINES_PATH, self.show)
        app.router.add_post(f"{_BASELINES_PATH}/promote", self.promote)

    async def show(self, request: web.Request) -> web.Response:
        """Return the baselines."""
        rows = await asyncio.to_thread(self._baselines.baselines)
        return web.json_response({"baselines": rows})

    async def promote(self, request: web.Request) -> web.Response:
        """Promote the current values of a service, or of all."""
        # a page of another site cannot send this type without a preflight, which is not allowed
        if request.content_type != "application/json":
            return error_response(415, "send application/json")
        # nor can one whose name was rebound to this address, for which we are its own site
        if "Origin" in request.headers:
            return error_response(403, "not from a page in a browser")
        try:
            async with self._bodies.read(request) as body:
                service = _decode_service(body)
            return web.json_response(await asyncio.to_thread(self._baselines.promote, service))
        except RequestRefused as refused:
            return refuse_request(refused)
        except UnknownService as error:
            return error_response(404, str(error))
        except Unavailable as error:
            return defer_request(error)


class LiveEndpoint:
    """An endpoint that streams a live feed as JSON lines."""

    def __init__(self, path: str, feed: LiveFeed, beat_seconds: float = _BEAT_SECONDS) -> None:
        self._path = path
        self._feed = feed
        self._beat_seconds = beat_seconds

    def add_to(self, app: web.Application) -> None:
        """Add the route to an application."""
        app.router.add_get(self._path, self.handle)

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Stream lines until the client closes the connection."""
        # a page of another site must not read along
        if "Origin" in request.headers:
            return error_response(403, "not from a page in a browser")
        try:
            with self._feed.listening() as listener:
                response = web.StreamResponse(headers={"Content-Type": "application/x-ndjson"})
                await response.prepare(request)
                await response.write(b"\n")
                while request.transport is not None and not request.transport.is_closing():
                    try:
                        async with asyncio.timeout(self._beat_seconds):
                            line = await listener.next()
                    except TimeoutError:
                        line = b"\n"
                    if listener.missed:
                        line += b'{"missed": %d}\n' % listener.missed
                        listener.missed = 0
                    await response.write(line)
                return response
        except Unavailable as error:
            return defer_request(error)
        except ConnectionError:
            return web.Response()  # the client has gone


def _decode_service(body: bytes) -> str | None:
    """Return the service that the body names, None for all; may raise `RequestRefused`."""
    try:
        document = json.loads(body or b"{}")
    except (ValueError, RecursionError):
        raise RequestRefused(400, "the body is not JSON") from None
    if not isinstance(document, dict) or not document.keys() <= {"service"}:
        raise RequestRefused(400, 'the body is {"service": NAME}, or {} for all services')
    service = document.get("service")
    if service is not None and not isinstance(service, str):
        raise RequestRefused(400, "service is a text")
    return service
