"""Hold accepted traces until the texts of their passages are resolved, then queue them.

They are durable while they wait, in a table of their own, so that a source that is slow or hangs
holds up nothing but them. A thread with an event loop looks the texts up and puts the traces into
the queue, redacted once more: what a resolver gives is text from outside like any other.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sqlite3
import threading
from collections.abc import Callable, Mapping, Sequence

from ragmeter.config.inputs import ResolverSettings
from ragmeter.core.counters import CounterKey, Counts
from ragmeter.core.errors import StateLostError
from ragmeter.core.process import Heartbeat
from ragmeter.embedded.intake import StateUnavailable, StateWriter
from ragmeter.ingest.native import DecodedTrace, decode_trace
from ragmeter.ingest.passage_resolver import PassageResolver, needs_passage_texts
from ragmeter.ingest.redaction import Redactor
from ragmeter.store.pending import HeldTrace, HeldTraceTable
from ragmeter.store.sqlite import SqliteStore
from ragmeter.trace import Trace

log = logging.getLogger("ragmeter")

_BATCH = 32  # traces looked up side by side, and put into the queue in one step
_RETRY_SECONDS = 1.0  # until what could not be written is tried again
_STOP_SECONDS = 5.0  # what is not done by then is durable and done after a restart


class PassageResolution:
    """`limit` bounds a trace in bytes, with its texts. `fatal` says why the thread has ended."""

    def __init__(
        self,
        settings: ResolverSettings,
        store: SqliteStore,
        redactor: Redactor,
        limit: int,
        write: StateWriter,
        make: Callable[[], PassageResolver] | None = None,
    ) -> None:
        self._settings = settings
        self._store = store
        self._held = HeldTraceTable(store)
        self._redactor = redactor
        self._limit = limit
        self._write = write
        self._make = make or (lambda: PassageResolver(settings))
        self.fatal: str | None = None
        self.pulse = Heartbeat()
        self._told: Callable[[], None] = lambda: None
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="ragmeter-resolver", daemon=True)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._news: asyncio.Event | None = None
        self._end: asyncio.Event | None = None

    @property
    def full(self) -> bool:
        return self._store.held_count >= self._settings.waiting

    def wants(self, trace: Trace) -> bool:
        """Whether some source may have texts that a trace lacks."""
        return needs_passage_texts(self._settings, trace)

    def start(self, told: Callable[[], None]) -> None:
        """`told` hears that the queue has grown. Without sources and without traces that wait
        from an earlier run there is nothing to do, and no thread."""
        self._told = told
        if self._settings.sources or self._store.held_count:
            self._thread.start()

    def wake(self) -> None:
        """Look for held traces now. From any thread."""
        if self._store.held_count:
            self._call(self._news)

    def stop(self) -> bool:
        """Returns whether the thread has ended; what still waits is durable."""
        self._stopping.set()
        if self._thread.ident is None:
            return True
        self._call(self._news)
        self._call(self._end)
        self._thread.join(_STOP_SECONDS)
        return not self._thread.is_alive()

    def _call(self, event: asyncio.Event | None) -> None:
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
        self._news, self._end = news, end = asyncio.Event(), asyncio.Event()
        self._loop = asyncio.get_running_loop()
        beating = asyncio.create_task(self.pulse.run())
        resolver = self._make()
        try:
            while not self._stopping.is_set():
                news.clear()
                rows = await asyncio.to_thread(self._held.rows, 0, _BATCH)
                if rows:
                    await self._resolve(resolver, rows, end)
                else:
                    await news.wait()
        finally:
            beating.cancel()
            await resolver.close()

    async def _resolve(
        self, resolver: PassageResolver, rows: Sequence[HeldTrace], end: asyncio.Event
    ) -> None:
        work = [asyncio.create_task(self._one(resolver, row)) for row in rows]
        together = asyncio.create_task(asyncio.wait(work))
        stopped = asyncio.create_task(end.wait())
        try:
            await asyncio.wait({together, stopped}, return_when=asyncio.FIRST_COMPLETED)
            if not together.done():
                return  # they wait on for the next start
        finally:
            for task in (*work, together, stopped):
                task.cancel()
            await asyncio.gather(*work, together, stopped, return_exceptions=True)
        counts: Counts = resolver.counts()
        found = [
            HeldTrace(row.id, self._redacted(row, task.result(), counts))
            for row, task in zip(rows, work, strict=True)
        ]
        while not self._stopping.is_set():
            try:
                await asyncio.to_thread(self._release, found, counts)
            except (StateUnavailable, sqlite3.OperationalError):
                await asyncio.sleep(_RETRY_SECONDS)
            else:
                self._told()
                return

    async def _one(self, resolver: PassageResolver, row: HeldTrace) -> Trace | None:
        item = decode_trace(row.body, len(row.body))
        if not isinstance(item, DecodedTrace):
            return None  # of an older version: the worker says so
        trace = await resolver.resolve(item.trace)
        return None if trace is item.trace else trace

    def _redacted(self, row: HeldTrace, trace: Trace | None, counts: Counts) -> bytes:
        if trace is None:
            return row.body
        good = self._redactor.trace(DecodedTrace(trace, b""), counts)
        body = good.body or trace.model_dump_json(exclude_none=True).encode("utf-8", "replace")
        if len(body) <= self._limit:
            return body
        # more text than a trace may have: as if it could not be had
        bare = decode_trace(row.body, len(row.body))
        assert isinstance(bare, DecodedTrace)
        missing = {**bare.trace.missing, "passages": "resolver_error"}
        return (
            bare.trace.model_copy(update={"missing": missing})
            .model_dump_json(exclude_none=True)
            .encode("utf-8", "replace")
        )

    def _release(self, rows: Sequence[HeldTrace], counts: Counts) -> None:
        def write() -> Mapping[CounterKey, float]:
            self._held.release(rows, counts)
            return counts

        self._write(write)
