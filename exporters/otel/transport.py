"""OTLP/HTTP requests to the results receiver: headers, compression and replies."""

from __future__ import annotations

import contextlib
import gzip
from collections.abc import Callable, Mapping
from pathlib import Path
from urllib.parse import unquote

import httpx
from google.protobuf.message import DecodeError
from pydantic import SecretStr

from ragmeter import __version__
from ragmeter.config.base import check_header, read_headers
from ragmeter.config.loader import ConfigError
from ragmeter.exporters.dispatch import (
    DeliveryEndpoint,
    DeliveryOutcome,
    classify_status,
    post_once,
)

# The only replies after which OTLP/HTTP allows the same request again.
RETRYABLE = frozenset((429, 502, 503, 504))
# Bytes of a reply that are read: a partial success is a number and a sentence.
MAX_REPLY = 65_536
MAX_WORDS = 200  # characters of a receiver's words in the log
PROTOBUF = "application/x-protobuf"


class ReceiverHeaders:
    """The headers of requests to the receiver, as in OTEL_EXPORTER_OTLP_HEADERS or one a line.

    A file is read anew for each request, as secrets are rotated; while it cannot be read, the last
    good headers hold.

    Raises:
        ConfigError: There are no valid headers to begin with; the text names no value.
    """

    def __init__(self, text: SecretStr | None, file: Path | None) -> None:
        self._file = file
        self._held: dict[str, str] = {}
        try:
            if file is not None:
                self._held = read_headers(file)
            elif text is not None:
                self._held = _parse_header_pairs(text.get_secret_value())
        except (OSError, UnicodeDecodeError) as error:
            why = (isinstance(error, OSError) and error.strerror) or "not a text file"
            raise ConfigError(f"results_export.headers_file: {file}: {why}") from None
        except ValueError as error:
            key = "headers" if file is None else "headers_file"
            raise ConfigError(f"results_export.{key}: {error}") from None

    def current(self) -> dict[str, str]:
        """Return the headers of the next request."""
        if self._file is not None:
            with contextlib.suppress(OSError, ValueError):  # being replaced just now
                self._held = read_headers(self._file)
        return self._held


def _parse_header_pairs(text: str) -> dict[str, str]:
    """Parse `name=value,name=value`, percent-encoded as in OTEL_EXPORTER_OTLP_HEADERS."""
    entries = ((n, entry.strip().partition("=")) for n, entry in enumerate(text.split(","), 1))
    return dict(
        check_header(unquote(name), mark, unquote(value), f"entry {n}")
        for n, (name, mark, value) in entries
        if name or mark
    )


def compress(body: bytes) -> bytes:
    """Compress with gzip at level 1: results repeat themselves, more effort saves little."""
    return gzip.compress(body, 1, mtime=0)


class OtlpTransport:
    """Posts requests to one path of the receiver, below its base URL.

    `read_rejected` reads the number of items and the words of a partial success; dates in
    `Retry-After` are measured by `now`.

    Raises:
        ValueError: The URL cannot be used.
    """

    def __init__(
        self,
        client: httpx.AsyncClient,
        endpoint: str,
        path: str,
        read_rejected: Callable[[bytes], tuple[int, str]],
        *,
        timeout: float,
        now: Callable[[], float],
    ) -> None:
        self._client = client
        self._endpoint = DeliveryEndpoint.parse(endpoint.rstrip("/") + path)
        self._read_rejected = read_rejected
        self._timeout = timeout
        self._now = now
        self.shown = self._endpoint.shown + path

    async def post(self, body: bytes, headers: Mapping[str, str]) -> DeliveryOutcome:
        """Post a gzipped body once; network errors do not raise."""
        all_headers = {
            "Content-Type": PROTOBUF,
            "Content-Encoding": "gzip",
            "Accept-Encoding": "identity",
            "User-Agent": f"ragmeter/{__version__}",
            **headers,
        }
        return await post_once(
            self._client,
            self._endpoint,
            body,
            all_headers,
            classify=self._classify,
            limit=self._timeout,
        )

    async def _classify(self, response: httpx.Response) -> DeliveryOutcome:
        status = response.status_code
        outcome = classify_status(status, response.headers, self._now())
        if outcome.kind == "sent":
            return await self._read_partial_success(response)
        if status in RETRYABLE:
            return DeliveryOutcome("retry", outcome.reason, outcome.after)
        return DeliveryOutcome("refused", f"HTTP {status}")

    async def _read_partial_success(self, response: httpx.Response) -> DeliveryOutcome:
        """Read how much of a request the receiver took; all of it where the reply is unreadable."""
        if not response.headers.get("Content-Type", "").lower().startswith(PROTOBUF):
            return DeliveryOutcome("sent")
        reply = b""
        async for chunk in response.aiter_raw():
            reply += chunk
            if len(reply) > MAX_REPLY:
                return DeliveryOutcome("sent")
        try:
            number, words = self._read_rejected(reply)
        except DecodeError:
            return DeliveryOutcome("sent")
        reason = words[:MAX_WORDS] if number > 0 else ""
        return DeliveryOutcome("sent", reason, rejected=max(0, number))
