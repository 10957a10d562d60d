"""One request and its reply over HTTP, bounded in time and size."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import httpx

from agent.judge.attempt import Outcome
from agent.judge.dialect import Complaint, Dialect
from agent.judge.replies import Completion, Failure, read_reply
from agent.judge.retries import retry_after

__all__ = ["MAX_REPLY_BYTES", "Exchange", "Miss"]

T = TypeVar("T")

# A verdict with its reasoning is a few kilobytes, the thoughts of a model some hundred.
MAX_REPLY_BYTES = 2 * 2**20

HEADERS = (
    (b"content-type", b"application/json"),
    (b"accept", b"application/json"),
    (b"accept-encoding", b"identity"),
    (b"user-agent", b"ragmeter"),
)


@dataclass(slots=True)
class Miss:
    """An attempt that gave no answer.

    `detail` is for the log. `hopeless`: every call will meet the same. `weaker`: the dialect to
    try instead; `rekeyed`: there is another key to try. `text` and `error`: the malformed answer
    and what is wrong with it.
    """

    outcome: Outcome
    detail: str
    status: int = 0
    complaint: Complaint | None = None
    hopeless: bool = False
    retry_after: float | None = None
    weaker: Dialect | None = None
    rekeyed: bool = False
    text: str = ""
    error: str = ""


class Exchange:
    """Posts request bodies to one URL. `clock` in Unix seconds."""

    def __init__(
        self, http: httpx.AsyncClient, url: httpx.URL, seconds: float, clock: Callable[[], float]
    ) -> None:
        self._http = http
        self._url = url
        self._host = (b"host", url.netloc)
        self._seconds = seconds
        self._clock = clock

    async def post(self, body: bytes, authorization: str | None) -> Completion | Miss:
        """The completion, or what went wrong; raises nothing on account of the network."""
        return await self.posted(body, authorization, read_reply)

    async def posted(
        self,
        body: bytes,
        authorization: str | None,
        read: Callable[[int, bytes], T | Failure],
    ) -> T | Miss:
        """The same for another kind of reply; `read` takes its status and body."""
        headers = [*HEADERS, (b"content-length", b"%d" % len(body))]
        if authorization is not None:
            headers.append((b"authorization", authorization.encode("ascii")))
        # with a stream httpx takes the headers as they are, at a fifth of the time
        stream = httpx.ByteStream(body)
        request = httpx.Request("POST", self._url, headers=[self._host, *headers], stream=stream)
        try:
            # of the whole attempt: a server that sends a byte a second is as late as a silent one
            async with asyncio.timeout(self._seconds):
                response = await self._http.send(request, stream=True)
                try:
                    content = await _bounded(response)
                finally:
                    await response.aclose()
        except (TimeoutError, httpx.TimeoutException):
            return Miss("timeout", f"no reply within {self._seconds:g} s")
        except httpx.HTTPError as error:
            # the text of an error may hold addresses with passwords; that of our transport is the
            # name of the reason
            ours = isinstance(error, httpx.ConnectError) and str(error).isidentifier()
            return Miss("connection", str(error) if ours else type(error).__name__)
        if content is None:
            return Miss("too_large", f"a reply of more than {MAX_REPLY_BYTES} bytes")
        reply = read(response.status_code, content)
        if isinstance(reply, Failure):
            return _miss(reply, response, self._clock())
        return reply


def _miss(failure: Failure, response: httpx.Response, now: float) -> Miss:
    return Miss(
        failure.outcome,
        failure.detail,
        status=response.status_code,
        complaint=failure.complaint,
        hopeless=failure.hopeless,
        retry_after=retry_after(response.headers, now),
    )


async def _bounded(response: httpx.Response) -> bytes | None:
    """The body; none where it is too large."""
    chunks = []
    size = 0
    async for chunk in response.aiter_bytes():
        size += len(chunk)
        if size > MAX_REPLY_BYTES:
            return None
        chunks.append(chunk)
    return b"".join(chunks)
