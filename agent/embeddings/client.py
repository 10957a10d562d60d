"""Embeddings over HTTP: one OpenAI-compatible endpoint, asked as carefully as a judge.

Its parts are those of the judge (`agent.judge`): bounded exchange, breaker, adaptive limiter, retry
budget. Every failure ends in `EmbeddingFailed` with an outcome that is counted.
"""

from __future__ import annotations

import asyncio
import json
import logging
import random
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal

import httpx
from pydantic import SecretStr

from agent.embeddings.reply import Embedded, read_embeddings
from agent.judge.attempt import Outcome
from agent.judge.exchange import Exchange, Miss
from agent.judge.key import ApiKey
from agent.judge.retries import RetryBudget, backoff
from agent.judge.transport import make_client
from agent.judge.turns import TRANSIENT, Turn, Turns

__all__ = ["Embedder", "EmbeddingFailed", "Trouble"]

log = logging.getLogger("ragmeter.embeddings")

Trouble = Literal["timeout", "unavailable", "refused", "malformed"]
"""`timeout`; `unavailable`: no connection, 429, 5xx, or down for a while; `refused`: the server
does not take the text, the key or the model; `malformed`: what it says are no embeddings."""

_TROUBLES: Mapping[Outcome, Trouble] = {
    "timeout": "timeout",
    "connection": "unavailable",
    "server_error": "unavailable",
    "rate_limited": "unavailable",
    "malformed": "malformed",
    "too_large": "malformed",
}
# About one text, or about what the server says: no sign that it is down.
ANSWERED: frozenset[Outcome] = frozenset(
    {"malformed", "too_large", "too_long", "refused", "client_error"}
)

LOG_SECONDS = 60.0


class EmbeddingFailed(Exception):
    """There is no embedding; `trouble` is fit for a label."""

    def __init__(self, trouble: Trouble, detail: str) -> None:
        super().__init__(detail)
        self.trouble: Trouble = trouble


class Embedder:
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
        self._http = http or make_client(str(url))
        self._exchange = Exchange(self._http, url, seconds, clock)
        self._retries = retries
        self._monotonic = monotonic
        self._sleep = sleep
        self._rng = rng or random.Random()
        self._turns = Turns(concurrency, monotonic, sleep)
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

    async def embed(self, texts: Sequence[str], *, patient: bool = True) -> Embedded:
        """A vector for each of `texts`, in one request. Raises `EmbeddingFailed`.

        While the server is down a `patient` caller waits, for about
        `agent.judge.breaker.PATIENCE` seconds.
        """
        self._budget.call(self._monotonic())
        failures = 0
        last: Miss | None = None
        while True:
            found: Embedded | Miss | None = None
            if patient or not self._turns.breaker.refuses:
                found = await self._turns.take(partial(self._attempt, texts))
            if isinstance(found, Embedded):
                return found
            last = found or last
            if found is None or not self._again(found, failures):
                break
            await self._sleep(max(backoff(failures, self._rng), found.retry_after or 0.0))
            failures += 1
        if last is None:
            raise EmbeddingFailed("unavailable", "the embeddings server is down")
        raise EmbeddingFailed(_TROUBLES.get(last.outcome, "refused"), last.detail)

    def _again(self, miss: Miss, failures: int) -> bool:
        if miss.outcome not in TRANSIENT or miss.hopeless or failures >= self._retries:
            return False
        return not self._turns.breaker.lost and self._budget.allows(self._monotonic())

    async def _attempt(self, texts: Sequence[str], turn: Turn) -> Embedded | Miss:
        found = await self._sent(texts)
        if isinstance(found, Embedded):
            self._turns.succeeded(turn)
            return found
        if found.outcome in ANSWERED:
            self._turns.succeeded(turn, trusted=False)
        else:
            self._turns.missed(turn, found)
        self._tell(found)
        return found

    async def _sent(self, texts: Sequence[str]) -> Embedded | Miss:
        # lone surrogates, which a trace may have, are no UTF-8 and are sent escaped
        body = json.dumps({**self._asked, "input": list(texts)}).encode("ascii")
        read = partial(read_embeddings, texts)
        header = self._key.header
        found = await self._exchange.posted(body, header, read)
        if isinstance(found, Miss) and found.status == 401:
            self._key.reread()
            if self._key.header != header:
                found = await self._exchange.posted(body, self._key.header, read)
        return found

    def _tell(self, miss: Miss) -> None:
        now = self._monotonic()
        if now - self._logged >= LOG_SECONDS:
            self._logged = now
            hint = f"; {self._key.problem}" if self._key.problem else ""
            kind = miss.outcome.replace("_", " ")
            log.warning("no embeddings: %s, %s%s", kind, miss.detail, hint)
