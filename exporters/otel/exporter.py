"""Takes what the worker has committed and sends it: one queue for each signal."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

import httpx

from agent.counters import Counters
from agent.settings.results import ResultsExport
from agent.trace import ScoredTrace, Trace
from exporters.otel.channel import Channel
from exporters.otel.encode import logs_request, rejected_logs, rejected_spans, spans_request
from exporters.otel.headers import Headers
from exporters.otel.results import Result, Selection
from exporters.otel.transport import Transport

__all__ = ["COUNTER", "ResultsExporter"]

log = logging.getLogger("ragmeter")

COUNTER = "ragmeter_results_exported_total"

STOP_SECONDS = 3.0  # as the senders of alerts have; a receiver that is well takes a queue in one


class _Running(Protocol):
    @property
    def counters(self) -> Counters: ...
    def lock(self) -> AbstractContextManager[Any]: ...


class ResultsExporter:
    """`put` takes scores that are durable, in the worker's thread; `start` and `stop` frame the
    sending, in the event loop. Without an endpoint it does nothing.

    Whatever a receiver does costs the worker a list and nothing more: `put` never waits and never
    raises. Explanations quote the trace: without `texts` none is sent. ConfigError for settings
    that cannot work.
    """

    def __init__(
        self,
        settings: ResultsExport,
        *,
        texts: bool = True,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._selection = Selection(settings, texts=texts)
        self._headers = Headers(settings.headers, settings.headers_file)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._running: _Running | None = None
        self._channels: dict[str, Channel] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._stack = contextlib.AsyncExitStack()

    async def start(self, running: _Running) -> None:
        """Before the worker starts: what it commits earlier is not sent."""
        if self._settings.endpoint is None:
            return
        self._loop, self._running = asyncio.get_running_loop(), running
        client = await self._stack.enter_async_context(httpx.AsyncClient())
        if self._settings.logs:
            transport = self._transport(client, "/v1/logs", rejected_logs)
            self._add("logs", transport, logs_request)
        if self._settings.spans:
            transport = self._transport(client, "/v1/traces", rejected_spans)
            self._add("spans", transport, spans_request)

    def put(self, done: Sequence[tuple[Trace, ScoredTrace]]) -> None:
        """These results are durable now."""
        if not self._channels or self._loop is None:
            return
        try:
            at = int(self._clock() * 1e9)
            found = [one for pair in done for one in self._selection.of(*pair, at)]
            for signal, channel in self._channels.items():
                channel.put(self._fit(signal, found))
            self._loop.call_soon_threadsafe(self._wake)
        except Exception:  # the worker's work is done; ours must not undo it
            log.exception("results of %d traces cannot be exported", len(done))

    async def stop(self, within: float = STOP_SECONDS) -> None:
        """Send what waits, within so many seconds. After the worker: it may still find results."""
        channels, self._channels = self._channels, {}
        ends = [channel.stop(self._tasks[name], within) for name, channel in channels.items()]
        await asyncio.gather(*ends)
        await self._stack.aclose()

    def _fit(self, signal: str, results: Sequence[Result]) -> Sequence[Result]:
        """Those that the signal can carry: a span of ours must link to the span that it is of."""
        if signal != "spans":
            return results
        found = [one for one in results if one.span is not None]
        if len(found) < len(results):
            self._count(signal, "no_span", len(results) - len(found))
        return found

    def _wake(self) -> None:
        for channel in self._channels.values():
            channel.wake()

    def _count(self, signal: str, result: str, number: int) -> None:
        assert self._running is not None
        with self._running.lock():
            labels = (("signal", signal), ("result", result))
            self._running.counters.inc(COUNTER, labels, number)

    def _transport(
        self,
        client: httpx.AsyncClient,
        path: str,
        rejected: Callable[[bytes], tuple[int, str]],
    ) -> Transport:
        assert self._settings.endpoint is not None
        timeout = self._settings.timeout_seconds
        return Transport(
            client, self._settings.endpoint, path, rejected, timeout=timeout, now=self._clock
        )

    def _add(
        self, signal: str, transport: Transport, encode: Callable[[Sequence[Result]], bytes]
    ) -> None:
        channel = Channel(
            signal,
            transport,
            encode,
            self._headers.current,
            count=self._count,
            queue=self._settings.queue,
            batch=self._settings.batch,
            linger=self._settings.linger_seconds,
            retry=self._settings.retry_seconds,
        )
        self._channels[signal] = channel
        self._tasks[signal] = asyncio.create_task(channel.run())
