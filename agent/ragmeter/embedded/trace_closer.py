"""The thread that turns complete span traces into native traces and hands them to intake.

One transaction removes the spans of a trace and queues the traces that were made of them. A
process that dies before it finds the spans again; one that dies after it knows the trace as closed.
"""

from __future__ import annotations

import logging
import sqlite3
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ragmeter.core.counters import CounterKey, Counts
from ragmeter.core.errors import QueueFull, StateUnavailable
from ragmeter.core.process import Heartbeat
from ragmeter.embedded.intake import Intake, IntakeItem
from ragmeter.ingest.assembler import ClosingTrace
from ragmeter.ingest.closed_traces import extract_traces
from ragmeter.ingest.native import DecodedTrace
from ragmeter.ingest.open_traces import OpenTraces
from ragmeter.ingest.requests.extraction import ExtractedRequests
from ragmeter.ingest.spans import Span
from ragmeter.store.pending import OpenSpanTable, closing_statements

log = logging.getLogger(__name__)

SOURCE = "otlp"
_TICK_SECONDS = 0.25  # between two checks what is due: added at most to quiet times
_BATCH = 64  # traces closed in one transaction
_BATCH_BYTES = 16 * 2**20  # of spans read for one; a trace that is larger goes alone
_RETRY_SECONDS = 1.0  # until a failed transaction is tried again
_STOP_SECONDS = 5.0  # for a transaction that runs; if it takes longer, a restart redoes it


@dataclass(frozen=True, slots=True)
class _ReadTrace:
    trace: bytes  # its id
    items: Sequence[IntakeItem]
    counts: Counts


class TraceCloser:
    """The thread that closes complete traces.

    Args:
        limit: The most bytes of a native trace.
        written: Positions of dead letters that were written before a restart.
        on_damage: Called when the state file turns out to be damaged.

    Attributes:
        problem: Why no trace can be closed now; None in health.
        fatal: Why the thread has ended; None in health.
    """

    def __init__(
        self,
        assembly: OpenTraces,
        store: OpenSpanTable,
        intake: Intake,
        extract: Callable[[Sequence[Span]], ExtractedRequests],
        limit: int,
        *,
        written: set[int],
        on_damage: Callable[[Exception], None],
    ) -> None:
        self._assembly = assembly
        self._store = store
        self._intake = intake
        self._extract = extract
        self._limit = limit
        self._written = written
        self._on_damage = on_damage
        self._due: list[ClosingTrace] = []
        self._ready: list[_ReadTrace] = []
        self.problem: str | None = None
        self.fatal: str | None = None
        self.heartbeat = Heartbeat()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="ragmeter-closer", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> bool:
        """Close no more traces, which stay durable; return whether the thread has ended."""
        self._stopping.set()
        if self._thread.ident is not None:
            self._thread.join(_STOP_SECONDS)
        return not self._thread.is_alive()

    def _run(self) -> None:
        try:
            while not self._stopping.wait(self._step()):
                pass
        except sqlite3.DatabaseError as error:
            self._on_damage(error)
        except Exception as error:
            log.exception("the closing of traces stopped")
            self.fatal = f"the closing of traces stopped: {error!r}"

    def _step(self) -> float:
        """Close the traces that are due; return the seconds until the next step."""
        self.heartbeat.beat()
        try:
            closed = self.close_due()
        except QueueFull:
            return _TICK_SECONDS
        except (StateUnavailable, sqlite3.OperationalError, OSError) as error:
            self.problem = f"cannot close traces: {error}"
            return _RETRY_SECONDS
        self.problem = None
        return 0.0 if closed >= _BATCH else _TICK_SECONDS

    def close_due(self) -> int:
        """Close the traces that are due, up to a batch; return their number.

        If it raises, nothing is lost: the next call goes on with the same traces.
        """
        if not self._due and not self._ready:
            self._due = self._assembly.due(_BATCH, _BATCH_BYTES)
        while self._due:
            self.heartbeat.beat()
            self._ready.append(self._read(self._due[0]))
            del self._due[0]
        if self._ready:
            self._queue_ready()
        closed = len(self._ready)
        self._ready = []
        return closed

    def _queue_ready(self) -> None:
        items = [item for ready in self._ready for item in ready.items]
        counts: Counter[CounterKey] = Counter()
        for ready in self._ready:
            counts.update(ready.counts)
        traces = [ready.trace for ready in self._ready]
        self._intake.accept(
            items,
            SOURCE,
            live=True,
            written=self._written,
            also=closing_statements(self._assembly.closing(traces)),
            counts=counts,
        )
        self._assembly.done(traces)
        self._written -= {position for _, position in items}  # removed: none can come again

    def _read(self, closing: ClosingTrace) -> _ReadTrace:
        trace = closing.trace
        spans = self._assembly.copy(trace)
        items, counts = extract_traces(
            closing=closing,
            bodies=lambda: self._bodies(trace),
            extract=self._extract,
            limit=self._limit,
            spans=spans,
        )
        # copies are of spans that came since the start: they have no dead letter from before
        good = spans is not None and all(isinstance(item, DecodedTrace) for item in items)
        position = 0 if good else self._store.position(trace)
        return _ReadTrace(trace, [(item, position) for item in items], counts)

    def _bodies(self, trace: bytes) -> list[object]:
        return [body for _, body in self._store.bodies(trace)]
