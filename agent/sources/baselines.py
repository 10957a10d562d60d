"""Baselines of the drift detectors over HTTP: `GET /v1/baselines` shows them, `POST
/v1/baselines/promote` makes what is normal now the new ones, answered when that is durable."""

from __future__ import annotations

import asyncio
import json
from typing import Any, Protocol

from aiohttp import web

from agent.intake import Unavailable
from agent.orders import UnknownService
from agent.sources.body import READ_SECONDS, Bodies, Refused

__all__ = ["PROMOTE", "SHOW", "Baselines", "BaselinesEndpoint"]

SHOW = "/v1/baselines"
PROMOTE = f"{SHOW}/promote"
BODY_BYTES = 4096


class Baselines(Protocol):
    """Who has them. Both may be called in any thread."""

    def baselines(self) -> list[dict[str, Any]]:
        """A row a series."""

    def promote(self, service: str | None) -> dict[str, Any]:
        """Durable on return. Raises `UnknownService` and `Unavailable`."""


class BaselinesEndpoint:
    """Both handlers, for the metrics port."""

    def __init__(self, instrument: Baselines, read_seconds: float = READ_SECONDS) -> None:
        self._instrument = instrument
        self._bodies = Bodies(BODY_BYTES, read_seconds)

    def add_to(self, app: web.Application) -> None:
        app.router.add_get(SHOW, self.show)
        app.router.add_post(PROMOTE, self.promote)

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
        except Refused as refused:
            response = _error(refused.status, str(refused))
            response.force_close()  # the rest of the body is not read
            return response
        try:
            done = await asyncio.to_thread(self._instrument.promote, service)
        except UnknownService as error:
            return _error(404, str(error))
        except Unavailable as error:
            return _error(503, str(error))
        return web.json_response(done)


def _service(body: bytes) -> str | None:
    """The service that the body names, None for all. Raises `Refused`."""
    try:
        asked = json.loads(body or b"{}")
    except (ValueError, RecursionError):
        raise Refused(400, "the body is not JSON") from None
    if not isinstance(asked, dict) or not asked.keys() <= {"service"}:
        raise Refused(400, 'the body is {"service": NAME}, or {} for all services')
    service = asked.get("service")
    if service is not None and not isinstance(service, str):
        raise Refused(400, "service is a text")
    return service


def _error(status: int, message: str) -> web.Response:
    body: dict[str, Any] = {"error": message}
    return web.json_response(body, status=status)
