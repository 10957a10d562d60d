"""Client of one OpenAI-compatible embeddings endpoint, and the reading of its replies.

Reading the reply of an embeddings server: vectors, or what is wrong with it.

Replies are untrusted: a vector that is none must become a reason, never a similarity.

Embeddings over HTTP: one OpenAI-compatible endpoint, asked as carefully as a judge.

Its parts are those of the judge (`ragmeter.scorers.llm`): bounded exchange, breaker, adaptive limiter, retry
budget. Every failure ends in `EmbeddingFailed` with an outcome that is counted.
"""

from __future__ import annotations

import asyncio
import json
import logging
import math
import random
import re
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

import httpx
from pydantic import SecretStr

from ragmeter.core.pacing import backoff_seconds
from ragmeter.metrics.text import tokenize
from ragmeter.scorers.llm.admission import TRANSIENT_OUTCOMES, AdmissionControl, AttemptPermit
from ragmeter.scorers.llm.billing import AttemptOutcome
from ragmeter.scorers.llm.exchange import FailedAttempt, HttpExchange, RetryBudget
from ragmeter.scorers.llm.replies import ReplyFailure, read_error_reply
from ragmeter.scorers.llm.transport import ApiKey, make_http_client

_MAX_DIMENSIONS = 4096
"""Of a vector: more than any model in use gives by default."""

_SERVED_CHARS = 200

# llama.cpp's words for a text of more tokens than its batch, which it sends with status 500: it is
# the text that is wrong, and not the server.
_TOO_LARGE = re.compile(r"too large to process|physical batch size")


@dataclass(frozen=True, slots=True)
class EmbeddingReply:
    """A vector for each text, all of one length. `served`: what the server calls its model."""

    vectors: list[list[float]]
    served: str


def _read_embeddings(
    texts: Sequence[str], status: int, body: bytes
) -> EmbeddingReply | ReplyFailure:
    """What a reply says of `texts`."""
    try:
        reply = json.loads(body)
    except (ValueError, RecursionError):
        reply = None
    if not 200 <= status < 300:
        failure = read_error_reply(status, reply, body)
        if failure.complaint is not None and _TOO_LARGE.search(failure.complaint.message):
            return ReplyFailure("too_long", failure.detail)
        return failure
    try:
        vectors = _vectors(reply, len(texts))
    except (ValueError, OverflowError) as error:
        return ReplyFailure("malformed", str(error))
    if _is_degenerate(texts, vectors):
        return ReplyFailure("malformed", "different texts have the same vector")
    served = reply.get("model")
    return EmbeddingReply(vectors, served[:_SERVED_CHARS] if isinstance(served, str) else "")


def _vectors(reply: Any, number: int) -> list[list[float]]:
    rows = reply.get("data") if isinstance(reply, dict) else None
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise ValueError("the reply is no list of embeddings")
    by_index = {row.get("index"): row.get("embedding") for row in rows if _numbered(row)}
    if len(rows) != number or set(by_index) != set(range(number)):
        raise ValueError("not one embedding for each text")
    vectors = [_vector(by_index[index]) for index in range(number)]
    if len({len(vector) for vector in vectors}) != 1:
        raise ValueError("embeddings of different lengths")
    return vectors


def _numbered(row: dict[str, Any]) -> bool:
    return type(row.get("index")) is int  # True is no index


def _vector(values: Any) -> list[float]:
    if not isinstance(values, list) or not 2 <= len(values) <= _MAX_DIMENSIONS:
        raise ValueError("an embedding is no list of numbers, or too long")
    if not all(type(value) in (int, float) for value in values):
        raise ValueError("an embedding is no list of numbers")
    vector = [float(value) for value in values]
    size = math.hypot(*vector)
    if not math.isfinite(size) or not size:
        raise ValueError("an embedding has no direction")
    return vector


def _is_degenerate(texts: Sequence[str], vectors: Sequence[Sequence[float]]) -> bool:
    """Texts of different words have one vector: a server that answers anything, or a model that
    cannot read the language. All similarities would be 1."""
    first = tokenize(texts[0])
    return any(
        vector == vectors[0] and tokenize(text) != first
        for text, vector in zip(texts[1:], vectors[1:], strict=True)
    )


log = logging.getLogger("ragmeter.embeddings")

EmbeddingTrouble = Literal["timeout", "unavailable", "refused", "malformed"]
"""`timeout`; `unavailable`: no connection, 429, 5xx, or down for a while; `refused`: the server
does not take the text, the key or the model; `malformed`: what it says are no embeddings."""

_TROUBLES: Mapping[AttemptOutcome, EmbeddingTrouble] = {
    "timeout": "timeout",
    "connection": "unavailable",
    "server_error": "unavailable",
    "rate_limited": "unavailable",
    "malformed": "malformed",
    "too_large": "malformed",
}
# About one text, or about what the server says: no sign that it is down.
_ANSWERED_OUTCOMES: frozenset[AttemptOutcome] = frozenset(
    {"malformed", "too_large", "too_long", "refused", "client_error"}
)

_LOG_SECONDS = 60.0


class EmbeddingFailed(Exception):
    """There is no embedding; `trouble` is fit for a label."""

    def __init__(self, trouble: EmbeddingTrouble, detail: str) -> None:
        super().__init__(detail)
        self.trouble: EmbeddingTrouble = trouble


class EmbeddingClient:
    """Asks one endpoint (`base_url` with its `/v1`) for one model. To be closed.

    `http`: a client of the caller's, not closed here; none: one of our own. Clocks in seconds,
    `clock` in Unix time. User and password of the URL are for a gateway, as with a judge.
    """

    def __init__(
        self,
        base_url: str,
        model: str,
        *,
        api_key: SecretStr | None = None,
        api_key_file: Path | None = None,
        dimensions: int | None = None,
        seconds: float = 20.0,
        concurrency: int = 4,
        retries: int = 2,
        http: httpx.AsyncClient | None = None,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        rng: random.Random | None = None,
    ) -> None:
        url = httpx.URL(base_url.rstrip("/") + "/embeddings")
        self._key = ApiKey(api_key, api_key_file, url.userinfo)
        url = url.copy_with(userinfo=b"")
        self.model = model
        self._asked: dict[str, Any] = {"model": model}
        if dimensions is not None:
            self._asked["dimensions"] = dimensions
        self._own_http = http is None
        self._http = http or make_http_client(str(url))
        self._exchange = HttpExchange(self._http, url, seconds, clock)
        self._retries = retries
        self._monotonic = monotonic
        self._sleep = sleep
        self._rng = rng or random.Random()
        self._turns = AdmissionControl(concurrency, monotonic, sleep)
        self._budget = RetryBudget()
        self._logged = float("-inf")

    @property
    def is_down(self) -> bool:
        """Whether the circuit breaker is open."""
        return self._turns.is_down

    @property
    def takes_trial(self) -> bool:
        """Whether it is down and a call would find out now if it still is."""
        return self._turns.takes_trial

    async def aclose(self) -> None:
        if self._own_http:
            await self._http.aclose()

    async def embed(self, texts: Sequence[str], *, patient: bool = True) -> EmbeddingReply:
        """A vector for each of `texts`, in one request. Raises `EmbeddingFailed`.

        While the server is down a `patient` caller waits, for about
        `ragmeter.scorers.llm.admission.PATIENCE` seconds.
        """
        self._budget.call(self._monotonic())
        failures = 0
        last: FailedAttempt | None = None
        while True:
            found: EmbeddingReply | FailedAttempt | None = None
            if patient or not self._turns.breaker.refuses:
                found = await self._turns.run(partial(self._attempt, texts))
            if isinstance(found, EmbeddingReply):
                return found
            last = found or last
            if found is None or not self._again(found, failures):
                break
            await self._sleep(max(backoff_seconds(failures, self._rng), found.retry_after or 0.0))
            failures += 1
        if last is None:
            raise EmbeddingFailed("unavailable", "the embeddings server is down")
        raise EmbeddingFailed(_TROUBLES.get(last.outcome, "refused"), last.detail)

    def _again(self, miss: FailedAttempt, failures: int) -> bool:
        if miss.outcome not in TRANSIENT_OUTCOMES or miss.hopeless or failures >= self._retries:
            return False
        return not self._turns.breaker.lost and self._budget.allows(self._monotonic())

    async def _attempt(
        self, texts: Sequence[str], turn: AttemptPermit
    ) -> EmbeddingReply | FailedAttempt:
        found = await self._sent(texts)
        if isinstance(found, EmbeddingReply):
            self._turns.succeeded(turn)
            return found
        if found.outcome in _ANSWERED_OUTCOMES:
            self._turns.succeeded(turn, trusted=False)
        else:
            self._turns.failed(turn, found)
        self._tell(found)
        return found

    async def _sent(self, texts: Sequence[str]) -> EmbeddingReply | FailedAttempt:
        # lone surrogates, which a trace may have, are no UTF-8 and are sent escaped
        body = json.dumps({**self._asked, "input": list(texts)}).encode("ascii")
        read = partial(_read_embeddings, texts)
        header = self._key.header
        found = await self._exchange.posted(body, header, read)
        if isinstance(found, FailedAttempt) and found.status == 401:
            self._key.reread()
            if self._key.header != header:
                found = await self._exchange.posted(body, self._key.header, read)
        return found

    def _tell(self, miss: FailedAttempt) -> None:
        now = self._monotonic()
        if now - self._logged >= _LOG_SECONDS:
            self._logged = now
            hint = f"; {self._key.problem}" if self._key.problem else ""
            kind = miss.outcome.replace("_", " ")
            log.warning("no embeddings: %s, %s%s", kind, miss.detail, hint)
