"""The way of a result through opentelemetry-sdk: queue, batches, retries. Needs the extra `otel`.

The SDK's queue drops its oldest record without a word. So records are counted as they go in and as
their batch ends, and none goes in where there is no room.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from opentelemetry._logs import LogRecord, SeverityNumber
from opentelemetry.context import Context
from opentelemetry.sdk._logs import LoggerProvider, LogRecordLimits
from opentelemetry.sdk._logs.export import BatchLogRecordProcessor
from opentelemetry.sdk.resources import Resource
from opentelemetry.trace import (
    NonRecordingSpan,
    SpanContext,
    TraceFlags,
    set_span_in_context,
)
from ragmeter import __version__
from ragmeter.ingest.spans import OWN_SCOPE, OWN_SERVICE, RESULT_EVENT
from ragmeter.trace import SpanRef

from ragmeter_exporters.endpoint import DeliveryEndpoint
from ragmeter_exporters.otel.headers import ReceiverHeaders
from ragmeter_exporters.otel.receiver import TIMEOUT, CountingExporter

QUIET = 60.0  # seconds between two log lines on a full queue: it may be full at every commit

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class ExportLimits:
    """What waits, and for how long; these hold in production, tests have shorter ones."""

    queue: int = 10_000  # results that wait, some 20 MB; beyond it they are dropped
    batch: int = 512  # results in one request, as OpenTelemetry's own default
    linger_seconds: float = 2.0  # wait for a full batch: nobody looks at a score sooner
    timeout_seconds: float = TIMEOUT


def make_record(attributes: Mapping[str, str | float], span: SpanRef | None, at: int) -> LogRecord:
    """Make the event of a result, in the context of the judged span.

    Args:
        attributes: What the event says.
        span: The judged span; it was sampled, or it would not have come here.
        at: Unix time in nanoseconds.
    """
    context = Context()
    if span is not None:
        judged = SpanContext(
            trace_id=int(span.trace_id, 16),
            span_id=int(span.span_id, 16),
            is_remote=True,
            trace_flags=TraceFlags(TraceFlags.SAMPLED),
        )
        context = set_span_in_context(NonRecordingSpan(judged), context)
    return LogRecord(
        timestamp=at,
        observed_timestamp=at,
        context=context,
        severity_number=SeverityNumber.INFO,
        severity_text="INFO",
        attributes=attributes,
        event_name=RESULT_EVENT,
    )


class LogPipeline:
    """Sends records in a thread of its own.

    `put` may be called from any one thread. Besides those of `CountingExporter` it counts
    `queue_full` and, at the end, `not_sent`.
    """

    def __init__(
        self,
        endpoint: DeliveryEndpoint,
        headers: ReceiverHeaders,
        *,
        count: Callable[[str, int], None],
        limits: ExportLimits,
    ) -> None:
        # The SDK and its client log URLs and headers, and a line at each attempt; we log losses.
        for name in ("opentelemetry", "urllib3"):
            logging.getLogger(name).setLevel(logging.CRITICAL)
        self._count = count
        self._limits = limits
        self._lock = threading.Lock()
        self._waiting = 0
        self._closed = False
        self._full_at = float("-inf")
        self._exporter = CountingExporter(
            endpoint, headers, self._settle, timeout=limits.timeout_seconds
        )
        # All limits are given: those of the environment are meant for other records.
        unlimited = LogRecordLimits.UNSET
        self._provider = LoggerProvider(
            Resource({"service.name": OWN_SERVICE, "service.version": __version__}),
            shutdown_on_exit=False,
            log_record_limits=LogRecordLimits(
                max_attributes=unlimited,
                max_attribute_length=unlimited,
                max_log_record_attributes=unlimited,
                max_log_record_attribute_length=unlimited,
            ),
        )
        self._provider.add_log_record_processor(
            BatchLogRecordProcessor(
                self._exporter,
                schedule_delay_millis=limits.linger_seconds * 1000,
                max_export_batch_size=limits.batch,
                # the SDK does not use it, but would read it from the environment
                export_timeout_millis=limits.timeout_seconds * 1000,
                max_queue_size=limits.queue,
            )
        )
        self._logger = self._provider.get_logger(OWN_SCOPE, __version__)

    def put(self, records: Sequence[LogRecord]) -> None:
        """Queue what there is room for and drop the rest, without waiting."""
        with self._lock:
            room = max(0, self._limits.queue - self._waiting)
            taken = records[:room]
            self._waiting += len(taken)
        for record in taken:
            self._logger.emit(record)
        dropped = len(records) - len(taken)
        if dropped:
            self._count("queue_full", dropped)
            now = time.monotonic()
            if now - self._full_at > QUIET:
                log.warning("the queue of results to export is full, results are dropped")
                self._full_at = now

    async def close(self, within: float) -> None:
        """Send what waits within so many seconds; what is not sent by then is dropped."""
        # The SDK would wait for 30 s. Daemons, as its own thread: a hanging receiver holds no exit.
        ending = threading.Thread(target=self._provider.shutdown, daemon=True)
        ending.start()
        await asyncio.to_thread(ending.join, within)
        with self._lock:
            self._closed = True
            left = self._waiting
        self._exporter.shutdown()
        if left:
            self._count("not_sent", left)
            log.warning("%d results were not exported at the end", left)

    def _settle(self, result: str, number: int) -> None:
        """Count what has left the queue; called from the SDK's thread."""
        with self._lock:
            if self._closed:
                return  # counted as not sent
            self._waiting -= number
        self._count(result, number)
