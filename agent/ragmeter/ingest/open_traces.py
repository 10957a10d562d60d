"""Open traces: their spans are durable until each trace is complete.

The spans are in the state file, or in rows of a topic (`ragmeter.kafka.state.assembly`); ids and
sizes are in memory. Whatever order spans come in, and wherever the process is killed, each is there
once. Copies of the latest spans are in memory as well: most traces are closed seconds after their
first span came, and to read those back from the file and from JSON is a sixth of what a span costs.
"""

from __future__ import annotations

import logging
import math
import threading
from collections import Counter
from collections.abc import Callable, Sequence

from ragmeter.config.inputs import OtlpSettings
from ragmeter.core.clocks import make_steady_clock
from ragmeter.core.counters import Counts, GaugeSample, StateWriter
from ragmeter.core.errors import QueueFull
from ragmeter.ingest.assembler import (
    Assembler,
    AssemblyBounds,
    AssemblyPlan,
    ClosingTrace,
    PartFate,
)
from ragmeter.ingest.open_spans import OpenSpanChanges, OpenSpanRow, OpenSpanStore
from ragmeter.ingest.span_batches import TRACES, SpanBatch, parts_total
from ragmeter.ingest.span_copies import SpanCopies
from ragmeter.ingest.spans import Span
from ragmeter.ingest.stored_spans import StoredPart, join_lines, split_parts

log = logging.getLogger(__name__)

# Spans of open traces kept in memory too, which are not read from the file: those of 1.5 s at
# 10,000 spans a second (docs/performance.md).
MAX_COPY_BYTES = 64 * 2**20


class OpenTraces:
    """The traces that are not complete yet; safe from any thread.

    `now` is Unix time, so that arrivals can be stored, but a change of the clock closes no trace.
    Spans of one trace that come together are one row, or several of at most `row_bytes`.
    """

    def __init__(
        self,
        settings: OtlpSettings,
        store: OpenSpanStore,
        write: StateWriter,
        *,
        clock: Callable[[], float],
        monotonic: Callable[[], float],
        row_bytes: float = math.inf,
        bounds: AssemblyBounds | None = None,
    ) -> None:
        self._store = store
        self._row_bytes = row_bytes
        self._write = write
        self.now = make_steady_clock(clock, monotonic)
        self._lock = threading.Lock()
        self._assembler = Assembler(settings, bounds)
        self._copies = SpanCopies(MAX_COPY_BYTES)
        self._forgotten: list[bytes] = []
        opened, closed, broken = store.restore()
        self._assembler.restore(opened, closed, self.now())
        if broken:
            log.error("%d rows of open spans in the state file made no sense", broken)
            write(lambda: {parts_total(TRACES, "corrupt"): broken})

    def accept(self, batches: Sequence[SpanBatch]) -> list[Counter[PartFate]]:
        """Make parts durable, once each.

        Returns:
            The number of parts by fate, for each batch.

        Raises:
            QueueFull: Too many traces are open; nothing was accepted.
            StateUnavailable: The state cannot be written; nothing was accepted.
        """
        stored = [part for batch in batches for part in batch.parts]
        with self._lock:
            if self._assembler.full:
                raise QueueFull("too many open traces")
            plan = self._assembler.plan([part.part for part in stored], self.now())
            fates, counts = _count_fates(batches, plan)
            by_trace = {
                trace: [stored[index] for index in indexes]
                for trace, indexes in plan.accepted.items()
            }
            rows = [
                _make_row(plan.now, trace, group)
                for trace, parts in by_trace.items()
                for group in split_parts(parts, self._row_bytes)
            ]

            def add() -> Counts:
                self._store.add(rows, counts)
                return counts

            if counts:
                self._write(add)
            for trace, parts in by_trace.items():
                self._copies.add(trace, parts, new=trace not in self._assembler)
            self._assembler.apply(plan)
        return fates

    def due(self, most: int, size: int) -> list[ClosingTrace]:
        """Return up to `most` complete traces of `size` bytes; they take no more spans.

        Call `done` after they were closed.
        """
        with self._lock:
            return self._assembler.due(self.now(), most, size)

    def copy(self, trace: bytes) -> list[Span] | None:
        """Return the spans of a trace that is due, once; None if only the file has them."""
        with self._lock:
            return self._copies.take(trace)

    def closing(self, traces: Sequence[bytes]) -> OpenSpanChanges:
        """Return the changes that remove the spans of traces and mark them as closed."""
        now = self.now()
        return OpenSpanChanges([(trace, now) for trace in traces], self._forgotten)

    def done(self, traces: Sequence[bytes]) -> None:
        """Take note that the changes of `closing` are applied."""
        now = self.now()
        with self._lock:
            for trace in traces:
                self._copies.take(trace)
            # removed from the file with the next ones; until then a restart merely knows more
            self._forgotten = [
                gone for trace in traces for gone in self._assembler.closed(trace, now)
            ]

    def gauges(self) -> list[GaugeSample]:
        """Return the number of open traces and their bytes."""
        return [
            ("ragmeter_otlp_open_traces", (), float(len(self._assembler))),
            ("ragmeter_otlp_open_bytes", (), float(self._assembler.size)),
        ]


def _make_row(now: float, trace: bytes, parts: Sequence[StoredPart]) -> OpenSpanRow:
    return OpenSpanRow(
        trace=trace,
        arrived=now,
        root=any(part.part.root for part in parts),
        size=sum(part.part.size for part in parts),
        keys=[part.part.key for part in parts],
        body=join_lines(part.line for part in parts),
    )


def _count_fates(
    batches: Sequence[SpanBatch], plan: AssemblyPlan
) -> tuple[list[Counter[PartFate]], Counts]:
    """Return the fates of each batch, and their counts."""
    fates: list[Counter[PartFate]] = []
    counts: Counts = {}
    start = 0
    for batch in batches:
        end = start + len(batch.parts)
        fates.append(Counter(plan.fates[start:end]))
        start = end
        for result, number in (*fates[-1].items(), *batch.refused.items()):
            key = parts_total(batch.signal, str(result))
            counts[key] = counts.get(key, 0) + number
        for key, by in batch.counts.items():
            counts[key] = counts.get(key, 0) + by
    return fates, counts
