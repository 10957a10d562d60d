"""Open traces of the embedded agent: their spans are durable until each trace is complete.

Decoded spans of open traces, kept beside their lines in the state file.

Most traces are closed seconds after their first span came: to read those back from the file and
from JSON is a sixth of what a span costs. A copy is there for the whole trace or not at all, and
is the same as what would be read. Where there is none, the file has it.

Open traces: which spans have come of them, kept durable until a trace is complete.

`accept` returns when what it was given is durable; `ragmeter.embedded.trace_closer` takes out what is complete. Ids
and sizes are in memory, and of the latest spans a copy. Whatever order spans come in, and wherever
the process is killed, each is in the state file once.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ragmeter.config.inputs import OtlpSettings
from ragmeter.core.clocks import make_steady_clock
from ragmeter.core.counters import CounterKey, Counts, GaugeSample
from ragmeter.embedded.intake import QueueFull, StateWriter
from ragmeter.ingest.assembler import Assembler, AssemblyPlan, ClosingTrace, PartFate
from ragmeter.ingest.spans import AttributeValue, Span
from ragmeter.ingest.stored_spans import MAX_VALUES, StoredPart, join_lines
from ragmeter.store.pending import OpenSpanRow, OpenSpanTable
from ragmeter.store.sqlite import TransactionStatements

# What a span takes in memory besides its text, by what was measured: itself, two texts for each
# attribute, event or link, and what lies in lists and maps.
_SPAN_BYTES = 400
_ATTRIBUTE_BYTES = 150
_VALUE_BYTES = 100


@dataclass(slots=True)
class _SpanCopy:
    spans: list[Span] = field(default_factory=list)
    size: int = 0


def _cost(line: bytes, span: Span) -> int:
    size = len(line) + _SPAN_BYTES + _ATTRIBUTE_BYTES * len(span.links) + _held(span.attributes)
    for event in span.events:
        size += _ATTRIBUTE_BYTES + _held(event.attributes)
    return size


def _held(attributes: dict[str, AttributeValue]) -> int:
    size = _ATTRIBUTE_BYTES * len(attributes)
    for value in attributes.values():
        if isinstance(value, (list, dict)):
            size += _nested(value)
    return size


def _nested(value: list[Any] | dict[str, Any]) -> int:
    inner = value.values() if isinstance(value, dict) else value
    return _VALUE_BYTES * (1 + len(value)) + sum(
        _nested(one) for one in inner if isinstance(one, (list, dict))
    )


class SpanCopies:
    """At most about `most` bytes. What is there longest stays: it is wanted next."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._copies: dict[bytes, _SpanCopy] = {}
        self.size = 0

    def add(self, trace: bytes, parts: Sequence[StoredPart], *, new: bool) -> None:
        """What has come of a trace; `new` says that nothing has before. A trace with log events,
        or so large that its values must be counted when it is read, is left to the file."""
        copy = _SpanCopy() if new else self._copies.get(trace)
        if copy is None:
            return
        self.take(trace)
        for one in parts:
            if one.span is not None:
                copy.spans.append(one.span)
                copy.size += _cost(one.line, one.span)
            if one.span is None or copy.size > min(MAX_VALUES, self._most - self.size):
                return
        self._copies[trace] = copy
        self.size += copy.size

    def take(self, trace: bytes) -> list[Span] | None:
        """The spans of a trace, which are kept no longer."""
        copy = self._copies.pop(trace, None)
        if copy is None:
            return None
        self.size -= copy.size
        return copy.spans


log = logging.getLogger("ragmeter")

TRACES, LOGS = "traces", "logs"


def parts_total(signal: str, result: str) -> CounterKey:
    return "ragmeter_otlp_spans_total", (("signal", signal), ("result", result))


@dataclass(frozen=True, slots=True)
class SpanBatch:
    """What one request brought. `signal` is `traces` or `logs`; `refused` says of how many parts
    nothing is kept, and why. `counts` are what else is counted of it."""

    signal: str
    parts: Sequence[StoredPart]
    refused: Mapping[str, int] = field(default_factory=dict)
    counts: Mapping[CounterKey, float] = field(default_factory=dict)


class OpenTraces:
    """Safe from any thread. `clock` is wall time, so that arrivals can be kept."""

    def __init__(
        self,
        settings: OtlpSettings,
        store: OpenSpanTable,
        write: StateWriter,
        *,
        clock: Callable[[], float],
        monotonic: Callable[[], float],
    ) -> None:
        self._store = store
        self._write = write
        self.now = make_steady_clock(
            clock, monotonic
        )  # nothing is closed because the clock was set
        self._lock = threading.Lock()
        self._assembler = Assembler(settings)
        self._copies = SpanCopies(settings.max_copy_bytes)
        self._forgotten: list[bytes] = []
        opened, closed, broken = store.restore()
        self._assembler.restore(opened, closed, self.now())
        if broken:
            log.error("%d rows of open spans in the state file made no sense", broken)
            write(lambda: {parts_total(TRACES, "corrupt"): broken})

    def accept(self, batches: Sequence[SpanBatch]) -> list[Counter[PartFate]]:
        """Make parts durable, once each; returns what became of those of each batch.

        Raises `QueueFull` or `Unavailable`; then nothing was accepted.
        """
        carried = [part for batch in batches for part in batch.parts]
        with self._lock:
            if self._assembler.full:
                raise QueueFull
            plan = self._assembler.plan([one.part for one in carried], self.now())
            fates, counts = _count_fates(batches, plan)
            rows = [_open_row(plan, trace, at, carried) for trace, at in plan.accepted.items()]

            def add() -> Counts:
                self._store.add(rows, counts)
                return counts

            if counts:
                self._write(add)
            for trace, at in plan.accepted.items():
                parts = [carried[index] for index in at]
                self._copies.add(trace, parts, new=trace not in self._assembler)
            self._assembler.apply(plan)
        return fates

    def due(self, most: int, size: int) -> list[ClosingTrace]:
        """What is complete now; it takes no more spans. `done` is called when it is closed."""
        with self._lock:
            return self._assembler.due(self.now(), most, size)

    def copy(self, trace: bytes) -> list[Span] | None:
        """The spans of a trace that is due, once; None where they are to be read from the file."""
        with self._lock:
            return self._copies.take(trace)

    def closing(self, traces: Sequence[bytes]) -> TransactionStatements:
        """What takes the spans of these traces away and remembers that they are closed."""
        now = self.now()
        return OpenSpanTable.closing([(trace, now) for trace in traces], self._forgotten)

    def done(self, traces: Sequence[bytes]) -> None:
        """The statements of `closing` are durable."""
        now = self.now()
        with self._lock:
            for trace in traces:
                self._copies.take(trace)
            # gone from the file with the next ones; until then a restart merely knows more
            self._forgotten = [
                gone for trace in traces for gone in self._assembler.closed(trace, now)
            ]

    def gauges(self) -> list[GaugeSample]:
        return [
            ("ragmeter_otlp_open_traces", (), float(len(self._assembler))),
            ("ragmeter_otlp_open_bytes", (), float(self._assembler.size)),
        ]


def _open_row(
    plan: AssemblyPlan, trace: bytes, indexes: Sequence[int], carried: Sequence[StoredPart]
) -> OpenSpanRow:
    chosen = [carried[index] for index in indexes]
    return OpenSpanRow(
        trace,
        plan.now,
        any(one.part.root for one in chosen),
        sum(one.part.size for one in chosen),
        [one.part.key for one in chosen],
        join_lines(one.line for one in chosen),
    )


def _count_fates(
    batches: Sequence[SpanBatch], plan: AssemblyPlan
) -> tuple[list[Counter[PartFate]], Counts]:
    """The fates by batch, and what is counted of them."""
    fates: list[Counter[PartFate]] = []
    counts: Counts = {}
    start = 0
    for batch in batches:
        end = start + len(batch.parts)
        found = Counter(plan.fates[start:end])
        fates.append(found)
        start = end
        for result, number in (*found.items(), *batch.refused.items()):
            key = parts_total(batch.signal, str(result))
            counts[key] = counts.get(key, 0) + number
        for key, by in batch.counts.items():
            counts[key] = counts.get(key, 0) + by
    return fates, counts
