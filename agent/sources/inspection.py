"""`GET /v1/inspect`: as JSON lines, how spans are read from now on, until the client goes."""

from __future__ import annotations

import asyncio

from aiohttp import web

from agent.watching import MOST, TooMany, Watchers

__all__ = ["INSPECT", "InspectionEndpoint"]

INSPECT = "/v1/inspect"
BEAT_SECONDS = 10.0  # between empty lines while nothing comes: one that has gone is noticed


class InspectionEndpoint:
    """The handler, for the metrics port."""

    def __init__(self, watchers: Watchers, beat_seconds: float = BEAT_SECONDS) -> None:
        self._watchers = watchers
        self._beat = beat_seconds

    def add_to(self, app: web.Application) -> None:
        app.router.add_get(INSPECT, self.handle)

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
        except TooMany:
            return web.json_response({"error": f"{MOST} listen already"}, status=503)
        except ConnectionError:
            return web.Response()  # it has gone
