"""One OTLP/HTTP request and what its answer means."""

from __future__ import annotations

import asyncio
import gzip
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

import httpx
from google.protobuf.message import DecodeError

from agent import __version__
from exporters.dispatch import Endpoint, judge_status

__all__ = ["Answer", "Transport", "compressed"]

RETRYABLE = frozenset((429, 502, 503, 504))
"""The only answers after which OTLP/HTTP allows the same request again."""

MAX_REPLY = 65_536
"""Bytes of an answer that are read: a partial success is a number and a sentence."""

PROTOBUF = "application/x-protobuf"


@dataclass(frozen=True, slots=True)
class Answer:
    """`sent`, with so many `rejected`; `retry`, perhaps not before `after` seconds; `refused` for
    good. `reason` is for the log; words of the receiver are in it, bounded."""

    kind: Literal["sent", "retry", "refused"]
    reason: str = ""
    rejected: int = 0
    after: float | None = None


def compressed(body: bytes) -> bytes:
    """Level 1: results repeat themselves, more effort saves little."""
    return gzip.compress(body, 1, mtime=0)


class Transport:
    """Posts bodies to `endpoint` + `path`. `rejected` reads the number of items and the words of
    a partial success. `now` is Unix time."""

    def __init__(
        self,
        client: httpx.AsyncClient,
        endpoint: str,
        path: str,
        rejected: Callable[[bytes], tuple[int, str]],
        *,
        timeout: float,
        now: Callable[[], float],
    ) -> None:
        self._client = client
        self._endpoint = Endpoint.parse(endpoint.rstrip("/") + path)
        self._rejected = rejected
        self._timeout = timeout
        self._now = now
        self.shown = self._endpoint.shown + path
        # httpx logs each request's whole URL at INFO, secrets in its path included
        logger = logging.getLogger("httpx")
        if logger.level == logging.NOTSET:
            logger.setLevel(logging.WARNING)

    async def post(self, body: bytes, headers: Mapping[str, str]) -> Answer:
        """One gzipped body. Never raises for what a network or a receiver does."""
        every = {
            "Content-Type": PROTOBUF,
            "Content-Encoding": "gzip",
            "Accept-Encoding": "identity",
            "User-Agent": f"ragmeter/{__version__}",
            **headers,
        }
        try:
            # of the whole request: a receiver that drips a byte a second is as late as a silent one
            async with asyncio.timeout(self._timeout):
                async with self._client.stream(
                    "POST",
                    self._endpoint.url,
                    content=body,
                    headers=every,
                    auth=self._endpoint.auth,
                    timeout=self._timeout,
                ) as response:
                    return await self._judged(response)
        except (TimeoutError, httpx.TimeoutException):
            return Answer("retry", "timeout")
        except (httpx.HTTPError, httpx.InvalidURL, OSError) as error:
            return Answer("retry", type(error).__name__)  # the text of some holds the URL

    async def _judged(self, response: httpx.Response) -> Answer:
        status = response.status_code
        found = judge_status(status, response.headers, self._now())
        if found.kind == "sent":
            return await self._partial(response)
        if status in RETRYABLE:
            return Answer("retry", found.reason, after=found.after)
        return Answer("refused", f"HTTP {status}")

    async def _partial(self, response: httpx.Response) -> Answer:
        """A receiver may take a request and not all that is in it. What is no such message was
        taken whole, as far as anyone can tell: 2xx says so."""
        if not response.headers.get("Content-Type", "").lower().startswith(PROTOBUF):
            return Answer("sent")
        reply = b""
        async for chunk in response.aiter_raw():
            reply += chunk
            if len(reply) > MAX_REPLY:
                return Answer("sent")
        try:
            number, words = self._rejected(reply)
        except DecodeError:
            return Answer("sent")
        return Answer("sent", words[:200] if number > 0 else "", max(0, number))
