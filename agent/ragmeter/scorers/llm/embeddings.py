"""Client of one OpenAI-compatible embeddings endpoint, and the reading of its replies.

Replies are untrusted: numbers that are no vector must become a reason, never a similarity.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import httpx

from ragmeter.config.scoring import EmbeddingSettings
from ragmeter.core.errors import RagmeterError
from ragmeter.metrics.text import tokenize
from ragmeter.scorers.llm.admission import TRANSIENT_OUTCOMES, AttemptPermit
from ragmeter.scorers.llm.billing import AttemptOutcome
from ragmeter.scorers.llm.exchange import ClientTiming, ServerConnection
from ragmeter.scorers.llm.replies import FailedAttempt, decode_json, read_error_reply

# Numbers in a vector: more than any model in use gives by default.
_MAX_DIMENSIONS = 4096

_SERVED_CHARS = 200

# llama.cpp's message about a text of more tokens than its batch, sent with status 500: the text is
# at fault, not the server.
_TOO_LARGE = re.compile(r"too large to process|physical batch size")

# `unavailable`: no connection, 429, 5xx, or down for a while. `refused`: the server does not take
# the text, the key or the model. `malformed`: the reply holds no embeddings.
EmbeddingTrouble = Literal["timeout", "unavailable", "refused", "malformed"]

_TROUBLES: Mapping[AttemptOutcome, EmbeddingTrouble] = {
    "timeout": "timeout",
    "connection": "unavailable",
    "server_error": "unavailable",
    "rate_limited": "unavailable",
    "malformed": "malformed",
    "too_large": "malformed",
}
# They concern one text, or the content of the reply: no sign that the server is down.
_ANSWERED_OUTCOMES: frozenset[AttemptOutcome] = frozenset(
    {"malformed", "too_large", "too_long", "refused", "client_error"}
)


class EmbeddingFailed(RagmeterError):
    """A call that gave no embeddings; `trouble` is fit for a label."""

    def __init__(self, trouble: EmbeddingTrouble, detail: str) -> None:
        super().__init__(detail)
        self.trouble: EmbeddingTrouble = trouble


@dataclass(frozen=True, slots=True)
class EmbeddingReply:
    """A vector for each text, all of one length, and the model as the server names it."""

    vectors: list[list[float]]
    served: str


class EmbeddingClient:
    """Asks one endpoint for the vectors of one model.

    Args:
        settings: Settings of the endpoint; `base_url` and `model` are set.
        http: Client of the caller's, which `aclose` leaves open; None: a client of its own.
    """

    def __init__(
        self,
        settings: EmbeddingSettings,
        *,
        http: httpx.AsyncClient | None = None,
        timing: ClientTiming | None = None,
    ) -> None:
        self.model = settings.model or ""
        self._parameters: dict[str, Any] = {"model": self.model}
        if settings.dimensions is not None:
            self._parameters["dimensions"] = settings.dimensions
        self._retries = settings.retries
        self._timing = timing or ClientTiming()
        self._server = ServerConnection(settings, "/embeddings", http, self._timing)

    @property
    def is_down(self) -> bool:
        """Whether the circuit breaker is open."""
        return self._server.is_down

    @property
    def takes_trial(self) -> bool:
        """Whether it is down and a call would find out now if it still is."""
        return self._server.admission.takes_trial

    async def aclose(self) -> None:
        """Close the HTTP client, unless it is the caller's."""
        await self._server.aclose()

    async def embed(self, texts: Sequence[str], *, patient: bool = True) -> EmbeddingReply:
        """Return a vector for each of the texts, at least one, from one request.

        With `patient` the call waits while the server is down, about `admission.PATIENCE` seconds.

        Raises:
            EmbeddingFailed: There are none.
        """
        self._server.begin_call()
        failures = 0
        last: FailedAttempt | None = None
        while True:
            result: EmbeddingReply | FailedAttempt | None = None
            if patient or not self._server.admission.breaker.refuses:
                result = await self._server.admission.run(partial(self._attempt, texts))
            if isinstance(result, EmbeddingReply):
                return result
            last = result or last
            if result is None or not self._may_retry(result, failures):
                break
            await self._timing.sleep(max(self._server.backoff(failures), result.retry_after or 0.0))
            failures += 1
        if last is None:
            raise EmbeddingFailed("unavailable", "the embeddings server is down")
        raise EmbeddingFailed(_TROUBLES.get(last.outcome, "refused"), last.detail)

    def _may_retry(self, failure: FailedAttempt, failures: int) -> bool:
        hopeless = failure.hopeless or self._server.admission.breaker.lost
        if hopeless or failure.outcome not in TRANSIENT_OUTCOMES or failures >= self._retries:
            return False
        return self._server.may_retry()

    async def _attempt(
        self, texts: Sequence[str], permit: AttemptPermit
    ) -> EmbeddingReply | FailedAttempt:
        result = await self._send(texts)
        if isinstance(result, EmbeddingReply):
            self._server.admission.succeeded(permit)
            return result
        if result.outcome in _ANSWERED_OUTCOMES:
            self._server.admission.succeeded(permit, trusted=False)
        else:
            self._server.admission.failed(permit, result)
        self._server.warn("no embeddings", result)
        return result

    async def _send(self, texts: Sequence[str]) -> EmbeddingReply | FailedAttempt:
        # lone surrogates, which a trace may have, are no UTF-8 and are sent escaped
        body = json.dumps({**self._parameters, "input": list(texts)}).encode("ascii")
        read = partial(_read_embeddings, texts)
        key = self._server.key
        header = key.header
        result = await self._server.post(body, header, read)
        if isinstance(result, FailedAttempt) and result.status == 401:
            key.reread()
            if key.header != header:
                result = await self._server.post(body, key.header, read)
        return result


def _read_embeddings(
    texts: Sequence[str], status: int, body: bytes
) -> EmbeddingReply | FailedAttempt:
    reply = decode_json(body)
    if not 200 <= status < 300:
        failure = read_error_reply(status, reply, body)
        if failure.complaint is not None and _TOO_LARGE.search(failure.complaint.message):
            return FailedAttempt("too_long", failure.detail)
        return failure
    try:
        vectors = _read_vectors(reply, len(texts))
    except (ValueError, OverflowError) as error:
        return FailedAttempt("malformed", str(error))
    # Texts of different words with one vector come from a server that answers anything, or a model
    # that cannot read the language: all similarities would be 1.
    first = tokenize(texts[0])
    if any(
        vector == vectors[0] and tokenize(text) != first
        for text, vector in zip(texts[1:], vectors[1:], strict=True)
    ):
        return FailedAttempt("malformed", "different texts have the same vector")
    served = reply.get("model")
    return EmbeddingReply(vectors, served[:_SERVED_CHARS] if isinstance(served, str) else "")


def _read_vectors(reply: Any, number: int) -> list[list[float]]:
    rows = reply.get("data") if isinstance(reply, dict) else None
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise ValueError("the reply is no list of embeddings")
    by_index = {
        row["index"]: row.get("embedding")
        for row in rows
        if type(row.get("index")) is int  # True is no index
    }
    if len(rows) != number or set(by_index) != set(range(number)):
        raise ValueError("not one embedding for each text")
    vectors = [_read_vector(by_index[index]) for index in range(number)]
    if len({len(vector) for vector in vectors}) != 1:
        raise ValueError("embeddings of different lengths")
    return vectors


def _read_vector(values: Any) -> list[float]:
    if not isinstance(values, list) or not 2 <= len(values) <= _MAX_DIMENSIONS:
        raise ValueError("an embedding is no list of numbers, or too long")
    if not all(type(value) in (int, float) for value in values):
        raise ValueError("an embedding is no list of numbers")
    vector = [float(value) for value in values]
    size = math.hypot(*vector)
    if not math.isfinite(size) or not size:
        raise ValueError("an embedding has no direction")
    return vector
