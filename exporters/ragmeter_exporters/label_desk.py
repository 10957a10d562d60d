"""The label desk: the page on which people label traces, and what `ragmeter label` asks for."""

from __future__ import annotations

import asyncio
import hmac
import secrets
import threading
import time
from collections.abc import Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any, Protocol, TypeVar
from urllib.parse import unquote

from aiohttp import web
from pydantic import BaseModel, ConfigDict, ValidationError
from ragmeter.aggregate.agent_view import AgentView
from ragmeter.core.errors import Unavailable
from ragmeter.core.feedback import CANNOT_TELL, PEOPLE, Feedback, Verdict
from ragmeter.parts.contract import Document, Part
from ragmeter.parts.labels.documents import LabelDocument
from ragmeter.parts.labels.part import LabelsPart
from ragmeter.parts.labels.pool import LabelPool, PoolTrace
from ragmeter.windows.people_agreement import ScorerAgreement

from ragmeter_exporters.page.rendering import label_page
from ragmeter_exporters.page.traces import LabelView, trace_view
from ragmeter_exporters.page.views import base_view, people_estimates
from ragmeter_exporters.responses import JSON, dump_json, html_response, read_name
from ragmeter_exporters.snapshot import quote_sent

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


class LabelSource(Protocol):
    """The agent where it draws traces to be labelled and takes the labels."""

    def part_places(self, name: str) -> Sequence[Part[Any]]:
        """Return a part in each state of services; hold the lock of the agent."""

    def receive_at(self, place: Part[Any], documents: Sequence[Document], source: str) -> list[str]:
        """Make documents of a part durable; may raise `Unavailable`."""


def label_routes(desk: LabelDesk | None) -> list[web.RouteDef]:
    """Return the routes of the desk; without one they say why there is none."""
    if desk is None:
        return [web.get(LABEL_PATH, _refuse_labels), web.post("/v1/labels", _refuse_labels)]
    return [
        web.get(LABEL_PATH, desk.show),
        web.post(LABEL_PATH, desk.take),
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


class LabelDesk:
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

    def _place(self, service: str) -> LabelsPart:
        """Return the part that counts a service, of several one with a draw; hold the lock."""
        places = [
            place
            for place in self._labels.part_places(LabelsPart.name)
            if isinstance(place, LabelsPart) and place.counts(service)
        ]
        if not places:  # its partition has gone to another worker
            raise web.HTTPServiceUnavailable(text="This service is not counted here now.")

        def rank(place: LabelsPart) -> tuple[bool, int]:
            drawn, _, waiting = place.pool.state(service)
            return bool(drawn), waiting

        return max(places, key=rank)

    @contextmanager
    def _pool(self, service: str) -> Iterator[LabelPool]:
        with self._agent.lock():
            yield self._place(service).pool

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
        service = read_name(request, "service")
        # random: behind a proxy all have its address, and many the same browser
        person = request.cookies.get(_PERSON, "")[:32] or secrets.token_hex(8)
        view = await asyncio.to_thread(self._view, service, person, problem)
        if view is None:
            raise web.HTTPNotFound(text="No trace of this service is in any window.")
        response = html_response(label_page(view), 400 if problem else 200)
        # with no-referrer a browser would send the form with `Origin: null`
        response.headers["Referrer-Policy"] = "same-origin"
        response.set_cookie(_PERSON, person, path="/label", httponly=True, samesite="Strict")
        return response

    async def take(self, request: web.Request) -> web.Response:
        """Take the labels of a form, or make a draw; then show the next trace."""
        service = read_name(request, "service")
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
            with self._agent.lock():
                place = self._place(service)
            self._labels.receive_at(place, [LabelDocument.of(feedback)], "page")
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
        return web.Response(text=dump_json(document), content_type=JSON)

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
