"""The operator endpoints on the metrics port: `/v1/baselines` and `/v1/inspect`.

Baselines of the drift detectors over HTTP: `GET /v1/baselines` shows them, `POST
/v1/baselines/promote` makes what is normal now the new ones, answered when that is durable.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any, Protocol

from aiohttp import web

from ragmeter.embedded.commands import UnknownService
from ragmeter.embedded.endpoints.request_bodies import READ_SECONDS, BodyReader, RequestRefused
from ragmeter.embedded.intake import StateUnavailable
from ragmeter.ingest.live_inspection import MAX_LISTENERS, LiveInspection, TooManyListeners

_SHOW = "/v1/baselines"
_PROMOTE = f"{_SHOW}/promote"
_BODY_BYTES = 4096


class _BaselineControl(Protocol):
    """Who has them. Both may be called in any thread."""

    def baselines(self) -> list[dict[str, Any]]:
        """A row a series."""

    def promote(self, service: str | None) -> dict[str, Any]:
        """Durable on return. Raises `UnknownService` and `Unavailable`."""


class BaselinesEndpoint:
    """Both handlers, for the metrics port."""

    def __init__(self, instrument: _BaselineControl, read_seconds: float = READ_SECONDS) -> None:
        self._instrument = instrument
        self._bodies = BodyReader(_BODY_BYTES, read_seconds)

    def add_to(self, app: web.Application) -> None:
        app.router.add_get(_SHOW, self.show)
        app.router.add_post(_PROMOTE, self.promote)

    async def show(self, request: web.Request) -> web.Response:
        rows = await asyncio.to_thread(self._instrument.baselines)
        return web.json_response({"baselines": rows})

    async def promote(self, request: web.Request) -> web.Response:
        # a page of another site cannot send this type without asking, and is not let
        if request.content_type != "application/json":
            return _error(415, "send application/json")
        # nor one whose name was pointed at this address, for which we are its own site
        if "Origin" in request.headers:
            return _error(403, "not from a page in a browser")
        try:
            async with self._bodies.read(request) as body:
                service = _service(body)
        except RequestRefused as refused:
            response = _error(refused.status, str(refused))
            response.force_close()  # the rest of the body is not read
            return response
        try:
            done = await asyncio.to_thread(self._instrument.promote, service)
        except UnknownService as error:
            return _error(404, str(error))
        except StateUnavailable as error:
            return _error(503, str(error))
        return web.json_response(done)


def _service(body: bytes) -> str | None:
    """The service that the body names, None for all. Raises `Refused`."""
    try:
        asked = json.loads(body or b"{}")
    except (ValueError, RecursionError):
        raise RequestRefused(400, "the body is not JSON") from None
    if not isinstance(asked, dict) or not asked.keys() <= {"service"}:
        raise RequestRefused(400, 'the body is {"service": NAME}, or {} for all services')
    service = asked.get("service")
    if service is not None and not isinstance(service, str):
        raise RequestRefused(400, "service is a text")
    return service


def _error(status: int, message: str) -> web.Response:
    body: dict[str, Any] = {"error": message}
    return web.json_response(body, status=status)


_INSPECT = "/v1/inspect"
_BEAT_SECONDS = 10.0  # between empty lines while nothing comes: one that has gone is noticed


class InspectionEndpoint:
    """The handler, for the metrics port."""

    def __init__(self, watchers: LiveInspection, beat_seconds: float = _BEAT_SECONDS) -> None:
        self._watchers = watchers
        self._beat = beat_seconds

    def add_to(self, app: web.Application) -> None:
        app.router.add_get(_INSPECT, self.handle)

    async def handle(self, request: web.Request) -> web.StreamResponse:
        # a page of another site must not read along
        if "Origin" in request.headers:
            return web.json_response({"error": "not from a page in a browser"}, status=403)
        try:
            with self._watchers.listening() as listener:
                response = web.StreamResponse(headers={"Content-Type": "application/x-ndjson"})
                await response.prepare(request)
                await response.write(b"\n")
                while request.transport is not None and not request.transport.is_closing():
                    try:
                        line = await asyncio.wait_for(listener.next(), self._beat)
                    except TimeoutError:
                        line = b"\n"
                    if listener.missed:
                        line += b'{"missed": %d}\n' % listener.missed
                        listener.missed = 0
                    await response.write(line)
                return response
        except TooManyListeners:
            return web.json_response({"error": f"{MAX_LISTENERS} listen already"}, status=503)
        except ConnectionError:
            return web.Response()  # it has gone
