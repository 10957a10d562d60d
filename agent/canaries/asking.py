"""One question to the service by HTTP, and the trace that becomes of it, whatever happens."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import httpx

from agent.canaries.places import fill, names_in
from agent.canaries.replies import BadReply, read, trace_of
from agent.canaries.suite import Question, Suite
from agent.judge.retries import retry_after
from agent.trace import CANARY, Trace

__all__ = ["Asked", "Asker", "UnknownName"]

MAX_REPLY = 8 * 2**20  # bytes: more is no answer
BUSY = (429, 503)


class UnknownName(ValueError):
    """A template asks for something that nobody gives."""


class _TooLarge(Exception):
    pass


@dataclass(frozen=True, slots=True)
class Asked:
    """`pause`: seconds for which the service wants to be left alone."""

    trace: Trace
    pause: float | None = None


class Asker:
    """`environ` is for `{{env.NAME}}` in headers; `seconds` bounds a call as a whole.

    Redirects are not followed: the headers may hold a secret, and another host is another service.
    Raises `UnknownName` for a template that cannot be filled in for every question.
    """

    def __init__(
        self,
        suite: Suite,
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
        self._headers = _filled("request.headers", request.headers, names)
        if token is not None:
            self._headers["Authorization"] = f"Bearer {token}"
        for question in suite.questions:
            wanted = names_in(request.body) | names_in(request.params)
            if missing := sorted(wanted - _values(question).keys()):
                raise UnknownName(
                    f"{question.id}: the request asks for {{{{{missing[0]}}}}}, which this question"
                    " does not have"
                )
        self._client = httpx.AsyncClient(
            timeout=seconds, follow_redirects=False, transport=transport
        )

    async def __aenter__(self) -> Asker:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._client.aclose()

    async def ask(self, question: Question) -> Asked:
        """The service's own spans of this request get the same trace id (W3C Trace Context), so an
        agent that sees both counts it once; `baggage` marks it for services that pass it on."""
        trace_id = secrets.token_hex(16)
        headers = {
            "traceparent": f"00-{trace_id}-{secrets.token_hex(8)}-01",
            "baggage": f"{CANARY}=true",
            **self._headers,
        }
        began, at = self._monotonic(), self._clock()
        status, error, reply, pause = "error", None, dict[str, Any](), None
        try:
            async with asyncio.timeout(self._seconds):
                response, body = await self._send(question, headers)
            if response.is_success:
                kind = response.headers.get("content-type", "")
                reply = read(body, "json" in kind, self._suite.response)
                status = "ok"
            else:
                error = f"HTTP {response.status_code}"
                if response.status_code in BUSY:
                    pause = retry_after(response.headers, self._clock())
        except (TimeoutError, httpx.TimeoutException):
            status, error = "timeout", f"no reply within {self._seconds:g} s"
        except BadReply as bad:
            error = str(bad)
        except _TooLarge:
            error = f"the reply is over {MAX_REPLY} bytes"
        except (httpx.HTTPError, httpx.InvalidURL, UnicodeError) as failure:
            # its text may name hosts and proxies
            error = type(failure).__name__
        seconds = self._monotonic() - began
        trace = trace_of(
            self._suite, question, trace_id, at, seconds, reply, status=status, error=error
        )
        return Asked(trace, pause)

    async def _send(
        self, question: Question, headers: Mapping[str, str]
    ) -> tuple[httpx.Response, bytes]:
        request = self._suite.request
        values = _values(question)
        content: dict[str, Any] = {}
        if request.method != "GET":
            body = fill(request.body, values)
            content = {"content": body} if isinstance(body, str) else {"json": body}
        async with self._client.stream(
            request.method,
            self._endpoint,
            headers=headers,
            params=fill(request.params, values) or None,
            **content,
        ) as response:
            parts: list[bytes] = []
            size = 0
            async for part in response.aiter_bytes():
                size += len(part)
                if size > MAX_REPLY:
                    raise _TooLarge
                parts.append(part)
            return response, b"".join(parts)


def _filled(where: str, template: Mapping[str, str], names: Mapping[str, str]) -> dict[str, str]:
    try:
        return {str(key): str(value) for key, value in fill(dict(template), names).items()}
    except KeyError as error:
        raise UnknownName(f"{where}: {error.args[0]} is not set") from None


def _values(question: Question) -> dict[str, Any]:
    """What templates may ask for."""
    history = [{"role": turn.role, "content": turn.text} for turn in question.history or ()]
    own = {f"vars.{name}": value for name, value in question.vars.items()}
    return {"query": question.query, "id": question.id, "history": history, **own}
