"""One bounded request and its reply over HTTP; backoff, Retry-After and the retry budget."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import httpx

from ragmeter.core.pacing import parse_retry_after
from ragmeter.scorers.llm.billing import AttemptOutcome
from ragmeter.scorers.llm.dialect import ChatDialect, ServerComplaint
from ragmeter.scorers.llm.replies import ChatCompletion, ReplyFailure, read_chat_reply


class RetryBudget:
    """Extra attempts over all calls: at most `share` of the calls of the last two minutes, and
    `floor` more.

    The floor lets a client with few calls retry at all: in any two minutes there are at most
    `share * calls + floor` extra attempts, whatever the server does. All kinds of retries draw on
    it, also those of malformed answers.
    """

    SECONDS = 120
    STEP = 5  # width of a bucket in seconds

    def __init__(self, share: float = 0.1, floor: int = 10) -> None:
        self._share = share
        self._floor = floor
        self._buckets: deque[list[int]] = deque()  # [step, calls, extras]
        self._calls = 0
        self._extras = 0

    def call(self, now: float) -> None:
        """A call begins. `now` is monotonic."""
        self._bucket(now)[1] += 1
        self._calls += 1

    def allows(self, now: float) -> bool:
        """Takes one extra attempt where the budget has one."""
        bucket = self._bucket(now)
        if self._extras + 1 > self._share * self._calls + self._floor:
            return False
        bucket[2] += 1
        self._extras += 1
        return True

    def _bucket(self, now: float) -> list[int]:
        step = int(now // self.STEP)
        buckets = self._buckets
        while buckets and buckets[0][0] <= step - self.SECONDS // self.STEP:
            _, calls, extras = buckets.popleft()
            self._calls -= calls
            self._extras -= extras
        if not buckets or buckets[-1][0] != step:
            buckets.append([step, 0, 0])
        return buckets[-1]


T = TypeVar("T")

# A verdict with its reasoning is a few kilobytes, the thoughts of a model some hundred.
_MAX_REPLY_BYTES = 2 * 2**20

_HEADERS = (
    (b"content-type", b"application/json"),
    (b"accept", b"application/json"),
    (b"accept-encoding", b"identity"),
    (b"user-agent", b"ragmeter"),
)


@dataclass(slots=True)
class FailedAttempt:
    """An attempt that gave no answer.

    `detail` is for the log. `hopeless`: every call will meet the same. `weaker`: the dialect to
    try instead; `rekeyed`: there is another key to try. `text` and `error`: the malformed answer
    and what is wrong with it.
    """

    outcome: AttemptOutcome
    detail: str
    status: int = 0
    complaint: ServerComplaint | None = None
    hopeless: bool = False
    retry_after: float | None = None
    weaker: ChatDialect | None = None
    rekeyed: bool = False
    text: str = ""
    error: str = ""


class HttpExchange:
    """Posts request bodies to one URL. `clock` in Unix seconds."""

    def __init__(
        self, http: httpx.AsyncClient, url: httpx.URL, seconds: float, clock: Callable[[], float]
    ) -> None:
        self._http = http
        self._url = url
        self._host = (b"host", url.netloc)
        self._seconds = seconds
        self._clock = clock

    async def post(self, body: bytes, authorization: str | None) -> ChatCompletion | FailedAttempt:
        """The completion, or what went wrong; raises nothing on account of the network."""
        return await self.posted(body, authorization, read_chat_reply)

    async def posted(
        self,
        body: bytes,
        authorization: str | None,
        read: Callable[[int, bytes], T | ReplyFailure],
    ) -> T | FailedAttempt:
        """The same for another kind of reply; `read` takes its status and body."""
        headers = [*_HEADERS, (b"content-length", b"%d" % len(body))]
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
                    content = await _read_bounded(response)
                finally:
                    await response.aclose()
        except (TimeoutError, httpx.TimeoutException):
            return FailedAttempt("timeout", f"no reply within {self._seconds:g} s")
        except httpx.HTTPError as error:
            # the text of an error may hold addresses with passwords; that of our transport is the
            # name of the reason
            ours = isinstance(error, httpx.ConnectError) and str(error).isidentifier()
            return FailedAttempt("connection", str(error) if ours else type(error).__name__)
        if content is None:
            return FailedAttempt("too_large", f"a reply of more than {_MAX_REPLY_BYTES} bytes")
        reply = read(response.status_code, content)
        if isinstance(reply, ReplyFailure):
            return _failed_attempt(reply, response, self._clock())
        return reply


def _failed_attempt(failure: ReplyFailure, response: httpx.Response, now: float) -> FailedAttempt:
    return FailedAttempt(
        failure.outcome,
        failure.detail,
        status=response.status_code,
        complaint=failure.complaint,
        hopeless=failure.hopeless,
        retry_after=parse_retry_after(response.headers, now),
    )


async def _read_bounded(response: httpx.Response) -> bytes | None:
    """The body; none where it is too large."""
    chunks = []
    size = 0
    async for chunk in response.aiter_bytes():
        size += len(chunk)
        if size > _MAX_REPLY_BYTES:
            return None
        chunks.append(chunk)
    return b"".join(chunks)
