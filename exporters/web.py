"""The metrics port: `/metrics`, status and trace pages, JSON API, health and readiness.

The metrics port: `/metrics`, the status page, the trace pages, health and readiness.

Everything here is read-only. Rendering runs in a thread, so that a long scrape never keeps the
event loop from taking traces in.
"""

from __future__ import annotations

import asyncio
import gzip
import json
import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import TYPE_CHECKING, TypeVar

from aiohttp import web
from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily
from prometheus_client.registry import Collector

from ragmeter.exporters.api import InvalidSegmentsQuery, SegmentsQuery, segments_json, windows_json
from ragmeter.exporters.exposition import CONTENT_TYPES, accepts_gzip, prefers_openmetrics
from ragmeter.exporters.page.pages import csp, error_page, service_page, status_page, trace_page
from ragmeter.exporters.page.views import service_view, status_view, trace_view
from ragmeter.exporters.prometheus import PrometheusExporter, process_registry
from ragmeter.server.listener import SECURITY_HEADERS

if TYPE_CHECKING:
    from ragmeter.aggregate.agent_view import AgentView

REFUSALS_METRIC = "ragmeter_http_refused_total"


class RefusalsCollector(Collector):
    """`counts`: by the name of a port, then by reason; written by the event loop's thread."""

    def __init__(self, counts: Mapping[str, Mapping[str, int]]) -> None:
        self._counts = counts

    def collect(self) -> Iterator[CounterMetricFamily]:
        family = CounterMetricFamily(
            REFUSALS_METRIC.removesuffix("_total"),
            "Requests and connections that a port refused, by why.",
            labels=("port", "reason"),
        )
        for port, reasons in list(self._counts.items()):
            for reason, number in list(reasons.items()):
                family.add_metric((port, reason), number)
        yield family


log = logging.getLogger(__name__)

T = TypeVar("T")
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

# Renderings at a time. A page holds a core while it is made, and a scraper must never have to
# wait behind a crowd of browsers.
RENDERERS = 2


def metrics_app(
    reading: AgentView,
    *,
    registry: CollectorRegistry | None = None,
    name: str = "ragmeter",
    refused: Mapping[str, Mapping[str, int]] | None = None,
) -> web.Application:
    """The application of the metrics port.

    `registry` holds the process metrics (a fresh one by default); `name` is what the page calls
    this agent; `refused` counts what ports did not let in.
    """
    registry = process_registry() if registry is None else registry
    if refused is not None:
        registry.register(RefusalsCollector(refused))
    app = web.Application(middlewares=[_errors])
    app.on_response_prepare.append(_secure)
    pages = _MetricsPortHandlers(reading, PrometheusExporter(reading, registry=registry), name)
    app.add_routes(
        [
            web.get("/", pages.status),
            web.get("/metrics", pages.metrics),
            # the default pattern has no place for braces, which ids may hold
            web.get("/service/{service:[^/]+}", pages.service),
            web.get("/trace/{service:[^/]+}/{trace_id:[^/]+}", pages.trace),
            web.get("/api/windows.json", pages.windows),
            web.get("/api/segments.json", pages.segments),
            web.get("/healthz", pages.healthz),
            web.get("/readyz", pages.readyz),
        ]
    )
    return app


class _MetricsPortHandlers:
    def __init__(self, reading: AgentView, exporter: PrometheusExporter, name: str) -> None:
        self._reading = reading
        self._exporter = exporter
        self._name = name
        self._scrapes = asyncio.Semaphore(RENDERERS)
        self._views = asyncio.Semaphore(RENDERERS)

    async def metrics(self, request: web.Request) -> web.Response:
        openmetrics = prefers_openmetrics(request.headers.getall("Accept", []))
        zipped = accepts_gzip(request.headers.getall("Accept-Encoding", []))

        def render() -> bytes:
            body = self._exporter.render(openmetrics=openmetrics)
            # Level 1: label text repeats so much that the higher levels cost time and save little.
            return gzip.compress(body, 1, mtime=0) if zipped else body

        async with self._scrapes:
            body = await asyncio.to_thread(render)
        headers = {"Content-Type": CONTENT_TYPES[openmetrics], "Vary": "Accept, Accept-Encoding"}
        if zipped:
            headers["Content-Encoding"] = "gzip"
        return web.Response(body=body, headers=headers)

    async def status(self, request: web.Request) -> web.Response:
        return _html(await self._view(lambda: status_page(status_view(self._reading), self._name)))

    async def service(self, request: web.Request) -> web.Response:
        service = request.match_info["service"]

        def render() -> str | None:
            view = service_view(self._reading, service)
            return None if view is None else service_page(view, self._name)

        page = await self._view(render)
        if page is None:
            raise web.HTTPNotFound(text="No trace of this service is in any window.")
        return _html(page)

    async def trace(self, request: web.Request) -> web.Response:
        service, trace_id = request.match_info["service"], request.match_info["trace_id"]

        def render() -> str | None:
            view = trace_view(self._reading, service, trace_id)
            return None if view is None else trace_page(view, self._name)

        page = await self._view(render)
        if page is None:
            raise web.HTTPNotFound(
                text="This trace is not kept. The agent keeps the worst traces of each metric and "
                "those that alerts name; the others leave only their numbers."
            )
        return _html(page)

    async def windows(self, request: web.Request) -> web.Response:
        text = await self._view(
            lambda: json.dumps(windows_json(self._reading), ensure_ascii=False, allow_nan=False)
        )
        return web.Response(body=text.encode("utf-8", "replace"), content_type="application/json")

    async def segments(self, request: web.Request) -> web.Response:
        def render() -> str:
            found = segments_json(self._reading, SegmentsQuery.parse(request.query))
            return json.dumps(found, ensure_ascii=False, allow_nan=False)

        try:
            text = await self._view(render)
        except InvalidSegmentsQuery as error:
            return web.json_response({"error": str(error)}, status=400)
        return web.Response(body=text.encode("utf-8", "replace"), content_type="application/json")

    async def healthz(self, request: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def readyz(self, request: web.Request) -> web.Response:
        # health() may ask the state store, and a slow disk must not stop the loop.
        health = await asyncio.to_thread(self._reading.health)
        if health.ready:
            return web.Response(text="ready\n")
        return web.Response(status=503, text="".join(f"{line}\n" for line in health.problems))

    async def _view(self, render: Callable[[], T]) -> T:
        async with self._views:
            return await asyncio.to_thread(render)


def _html(text: str, status: int = 200) -> web.Response:
    body = text.encode("utf-8", "replace")
    return web.Response(body=body, status=status, content_type="text/html", charset="utf-8")


async def _secure(request: web.Request, response: web.StreamResponse) -> None:
    response.headers.update({**SECURITY_HEADERS, "Content-Security-Policy": csp()})


@web.middleware
async def _errors(request: web.Request, handler: Handler) -> web.StreamResponse:
    try:
        return await handler(request)
    except web.HTTPException as error:
        # Other apps may add routes for programs, which want their own answers, not a page.
        if error.status < 400 or (request.method not in ("GET", "HEAD") and error.status != 405):
            raise
        detail = error.text if error.text and not error.text.startswith(f"{error.status}") else ""
        response = _html(error_page(error.status, error.reason, detail), error.status)
        if "Allow" in error.headers:
            response.headers["Allow"] = error.headers["Allow"]
        return response
    except Exception:
        log.exception("cannot answer %s %s", request.method, request.rel_url.raw_path[:200])
        return _html(error_page(500, "Internal Server Error", "The log says why."), 500)
