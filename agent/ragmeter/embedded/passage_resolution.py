"""Hold accepted traces until the texts of their passages are resolved, then queue them.

They are durable while they wait, in a table of their own, so that a slow source delays no other
traces. A thread with an event loop looks the texts up and puts the traces into the queue, redacted
once more: a resolver returns text from outside.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sqlite3
import threading
from collections.abc import Callable, Sequence

from ragmeter.config.inputs import ResolverSettings
from ragmeter.core.counters import Counts, StateWriter
from ragmeter.core.errors import StateLostError, StateUnavailable
from ragmeter.core.process import Heartbeat, end_tasks
from ragmeter.ingest.native import DecodedTrace, decode_trace
from ragmeter.ingest.passage_resolver import PassageResolver, encode_trace, needs_passage_texts
from ragmeter.ingest.redaction import Redactor
from ragmeter.store.pending import HeldTrace, HeldTraceTable
from ragmeter.store.sqlite import SqliteStore
from ragmeter.trace import Trace

log = logging.getLogger(__name__)

# Live traces that wait for texts at a time; others go on without them. A source that answers in
# 2 s with 8 calls in flight clears them in four minutes.
MAX_HELD_TRACES = 1000
_BATCH = 32  # traces resolved side by side, and queued in one transaction
_RETRY_SECONDS = 1.0  # until a failed transaction is tried again
_STOP_SECONDS = 5.0  # for traces in progress; the rest is durable and resolved after a restart


class PassageResolution:
    """The thread that resolves the passages of held traces, which have at most `limit` bytes then.

    `fatal` says why the thread has ended; it is None in health.
    """

    def __init__(
        self,
        settings: ResolverSettings,
        store: SqliteStore,
        redactor: Redactor,
        limit: int,
        write: StateWriter,
    ) -> None:
        self._settings = settings
        self._store = store
        self._held = HeldTraceTable(store)
        self._redactor = redactor
        self._limit = limit
        self._write = write
        self.fatal: str | None = None
        self.heartbeat = Heartbeat()
        self._on_queued: Callable[[], None] = lambda: None
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="ragmeter-resolver", daemon=True)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._wakeup: asyncio.Event | None = None
        self._end: asyncio.Event | None = None

    @property
    def full(self) -> bool:
        """Whether as many traces are held as may wait for texts."""
        return self._store.held_count >= MAX_HELD_TRACES

    def wants(self, trace: Trace) -> bool:
        """Return whether some source may have texts that a trace lacks."""
        return needs_passage_texts(self._settings, trace)

    def start(self, on_queued: Callable[[], None]) -> None:
        """Start the thread if there are sources, or traces that were held before a restart.

        `on_queued` is called when traces were queued.
        """
        self._on_queued = on_queued
        if self._settings.sources or self._store.held_count:
            self._thread.start()

    def wake(self) -> None:
        """Fetch held traces now; safe from any thread."""
        if self._store.held_count:
            self._set(self._wakeup)

    def stop(self) -> bool:
        """Return whether the thread has ended; traces that are still held are durable."""
        self._stopping.set()
        if self._thread.ident is None:
            return True
        self._set(self._wakeup)
        self._set(self._end)
        self._thread.join(_STOP_SECONDS)
        return not self._thread.is_alive()

    def _set(self, event: asyncio.Event | None) -> None:
        if self._loop is not None and event is not None:
            with contextlib.suppress(RuntimeError):  # the loop has just ended
                self._loop.call_soon_threadsafe(event.set)

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except StateLostError as error:
            self.fatal = str(error)
        except Exception as error:
            log.exception("the resolving of passages stopped")
            self.fatal = f"the resolving of passages stopped: {error!r}"

    async def _serve(self) -> None:
        self._wakeup = wakeup = asyncio.Event()
        self._end = end = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        beating = asyncio.create_task(self.heartbeat.run())
        resolver = PassageResolver(self._settings)
        try:
            while not self._stopping.is_set():
                wakeup.clear()
                rows = await asyncio.to_thread(self._held.rows, 0, _BATCH)
                if rows:
                    await self._resolve_all(resolver, rows, end)
                else:
                    await wakeup.wait()
        finally:
            beating.cancel()
            await resolver.close()

    async def _resolve_all(
        self, resolver: PassageResolver, rows: Sequence[HeldTrace], end: asyncio.Event
    ) -> None:
        work = [asyncio.create_task(self._resolve(resolver, row)) for row in rows]
        together = asyncio.create_task(asyncio.wait(work))
        stopped = asyncio.create_task(end.wait())
        try:
            await asyncio.wait({together, stopped}, return_when=asyncio.FIRST_COMPLETED)
            if not together.done():
                return  # the traces wait for the next start
        finally:
            await end_tasks([*work, together, stopped])
        counts: Counts = resolver.counts()
        resolved = [HeldTrace(row.id, task.result()) for row, task in zip(rows, work, strict=True)]

        def release() -> Counts:
            self._held.release(resolved, counts)
            return counts

        while not self._stopping.is_set():
            try:
                await asyncio.to_thread(self._write, release)
            except (StateUnavailable, sqlite3.OperationalError):
                await asyncio.sleep(_RETRY_SECONDS)
            else:
                self._on_queued()
                return

    async def _resolve(self, resolver: PassageResolver, row: HeldTrace) -> bytes:
        item = decode_trace(row.body, len(row.body))
        if not isinstance(item, DecodedTrace):
            return row.body  # damaged: the worker makes it a dead letter
        trace = await resolver.resolve_redacted(item.trace, self._redactor, self._limit)
        return row.body if trace is item.trace else encode_trace(trace)
