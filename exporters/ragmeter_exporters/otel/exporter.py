"""The results exporter: scores as log events, sent by opentelemetry-sdk.

Delivery is at most once over a crash: what waits is in memory, and what a killed process had not
sent is lost. A durable outbox, as alerts have it, would write every score twice to the state file
and keep a dead receiver's backlog on the disk; a score that is lost here is still in the windows.
Within a process a batch whose answer was lost is sent again, with the same uids.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Protocol

from ragmeter.config.loader import ConfigError
from ragmeter.config.reporting import ResultsExportSettings
from ragmeter.core.counters import Counters
from ragmeter.core.score import ScoredTrace
from ragmeter.trace import Trace

from ragmeter_exporters.endpoint import DeliveryEndpoint
from ragmeter_exporters.otel.headers import ReceiverHeaders
from ragmeter_exporters.otel.results import ResultSelection

if TYPE_CHECKING:  # they need the extra, and a quarter of a second
    from ragmeter_exporters.otel.pipeline import ExportLimits, LogPipeline

STOP_SECONDS = 3.0  # as the senders of alerts have; a receiver that is well takes a queue in one
EXPORTED_COUNTER = "ragmeter_results_exported_total"

log = logging.getLogger(__name__)


class _CountersOwner(Protocol):
    @property
    def counters(self) -> Counters: ...
    def lock(self) -> AbstractContextManager[Any]: ...


class ResultsExporter:
    """Exports durable scores; without an endpoint it does nothing.

    Whatever a receiver does costs the worker a list and nothing more: `put` never waits and never
    raises. Without `texts` no explanations are sent, which quote the trace.

    Raises:
        ConfigError: The settings cannot work.
    """

    def __init__(
        self,
        settings: ResultsExportSettings,
        *,
        texts: bool = True,
        limits: ExportLimits | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._settings = settings
        self._limits = limits
        self._clock = clock
        self._selection = ResultSelection(texts=texts)
        self._headers = ReceiverHeaders(settings.headers, settings.headers_file)
        self._agent: _CountersOwner | None = None
        self._pipeline: LogPipeline | None = None
        if settings.endpoint is not None:
            _check_sdk()

    def start(self, agent: _CountersOwner) -> None:
        """Start sending, before the worker starts: what it commits earlier is not sent."""
        if self._settings.endpoint is None:
            return
        from ragmeter_exporters.otel.pipeline import ExportLimits, LogPipeline

        self._agent = agent
        self._pipeline = LogPipeline(
            DeliveryEndpoint.parse(self._settings.endpoint.get_secret_value()),
            self._headers,
            count=self._count,
            limits=self._limits or ExportLimits(),
        )

    def put(self, done: Sequence[tuple[Trace, ScoredTrace]]) -> None:
        """Queue scores that are durable now; called from the worker's thread."""
        if self._pipeline is None:
            return
        from ragmeter_exporters.otel.pipeline import make_record

        try:
            at = int(self._clock() * 1e9)
            records = [
                make_record(attributes, trace.span, at)
                for trace, scored in done
                for attributes in self._selection.attributes(trace, scored)
            ]
            self._pipeline.put(records)
        except Exception:  # the worker's work is done; ours must not undo it
            log.exception("results of %d traces cannot be exported", len(done))

    async def stop(self, within: float = STOP_SECONDS) -> None:
        """Send what waits within so many seconds, after the worker: it may still bring results."""
        pipeline, self._pipeline = self._pipeline, None
        if pipeline is not None:
            await pipeline.close(within)

    def _count(self, result: str, number: int) -> None:
        if self._agent is None:
            raise RuntimeError("the exporter was not started")
        with self._agent.lock():
            self._agent.counters.inc(EXPORTED_COUNTER, (("result", result),), number)


def _check_sdk() -> None:
    """Raise a ConfigError if opentelemetry-sdk is missing or switched off."""
    try:
        import ragmeter_exporters.otel.pipeline  # noqa: F401
    except ImportError as error:
        raise ConfigError(
            f"results_export.endpoint: the package {error.name} is missing: "
            "pip install '.[otel]' in a clone of ragmeter"
        ) from None
    if os.environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        raise ConfigError(
            "results_export.endpoint: OTEL_SDK_DISABLED is set in the environment, and nothing "
            "would be sent"
        )
