"""The metrics port: /metrics, the JSON API, the pages of services and traces, and health.

Everything here is read-only; parts may mount handlers of their own beside it.
Rendering runs in a thread, so that a long scrape never keeps the event loop from taking traces in.
"""

from __future__ import annotations

import asyncio
import gzip
import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence

from aiohttp import web
from ragmeter.aggregate.agent_view import AgentView
from ragmeter.config.reporting import RUNBOOK_PATH
from ragmeter.parts.contract import PartPages, ServiceLink
from ragmeter.server.listener import SECURITY_HEADERS
from ragmeter.server.paths import quote_sent, trace_path

from ragmeter_exporters.exposition import CONTENT_TYPES, accepts_gzip, prefers_openmetrics
from ragmeter_exporters.page.incidents import incident_view
from ragmeter_exporters.page.part_pages import PartPageMaker
from ragmeter_exporters.page.rendering import (
    csp,
    details_page,
    error_page,
    fleet_page,
    incident_page,
    runbook_page,
    service_page,
    trace_page,
)
from ragmeter_exporters.page.services import fleet_view, service_view
from ragmeter_exporters.page.traces import find_trace, trace_view
from ragmeter_exporters.page.views import PageOptions, details_view
from ragmeter_exporters.prometheus import PrometheusExporter, RefusalsCollector, process_registry
from ragmeter_exporters.responses import HTML, JSON, dump_json, html_response, read_name
from ragmeter_exporters.snapshot import (
    questions_json,
    windows_json,
)

# Renderings at a time. A page holds a core while it is made, and a scraper must never have to
# wait behind a crowd of browsers.
RENDERERS = 2

_NOT_KEPT = (
    "The agent keeps the worst traces of each metric and those that alerts name; the others leave "
    "only their numbers."
)

_NO_INCIDENT = (
    "This incident is not held: it has been over for some time. The message about it has its id, "
    "and the page of its service what there is now."
)

_NO_SERVICE = "No request of this service is in any window."

_REFRESH_SECONDS = 30  # as often as a Prometheus commonly scrapes

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

log = logging.getLogger(__name__)


def metrics_app(
    agent: AgentView,
    *,
    refused: Mapping[str, Mapping[str, int]] | None = None,
    links: Sequence[ServiceLink] = (),
    trace_url: str = "",
    routes: Callable[[PartPages], Iterable[web.RouteDef]] = lambda pages: (),
) -> web.Application:
    """Make the application of the metrics port.

    Args:
        agent: What is shown.
        refused: For `RefusalsCollector`.
        links: The pages of parts to which those of services lead.
        trace_url: The template of the address of a trace in the tracing backend.
        routes: Returns the routes of parts.
    """
    registry = process_registry()
    if refused is not None:
        registry.register(RefusalsCollector(refused))
    app = web.Application(middlewares=[_errors])
    app.on_response_prepare.append(_secure)
    exporter = PrometheusExporter(agent, registry=registry)
    options = PageOptions(links, trace_url, started=time.time())
    handlers = _MetricsPortHandlers(agent, exporter, options)
    app.add_routes(
        [
            web.get("/", handlers.fleet),
            web.get("/metrics", handlers.metrics),
            web.get("/metrics/detail", handlers.detail),
            # The default pattern excludes braces, which ids may hold.
            web.get("/service/{service:[^/]+}", handlers.service),
            web.get("/service/{service:[^/]+}/details", handlers.details),
            web.get("/incident/{service:[^/]+}/{incident:[^/]+}", handlers.incident),
            web.get("/trace", handlers.search),
            web.get("/trace/{service:[^/]+}/{trace_id:[^/]+}", handlers.trace),
            web.get(RUNBOOK_PATH + r"/{name:[A-Za-z-]+}.md", handlers.runbook),
            web.get("/api/windows.json", handlers.windows),
            web.get("/api/questions.json", handlers.questions),
            web.get("/healthz", handlers.healthz),
            web.get("/readyz", handlers.readyz),
        ]
    )
    app.add_routes(routes(PartPageMaker(agent)))
    return app


class _MetricsPortHandlers:
    def __init__(
        self,
        agent: AgentView,
        exporter: PrometheusExporter,
        options: PageOptions,
    ) -> None:
        self._agent = agent
        self._options = options
        self._exporter = exporter
        self._scrapes = asyncio.Semaphore(RENDERERS)
        self._pages = asyncio.Semaphore(RENDERERS)

    async def metrics(self, request: web.Request) -> web.Response:
        return await self._scrape(request, self._exporter.render)

    async def detail(self, request: web.Request) -> web.Response:
        return await self._scrape(request, self._exporter.render_detail)

    async def _scrape(self, request: web.Request, render: Callable[..., bytes]) -> web.Response:
        openmetrics = prefers_openmetrics(request.headers.getall("Accept", []))
        async with self._scrapes:
            return await asyncio.to_thread(
                lambda: _response(
                    request,
                    render(openmetrics=openmetrics),
                    CONTENT_TYPES[openmetrics],
                )
            )

    async def fleet(self, request: web.Request) -> web.Response:
        """Show all services; one alone is shown as on its own page."""

        def render() -> str:
            view = fleet_view(self._agent, self._options)
            if len(view.rows) == 1 and not view.unnamed:
                alone = service_view(self._agent, view.rows[0].name, self._options)
                if alone is not None:
                    return service_page(alone)
            return fleet_page(view)

        return await self._page(request, HTML, render, "")

    async def service(self, request: web.Request) -> web.Response:
        service = read_name(request, "service")

        def render() -> str | None:
            view = service_view(
                agent=self._agent,
                service=service,
                options=self._options,
                question=request.query.get("question", ""),
                span=request.query.get("range"),
            )
            return None if view is None else service_page(view)

        return await self._page(request, HTML, render, _NO_SERVICE)

    async def details(self, request: web.Request) -> web.Response:
        service = read_name(request, "service")
        series = request.query.get("metric", ""), request.query.get("scorer", "")

        def render() -> str | None:
            view = details_view(
                agent=self._agent,
                service=service,
                options=self._options,
                span=request.query.get("range"),
                series=series,
            )
            return None if view is None else details_page(view)

        return await self._page(request, HTML, render, _NO_SERVICE)

    async def incident(self, request: web.Request) -> web.Response:
        service = read_name(request, "service")
        name = read_name(request, "incident")

        def render() -> str | None:
            view = incident_view(self._agent, service, name, self._options)
            return None if view is None else incident_page(view)

        return await self._page(request, HTML, render, _NO_INCIDENT)

    async def trace(self, request: web.Request) -> web.Response:
        service = read_name(request, "service")
        trace_id = read_name(request, "trace_id")
        series = request.query.get("metric", ""), request.query.get("scorer", "")

        def render() -> str | None:
            view = trace_view(
                agent=self._agent,
                service=service,
                trace_id=trace_id,
                options=self._options,
                series=series,
            )
            return None if view is None else trace_page(view)

        return await self._page(request, HTML, render, _NOT_KEPT)

    async def search(self, request: web.Request) -> web.Response:
        """Lead to the page of the trace with the id that was asked for."""
        trace_id = request.query.get("id", "").strip()
        async with self._pages:
            service = await asyncio.to_thread(find_trace, self._agent, trace_id)
        if service is None:
            raise web.HTTPNotFound(text=f"No trace {quote_sent(trace_id)} is kept. {_NOT_KEPT}")
        raise web.HTTPFound(trace_path(service, trace_id))

    async def runbook(self, request: web.Request) -> web.Response:
        name = request.match_info["name"]
        parts = self._agent.part_kinds
        return await self._page(
            request, HTML, lambda: runbook_page(name, parts), "There is no such runbook."
        )

    async def windows(self, request: web.Request) -> web.Response:
        return await self._page(request, JSON, lambda: dump_json(windows_json(self._agent)), "")

    async def questions(self, request: web.Request) -> web.Response:
        return await self._page(request, JSON, lambda: dump_json(questions_json(self._agent)), "")

    async def healthz(self, request: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def readyz(self, request: web.Request) -> web.Response:
        # health() may ask the state store, and a slow disk must not stop the loop.
        health = await asyncio.to_thread(self._agent.health)
        if health.ready:
            return web.Response(text="ready\n")
        return web.Response(status=503, text="".join(f"{line}\n" for line in health.problems))

    async def _page(
        self, request: web.Request, kind: str, render: Callable[[], str | None], missing: str
    ) -> web.Response:
        """Answer with what `render` gives; None is answered by 404 with the text `missing`."""

        def respond() -> web.Response | None:
            text = render()
            if text is None:
                return None
            response = _response(request, text.encode("utf-8", "replace"), kind)
            if "refresh" in request.query:  # never unasked: it throws a screen reader off the page
                response.headers["Refresh"] = str(_REFRESH_SECONDS)
            return response

        async with self._pages:
            response = await asyncio.to_thread(respond)
        if response is None:
            raise web.HTTPNotFound(text=missing)
        return response


def _response(request: web.Request, body: bytes, kind: str) -> web.Response:
    """Make a response, compressed if gzip is accepted; that takes time, so call it in a thread."""
    headers = {"Content-Type": kind, "Vary": "Accept, Accept-Encoding"}
    if accepts_gzip(request.headers.getall("Accept-Encoding", [])):
        headers["Content-Encoding"] = "gzip"
        # Level 1: what repeats, repeats so much that higher levels cost time and save little.
        body = gzip.compress(body, 1, mtime=0)
    return web.Response(body=body, headers=headers)


async def _secure(request: web.Request, response: web.StreamResponse) -> None:
    for name, value in {**SECURITY_HEADERS, "Content-Security-Policy": csp()}.items():
        response.headers.setdefault(name, value)


@web.middleware
async def _errors(request: web.Request, handler: Handler) -> web.StreamResponse:
    try:
        return await handler(request)
    except web.HTTPException as error:
        # Other apps may add routes for programs, which want their own answers, not a page.
        if error.status < 400 or (request.method not in ("GET", "HEAD") and error.status != 405):
            raise
        detail = error.text if error.text and not error.text.startswith(f"{error.status}") else ""
        response = html_response(error_page(error.status, error.reason, detail), error.status)
        if "Allow" in error.headers:
            response.headers["Allow"] = error.headers["Allow"]
        return response
    except Exception:
        if request.content.exception() is not None:
            raise  # the client broke the body off: the listener counts that
        log.exception("cannot answer %s %s", request.method, request.rel_url.raw_path[:200])
        return html_response(error_page(500, "Internal Server Error", "The log says why."), 500)
