"""OTLP/HTTP requests to the results receiver: headers, compression and replies."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal
from urllib.parse import unquote

import httpx
from google.protobuf.message import DecodeError
from pydantic import SecretStr

from ragmeter import __version__
from ragmeter.config.base import check_header, read_headers
from ragmeter.config.loader import ConfigError
from ragmeter.exporters.dispatch import DeliveryEndpoint, classify_status


class ReceiverHeaders:
    """`current` gives the headers of the next request. A file is read anew each time, as secrets
    are rotated; while it cannot be read, the last good headers hold. ConfigError where there are
    none to begin with; its text names no value."""

    def __init__(self, text: SecretStr | None, file: Path | None) -> None:
        self._file = file
        self._held: dict[str, str] = {}
        try:
            if file is not None:
                self._held = read_headers(file)
            elif text is not None:
                self._held = _parse_header_pairs(text.get_secret_value())
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(
                f"results_export.headers_file: {file}: {_failure_reason(error)}"
            ) from None
        except ValueError as error:
            key = "headers" if file is None else "headers_file"
            raise ConfigError(f"results_export.{key}: {error}") from None

    def current(self) -> dict[str, str]:
        if self._file is not None:
            with contextlib.suppress(OSError, ValueError):  # being replaced just now
                self._held = read_headers(self._file)
        return self._held


def _failure_reason(error: Exception) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or "not a text file"


def _parse_header_pairs(text: str) -> dict[str, str]:
    """`name=value,name=value` as OTEL_EXPORTER_OTLP_HEADERS has it: percent-encoded."""
    pairs = enumerate((pair.strip() for pair in text.split(",")), 1)
    found = ((n, pair.partition("=")) for n, pair in pairs if pair)
    return dict(
        check_header(unquote(name), mark, unquote(value), f"entry {n}")
        for n, (name, mark, value) in found
    )


RETRYABLE = frozenset((429, 502, 503, 504))
"""The only answers after which OTLP/HTTP allows the same request again."""

MAX_REPLY = 65_536
"""Bytes of an answer that are read: a partial success is a number and a sentence."""

PROTOBUF = "application/x-protobuf"


@dataclass(frozen=True, slots=True)
class ExportReply:
    """`sent`, with so many `rejected`; `retry`, perhaps not before `after` seconds; `refused` for
    good. `reason` is for the log; words of the receiver are in it, bounded."""

    kind: Literal["sent", "retry", "refused"]
    reason: str = ""
    rejected: int = 0
    after: float | None = None


def compress(body: bytes) -> bytes:
    """Level 1: results repeat themselves, more effort saves little."""
    return gzip.compress(body, 1, mtime=0)


class OtlpTransport:
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
        self._endpoint = DeliveryEndpoint.parse(endpoint.rstrip("/") + path)
        self._rejected = rejected
        self._timeout = timeout
        self._now = now
        self.shown = self._endpoint.shown + path
        # httpx logs each request's whole URL at INFO, secrets in its path included
        logger = logging.getLogger("httpx")
        if logger.level == logging.NOTSET:
            logger.setLevel(logging.WARNING)

    async def post(self, body: bytes, headers: Mapping[str, str]) -> ExportReply:
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
            return ExportReply("retry", "timeout")
        except (httpx.HTTPError, httpx.InvalidURL, OSError) as error:
            return ExportReply("retry", type(error).__name__)  # the text of some holds the URL

    async def _judged(self, response: httpx.Response) -> ExportReply:
        status = response.status_code
        found = classify_status(status, response.headers, self._now())
        if found.kind == "sent":
            return await self._partial(response)
        if status in RETRYABLE:
            return ExportReply("retry", found.reason, after=found.after)
        return ExportReply("refused", f"HTTP {status}")

    async def _partial(self, response: httpx.Response) -> ExportReply:
        """A receiver may take a request and not all that is in it. What is no such message was
        taken whole, as far as anyone can tell: 2xx says so."""
        if not response.headers.get("Content-Type", "").lower().startswith(PROTOBUF):
            return ExportReply("sent")
        reply = b""
        async for chunk in response.aiter_raw():
            reply += chunk
            if len(reply) > MAX_REPLY:
                return ExportReply("sent")
        try:
            number, words = self._rejected(reply)
        except DecodeError:
            return ExportReply("sent")
        return ExportReply("sent", words[:200] if number > 0 else "", max(0, number))
