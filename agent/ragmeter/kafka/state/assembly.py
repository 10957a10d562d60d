"""The open traces of one partition of the spans topic, and their rows.

A trace is handed on in the transaction that deletes its spans.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ragmeter.config.inputs import OtlpSettings
from ragmeter.core.counters import CounterKey, Counters, Counts, GaugeSample
from ragmeter.core.errors import QueueFull
from ragmeter.ingest.assembler import BOUNDS, AssemblyBounds, ClosingTrace, RestoredTrace
from ragmeter.ingest.open_spans import OpenSpanChanges, OpenSpanRow
from ragmeter.ingest.open_traces import OpenTraces
from ragmeter.ingest.span_batches import LOGS, TRACES, SpanBatch
from ragmeter.ingest.stored_spans import StoredPart
from ragmeter.kafka.origins import Origin, SourceMarks
from ragmeter.kafka.span_records import RECORD_BYTES
from ragmeter.kafka.state.rows import (
    HEAD,
    STATE_VERSION,
    Rows,
    RowsByKind,
    dump_json,
    load_rows,
    row_key,
)

# Kinds of rows.
_OPEN = "o"
_CLOSED = "x"
_COUNTS = "n"
_REASON = "idle"  # of any closed trace: nobody reads it, but the version before wants one


class OpenSpanRows:
    """A `ragmeter.store.pending.OpenSpanStore` in memory that is saved as rows.

    `changes` are the rows that have changed since whoever writes them took them.
    """

    def __init__(self) -> None:
        self.next_row = 0
        self._keys: dict[bytes, list[bytes]] = {}  # of the rows of each open trace, in order
        self._rows: dict[bytes, bytes] = {}  # of open traces
        self.changes: Rows = {}
        self._restored: tuple[list[RestoredTrace], list[tuple[bytes, float]]] = [], []

    def add(self, rows: Iterable[OpenSpanRow], counts: Mapping[CounterKey, float]) -> None:
        """Keep rows; the state counts."""
        for row in rows:
            name = row.trace.hex()
            if row.trace not in self._keys:
                # delete the mark of an earlier trace of this id: else this one would look closed
                self.changes[row_key(_CLOSED, name)] = None
            key = row_key(_OPEN, name, self.next_row)
            self.next_row += 1
            self._keys.setdefault(row.trace, []).append(key)
            head = dump_json([row.arrived, row.root, row.size, [one.hex() for one in row.keys]])
            self.changes[key] = self._rows[key] = head + b"\n" + row.body

    def bodies(self, trace: bytes) -> list[bytes]:
        """Return the lines of a trace, for `ragmeter.ingest.stored_spans`, in order of arrival."""
        return [self._rows[key].partition(b"\n")[2] for key in self._keys.get(trace, ())]

    def apply(self, changes: OpenSpanChanges) -> None:
        """Apply changes, as a transaction of the embedded agent does."""
        for trace in changes.forgotten:
            if trace not in self._keys:  # else it has come again
                self.changes[row_key(_CLOSED, trace.hex())] = None
        for trace, at in changes.closed:
            for key in self._keys.pop(trace):
                del self._rows[key]
                self.changes[key] = None
            self.changes[row_key(_CLOSED, trace.hex())] = dump_json([at, _REASON])

    def restore(self) -> tuple[list[RestoredTrace], list[tuple[bytes, float]], int]:
        """Return what `load` has read."""
        return *self._restored, 0

    def load(self, next_row: int, rows: RowsByKind) -> None:
        """Restore rows, in an empty object."""
        self.next_row = next_row
        opened: dict[bytes, RestoredTrace] = {}
        for (name, number), data in sorted(rows.get(_OPEN, ()), key=lambda row: int(row[0][1])):
            trace = bytes.fromhex(name)
            arrived, root, size, keys = json.loads(data.partition(b"\n")[0])
            one = opened.setdefault(
                trace, RestoredTrace(trace=trace, first=float(arrived), keys=[], size=0, root=False)
            )
            one.keys += map(bytes.fromhex, keys)
            one.size += int(size)
            one.root |= bool(root)
            key = row_key(_OPEN, name, number)
            self._keys.setdefault(trace, []).append(key)
            self._rows[key] = data
        marks = ((bytes.fromhex(name), json.loads(data)) for (name,), data in rows.get(_CLOSED, ()))
        closed = [(trace, float(at)) for trace, (at, *_) in marks if trace not in opened]
        self._restored = list(opened.values()), sorted(closed, key=lambda one: one[1])


def partition_share(partitions: int) -> AssemblyBounds:
    """Divide the bounds on open traces by the partitions, down to the least that is of use."""
    return replace(
        BOUNDS,
        open_traces=max(100, BOUNDS.open_traces // partitions),
        open_bytes=max(BOUNDS.trace_bytes, BOUNDS.open_bytes // partitions),
        remembered=max(1000, BOUNDS.remembered // partitions),
    )


class AssemblyState:
    """The open traces of a partition, and their spans.

    `bounds` are the partition's share, and `row_bytes` bounds rows of several spans. `clock` is
    wall time: arrivals survive a restart.
    """

    def __init__(
        self,
        settings: OtlpSettings,
        *,
        bounds: AssemblyBounds | None = None,
        row_bytes: int = RECORD_BYTES,
        clock: Callable[[], float],
        monotonic: Callable[[], float],
    ) -> None:
        self.counters = Counters()
        self._rows = OpenSpanRows()
        self._counted = False
        self._sources = SourceMarks()
        self._saved_sources: list[Any] = []  # as of the last spans that were taken in
        self._make_traces: Callable[[], OpenTraces] = lambda: OpenTraces(
            settings,
            self._rows,
            self._write,
            clock=clock,
            monotonic=monotonic,
            row_bytes=row_bytes,
            bounds=bounds,
        )
        self._traces = self._make_traces()

    def _write(self, write: Callable[[], Mapping[CounterKey, float]]) -> None:
        self._count(write())

    def _count(self, counts: Mapping[CounterKey, float]) -> None:
        self._counted = True
        for (name, labels), by in counts.items():
            self.counters.inc(name, labels, by)

    def is_new(self, origin: Origin | None) -> bool:
        """Return whether a record has not come before; if so, it is to be taken in next."""
        return self._sources.take(origin)

    def apply(self, records: Sequence[Sequence[StoredPart]]) -> bool:
        """Take in the spans of records, all or none; return whether there was room."""
        batches = [
            SpanBatch(LOGS if any(one.part.log for one in parts) else TRACES, parts)
            for parts in records
        ]
        try:
            self._traces.accept(batches)
        except QueueFull:
            return False
        self._saved_sources = self._sources.saved()
        return True

    def close_due(self, most: int, size: int) -> list[tuple[ClosingTrace, list[bytes]]]:
        """Close complete traces, up to `most` or `size` bytes, and return them with their spans.

        `handed_on` must be called for each of them before the next step.
        """
        return [(one, self._rows.bodies(one.trace)) for one in self._traces.due(most, size)]

    def handed_on(self, closing: ClosingTrace, counts: Counts) -> None:
        """Delete the spans of a closed trace, and remember its id."""
        self._count(counts)
        self._close([closing.trace])

    def _close(self, traces: Sequence[bytes]) -> None:
        self._rows.apply(self._traces.closing(traces))
        self._traces.done(traces)

    def gauges(self) -> list[GaugeSample]:
        """Return the number and size of open traces."""
        return self._traces.gauges()

    @property
    def changed(self) -> bool:
        """Whether there is anything to make durable."""
        return self._counted or bool(self._rows.changes)

    def step(self) -> Rows:
        """Return all that changed since the last call."""
        self._close(())  # forgets ids
        rows, self._rows.changes = self._rows.changes, {}
        if self._counted:
            content = [[name, labels, by] for (name, labels), by in sorted(self.counters.items())]
            rows[row_key(_COUNTS)] = dump_json(content)
        self._counted = False
        rows[HEAD] = dump_json(
            {
                "v": STATE_VERSION,
                "next": self._rows.next_row,
                "sources": self._saved_sources,
            }
        )
        return rows

    def load(self, rows: Mapping[bytes, bytes]) -> None:
        """Restore the rows of all steps, in a new object; raises as `load_rows`."""
        load_rows(rows, "open spans", self._load)

    def _load(self, head: dict[str, Any], rows: RowsByKind) -> None:
        self._rows.load(int(head["next"]), rows)
        self._saved_sources = head["sources"]
        self._sources.restore(self._saved_sources)
        self._traces = self._make_traces()
        for _, data in rows.get(_COUNTS, ()):
            for name, labels, by in json.loads(data):
                self.counters.inc(name, tuple((label, value) for label, value in labels), by)
