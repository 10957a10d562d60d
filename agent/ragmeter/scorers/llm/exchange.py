"""The connection to one model server: bounded requests, key, admission and retry budget."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TypeVar

import httpx

from ragmeter.config.scoring import JudgeSettings
from ragmeter.core.retries import backoff_seconds, parse_retry_after
from ragmeter.scorers.llm.admission import AdmissionControl
from ragmeter.scorers.llm.replies import FailedAttempt
from ragmeter.scorers.llm.server_words import without_quotations
from ragmeter.scorers.llm.transport import ApiKey, ExplainedConnectError, make_http_client

log = logging.getLogger(__name__)

# A verdict with its reasoning is a few kilobytes, the thoughts of a model some hundred.
_MAX_REPLY_BYTES = 2 * 2**20

_LOG_SECONDS = 60.0  # between two warnings about one server

# Between two lines about one cause of failed calls, and causes that have lines of their own.
_CAUSE_SECONDS = 600.0
_MOST_CAUSES = 20

# A shorter key is a word, as local servers take any.
_SHORTEST_KEY = 6

_HEADERS = (
    (b"content-type", b"application/json"),
    (b"accept", b"application/json"),
    (b"accept-encoding", b"identity"),
    (b"user-agent", b"ragmeter"),
)

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ClientTiming:
    """Clocks, sleep and randomness of a client; tests replace them.

    `clock` gives Unix seconds, `monotonic` seconds that never jump.
    """

    clock: Callable[[], float] = time.time
    monotonic: Callable[[], float] = time.monotonic
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    rng: random.Random = field(default_factory=random.Random)


class RetryBudget:
    """A bound on extra attempts: a share of the calls of the last two minutes, and a few more.

    In any two minutes there are at most `share * calls + floor` extra attempts, whatever the
    server does; the floor lets a client with few calls retry at all. All kinds of retries draw on
    it, also those of malformed answers. Times are monotonic seconds.
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
        """Count a call that begins."""
        self._bucket(now)[1] += 1
        self._calls += 1

    def allows(self, now: float) -> bool:
        """Take one extra attempt; return False where the budget has none."""
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


class ServerConnection:
    """One endpoint of a model server.

    Args:
        settings: Settings of the endpoint. User and password in its URL are for a gateway.
        path: Path of the API below the base URL.
        http: Client of the caller's, which `aclose` leaves open; None: a client of its own.

    Raises:
        ValueError: The settings have no `base_url`.
    """

    def __init__(
        self,
        settings: JudgeSettings,
        path: str,
        http: httpx.AsyncClient | None,
        timing: ClientTiming,
    ) -> None:
        if settings.base_url is None:
            raise ValueError("a model server needs a base_url")
        url = httpx.URL(settings.base_url.get_secret_value().rstrip("/") + path)
        self.key = ApiKey(settings.api_key, settings.api_key_file, url.userinfo)
        self.url = url.copy_with(userinfo=b"")
        self.admission = AdmissionControl(settings.concurrency, timing.monotonic, timing.sleep)
        self.timing = timing
        self._seconds = settings.timeout_seconds
        self._budget = RetryBudget()
        self._own_http = http is None
        self._http = http or make_http_client(str(self.url))
        self._host = (b"host", self.url.netloc)
        self._warned = float("-inf")
        self._told: dict[tuple[str, str], list[float]] = {}  # by cause: when told, calls since

    @property
    def is_down(self) -> bool:
        """Whether the circuit breaker is open."""
        return self.admission.breaker.is_open

    def begin_call(self) -> None:
        """Count a call, of which the retry budget is a share."""
        self._budget.call(self.timing.monotonic())

    def may_retry(self) -> bool:
        """Take one extra attempt from the retry budget; return False where there is none."""
        return self._budget.allows(self.timing.monotonic())

    def backoff(self, attempt: int) -> float:
        """Return the seconds to wait before retry `attempt`, where 0 is the first."""
        return backoff_seconds(attempt, self.timing.rng)

    def tell(self, name: str, failure: FailedAttempt, prompt: str) -> None:
        """Log why a call failed, in the server's own words: one line a cause, again in ten minutes.

        What stands in the prompt is left out of the words.
        """
        cause = (failure.outcome, failure.detail)
        now = self.timing.monotonic()
        told = self._told.get(cause)
        if told is None:
            if len(self._told) >= _MOST_CAUSES:
                return
            self._told[cause] = told = [float("-inf"), 0]
        told[1] += 1
        if now - told[0] < _CAUSE_SECONDS:
            return
        calls = f" ({told[1]:.0f} calls)" if told[1] > 1 else ""
        told[0] = now
        told[1] = 0
        kind = failure.outcome.replace("_", " ")
        words = self._words(failure, prompt)
        log.warning("%s gave no verdict%s: %s, %s%s", name, calls, kind, failure.detail, words)

    def words_of(self, failure: FailedAttempt, prompt: str) -> str:
        """Return the server's own words without its key and what stands in the prompt."""
        words = failure.words
        key = (self.key.header or "").rpartition(" ")[2]
        if len(key) >= _SHORTEST_KEY:
            words = words.replace(key, "[secret]")
        return without_quotations(words, prompt)

    def _words(self, failure: FailedAttempt, prompt: str) -> str:
        words = self.words_of(failure, prompt)
        return f'; it says "{words}"' if words else ""

    def warn(self, subject: str, failure: FailedAttempt, prompt: str) -> None:
        """Log a failure, at most once a minute."""
        now = self.timing.monotonic()
        if now - self._warned < _LOG_SECONDS:
            return
        self._warned = now
        self._told[failure.outcome, failure.detail] = [now, 0]
        advice = ""
        if failure.unpaid:
            advice = ": its account has no money or quota left"
        elif failure.outcome == "denied":
            advice = ": check base_url, model and key"
        hint = f"; {self.key.problem}" if self.key.problem else ""
        kind = failure.outcome.replace("_", " ")
        words = self._words(failure, prompt)
        log.warning("%s: %s, %s%s%s%s", subject, kind, failure.detail, words, advice, hint)

    async def aclose(self) -> None:
        """Close the HTTP client, unless it is the caller's."""
        if self._own_http:
            await self._http.aclose()

    async def post(
        self,
        body: bytes,
        authorization: str | None,
        read: Callable[[int, bytes], T | FailedAttempt],
    ) -> T | FailedAttempt:
        """Post a request once.

        Returns:
            What `read` returns, or the failure of the network; none is raised.
        """
        headers = [self._host, *_HEADERS, (b"content-length", b"%d" % len(body))]
        if authorization is not None:
            headers.append((b"authorization", authorization.encode("ascii")))
        # with a stream httpx takes the headers as they are, at a fifth of the time
        stream = httpx.ByteStream(body)
        request = httpx.Request("POST", self.url, headers=headers, stream=stream)
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
            # the text of another error may hold addresses with passwords
            explained = isinstance(error, ExplainedConnectError)
            return FailedAttempt("connection", str(error) if explained else type(error).__name__)
        if content is None:
            return FailedAttempt("too_large", f"a reply of more than {_MAX_REPLY_BYTES} bytes")
        reply = read(response.status_code, content)
        if isinstance(reply, FailedAttempt):
            reply.status = response.status_code
            pause = parse_retry_after(response.headers, self.timing.clock())
            reply.retry_after = reply.retry_after if pause is None else pause
        return reply


async def _read_bounded(response: httpx.Response) -> bytes | None:
    chunks = []
    size = 0
    async for chunk in response.aiter_bytes():
        size += len(chunk)
        if size > _MAX_REPLY_BYTES:
            return None
        chunks.append(chunk)
    return b"".join(chunks)
