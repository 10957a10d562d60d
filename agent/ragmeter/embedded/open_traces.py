"""Open traces: their spans are durable until each trace is complete.

The spans are in the state file, or in rows of a topic (`ragmeter.kafka.state.assembly`); ids and
sizes are in memory. Whatever order spans come in, and wherever the process is killed, each is there
once. Copies of the latest spans are in memory as well: most
traces are closed seconds after their first span came, and to read those back from the file and
from JSON is a sixth of what a span costs.
"""

from __future__ import annotations

import logging
import math
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from ragmeter.config.inputs import OtlpSettings
from ragmeter.core.clocks import make_steady_clock
from ragmeter.core.counters import Counts, GaugeSample
from ragmeter.embedded.intake import QueueFull, StateWriter
from ragmeter.ingest.assembler import (
    Assembler,
    AssemblyBounds,
    AssemblyPlan,
    ClosingTrace,
    PartFate,
)
from ragmeter.ingest.span_batches import TRACES, SpanBatch, parts_total
from ragmeter.ingest.spans import Span
from ragmeter.ingest.stored_spans import MAX_VALUES, StoredPart, join_lines, split_parts
from ragmeter.store.pending import OpenSpanChanges, OpenSpanRow, OpenSpanStore

log = logging.getLogger(__name__)

# Spans of open traces kept in memory too, which are not read from the file: those of 1.5 s at
# 10,000 spans a second (docs/performance.md).
MAX_COPY_BYTES = 64 * 2**20

# The bytes that a span takes in memory besides its text, as measured: itself, two texts for each
# attribute or event, and the values in lists and maps.
_SPAN_BYTES = 400
_ATTRIBUTE_BYTES = 150
_VALUE_BYTES = 100


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


@dataclass(slots=True)
class _SpanCopy:
    spans: list[Span] = field(default_factory=list)
    size: int = 0


class SpanCopies:
    """Copies of the spans of open traces, of at most about `most` bytes.

    There is a copy of a whole trace or none. The oldest ones stay: they are closed next.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._copies: dict[bytes, _SpanCopy] = {}
        self.size = 0

    def add(self, trace: bytes, parts: Sequence[StoredPart], *, new: bool) -> None:
        """Add parts of a trace; `new` ones are its first.

        There is no copy of a trace with log events, nor of one so large that its values must be
        counted when it is read.
        """
        copy = _SpanCopy() if new else self._copies.get(trace)
        if copy is None:
            return
        self.take(trace)
        for part in parts:
            if part.span is not None:
                copy.spans.append(part.span)
                copy.size += _measure_span(part.line, part.span)
            if part.span is None or copy.size > min(MAX_VALUES, self._most - self.size):
                return
        self._copies[trace] = copy
        self.size += copy.size

    def take(self, trace: bytes) -> list[Span] | None:
        """Remove and return the spans of a trace."""
        copy = self._copies.pop(trace, None)
        if copy is None:
            return None
        self.size -= copy.size
        return copy.spans


def _measure_span(line: bytes, span: Span) -> int:
    size = len(line) + _SPAN_BYTES + _ATTRIBUTE_BYTES * len(span.events)
    for attributes in (span.attributes, *(event.attributes for event in span.events)):
        size += _ATTRIBUTE_BYTES * len(attributes)
        for value in attributes.values():
            if isinstance(value, (list, dict)):
                size += _measure_nested(value)
    return size


def _measure_nested(value: list[Any] | dict[str, Any]) -> int:
    inner = value.values() if isinstance(value, dict) else value
    return _VALUE_BYTES * (1 + len(value)) + sum(
        _measure_nested(item) for item in inner if isinstance(item, (list, dict))
    )


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
