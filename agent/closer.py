"""From complete traces of spans to traces of ours: the thread that reads, extracts and hands on.

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

from agent.assembly import Assembly, parts_total
from agent.counters import CounterKey, Counts
from agent.ingest.assembler import Closing
from agent.ingest.bounds import TooMuch
from agent.ingest.carried import read
from agent.ingest.native import Bad, Good, decode_one
from agent.ingest.requests import Found
from agent.ingest.spans import Span
from agent.intake import Item, QueueFull, Unavailable
from agent.pulse import Pulse
from agent.store.open_spans import OpenSpans
from agent.store.rows import Accepted
from agent.store.sqlite import Statements

__all__ = ["Accept", "Closer", "Extract"]

log = logging.getLogger("ragmeter")

SOURCE = "otlp"
TICK_SECONDS = 0.25  # how often it is looked what is due: up to so much is added to quiet times
BATCH = 64  # traces closed in one transaction
BATCH_BYTES = 16 * 2**20  # of spans read for one; a trace that is larger goes alone
RETRY_SECONDS = 1.0  # until what failed is tried again
STOP_SECONDS = 5.0  # a step that runs is let end; where it does not, it is redone after a restart

Extract = Callable[[Sequence[Span]], Found]


class Accept(Protocol):
    """`Instrument.accept`."""

    def __call__(
        self,
        items: Sequence[Item],
        source: str,
        *,
        live: bool,
        written: set[int],
        also: Statements,
        counts: Mapping[CounterKey, float],
    ) -> Accepted: ...


@dataclass(frozen=True, slots=True)
class _Read:
    """A trace that is ready to be handed on."""

    trace: bytes
    items: Sequence[Item]
    counts: Counts


class Closer:
    """`limit` bounds a trace of ours in bytes; `written` are positions of dead letters that were
    written before a restart. `problem` says why nothing can be closed now, `fatal` why the thread
    has ended; both are None in health.
    """

    def __init__(
        self,
        assembly: Assembly,
        store: OpenSpans,
        accept: Accept,
        extract: Extract,
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
        self._due: list[Closing] = []
        self._ready: list[_Read] = []
        self.problem: str | None = None
        self.fatal: str | None = None
        self.pulse = Pulse()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="ragmeter-closer", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> bool:
        """Close no more; what is open stays durable. Returns whether the thread has ended."""
        self._stopping.set()
        if self._thread.ident is not None:
            self._thread.join(STOP_SECONDS)
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
            return TICK_SECONDS
        except (Unavailable, sqlite3.OperationalError, OSError) as error:
            self.problem = f"cannot close traces: {error}"
            return RETRY_SECONDS
        self.problem = None
        return 0.0 if closed >= BATCH else TICK_SECONDS

    def close_due(self) -> int:
        """Close what is due now, up to a batch; returns how many. Where it raises, nothing is
        lost: the next call goes on with it."""
        if not self._due and not self._ready:
            self._due = self._assembly.due(BATCH, BATCH_BYTES)
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

    def _read(self, closing: Closing) -> _Read:
        """What the spans of a trace say. Whatever is wrong with them costs this trace alone."""
        trace = closing.trace
        counts: Counts = {("ragmeter_otlp_traces_total", (("result", str(closing.why)),)): 1}
        found: list[Good | Bad] = []
        copy = self._assembly.copy(trace)
        copied = copy is not None
        try:
            if copy is None:
                copy, lost = read(self._bodies(trace))
                for (signal, result), number in lost.items():
                    counts[parts_total(signal, result)] = number
            said = self._extract(copy)
            for reason, number in said.dropped.items():
                counts["ragmeter_otlp_dropped_total", (("reason", reason),)] = number
            for one in said.traces:
                text = one.model_dump_json(exclude_none=True).encode()
                found.append(decode_one(text, self._limit))
        except TooMuch as error:
            found = [Bad("too_large", (("", str(error)),), _raw(self._bodies(trace)))]
        except (sqlite3.Error, MemoryError, OSError):
            raise
        except Exception as error:
            log.exception("trace %s cannot be read; it is a dead letter", trace.hex())
            why = (("", repr(error)[:200]),)
            found = [Bad("internal_error", why, _raw(self._bodies(trace)))]
        # what is copied has come since the start: no dead letter of it can have been written
        good = copied and all(isinstance(one, Good) for one in found)
        position = 0 if good else self._store.position(trace)
        return _Read(trace, [(one, position) for one in found], counts)

    def _bodies(self, trace: bytes) -> list[Any]:
        return [body for _, body in self._store.bodies(trace)]


def _raw(bodies: Sequence[object]) -> bytes:
    """The lines of a trace as JSON lines, without the letter before each."""
    lines = b"\n".join(body for body in bodies if isinstance(body, bytes)).split(b"\n")
    return b"\n".join(line[1:] for line in lines)
