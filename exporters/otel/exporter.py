"""The results exporter: one bounded queue per signal, with batches and retries.

One signal on its way: a bounded queue in memory, batches, retries, and a count of every loss.

At most once over a crash: what waits is in memory, and what a killed process had not sent is lost.
A durable outbox, as alerts have it, would write every score twice to the state file and keep a
dead receiver's backlog on the disk; a score that is lost here is still in the windows. Within a
process a batch whose answer was lost is sent again, with the same ids.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

import httpx

from ragmeter.config.reporting import ResultsExportSettings
from ragmeter.core.counters import Counters
from ragmeter.core.pacing import backoff_seconds
from ragmeter.core.score import ScoredTrace
from ragmeter.exporters.otel.encoding import (
    ExportedResult,
    ResultEncoder,
    ResultSelection,
    encode_logs,
    encode_spans,
    read_rejected_logs,
    read_rejected_spans,
)
from ragmeter.exporters.otel.transport import ExportReply, OtlpTransport, ReceiverHeaders, compress
from ragmeter.trace import Trace

log = logging.getLogger("ragmeter")

BASE_DELAY, MAX_DELAY = 1.0, 30.0
"""Seconds between two tries of a receiver that is down: it is asked twice a minute for good."""

MAX_AFTER = 600.0
"""Seconds that `Retry-After` may ask for: a mistaken one must not end the export."""

QUIET = 60.0
"""Seconds between two lines of the log on a full queue: it may be full at every commit."""

_ExportCount = Callable[[str, str, int], None]
"""(signal, result, number): counted as ragmeter_results_exported_total{signal,result}."""


class ResultsPoster(Protocol):
    """`ragmeter.exporters.otel.transport.Transport`, or a test's."""

    @property
    def shown(self) -> str: ...
    async def post(self, body: bytes, headers: Mapping[str, str]) -> ExportReply: ...


class ExportChannel:
    """Sends results as one signal. `put` may be called from any one thread, before `run` too; all
    else belongs to the event loop.

    Results counted: sent, rejected (the receiver took the request and not these), refused (it took
    none and will not), queue_full, gave_up (not taken within `retry` seconds), error (a mistake of
    ours), not_sent (we ended).
    """

    def __init__(
        self,
        signal: str,
        transport: ResultsPoster,
        encode: ResultEncoder,
        headers: Callable[[], Mapping[str, str]],
        *,
        count: _ExportCount,
        queue: int,
        batch: int,
        linger: float,
        retry: float,
        monotonic: Callable[[], float] = time.monotonic,
        rng: random.Random | None = None,
    ) -> None:
        self._signal = signal
        self._transport = transport
        self._encode = encode
        self._headers = headers
        self._count = count
        self._most = queue
        self._batch = batch
        self._linger = linger
        self._retry = retry
        self._monotonic = monotonic
        self._rng = rng or random.Random()
        self._queue: deque[ExportedResult] = deque()
        self._flying = 0
        self._news = asyncio.Event()
        self._stopping = asyncio.Event()
        self._failures = 0
        self._not_before = 0.0
        self._full_at = float("-inf")
        self._trouble = ""

    def put(self, results: Sequence[ExportedResult]) -> None:
        """Take what there is room for; the rest is dropped. Never waits. `wake` follows."""
        room = max(0, self._most - len(self._queue))
        self._queue.extend(results[:room])
        dropped = len(results) - room
        if dropped > 0:
            self._count(self._signal, "queue_full", dropped)
            now = self._monotonic()
            if now - self._full_at > QUIET:
                log.warning("%s: the queue is full, results are dropped", self._transport.shown)
                self._full_at = now

    def wake(self) -> None:
        self._news.set()

    async def run(self) -> None:
        """Send until `stop`, and then what is left, without waiting for anyone."""
        while True:
            batch = await self._gathered()
            if not batch:
                return
            self._flying = len(batch)
            if not await self._deliver(batch):
                return
            self._flying = 0

    async def stop(self, running: asyncio.Task[None], within: float) -> None:
        """End `run` within so many seconds; what is not sent by then is dropped."""
        self._stopping.set()
        self._news.set()
        await asyncio.wait([running], timeout=within)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        left = len(self._queue) + self._flying
        self._queue.clear()
        if left:
            self._count(self._signal, "not_sent", left)
            log.warning("%s: %d results were not sent at the end", self._transport.shown, left)

    async def _gathered(self) -> list[ExportedResult]:
        """The next batch: a full one, or what came within the linger time. Empty at the end."""
        while not self._queue and not self._stopping.is_set():
            self._news.clear()
            if not self._queue:  # put in between
                await self._news.wait()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._linger):
                while len(self._queue) < self._batch and not self._stopping.is_set():
                    self._news.clear()
                    await self._news.wait()
        return list(self._taken())

    def _taken(self) -> Iterator[ExportedResult]:
        for _ in range(min(self._batch, len(self._queue))):
            yield self._queue.popleft()

    async def _deliver(self, batch: Sequence[ExportedResult]) -> bool:
        """Whether to go on: False where we end and the receiver does not take this batch, for no
        other will fare better."""
        try:
            # in a thread: ten milliseconds of one core are an age to the loop that takes traces
            body = await asyncio.to_thread(lambda: compress(self._encode(batch)))
            # what an earlier batch has learnt of the receiver is not held against this one
            await self._pause(self._not_before - self._monotonic())
            until = self._monotonic() + self._retry
            while True:
                headers = await asyncio.to_thread(self._headers)
                answer = await self._transport.post(body, headers)
                if answer.kind != "retry":
                    self._settle(answer, len(batch))
                    return True
                self._postpone(answer)
                if self._stopping.is_set():
                    return False
                if self._not_before > until:
                    self._drop("gave_up", len(batch), answer.reason)
                    return True
                await self._pause(self._not_before - self._monotonic())
        except Exception as error:
            # The type only: the text may hold what is sent.
            self._drop("error", len(batch), type(error).__name__)
            return True

    async def _pause(self, seconds: float) -> None:
        if seconds > 0 and not self._stopping.is_set():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._stopping.wait()

    def _postpone(self, answer: ExportReply) -> None:
        self._failures += 1
        # half random: many agents must not come back as one
        delay = backoff_seconds(self._failures - 1, self._rng, BASE_DELAY, MAX_DELAY, jitter=0.5)
        if answer.after is not None:
            delay = max(delay, min(answer.after, MAX_AFTER))
        self._not_before = self._monotonic() + delay
        self._log_loss(f"not taken ({answer.reason}), again in {delay:.0f} s")

    def _settle(self, answer: ExportReply, number: int) -> None:
        self._failures, self._not_before = 0, 0.0
        if answer.kind == "refused":
            self._drop("refused", number, answer.reason)
            return
        rejected = min(answer.rejected, number)
        if rejected:
            self._drop("rejected", rejected, repr(answer.reason))
        elif self._trouble:
            log.info("%s: results are taken again", self._transport.shown)
            self._trouble = ""
        if number > rejected:
            self._count(self._signal, "sent", number - rejected)

    def _drop(self, result: str, number: int, why: str = "") -> None:
        self._count(self._signal, result, number)
        self._log_loss(f"results are dropped: {result} {why}".rstrip())

    def _log_loss(self, trouble: str) -> None:
        """Once, until results are taken again: a receiver may be down for days."""
        if not self._trouble:
            log.warning("%s: %s", self._transport.shown, trouble)
        self._trouble = trouble


EXPORTED_COUNTER = "ragmeter_results_exported_total"

STOP_SECONDS = 3.0  # as the senders of alerts have; a receiver that is well takes a queue in one


class _CountersOwner(Protocol):
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
        settings: ResultsExportSettings,
        *,
        texts: bool = True,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._selection = ResultSelection(settings, texts=texts)
        self._headers = ReceiverHeaders(settings.headers, settings.headers_file)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._running: _CountersOwner | None = None
        self._channels: dict[str, ExportChannel] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._stack = contextlib.AsyncExitStack()

    async def start(self, running: _CountersOwner) -> None:
        """Before the worker starts: what it commits earlier is not sent."""
        if self._settings.endpoint is None:
            return
        self._loop, self._running = asyncio.get_running_loop(), running
        client = await self._stack.enter_async_context(httpx.AsyncClient())
        if self._settings.logs:
            transport = self._transport(client, "/v1/logs", read_rejected_logs)
            self._add("logs", transport, encode_logs)
        if self._settings.spans:
            transport = self._transport(client, "/v1/traces", read_rejected_spans)
            self._add("spans", transport, encode_spans)

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

    def _fit(self, signal: str, results: Sequence[ExportedResult]) -> Sequence[ExportedResult]:
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
            self._running.counters.inc(EXPORTED_COUNTER, labels, number)

    def _transport(
        self,
        client: httpx.AsyncClient,
        path: str,
        rejected: Callable[[bytes], tuple[int, str]],
    ) -> OtlpTransport:
        assert self._settings.endpoint is not None
        timeout = self._settings.timeout_seconds
        return OtlpTransport(
            client, self._settings.endpoint, path, rejected, timeout=timeout, now=self._clock
        )

    def _add(
        self,
        signal: str,
        transport: OtlpTransport,
        encode: Callable[[Sequence[ExportedResult]], bytes],
    ) -> None:
        channel = ExportChannel(
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
