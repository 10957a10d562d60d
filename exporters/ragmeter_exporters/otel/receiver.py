"""The receiver of results, as the exporter of opentelemetry-sdk sees it. Needs the extra `otel`.

The SDK's exporter says of a batch only whether it was taken, and takes a redirect for a success. So
its session of `requests` keeps the reply to the last request, and `CountingExporter` counts by it.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import requests
import urllib3
from google.protobuf.message import DecodeError
from opentelemetry.exporter.otlp.proto.http import Compression
from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceResponse
from opentelemetry.sdk._logs import ReadableLogRecord
from opentelemetry.sdk._logs.export import LogRecordExporter, LogRecordExportResult
from ragmeter import __version__
from ragmeter.core.outgoing import find_authorities, find_proxy

from ragmeter_exporters.endpoint import DeliveryEndpoint
from ragmeter_exporters.otel.headers import ReceiverHeaders

PATH = "/v1/logs"
# Seconds for a batch with all its retries, of which the SDK makes five within 31 s: a receiver that
# restarts is back by then.
TIMEOUT = 40.0
# The only replies after which OTLP/HTTP allows the same request again.
RETRYABLE = frozenset((429, 502, 503, 504))
# Bytes of a reply that are read: a partial success is a number and a sentence.
MAX_REPLY = 65_536
MAX_WORDS = 200  # characters of a receiver's words in the log
PROTOBUF = "application/x-protobuf"

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class ReceiverReply:
    """The outcome of a request to the receiver.

    Args:
        result: `sent`, `refused` (for good), or `gave_up` where it may be repeated.
        reason: For the log; it holds no secret.
        rejected: Records of a request that was taken which the receiver did not take.
    """

    result: str
    reason: str = ""
    rejected: int = 0


class ReceiverSession(requests.Session):
    """The requests of one exporter, each with the headers that hold now, and the last reply."""

    def __init__(
        self, url: str, headers: ReceiverHeaders, credentials: tuple[str, str] | None
    ) -> None:
        super().__init__()
        # An object of our own also keeps credentials of ~/.netrc out of the requests.
        self.auth = _ReceiverAuth(headers, credentials)
        self.trust_env = False
        if proxy := find_proxy(url):
            self.proxies = {"http": proxy, "https": proxy}
        self.reply: ReceiverReply | None = None

    def send(self, request: requests.PreparedRequest, **kwargs: Any) -> requests.Response:
        """Send a request and keep how it ended."""
        kwargs["stream"] = True  # a reply may be endless
        try:
            response = super().send(request, **kwargs)
        except Exception as error:
            # The type only: the text of some errors holds the URL.
            self.reply = ReceiverReply("gave_up", type(error).__name__)
            raise
        with response:
            self.reply = _read_reply(response)
        return response

    def get_redirect_target(self, resp: requests.Response) -> None:
        """Follow no redirect, and do not read the reply for it."""


class _ReceiverAuth(requests.auth.AuthBase):
    def __init__(self, headers: ReceiverHeaders, credentials: tuple[str, str] | None) -> None:
        self._headers = headers
        self._basic = None
        if credentials is not None:
            name, password = credentials
            # as bytes: of a text `requests` takes Latin-1, and fails where it is not
            self._basic = requests.auth.HTTPBasicAuth(name.encode(), password.encode())

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        if self._basic is not None:
            self._basic(request)
        request.headers.update(self._headers.current())
        return request


def _read_reply(response: requests.Response) -> ReceiverReply:
    status = response.status_code
    if status in RETRYABLE:
        return ReceiverReply("gave_up", f"HTTP {status}")
    if not 200 <= status < 300:
        return ReceiverReply("refused", f"HTTP {status}")
    if not response.headers.get("Content-Type", "").lower().startswith(PROTOBUF):
        return ReceiverReply("sent")
    try:
        body = response.raw.read(MAX_REPLY, decode_content=True)
        partial = ExportLogsServiceResponse.FromString(body).partial_success
    except (urllib3.exceptions.HTTPError, OSError, DecodeError):  # it took the records all the same
        return ReceiverReply("sent")
    rejected = max(0, partial.rejected_log_records)
    words = repr(partial.error_message[:MAX_WORDS]) if rejected else ""
    return ReceiverReply("sent", words, rejected)


class CountingExporter(LogRecordExporter):
    """Exports batches for the SDK's processor, and counts their records by how they ended.

    Results counted: `sent`, `rejected` (the receiver took the request but not these), `refused` (it
    took none and will not), `gave_up` (not taken within the retries), `error` (a bug of ours). The
    log has a line when records begin to be lost, and one when they are taken again.
    """

    def __init__(
        self,
        endpoint: DeliveryEndpoint,
        headers: ReceiverHeaders,
        count: Callable[[str, int], None],
        timeout: float = TIMEOUT,
    ) -> None:
        self._shown = endpoint.shown + PATH
        self._count = count
        url = endpoint.url.rstrip("/") + PATH
        self._session = ReceiverSession(url, headers, endpoint.auth)
        self._exporter = OTLPLogExporter(
            endpoint=url,
            certificate_file=find_authorities(),
            headers={"user-agent": f"ragmeter/{__version__}"},
            timeout=timeout,
            compression=Compression.Gzip,
            session=self._session,
        )
        self._trouble = ""
        self._shutdown = threading.Lock()

    def export(self, batch: Sequence[ReadableLogRecord]) -> LogRecordExportResult:
        """Send a batch, with the SDK's retries."""
        self._session.reply = None
        try:
            result = self._exporter.export(batch)
        except Exception as error:
            self._drop("error", len(batch), type(error).__name__)
            return LogRecordExportResult.FAILURE
        reply = self._session.reply or ReceiverReply("error", "nothing was sent")
        if reply.result != "sent":
            self._drop(reply.result, len(batch), reply.reason)
            return LogRecordExportResult.FAILURE
        rejected = min(reply.rejected, len(batch))
        if rejected:
            self._drop("rejected", rejected, reply.reason)
        elif self._trouble:
            log.info("%s: results are taken again", self._shown)
            self._trouble = ""
        if rejected < len(batch):
            self._count("sent", len(batch) - rejected)
        return result

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """Return at once: nothing waits here."""
        return True

    def shutdown(self) -> None:
        """End the retries; called by the SDK, and before it where that takes too long."""
        if self._shutdown.acquire(blocking=False):
            self._exporter.shutdown()  # type: ignore[no-untyped-call]

    def _drop(self, result: str, number: int, why: str) -> None:
        self._count(result, number)
        if not self._trouble:  # once: a receiver may be down for days
            log.warning("%s: results are dropped: %s %s", self._shown, result, why)
        self._trouble = result
