"""The thread that turns complete span traces into native traces and hands them to intake.

The one transaction that takes the spans of a trace away puts what came of them into the queue. A
process that dies before it finds the spans again, one that dies after it knows the trace as closed.
"""

from __future__ import annotations

import logging
import sqlite3
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from ragmeter.core.counters import CounterKey, Counts
from ragmeter.core.process import Heartbeat
from ragmeter.embedded.intake import IntakeItem, QueueFull, StateUnavailable
from ragmeter.embedded.open_traces import OpenTraces, parts_total
from ragmeter.ingest.assembler import ClosingTrace
from ragmeter.ingest.native import BodyLimitExceeded, DecodedTrace, DecodeFailure, decode_trace
from ragmeter.ingest.requests.extraction import ExtractedRequests
from ragmeter.ingest.spans import Span
from ragmeter.ingest.stored_spans import read_stored_trace
from ragmeter.store.pending import OpenSpanTable
from ragmeter.store.rows import AcceptedArrivals
from ragmeter.store.sqlite import TransactionStatements

log = logging.getLogger("ragmeter")

SOURCE = "otlp"
_TICK_SECONDS = 0.25  # how often it is looked what is due: up to so much is added to quiet times
_BATCH = 64  # traces closed in one transaction
_BATCH_BYTES = 16 * 2**20  # of spans read for one; a trace that is larger goes alone
_RETRY_SECONDS = 1.0  # until what failed is tried again
_STOP_SECONDS = 5.0  # a step that runs is let end; where it does not, it is redone after a restart

_ExtractRequests = Callable[[Sequence[Span]], ExtractedRequests]


class _AcceptTraces(Protocol):
    """`Instrument.accept`."""

    def __call__(
        self,
        items: Sequence[IntakeItem],
        source: str,
        *,
        live: bool,
        written: set[int],
        also: TransactionStatements,
        counts: Mapping[CounterKey, float],
    ) -> AcceptedArrivals: ...


@dataclass(frozen=True, slots=True)
class _ReadTrace:
    """A trace that is ready to be handed on."""

    trace: bytes
    items: Sequence[IntakeItem]
    counts: Counts


class TraceCloser:
    """`limit` bounds a trace of ours in bytes; `written` are positions of dead letters that were
    written before a restart. `problem` says why nothing can be closed now, `fatal` why the thread
    has ended; both are None in health.
    """

    def __init__(
        self,
        assembly: OpenTraces,
        store: OpenSpanTable,
        accept: _AcceptTraces,
        extract: _ExtractRequests,
        limit: int,
        *,
        written: set[int],
        damaged: Callable[[Exception], None],
    ) -> None:
        self._assembly = assembly
        self._store = store
        self._accept = accept
        self._extract = extract
        self._limit = limit
        self._written = written
        self._damaged = damaged
        self._due: list[ClosingTrace] = []
        self._ready: list[_ReadTrace] = []
        self.problem: str | None = None
        self.fatal: str | None = None
        self.pulse = Heartbeat()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="ragmeter-closer", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> bool:
        """Close no more; what is open stays durable. Returns whether the thread has ended."""
        self._stopping.set()
        if self._thread.ident is not None:
            self._thread.join(_STOP_SECONDS)
        return not self._thread.is_alive()

    def _run(self) -> None:
        try:
            while not self._stopping.wait(self._step()):
                pass
        except sqlite3.DatabaseError as error:
            self._damaged(error)
        except Exception as error:
            log.exception("the closing of traces stopped")
            self.fatal = f"the closing of traces stopped: {error!r}"

    def _step(self) -> float:
        self.pulse.beat()
        """Close what is due; returns after how many seconds to look again."""
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
        """Close what is due now, up to a batch; returns how many. Where it raises, nothing is
        lost: the next call goes on with it."""
        if not self._due and not self._ready:
            self._due = self._assembly.due(_BATCH, _BATCH_BYTES)
        while self._due:
            self.pulse.beat()
            self._ready.append(self._read(self._due[0]))
            del self._due[0]
        if self._ready:
            self._hand_on()
        done = len(self._ready)
        self._ready = []
        return done

    def _hand_on(self) -> None:
        items = [item for one in self._ready for item in one.items]
        counts: Counts = {}
        for one in self._ready:
            for key, by in one.counts.items():
                counts[key] = counts.get(key, 0) + by
        traces = [one.trace for one in self._ready]
        self._accept(
            items,
            SOURCE,
            live=True,
            written=self._written,
            also=self._assembly.closing(traces),
            counts=counts,
        )
        self._assembly.done(traces)
        self._written -= {position for _, position in items}  # gone: none can come again

    def _read(self, closing: ClosingTrace) -> _ReadTrace:
        """What the spans of a trace say. Whatever is wrong with them costs this trace alone."""
        trace = closing.trace
        counts: Counts = {("ragmeter_otlp_traces_total", (("result", str(closing.why)),)): 1}
        found: list[DecodedTrace | DecodeFailure] = []
        copy = self._assembly.copy(trace)
        copied = copy is not None
        try:
            if copy is None:
                copy, lost = read_stored_trace(self._bodies(trace))
                for (signal, result), number in lost.items():
                    counts[parts_total(signal, result)] = number
            said = self._extract(copy)
            for reason, number in said.dropped.items():
                counts["ragmeter_otlp_dropped_total", (("reason", reason),)] = number
            for one in said.traces:
                text = one.model_dump_json(exclude_none=True).encode()
                found.append(decode_trace(text, self._limit))
        except BodyLimitExceeded as error:
            found = [DecodeFailure("too_large", (("", str(error)),), _raw(self._bodies(trace)))]
        except (sqlite3.Error, MemoryError, OSError):
            raise
        except Exception as error:
            log.exception("trace %s cannot be read; it is a dead letter", trace.hex())
            why = (("", repr(error)[:200]),)
            found = [DecodeFailure("internal_error", why, _raw(self._bodies(trace)))]
        # what is copied has come since the start: no dead letter of it can have been written
        good = copied and all(isinstance(one, DecodedTrace) for one in found)
        position = 0 if good else self._store.position(trace)
        return _ReadTrace(trace, [(one, position) for one in found], counts)

    def _bodies(self, trace: bytes) -> list[Any]:
        return [body for _, body in self._store.bodies(trace)]


def _raw(bodies: Sequence[object]) -> bytes:
    """The lines of a trace as JSON lines, without the letter before each."""
    lines = b"\n".join(body for body in bodies if isinstance(body, bytes)).split(b"\n")
    return b"\n".join(line[1:] for line in lines)
