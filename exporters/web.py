"""The metrics port: /metrics, the JSON API, the status, service and trace pages, and health.

Everything here is read-only. Rendering runs in a thread, so that a long scrape never keeps the
event loop from taking traces in.
"""

from __future__ import annotations

import asyncio
import gzip
import json
import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Any, Self

from aiohttp import web
from prometheus_client.core import CounterMetricFamily
from prometheus_client.registry import Collector

from ragmeter.aggregate.agent_view import AgentView
from ragmeter.breakdown.breakdown import (
    DEFAULT_FDR,
    BreakdownOptions,
    ComparedWith,
    NoPastError,
    build_document,
)
from ragmeter.core.errors import RagmeterError
from ragmeter.core.metric_specs import find_spec
from ragmeter.core.series import is_overflow_series, series_labels
from ragmeter.exporters.exposition import CONTENT_TYPES, accepts_gzip, prefers_openmetrics
from ragmeter.exporters.page.rendering import csp, error_page, service_page, status_page, trace_page
from ragmeter.exporters.page.views import (
    base_view,
    default_segment_window,
    service_breakdown,
    service_view,
    status_view,
    trace_view,
)
from ragmeter.exporters.prometheus import PrometheusExporter, process_registry
from ragmeter.metrics.registry import metric_specs
from ragmeter.server.listener import SECURITY_HEADERS
from ragmeter.windows.windows import Windows

_MAX_SHOWN_CHARS = 100  # characters of what a caller has sent
_PARAMETERS = ("service", "metric", "window", "against", "fdr")


class InvalidSegmentsQuery(RagmeterError, ValueError):
    """A query that cannot be answered; the text says why."""


@dataclass(frozen=True, slots=True)
class SegmentsQuery:
    """A query for a breakdown; None means all services, all metrics and the default window."""

    service: str | None = None
    metric: str | None = None
    window: str | None = None
    against: ComparedWith | None = None
    fdr: float = DEFAULT_FDR

    @classmethod
    def parse(cls, query: Mapping[str, str]) -> Self:
        """Parse the parameters of a URL.

        Raises:
            InvalidSegmentsQuery: A parameter is unknown or has an invalid value.
        """
        for name in query:
            if name not in _PARAMETERS:
                raise InvalidSegmentsQuery(
                    f"{_shown(name)}: one of {', '.join(_PARAMETERS)} is needed"
                )
        metric, against = query.get("metric"), query.get("against")
        if metric is not None and find_spec(metric_specs(), metric) is None:
            raise InvalidSegmentsQuery(f"metric {_shown(metric)} is not known")
        if against is not None and against not in tuple(ComparedWith):
            raise InvalidSegmentsQuery(f"against: one of {', '.join(ComparedWith)} is needed")
        try:
            fdr = float(query.get("fdr", DEFAULT_FDR))
        except ValueError:
            fdr = 0.0
        if not 0 < fdr < 1:
            raise InvalidSegmentsQuery("fdr: a number between 0 and 1 is needed")
        compared_with = ComparedWith(against) if against else None
        return cls(query.get("service"), metric, query.get("window"), compared_with, fdr)


def segments_json(agent: AgentView, query: SegmentsQuery) -> dict[str, Any]:
    """Build the breakdown of each service that has segments, or of the one in the query.

    Raises:
        InvalidSegmentsQuery: The service or window does not exist, or has no past to compare.
    """
    with agent.lock():
        windows = agent.windows
        names, services, now = tuple(windows.names), windows.services(), windows.now
    window = query.window or default_segment_window(names)
    if window not in names:
        raise InvalidSegmentsQuery(f"window {_shown(window)}: one of {', '.join(names)} is needed")
    if query.service is not None and query.service not in services:
        raise InvalidSegmentsQuery(
            f"service {_shown(query.service)}: no trace of it is in any window"
        )
    options = BreakdownOptions(query.metric, query.against, query.fdr)
    try:
        documents = [
            build_document(service_breakdown(agent, service, window, options))
            for service in (services if query.service is None else [query.service])
        ]
    except NoPastError as error:
        raise InvalidSegmentsQuery(str(error)) from None
    return {
        "stream_time": now,
        "window": window,
        "windows": list(names),
        "segments": list(agent.segments),
        "services": documents,
    }


def windows_json(agent: AgentView) -> dict[str, Any]:
    """Build the estimates, states and quantiles of every window, service and segment."""
    view = base_view(agent)
    services: dict[str, Any] = {}
    for service in view.services:
        with agent.lock():
            windows = agent.windows
            services[service] = {
                segment: _segment_json(windows, service, segment, view.windows)
                for segment in ("", *windows.segments(service))
            }
    return {
        "stream_time": view.now,
        "ready": view.health.ready,
        "problems": list(view.health.problems),
        "windows": list(view.windows),
        "services": services,
        "alerts": [_finite(alert.to_dict()) for alert in view.alerts],
    }


def _segment_json(
    windows: Windows, service: str, segment: str, names: Sequence[str]
) -> dict[str, Any]:
    metrics = []
    for metric, scorer in windows.series(service, segment):
        if is_overflow_series(scorer):
            continue
        labels = series_labels(metric, windows.current_scorer(metric, scorer))
        for name in names:
            estimate = windows.estimate(service, segment, metric, scorer, name)
            item: dict[str, Any] = {**labels, "window": name}
            if estimate is not None:
                fields = ("value", "lower", "upper", "effective_samples", "samples")
                item |= {field: getattr(estimate, field) for field in fields}
            states = windows.states(service, segment, metric, scorer, name)
            metrics.append(_finite({**item, "states": dict(states)}))
    latency = [
        {
            "stage": stage,
            "window": name,
            "quantile": item.quantile,
            "value": item.value,
            "lower": item.lower,
            "upper": item.upper,
        }
        for stage in windows.stages(service, segment)
        for name in names
        for item in windows.quantiles(service, segment, stage, name)
    ]
    seen = {name: windows.count_traces(service, segment, name) for name in names}
    return {"seen": seen, "metrics": metrics, "latency": latency}


def _finite(item: Mapping[str, Any]) -> dict[str, Any]:
    """Replace NaN and infinities, which JSON lacks, by null."""
    return {
        key: None if isinstance(value, float) and not isfinite(value) else value
        for key, value in item.items()
    }


def _shown(text: str) -> str:
    return repr(text[:_MAX_SHOWN_CHARS])


REFUSALS_METRIC = "ragmeter_http_refused_total"
NAME = "ragmeter"  # of the agent, on its pages

# Renderings at a time. A page holds a core while it is made, and a scraper must never have to
# wait behind a crowd of browsers.
RENDERERS = 2

_HTML, _JSON = "text/html; charset=utf-8", "application/json"

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

log = logging.getLogger(__name__)


class RefusalsCollector(Collector):
    """Exports the requests that the ports refused, by the name of a port, then by reason."""

    def __init__(self, counts: Mapping[str, Mapping[str, int]]) -> None:
        self._counts = counts

    def collect(self) -> Iterator[CounterMetricFamily]:
        """Yield the counter with a sample for each port and reason."""
        family = CounterMetricFamily(
            REFUSALS_METRIC.removesuffix("_total"),
            "Requests and connections that a port refused, by why.",
            labels=("port", "reason"),
        )
        for port, reasons in list(self._counts.items()):
            for reason, number in list(reasons.items()):
                family.add_metric((port, reason), number)
        yield family


def metrics_app(
    agent: AgentView, *, refused: Mapping[str, Mapping[str, int]] | None = None
) -> web.Application:
    """Make the application of the metrics port; `refused` is for `RefusalsCollector`."""
    registry = process_registry()
    if refused is not None:
        registry.register(RefusalsCollector(refused))
    app = web.Application(middlewares=[_errors])
    app.on_response_prepare.append(_secure)
    handlers = _MetricsPortHandlers(agent, PrometheusExporter(agent, registry=registry))
    app.add_routes(
        [
            web.get("/", handlers.status),
            web.get("/metrics", handlers.metrics),
            # The default pattern excludes braces, which ids may hold.
            web.get("/service/{service:[^/]+}", handlers.service),
            web.get("/trace/{service:[^/]+}/{trace_id:[^/]+}", handlers.trace),
            web.get("/api/windows.json", handlers.windows),
            web.get("/api/segments.json", handlers.segments),
            web.get("/healthz", handlers.healthz),
            web.get("/readyz", handlers.readyz),
        ]
    )
    return app


class _MetricsPortHandlers:
    def __init__(self, agent: AgentView, exporter: PrometheusExporter) -> None:
        self._agent = agent
        self._exporter = exporter
        self._scrapes = asyncio.Semaphore(RENDERERS)
        self._pages = asyncio.Semaphore(RENDERERS)

    async def metrics(self, request: web.Request) -> web.Response:
        openmetrics = prefers_openmetrics(request.headers.getall("Accept", []))
        async with self._scrapes:
            return await asyncio.to_thread(
                lambda: _response(
                    request,
                    self._exporter.render(openmetrics=openmetrics),
                    CONTENT_TYPES[openmetrics],
                )
            )

    async def status(self, request: web.Request) -> web.Response:
        return await self._page(
            request, _HTML, lambda: status_page(status_view(self._agent), NAME), ""
        )

    async def service(self, request: web.Request) -> web.Response:
        service = request.match_info["service"]

        def render() -> str | None:
            view = service_view(self._agent, service)
            return None if view is None else service_page(view, NAME)

        return await self._page(
            request, _HTML, render, "No trace of this service is in any window."
        )

    async def trace(self, request: web.Request) -> web.Response:
        service, trace_id = request.match_info["service"], request.match_info["trace_id"]

        def render() -> str | None:
            view = trace_view(self._agent, service, trace_id)
            return None if view is None else trace_page(view, NAME)

        return await self._page(
            request,
            _HTML,
            render,
            "This trace is not kept. The agent keeps the worst traces of each metric and "
            "those that alerts name; the others leave only their numbers.",
        )

    async def windows(self, request: web.Request) -> web.Response:
        return await self._page(request, _JSON, lambda: _dump(windows_json(self._agent)), "")

    async def segments(self, request: web.Request) -> web.Response:
        def render() -> str:
            return _dump(segments_json(self._agent, SegmentsQuery.parse(request.query)))

        try:
            return await self._page(request, _JSON, render, "")
        except InvalidSegmentsQuery as error:
            return web.json_response({"error": str(error)}, status=400)

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
            return _response(request, text.encode("utf-8", "replace"), kind)

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


def _html(text: str, status: int) -> web.Response:
    body = text.encode("utf-8", "replace")
    return web.Response(body=body, status=status, content_type="text/html", charset="utf-8")


def _dump(document: dict[str, Any]) -> str:
    return json.dumps(document, ensure_ascii=False, allow_nan=False)


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
