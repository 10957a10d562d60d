"""The results exporter: one bounded queue in memory per signal, with batches and retries.

Delivery is at most once over a crash: what waits is in memory, and what a killed process had not
sent is lost. A durable outbox, as alerts have it, would write every score twice to the state file
and keep a dead receiver's backlog on the disk; a score that is lost here is still in the windows.
Within a process a batch whose answer was lost is sent again, with the same ids.
"""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import logging
import random
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import unquote

import httpx
from google.protobuf.message import DecodeError
from pydantic import SecretStr
from ragmeter import __version__
from ragmeter.config.base import check_header, read_headers
from ragmeter.config.loader import ConfigError
from ragmeter.config.reporting import ResultsExportSettings
from ragmeter.core.clocks import backoff_seconds
from ragmeter.core.counters import Counters
from ragmeter.core.score import ScoredTrace
from ragmeter.trace import Trace

from ragmeter_exporters.dispatch import (
    DeliveryEndpoint,
    DeliveryOutcome,
    classify_status,
    post_once,
)
from ragmeter_exporters.otel.encoding import LOGS, SPANS, ExportedResult, ResultSelection, Signal

# Seconds between two attempts on a receiver that is down: it is asked twice a minute for good.
BASE_DELAY, MAX_DELAY = 1.0, 30.0
MAX_AFTER = 600.0  # seconds that `Retry-After` may ask for: a mistaken one must not end the export
QUIET = 60.0  # seconds between two log lines on a full queue: it may be full at every commit
STOP_SECONDS = 3.0  # as the senders of alerts have; a receiver that is well takes a queue in one
EXPORTED_COUNTER = "ragmeter_results_exported_total"

# The only replies after which OTLP/HTTP allows the same request again.
RETRYABLE = frozenset((429, 502, 503, 504))
# Bytes of a reply that are read: a partial success is a number and a sentence.
MAX_REPLY = 65_536
MAX_WORDS = 200  # characters of a receiver's words in the log
PROTOBUF = "application/x-protobuf"

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class ExportLimits:
    """What waits, and for how long; these hold in production, tests have shorter ones."""

    queue: int = 10_000  # results that wait, some 10 MB; beyond it they are dropped
    batch: int = 512  # results in one request, as in OpenTelemetry's own processors
    linger_seconds: float = 2.0  # wait for a full batch: nobody looks at a score sooner
    timeout_seconds: float = 10.0  # of one request, as in OpenTelemetry's own exporters
    retry_seconds: float = 120.0  # a receiver that restarts is back by then


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


class ExportChannel:
    """Sends results as one signal.

    `put` may be called from any one thread, before `run` too; all else belongs to the event loop.
    Results counted: sent, rejected (the receiver took the request but not these), refused (it took
    none and will not), queue_full, gave_up (not taken within the limit of retries), error (a bug of
    ours), not_sent (at the end). `headers` gives those of the next request and may read a file.
    """

    def __init__(
        self,
        signal: Signal,
        client: httpx.AsyncClient,
        headers: Callable[[], Mapping[str, str]],
        *,
        count: Callable[[str, str, int], None],
        endpoint: str,
        limits: ExportLimits,
        clock: Callable[[], float],
    ) -> None:
        self._signal = signal
        self._client = client
        self._headers = headers
        self._count = count
        self._limits = limits
        self._clock = clock
        url = endpoint.rstrip("/") + signal.path
        self._endpoint = DeliveryEndpoint.parse(url)
        self._shown = self._endpoint.shown + signal.path
        self._queue: deque[ExportedResult] = deque()
        self._in_flight = 0
        self._news = asyncio.Event()
        self._stopping = asyncio.Event()
        self._failures = 0
        self._rng = random.Random()
        self._not_before = 0.0
        self._full_at = float("-inf")
        self._trouble = ""

    def put(self, results: Sequence[ExportedResult]) -> None:
        """Queue what there is room for and drop the rest, without waiting; call `wake` next."""
        room = max(0, self._limits.queue - len(self._queue))
        self._queue.extend(results[:room])
        dropped = len(results) - room
        if dropped > 0:
            self._count(self._signal.name, "queue_full", dropped)
            now = time.monotonic()
            if now - self._full_at > QUIET:
                log.warning("%s: the queue is full, results are dropped", self._shown)
                self._full_at = now

    def wake(self) -> None:
        """Look at the queue."""
        self._news.set()

    async def run(self) -> None:
        """Send until `stop`, then what is left as long as the receiver takes it at once."""
        while True:
            batch = await self._next_batch()
            if not batch:
                return
            self._in_flight = len(batch)
            if not await self._deliver(batch):
                return
            self._in_flight = 0

    async def stop(self, running: asyncio.Task[None], within: float) -> None:
        """End the task of `run` within so many seconds; what is not sent by then is dropped."""
        self._stopping.set()
        self._news.set()
        await asyncio.wait([running], timeout=within)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        left = len(self._queue) + self._in_flight
        self._queue.clear()
        if left:
            self._count(self._signal.name, "not_sent", left)
            log.warning("%s: %d results were not sent at the end", self._shown, left)

    async def _next_batch(self) -> list[ExportedResult]:
        """Return a full batch, or what came within the linger time; nothing at the end."""
        while not self._queue and not self._stopping.is_set():
            self._news.clear()
            if not self._queue:  # filled in between
                await self._news.wait()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._limits.linger_seconds):
                while len(self._queue) < self._limits.batch and not self._stopping.is_set():
                    self._news.clear()
                    await self._news.wait()
        size = min(self._limits.batch, len(self._queue))
        return [self._queue.popleft() for _ in range(size)]

    async def _deliver(self, batch: Sequence[ExportedResult]) -> bool:
        """Send a batch; False at the end, where no other batch will fare better."""
        try:
            # In a thread: ten milliseconds are long for the loop that takes traces in.
            # Level 1: results repeat themselves, more effort saves little.
            encode = self._signal.encode
            body = await asyncio.to_thread(lambda: gzip.compress(encode(batch), 1, mtime=0))
            # The pause that an earlier batch has caused does not count for this one.
            await self._pause(self._not_before - time.monotonic())
            deadline = time.monotonic() + self._limits.retry_seconds
            while True:
                headers = await asyncio.to_thread(self._headers)
                reply = await self._post(body, headers)
                if reply.kind != "retry":
                    self._settle(reply, len(batch))
                    return True
                self._postpone(reply)
                if self._stopping.is_set():
                    return False
                if self._not_before > deadline:
                    self._drop("gave_up", len(batch), reply.reason)
                    return True
                await self._pause(self._not_before - time.monotonic())
        except Exception as error:
            # The type only: the text may hold what is sent.
            self._drop("error", len(batch), type(error).__name__)
            return True

    async def _post(self, body: bytes, headers: Mapping[str, str]) -> DeliveryOutcome:
        all_headers = {
            "Content-Type": PROTOBUF,
            "Content-Encoding": "gzip",
            "Accept-Encoding": "identity",
            "User-Agent": f"ragmeter/{__version__}",
            **headers,
        }
        limit = self._limits.timeout_seconds
        return await post_once(
            self._client, self._endpoint, body, all_headers, classify=self._classify, limit=limit
        )

    async def _classify(self, response: httpx.Response) -> DeliveryOutcome:
        status = response.status_code
        outcome = classify_status(status, response.headers, self._clock())
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
            number, words = self._signal.read_rejected(reply)
        except DecodeError:
            return DeliveryOutcome("sent")
        reason = words[:MAX_WORDS] if number > 0 else ""
        return DeliveryOutcome("sent", reason, rejected=max(0, number))

    async def _pause(self, seconds: float) -> None:
        if seconds > 0 and not self._stopping.is_set():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._stopping.wait()

    def _postpone(self, reply: DeliveryOutcome) -> None:
        self._failures += 1
        # Half of the delay is random, so that many agents do not come back as one.
        delay = backoff_seconds(self._failures - 1, self._rng, BASE_DELAY, MAX_DELAY, jitter=0.5)
        if reply.after is not None:
            delay = max(delay, min(reply.after, MAX_AFTER))
        self._not_before = time.monotonic() + delay
        self._log_loss(f"not taken ({reply.reason}), again in {delay:.0f} s")

    def _settle(self, reply: DeliveryOutcome, number: int) -> None:
        self._failures, self._not_before = 0, 0.0
        if reply.kind == "refused":
            self._drop("refused", number, reply.reason)
            return
        rejected = min(reply.rejected, number)
        if rejected:
            self._drop("rejected", rejected, repr(reply.reason))
        elif self._trouble:
            log.info("%s: results are taken again", self._shown)
            self._trouble = ""
        if number > rejected:
            self._count(self._signal.name, "sent", number - rejected)

    def _drop(self, result: str, number: int, why: str = "") -> None:
        self._count(self._signal.name, result, number)
        self._log_loss(f"results are dropped: {result} {why}".rstrip())

    def _log_loss(self, trouble: str) -> None:
        """Log once, until results are taken again: a receiver may be down for days."""
        if not self._trouble:
            log.warning("%s: %s", self._shown, trouble)
        self._trouble = trouble


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
        limits: ExportLimits = ExportLimits(),
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._settings = settings
        self._limits = limits
        self._clock = clock
        self._selection = ResultSelection(settings, texts=texts)
        self._headers = ReceiverHeaders(settings.headers, settings.headers_file)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._agent: _CountersOwner | None = None
        self._channels: dict[str, ExportChannel] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._stack = contextlib.AsyncExitStack()

    async def start(self, agent: _CountersOwner) -> None:
        """Start sending, before the worker starts: what it commits earlier is not sent."""
        if self._settings.endpoint is None:
            return
        self._loop = asyncio.get_running_loop()
        self._agent = agent
        client = await self._stack.enter_async_context(httpx.AsyncClient())
        for wanted, signal in ((self._settings.logs, LOGS), (self._settings.spans, SPANS)):
            if not wanted:
                continue
            channel = self._channels[signal.name] = ExportChannel(
                signal,
                client,
                self._headers.current,
                count=self._count,
                endpoint=self._settings.endpoint,
                limits=self._limits,
                clock=self._clock,
            )
            self._tasks[signal.name] = asyncio.create_task(channel.run())

    def put(self, done: Sequence[tuple[Trace, ScoredTrace]]) -> None:
        """Queue scores that are durable now; called from the worker's thread."""
        if not self._channels or self._loop is None:
            return
        try:
            at = int(self._clock() * 1e9)
            results = [result for pair in done for result in self._selection.of(*pair, at)]
            for signal, channel in self._channels.items():
                channel.put(self._fit(signal, results))
            self._loop.call_soon_threadsafe(self._wake)
        except Exception:  # the worker's work is done; ours must not undo it
            log.exception("results of %d traces cannot be exported", len(done))

    async def stop(self, within: float = STOP_SECONDS) -> None:
        """Send what waits within so many seconds, after the worker: it may still bring results."""
        channels, self._channels = self._channels, {}
        ends = [channel.stop(self._tasks[name], within) for name, channel in channels.items()]
        await asyncio.gather(*ends)
        await self._stack.aclose()

    def _fit(self, signal: str, results: Sequence[ExportedResult]) -> Sequence[ExportedResult]:
        """Return what a signal can carry: a span of ours must link to the span that it is about."""
        if signal != "spans":
            return results
        linked = [result for result in results if result.span is not None]
        if len(linked) < len(results):
            self._count(signal, "no_span", len(results) - len(linked))
        return linked

    def _wake(self) -> None:
        for channel in self._channels.values():
            channel.wake()

    def _count(self, signal: str, result: str, number: int) -> None:
        if self._agent is None:
            raise RuntimeError("the exporter was not started")
        with self._agent.lock():
            labels = (("signal", signal), ("result", result))
            self._agent.counters.inc(EXPORTED_COUNTER, labels, number)
