"""The label desk: the page on which people label traces, and what `ragmeter label` asks for."""

from __future__ import annotations

import asyncio
import hmac
import json
import secrets
import threading
import time
from collections.abc import Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any, TypeVar
from urllib.parse import unquote

from aiohttp import web
from pydantic import BaseModel, ConfigDict, ValidationError

from ragmeter.core.errors import Unavailable
from ragmeter.core.feedback import CANNOT_TELL, PEOPLE, Feedback, Verdict
from ragmeter.core.metric_specs import MetricSpec
from ragmeter.core.score import BUILTIN_SCORER
from ragmeter.metrics.labelled import PEOPLE_PAIRS
from ragmeter.metrics.registry import metric_specs
from ragmeter.parts.contract import Part, PartHome, PartPages
from ragmeter.parts.labels.documents import LabelDocument
from ragmeter.parts.labels.places import LABEL_PAGE, choose_place
from ragmeter.parts.labels.pool import LabelPool, PoolTrace
from ragmeter.server.paths import read_segment
from ragmeter.windows.people_agreement import ScorerAgreement
from ragmeter.windows.series import Estimate

_T = TypeVar("_T")

_NAME = "labels"  # of the part
_LABEL_ROUTE = LABEL_PAGE.replace("}", ":[^/]+}")  # the default pattern excludes braces
_MAX_QUOTED = 100  # characters of names in an error
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


def label_routes(desk: LabelDesk | None) -> list[web.RouteDef]:
    """Return the routes of the desk; without one they say why there is none."""
    if desk is None:
        return [web.get(_LABEL_ROUTE, _refuse_labels), web.post("/v1/labels", _refuse_labels)]
    return [
        web.get(_LABEL_ROUTE, desk.show),
        web.post(_LABEL_ROUTE, desk.take),
        web.post("/v1/labels", desk.questions),
    ]


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


@dataclass(slots=True)
class LabelView:
    """The page on which people label the traces of a service.

    Args:
        token: Proof that a form comes from this page.
        trace_id: The trace to label; empty where none is drawn.
        left: Drawn traces without labels, of `drawn`.
        waiting: Traces that could be drawn.
        agreement: How well scorers agree with the labels given so far.
        estimates: People's rates and the scores beside them, as (metric, scorer, estimate).
        problem: Why the last form was not taken.
    """

    service: str
    token: str = ""
    trace_id: str = ""
    left: int = 0
    drawn: int = 0
    waiting: int = 0
    agreement: list[ScorerAgreement] = field(default_factory=list)
    estimates: list[tuple[MetricSpec, str, Estimate]] = field(default_factory=list)
    problem: str = ""


class LabelDesk:
    """The page on which people label traces, and what `ragmeter label` asks for.

    A form carries a token that only this page has: no page of another site can make a browser send
    labels in the name of its user, besides what the listener checks.
    """

    def __init__(self, home: PartHome, pages: PartPages) -> None:
        self._home = home
        self._pages = pages
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

    def _place(self, service: str) -> Part[Any]:
        """Return the part that counts a service, of several one with a draw; hold the lock."""
        places: Any = self._home.part_places(_NAME)
        place: Part[Any] | None = choose_place(places, service)
        if place is None:  # its partition has gone to another worker
            raise web.HTTPServiceUnavailable(text="This service is not counted here now.")
        return place

    @contextmanager
    def _pool(self, service: str) -> Iterator[LabelPool]:
        with self._home.lock():
            place: Any = self._place(service)
            yield place.pool

    def _services(self) -> tuple[list[str], str]:
        """Return the services that are counted here, and the longest window."""
        with self._home.lock():
            windows = self._home.windows
            return list(windows.services()), tuple(windows.names)[-1]

    def _left(self, service: str) -> list[PoolTrace]:
        with self._pool(service) as pool:
            return pool.state(service)[0]

    def _text(self, service: str, trace: PoolTrace) -> dict[str, Any] | None:
        """Return a trace to label as it is kept; forget one whose text is gone."""
        with self._pool(service) as pool:  # before it is looked for: it may come meanwhile
            new = pool.is_new((service, trace.trace_id))
        kept = self._home.evidence(service, trace.trace_id)
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
        services, window = self._services()
        if service not in services:
            return None
        with self._pool(service) as pool:
            left, drawn, waiting = pool.state(service)
        view = LabelView(service, left=len(left), drawn=drawn if left else 0, problem=problem)
        view.waiting = waiting
        view.agreement = self.agreement(service)
        view.estimates = people_estimates(self._home, service, window)
        with self._leasing:
            for one in self._lease(left, person):
                if self._text(service, one):
                    view.trace_id = one.trace_id
                    break
        view.token = self._token(service, view.trace_id)
        return view

    def _render(self, view: LabelView) -> str:
        # labels correct the built-in score: what it finds would bend them
        return self._pages.page(
            f"{__package__}:label.html",
            f"Label · {view.service}",
            {"view": view, "agreement": view.agreement},
            (view.service, view.trace_id) if view.trace_id else None,
        )

    async def show(self, request: web.Request, problem: str = "") -> web.Response:
        """Show the next trace of the draw, or the form that makes one."""
        service = read_segment(request.match_info["service"])
        # random: behind a proxy all have its address, and many the same browser
        person = request.cookies.get(_PERSON, "")[:32] or secrets.token_hex(8)
        view = await asyncio.to_thread(self._view, service, person, problem)
        if view is None:
            raise web.HTTPNotFound(text="No trace of this service is in any window.")
        text = await asyncio.to_thread(self._render, view)
        response = web.Response(
            body=text.encode("utf-8", "replace"),
            status=400 if problem else 200,
            content_type="text/html",
            charset="utf-8",
        )
        # with no-referrer a browser would send the form with `Origin: null`
        response.headers["Referrer-Policy"] = "same-origin"
        response.set_cookie(_PERSON, person, path="/label", httponly=True, samesite="Strict")
        return response

    async def take(self, request: web.Request) -> web.Response:
        """Take the labels of a form, or make a draw; then show the next trace."""
        service = read_segment(request.match_info["service"])
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
        document = self._home.evidence(service, trace_id) or {}
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
            with self._home.lock():
                place = self._place(service)
            self._home.receive_at(place, [LabelDocument.of(feedback)], "page")
        except Unavailable as error:
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
        services, window = await asyncio.to_thread(self._services)
        names = [name for name in services if body.service in (None, name)]
        if len(names) != 1:
            known = ", ".join(services[:20]) or "none"
            why = f"name one service that has traces (--service): {known[:_MAX_QUOTED]!r}"
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
        document = await asyncio.to_thread(self._document, names[0], window)
        text = json.dumps(document, ensure_ascii=False, allow_nan=False)
        return web.Response(text=text, content_type="application/json")

    def _document(self, service: str, window: str) -> dict[str, Any]:
        questions = []
        for one in self._left(service):
            if kept := self._text(service, one):
                questions.append({**kept, "probability": one.probability})
        rows = people_estimates(self._home, service, window)
        return {
            "questions": questions,
            "window": window,
            "note": "texts of drawn traces are read first: ask again"
            if self._left(service)
            else "no trace waits to be labelled: traces enter with the share of sampling.people,"
            " and each is drawn once at most",
            "estimates": [
                [spec.name, scorer, one.value, one.lower, one.upper, one.samples]
                for spec, scorer, one in rows
            ],
            "agreement": self.agreement(service),
        }


def people_estimates(
    home: PartHome, service: str, window: str
) -> list[tuple[MetricSpec, str, Estimate]]:
    """Return people's estimates, where there are any, and those of the cheap tier beside them."""
    rows: list[tuple[MetricSpec, str, Estimate]] = []
    with home.lock():
        windows = home.windows
        series = windows.series(service)
        for metric, _ in PEOPLE_PAIRS:
            found = [
                (metric_specs()[metric], scorer, estimate)
                for scorer in (PEOPLE, BUILTIN_SCORER)
                if (metric, scorer) in series
                and (estimate := windows.estimate(service, "", metric, scorer, window))
            ]
            if any(scorer != BUILTIN_SCORER for _, scorer, _ in found):
                rows += found
    return rows


async def _in_time(reading: Coroutine[Any, Any, _T]) -> _T:
    try:
        async with asyncio.timeout(_FORM_SECONDS):
            return await reading
    except TimeoutError:
        raise web.HTTPRequestTimeout from None
    except LookupError:  # of a charset
        raise web.HTTPUnsupportedMediaType from None
