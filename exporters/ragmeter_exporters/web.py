"""The metrics port: /metrics, the JSON API, the status, service and trace pages, and health.

Only people's labels change anything; all else is read. Rendering runs in a thread, so that a long
scrape never keeps the event loop from taking traces in.
"""

from __future__ import annotations

import asyncio
import gzip
import hmac
import json
import logging
import secrets
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any, Protocol, TypeVar
from urllib.parse import unquote

from aiohttp import web
from pydantic import BaseModel, ConfigDict, ValidationError
from ragmeter.aggregate.agent_view import AgentView
from ragmeter.aggregate.service_state import ServiceState
from ragmeter.config.reporting import RUNBOOK_PATH
from ragmeter.core.feedback import CANNOT_TELL, PEOPLE, Feedback, Verdict
from ragmeter.embedded.intake import QueueFull, StateUnavailable
from ragmeter.sampling.labelling import LabelPool, PoolTrace
from ragmeter.sampling.people_agreement import ScorerAgreement
from ragmeter.server.client import read_segment, trace_path
from ragmeter.server.listener import SECURITY_HEADERS

from ragmeter_exporters.exposition import CONTENT_TYPES, accepts_gzip, prefers_openmetrics
from ragmeter_exporters.page.rendering import (
    csp,
    error_page,
    label_page,
    runbook_page,
    service_page,
    status_page,
    trace_page,
)
from ragmeter_exporters.page.traces import LabelView, find_trace, trace_view
from ragmeter_exporters.page.views import (
    PageOptions,
    base_view,
    people_estimates,
    service_view,
    status_view,
)
from ragmeter_exporters.prometheus import PrometheusExporter, RefusalsCollector, process_registry
from ragmeter_exporters.snapshot import (
    InvalidSegmentsQuery,
    SegmentsQuery,
    quote_sent,
    segments_json,
    windows_json,
)


def _read_name(request: web.Request, name: str) -> str:
    return read_segment(request.match_info[name])


_T = TypeVar("_T")

LABEL_PATH = "/label/{service:[^/]+}"
_NO_LABELS = (
    "No traces are drawn here: sampling.people or feedback.traces was 0 at the start. Set it, or"
    " send labels of a file (ragmeter label FILE) to /v1/feedback, or to the topic rag.feedback."
)
_UNREAD = ("pending", "crowded")  # a worker on Kafka has not read the text again
MAX_DRAW = 1000  # traces of one draw
_LEASE_SECONDS = 600.0  # for which a trace to label is shown to nobody else
_PERSON = "person"  # the cookie that tells those who label at the same time apart
_FORM_SECONDS = 30.0  # in which the body of a form must arrive
_CHOICES = {"yes": True, "no": False, "cannot_tell": CANNOT_TELL}

# Renderings at a time. A page holds a core while it is made, and a scraper must never have to
# wait behind a crowd of browsers.
RENDERERS = 2

_NOT_KEPT = (
    "The agent keeps the worst traces of each metric and those that alerts name; the others leave "
    "only their numbers."
)

_REFRESH_SECONDS = 30  # as often as a Prometheus commonly scrapes
_HTML, _JSON = "text/html; charset=utf-8", "application/json"

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

log = logging.getLogger(__name__)


class LabelSource(Protocol):
    """The agent where it draws traces to be labelled and takes the labels."""

    def state_of(self, service: str) -> ServiceState | None:
        """Return the state with the traces that may be drawn; hold the lock of the agent."""

    def add_label(self, service: str, feedback: Feedback) -> None:
        """Make labels durable; may raise `StateUnavailable` or `QueueFull`."""


def metrics_app(
    agent: AgentView,
    *,
    refused: Mapping[str, Mapping[str, int]] | None = None,
    labels: LabelSource | None = None,
    trace_url: str = "",
) -> web.Application:
    """Make the application of the metrics port; `refused` is for `RefusalsCollector`.

    With `labels` there is a page on which people label traces. `trace_url` is the template of the
    address of a trace in the tracing backend.
    """
    registry = process_registry()
    if refused is not None:
        registry.register(RefusalsCollector(refused))
    app = web.Application(middlewares=[_errors])
    app.on_response_prepare.append(_secure)
    exporter = PrometheusExporter(agent, registry=registry)
    options = PageOptions(labels is not None, trace_url, started=time.time())
    handlers = _MetricsPortHandlers(agent, exporter, options)
    app.add_routes(
        [
            web.get("/", handlers.status),
            web.get("/metrics", handlers.metrics),
            # The default pattern excludes braces, which ids may hold.
            web.get("/service/{service:[^/]+}", handlers.service),
            web.get("/trace", handlers.search),
            web.get("/trace/{service:[^/]+}/{trace_id:[^/]+}", handlers.trace),
            web.get(RUNBOOK_PATH + r"/{name:[A-Za-z-]+}.md", handlers.runbook),
            web.get("/api/windows.json", handlers.windows),
            web.get("/api/segments.json", handlers.segments),
            web.get("/healthz", handlers.healthz),
            web.get("/readyz", handlers.readyz),
        ]
    )
    if labels is not None:
        desk = _LabelHandlers(agent, labels)
        handlers.agreement = desk.agreement
        app.add_routes(
            [
                web.get(LABEL_PATH, desk.show),
                web.post(LABEL_PATH, desk.take),
                web.post("/v1/labels", desk.questions),
            ]
        )
    else:
        app.add_routes(
            [web.get(LABEL_PATH, _refuse_labels), web.post("/v1/labels", _refuse_labels)]
        )
    return app


async def _refuse_labels(request: web.Request) -> web.Response:
    if request.method == "POST":
        return web.json_response({"error": _NO_LABELS}, status=404)
    raise web.HTTPNotFound(text=_NO_LABELS)


class _LabelBody(BaseModel):
    """The body of `POST /v1/labels`."""

    model_config = ConfigDict(strict=True, extra="ignore")

    service: str | None = None
    count: int = 0
    trace_id: str = ""
    verdict: Any = None


class _LabelHandlers:
    """The page on which people label traces, and what `ragmeter label` asks for.

    A form carries a token that only this page has: no page of another site can make a browser send
    labels in the name of its user, besides what the listener checks.
    """

    def __init__(self, agent: AgentView, labels: LabelSource) -> None:
        self._agent = agent
        self._labels = labels
        self._key = secrets.token_bytes(32)
        self._leases: dict[str, tuple[str, float]] = {}  # by trace: to whom, until when
        self._leasing = threading.Lock()

    def _lease(self, left: Sequence[PoolTrace], person: str) -> Iterator[PoolTrace]:
        """Yield traces, each lent to a person for a while; what is lent to others comes last."""
        now = time.monotonic()
        ids = {one.trace_id for one in left}
        leases = {key: one for key, one in self._leases.items() if key in ids and one[1] > now}
        self._leases = leases

        def rank(one: PoolTrace) -> int:
            holder = leases[one.trace_id][0] if one.trace_id in leases else None
            return 1 if holder is None else 2 * (holder != person)

        for one in sorted(left, key=rank):
            leases[one.trace_id] = person, now + _LEASE_SECONDS
            yield one

    def _token(self, service: str, trace_id: str) -> str:
        text = f"{service}\0{trace_id}".encode("utf-8", "surrogatepass")
        return hmac.new(self._key, text, sha256).hexdigest()

    def _is_own(self, service: str, fields: Mapping[str, str]) -> bool:
        token = fields.get("token", "").encode("utf-8", "surrogatepass")
        own = self._token(service, fields.get("trace", "")).encode()
        return hmac.compare_digest(token, own)

    @contextmanager
    def _pool(self, service: str) -> Iterator[LabelPool]:
        with self._agent.lock():
            state = self._labels.state_of(service)
            if state is None:  # its partition has gone to another worker
                raise web.HTTPServiceUnavailable(text="This service is not counted here now.")
            yield state.labels

    def _left(self, service: str) -> list[PoolTrace]:
        with self._pool(service) as pool:
            return pool.state(service)[0]

    def _text(self, service: str, trace: PoolTrace) -> dict[str, Any] | None:
        """Return a trace to label as it is kept; forget one whose text is gone."""
        with self._pool(service) as pool:  # before it is looked for: it may come meanwhile
            new = pool.is_new((service, trace.trace_id))
        kept = self._agent.evidence(service, trace.trace_id)
        content = kept["trace"].get("content") if kept else "pending" if new else "gone"
        if content == "gone":
            with self._pool(service) as pool:
                pool.forget(service, trace.trace_id)
        return None if content in ("gone", *_UNREAD) else kept

    def agreement(self, service: str) -> list[ScorerAgreement]:
        """Return how well the scorers agree with the labels of a service."""
        with self._pool(service) as pool:
            return pool.agreement(service)

    def _view(self, service: str, person: str, problem: str = "") -> LabelView | None:
        base = base_view(self._agent)
        if service not in base.services:
            return None
        with self._pool(service) as pool:
            left, drawn, waiting = pool.state(service)
        view = LabelView(base, service, left=len(left), drawn=drawn if left else 0, problem=problem)
        view.waiting, view.agreement = waiting, self.agreement(service)
        view.estimates = people_estimates(self._agent, service, base.windows[-1])
        with self._leasing:
            for one in self._lease(left, person):
                if self._text(service, one):
                    view.trace = trace_view(self._agent, service, one.trace_id)
                    break
        view.token = self._token(service, view.trace.trace_id if view.trace else "")
        return view

    async def show(self, request: web.Request, problem: str = "") -> web.Response:
        """Show the next trace of the draw, or the form that makes one."""
        service = _read_name(request, "service")
        # random: behind a proxy all have its address, and many the same browser
        person = request.cookies.get(_PERSON, "")[:32] or secrets.token_hex(8)
        view = await asyncio.to_thread(self._view, service, person, problem)
        if view is None:
            raise web.HTTPNotFound(text="No trace of this service is in any window.")
        response = _html(label_page(view), 400 if problem else 200)
        # with no-referrer a browser would send the form with `Origin: null`
        response.headers["Referrer-Policy"] = "same-origin"
        response.set_cookie(_PERSON, person, path="/label", httponly=True, samesite="Strict")
        return response

    async def take(self, request: web.Request) -> web.Response:
        """Take the labels of a form, or make a draw; then show the next trace."""
        service = _read_name(request, "service")
        if request.content_type != "application/x-www-form-urlencoded":
            raise web.HTTPUnsupportedMediaType
        form = await _in_time(request.post())
        fields = {name: value for name, value in form.items() if isinstance(value, str)}
        # quoted: a page writes hidden characters out, and a browser changes line feeds
        trace_id = fields["trace"] = unquote(fields.get("trace", ""))
        if not self._is_own(service, fields):
            return await self.show(request, "This form is too old. Nothing was stored.")
        if not trace_id:
            await asyncio.to_thread(self._draw, service, fields.get("count", ""))
            raise web.HTTPSeeOther(request.rel_url.raw_path)
        try:
            verdict = Verdict.model_validate(
                {name: _CHOICES[fields[name]] for name in Verdict.model_fields if fields.get(name)}
            )
        except (KeyError, ValidationError):
            return await self.show(request, "This form is not complete. Nothing was stored.")
        if verdict.grounded is None and verdict.answered is not False:
            why = "An answer that claims nothing does not attempt the question: answer one anew."
            return await self.show(request, why)
        if problem := await asyncio.to_thread(self._store, service, trace_id, verdict):
            return await self.show(request, problem)
        raise web.HTTPSeeOther(request.rel_url.raw_path)

    def _store(self, service: str, trace_id: str, verdict: Verdict) -> str:
        """Make the labels of a drawn trace durable; return why they were not, or ""."""
        drawn = {one.trace_id: one.probability for one in self._left(service)}
        if trace_id not in drawn:
            return "This trace has a label by now, or was not drawn. Nothing was stored."
        document = self._agent.evidence(service, trace_id) or {}
        feedback = Feedback(
            trace_id=trace_id,
            # as it was sent: the name of the page is bounded
            service=(document.get("trace") or {}).get("service"),
            timestamp=datetime.now(UTC),
            scorer=PEOPLE,
            probability=drawn[trace_id],
            verdict=verdict,
        )
        try:
            self._labels.add_label(service, feedback)
        except (StateUnavailable, QueueFull) as error:
            return f"Not known to be stored: {error}"
        return ""

    def _draw(self, service: str, count: object) -> None:
        try:
            number = min(MAX_DRAW, int(str(count)))
        except ValueError:
            return
        if number > 0:
            with self._pool(service) as pool:
                pool.draw(service, number)

    async def questions(self, request: web.Request) -> web.Response:
        """Return the traces to label as JSON, after a draw of `count` if none are left.

        The body is {"service": NAME, "count": NUMBER}; both may be missing. With a `trace_id` and a
        `verdict`, the labels of that trace are stored instead.
        """
        try:
            body = _LabelBody.model_validate(await _in_time(request.json()))
        except (ValueError, RecursionError):
            why = "the body is a JSON object; its count is an integer, its trace_id a string"
            return web.json_response({"error": why}, status=400)
        base = await asyncio.to_thread(base_view, self._agent)
        names = [name for name in base.services if body.service in (None, name)]
        if len(names) != 1:
            known = ", ".join(base.services[:20]) or "none"
            why = f"name one service that has traces (--service): {quote_sent(known)}"
            return web.json_response({"error": why}, status=400)
        if "trace_id" in body.model_fields_set:
            try:
                verdict = Verdict.model_validate(body.verdict)
            except ValidationError:
                verdict = Verdict()
            if not verdict.given:
                return web.json_response({"error": "the verdict has no labels"}, status=400)
            if problem := await asyncio.to_thread(self._store, names[0], body.trace_id, verdict):
                return web.json_response({"error": problem}, status=409)
            return web.json_response({"accepted": 1})
        await asyncio.to_thread(self._draw, names[0], body.count)
        document = await asyncio.to_thread(self._document, names[0], base.windows[-1])
        return web.Response(text=_dump(document), content_type=_JSON)

    def _document(self, service: str, window: str) -> dict[str, Any]:
        questions = []
        for one in self._left(service):
            if kept := self._text(service, one):
                questions.append({**kept, "probability": one.probability})
        rows = people_estimates(self._agent, service, window)
        return {
            "questions": questions,
            "window": window,
            "note": "texts of drawn traces are read first (kafka.evidence_total_bytes): ask again"
            if self._left(service)
            else "no trace waits to be labelled: traces enter with the share of sampling.people,"
            " and each is drawn once at most",
            "estimates": [
                [spec.name, scorer, one.value, one.lower, one.upper, one.samples]
                for spec, scorer, one in rows
            ],
            "agreement": self.agreement(service),
        }


async def _in_time(reading: Coroutine[Any, Any, _T]) -> _T:
    try:
        return await asyncio.wait_for(reading, _FORM_SECONDS)
    except TimeoutError:
        raise web.HTTPRequestTimeout from None
    except LookupError:  # of a charset
        raise web.HTTPUnsupportedMediaType from None


class _MetricsPortHandlers:
    def __init__(
        self, agent: AgentView, exporter: PrometheusExporter, options: PageOptions
    ) -> None:
        self._agent = agent
        self._options = options
        self._exporter = exporter
        self._scrapes = asyncio.Semaphore(RENDERERS)
        self._pages = asyncio.Semaphore(RENDERERS)
        self.agreement: Callable[[str], list[ScorerAgreement]] = lambda service: []

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
        span = request.query.get("range")
        return await self._page(
            request, _HTML, lambda: status_page(status_view(self._agent, self._options, span)), ""
        )

    async def service(self, request: web.Request) -> web.Response:
        service = _read_name(request, "service")
        span = request.query.get("range")
        series = request.query.get("metric", ""), request.query.get("scorer", "")

        def render() -> str | None:
            view = service_view(
                agent=self._agent, service=service, options=self._options, span=span, series=series
            )
            if view is None:
                return None
            view.agreement = self.agreement(service)
            return service_page(view)

        return await self._page(
            request, _HTML, render, "No trace of this service is in any window."
        )

    async def trace(self, request: web.Request) -> web.Response:
        service = _read_name(request, "service")
        trace_id = _read_name(request, "trace_id")
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

        return await self._page(request, _HTML, render, _NOT_KEPT)

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
        return await self._page(
            request, _HTML, lambda: runbook_page(name), "There is no such runbook."
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


def _html(text: str, status: int) -> web.Response:
    body = text.encode("utf-8", "replace")
    return web.Response(body=body, status=status, content_type="text/html", charset="utf-8")


def _dump(document: dict[str, Any]) -> str:
    return json.dumps(document, ensure_ascii=False, allow_nan=False)


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
        response = _html(error_page(error.status, error.reason, detail), error.status)
        if "Allow" in error.headers:
            response.headers["Allow"] = error.headers["Allow"]
        return response
    except Exception:
        log.exception("cannot answer %s %s", request.method, request.rel_url.raw_path[:200])
        return _html(error_page(500, "Internal Server Error", "The log says why."), 500)
