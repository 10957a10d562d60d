"""The HTTP client that asks a service one canary question and builds a trace from the reply."""

from __future__ import annotations

import asyncio
import json
import logging
import math
import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import httpx
from pydantic import ValidationError

from ragmeter.canaries.suite import (
    CanaryQuestion,
    CanarySuite,
    CitationPaths,
    PassagePaths,
    ReplyPaths,
)
from ragmeter.canaries.templates import MISSING, fill_template, resolve_json_path, template_names
from ragmeter.core.errors import DataError, UsageError, describe_fault
from ragmeter.core.outgoing import OutgoingTransport
from ragmeter.core.retries import parse_retry_after
from ragmeter.trace import CANARY, MAX_TAGS, Trace

log = logging.getLogger(__name__)

MAX_PASSAGES = 200
MAX_REPLY_BYTES = 8 * 2**20
_MAX_ERROR_CHARS = 500
_BUSY_STATUSES = (429, 503)


class InvalidRequest(UsageError, ValueError):
    """A placeholder has no value, or a header characters that HTTP does not allow."""


@dataclass(frozen=True, slots=True)
class CanaryAttempt:
    """The trace of one question, and the seconds that the service asks to be left alone."""

    trace: Trace
    pause: float | None = None


class _InvalidReply(DataError, ValueError):
    """A reply that is too large, or has no answer at the path of the suite."""


class CanaryClient:
    """Asks a service the questions of a suite; an asynchronous context manager.

    Redirects are not followed, since the headers may hold a secret.

    Args:
        seconds: Time limit of a call as a whole.
        token: Bearer token for the service.
        environ: Values of `{{env.NAME}}` in headers.

    Raises:
        InvalidRequest: A question lacks a value, or a header cannot be sent.
    """

    def __init__(
        self,
        suite: CanarySuite,
        endpoint: str,
        *,
        seconds: float,
        token: str | None = None,
        environ: Mapping[str, str] | None = None,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self._suite = suite
        self._endpoint = endpoint
        self._seconds = seconds
        self._clock = clock
        self._monotonic = monotonic
        names = {f"env.{name}": value for name, value in (environ or {}).items()}
        request = suite.request
        self._headers = _fill_headers(request.headers, names)
        if token is not None:
            self._headers["Authorization"] = f"Bearer {token}"
        # httpx would let the URL win, and curl the header
        if httpx.URL(endpoint).userinfo and "authorization" in map(str.lower, self._headers):
            raise InvalidRequest("the endpoint has a user or password, and there is a token too")
        for name, value in self._headers.items():
            if not (value.isascii() and value.replace("\t", " ").isprintable()):
                raise InvalidRequest(f"{name}: a header holds printable ASCII only")  # no secret
        for question in suite.questions:
            names_used = template_names(request.body) | template_names(request.params)
            if missing := sorted(names_used - _template_values(question).keys()):
                raise InvalidRequest(
                    f"{question.id}: the request asks for {{{{{missing[0]}}}}}, which this question"
                    " does not have"
                )
        self._client = httpx.AsyncClient(
            timeout=seconds,
            follow_redirects=False,
            transport=transport or OutgoingTransport(),
        )

    async def __aenter__(self) -> CanaryClient:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._client.aclose()

    async def ask(self, question: CanaryQuestion) -> CanaryAttempt:
        """Ask one question; failures give a trace with the status `error` or `timeout`.

        The request carries the trace id (W3C Trace Context), so an agent that sees the spans of the
        service as well counts one trace. `baggage` marks it for services that pass it on.
        """
        trace_id = secrets.token_hex(16)
        headers = {
            "traceparent": f"00-{trace_id}-{secrets.token_hex(8)}-01",
            "baggage": f"{CANARY}=true",
            **self._headers,
        }
        began = self._monotonic()
        at = self._clock()
        status = "error"
        error = None
        reply = dict[str, Any]()
        pause = None
        try:
            async with asyncio.timeout(self._seconds):
                response, body = await self._send(question, headers)
            if response.is_success:
                kind = response.headers.get("content-type", "")
                reply = _parse_reply(body, "json" in kind, self._suite.response)
                status = "ok"
            else:
                error = f"HTTP {response.status_code}"
                if response.status_code in _BUSY_STATUSES:
                    pause = parse_retry_after(response.headers, self._clock())
        except (TimeoutError, httpx.TimeoutException):
            status = "timeout"
            error = f"no reply within {self._seconds:g} s"
        except _InvalidReply as bad:
            error = str(bad)
        except (httpx.HTTPError, httpx.InvalidURL, UnicodeError) as failure:
            # its text may name hosts and proxies
            error = type(failure).__name__
        seconds = self._monotonic() - began
        trace = _build_trace(
            suite=self._suite,
            question=question,
            trace_id=trace_id,
            timestamp=at,
            seconds=seconds,
            reply=reply,
            status=status,
            error=error,
        )
        return CanaryAttempt(trace, pause)

    async def _send(
        self, question: CanaryQuestion, headers: Mapping[str, str]
    ) -> tuple[httpx.Response, bytes]:
        request = self._suite.request
        values = _template_values(question)
        content: dict[str, Any] = {}
        if request.method != "GET":
            body = fill_template(request.body, values)
            content = {"content": body} if isinstance(body, str) else {"json": body}
        async with self._client.stream(
            request.method,
            self._endpoint,
            headers=headers,
            params=fill_template(request.params, values) or None,
            **content,
        ) as response:
            parts: list[bytes] = []
            size = 0
            async for part in response.aiter_bytes():
                size += len(part)
                if size > MAX_REPLY_BYTES:
                    raise _InvalidReply(f"the reply is over {MAX_REPLY_BYTES} bytes")
                parts.append(part)
            return response, b"".join(parts)


def _fill_headers(template: Mapping[str, str], names: Mapping[str, str]) -> dict[str, str]:
    try:
        return {str(key): str(value) for key, value in fill_template(dict(template), names).items()}
    except KeyError as error:
        raise InvalidRequest(f"request.headers: {error.args[0]} is not set") from None


def _template_values(question: CanaryQuestion) -> dict[str, Any]:
    history = [{"role": turn.role, "content": turn.text} for turn in question.history or ()]
    own = {f"vars.{name}": value for name, value in question.vars.items()}
    return {"query": question.query, "id": question.id, "history": history, **own}


def _parse_reply(body: bytes, json_type: bool, paths: ReplyPaths) -> dict[str, Any]:
    """Return the fields of a trace that a reply has. Raises `_InvalidReply`."""
    try:
        document: Any = json.loads(body)
        # half of a surrogate pair cannot be written to a file: it becomes "?"
        document = json.loads(json.dumps(document, ensure_ascii=False).encode("utf-8", "replace"))
    except (ValueError, RecursionError):
        if json_type or paths.answer not in ("$", "."):
            raise _InvalidReply("the reply is not JSON") from None
        document = body.decode("utf-8", "replace")
    answer = _text(resolve_json_path(document, paths.answer))
    if answer is None:
        there = ", ".join(sorted(map(str, document))[:10]) if isinstance(document, dict) else ""
        fields = f"; it has {there}" if there else ""
        raise _InvalidReply(f"the reply has no text at {paths.answer!r}{fields}")
    reply: dict[str, Any] = {"answer": answer}
    passages = _value_at(document, paths.passages)
    if isinstance(passages, list):
        reply["passages"] = [
            _passage(item, number, paths.passage)
            for number, item in enumerate(passages[:MAX_PASSAGES], 1)
        ]
    citations = _value_at(document, paths.citations)
    if isinstance(citations, list):
        reply["citations"] = [
            citation for item in citations if (citation := _citation(item, paths.citation))
        ]
    abstained = _value_at(document, paths.abstained)
    if isinstance(abstained, bool):
        reply["abstained"] = abstained
    scope = _value_at(document, paths.scope)
    if isinstance(scope, list):
        reply["scope"] = [text for item in scope if (text := _text(item)) is not None]
    for name, path in (("model", paths.model), ("prompt_version", paths.prompt_version)):
        value = _value_at(document, path)
        if isinstance(value, str) and value:
            reply[name] = value
    return reply


def _value_at(document: Any, path: str | None) -> Any:
    return MISSING if path is None else resolve_json_path(document, path)


def _text(value: Any) -> str | None:
    """Return a text, a number as text, or a list of texts as one."""
    if isinstance(value, str):
        return value
    if isinstance(value, list) and value and all(isinstance(part, str) for part in value):
        return "".join(value)
    if isinstance(value, int | float) and not isinstance(value, bool):
        return json.dumps(value)
    return None


def _number(value: Any) -> float | None:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return value if number and math.isfinite(value) else None


def _passage(item: Any, number: int, paths: PassagePaths) -> dict[str, Any]:
    passage_id = _text(resolve_json_path(item, paths.id))
    metadata = resolve_json_path(item, paths.metadata)
    metadata = dict(metadata) if isinstance(metadata, Mapping) else {}
    for name, path in (("rel_path", paths.rel_path), ("heading_path", paths.heading_path)):
        value = _value_at(item, path)
        if value is not MISSING and value is not None:
            metadata[name] = value
    return {
        "id": passage_id or str(number),
        "text": item if isinstance(item, str) else _text(resolve_json_path(item, paths.text)),
        "rank": number,
        "score": _number(resolve_json_path(item, paths.score)),
        "metadata": metadata or None,
    }


def _citation(item: Any, paths: CitationPaths) -> dict[str, Any] | None:
    if isinstance(item, Mapping):
        cited = resolve_json_path(item, paths.passage_id)
        ids = [_text(item) for item in (cited if isinstance(cited, list) else [cited])]
        ends = (resolve_json_path(item, paths.start), resolve_json_path(item, paths.end))
        start, end = (end if type(end) is int and end >= 0 else None for end in ends)
    else:
        ids = [_text(item)]
        start = None
        end = None
    ids = [passage_id for passage_id in ids if passage_id]
    return {"start": start, "end": end, "passage_ids": ids} if ids else None


def _build_trace(
    suite: CanarySuite,
    question: CanaryQuestion,
    trace_id: str,
    timestamp: float,
    seconds: float,
    reply: Mapping[str, Any],
    *,
    status: str = "ok",
    error: str | None = None,
) -> Trace:
    """Build the trace; of a reply with a field that is not valid only the answer is used."""
    tags = {**suite.tags, **question.tags}
    if suite.name:
        tags["suite"] = suite.name
    # these two last, with room left for them
    tags = dict(list(tags.items())[: MAX_TAGS - 2])
    tags |= {"question": question.id, CANARY: "true"}
    reference = question.reference
    scope = reply.get("scope")
    if scope is not None:  # where the service says that it searched
        reference = reference.model_copy(update={"scope": scope})
    if reference.answerable is not None:
        tags.setdefault("answerable", "true" if reference.answerable else "false")
    base: dict[str, Any] = {
        "trace_id": trace_id,
        "service": suite.service,
        "timestamp": timestamp,
        "query": question.query,
        "history": question.history,
        "status": status,
        "error": None if error is None else error[:_MAX_ERROR_CHARS],
        "timings": {"total": max(0.0, seconds)},
        "tags": tags,
        "reference": reference,
    }
    try:
        return Trace.model_validate({**base, **reply})
    except ValidationError as error:
        fault = describe_fault(error, "reply")
        log.warning("%s: only the answer of the reply is used; %s", question.id, fault)
        return Trace.model_validate({**base, "answer": reply.get("answer")})
