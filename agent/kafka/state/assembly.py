"""The open traces of one partition of the spans topic, and their rows.

This mirrors `ragmeter.embedded.open_traces`. A trace is handed on in the transaction that deletes
its spans.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ragmeter.config.inputs import OtlpSettings
from ragmeter.core.counters import Counters, Counts, GaugeSample
from ragmeter.embedded.open_traces import LOGS, TRACES, parts_total
from ragmeter.ingest.assembler import Assembler, CloseReason, ClosingTrace, RestoredTrace
from ragmeter.ingest.stored_spans import join_lines
from ragmeter.kafka.span_records import RECORD_BYTES, SpanRecord
from ragmeter.kafka.state.rows import (
    HEAD,
    STATE_VERSION,
    Rows,
    dump_json,
    load_rows,
    row_key,
    split_row_key,
)

_FORGET = 128  # forgotten ids that a step deletes: they harm nobody meanwhile
_OPEN, _CLOSED, _COUNTS = "o", "x", "n"  # kinds of rows


@dataclass(slots=True)
class _SpanChunk:
    """The spans of a trace since the last step: one row of the next."""

    arrived: float
    root: bool = False
    size: int = 0
    keys: list[str] = field(default_factory=list)
    lines: list[bytes] = field(default_factory=list)

    def content(self) -> bytes:
        head = dump_json([self.arrived, self.root, self.size, self.keys])
        return head + b"\n" + join_lines(self.lines)


def span_body(row: bytes) -> bytes:
    """Return the lines of a row of spans, for `ragmeter.ingest.stored_spans`."""
    return row.partition(b"\n")[2]


def partition_share(settings: OtlpSettings, partitions: int) -> OtlpSettings:
    """Divide the bounds on open traces by the partitions, down to the least that is of use."""
    return settings.model_copy(
        update={
            "max_open_traces": max(100, settings.max_open_traces // partitions),
            "max_open_bytes": max(settings.max_trace_bytes, settings.max_open_bytes // partitions),
            "max_remembered": max(1000, settings.max_remembered // partitions),
        }
    )


class AssemblyState:
    """The open traces of a partition, and their spans.

    `settings` are the partition's share of the bounds, and `row_bytes` bounds rows of several
    spans. `clock` is wall time: arrivals survive a restart.
    """

    def __init__(
        self,
        settings: OtlpSettings,
        *,
        row_bytes: int = RECORD_BYTES,
        clock: Callable[[], float],
        monotonic: Callable[[], float],
    ) -> None:
        # the wall clock of the start, advanced evenly: setting the clock closes nothing
        begin = clock() - monotonic()
        self.now: Callable[[], float] = lambda: begin + monotonic()
        self.counters = Counters()
        self._assembler = Assembler(settings)
        self._row_bytes = row_bytes
        self._next_row = 0  # number of the next row of spans
        self._row_numbers: dict[bytes, list[int]] = {}  # of each open or closing trace
        self._bodies: Rows = {}  # of open and closing traces, by the keys of their rows
        self._chunks: dict[bytes, _SpanChunk] = {}
        self._pending_rows: Rows = {}
        self._forgotten: dict[bytes, None] = {}
        self._counted = False
        self._changed = False

    def apply(self, records: Sequence[SpanRecord | None]) -> int:
        """Take in records in order until there is no more room, and return how many.

        None stands for a record that could not be read.
        """
        for number, record in enumerate(records):
            if self._assembler.full:
                return number
            if record is not None:
                self._apply(record)
        return len(records)

    def _apply(self, record: SpanRecord) -> None:
        self._changed = True
        now = self.now()
        plan = self._assembler.plan([one.part for one in record.parts], now)
        for one, fate in zip(record.parts, plan.fates, strict=True):
            self._count({parts_total(LOGS if one.part.log else TRACES, fate): 1})
        for trace, indexes in plan.accepted.items():
            if trace not in self._row_numbers and trace not in self._chunks:
                # delete the mark of an earlier trace of this id: else this one would look closed
                self._pending_rows[row_key(_CLOSED, trace.hex())] = None
            for index in indexes:
                part, line = record.parts[index].part, record.parts[index].line
                chunk = self._chunks.setdefault(trace, _SpanChunk(now))
                if chunk.lines and chunk.size + part.size > self._row_bytes:
                    self._flush(trace)
                    chunk = self._chunks[trace] = _SpanChunk(now)
                chunk.root |= part.root
                chunk.size += part.size
                chunk.keys.append(part.key.hex())
                chunk.lines.append(line)
        self._assembler.apply(plan)

    def _flush(self, trace: bytes) -> None:
        number, self._next_row = self._next_row, self._next_row + 1
        self._row_numbers.setdefault(trace, []).append(number)
        key = row_key(_OPEN, trace.hex(), number)
        self._pending_rows[key] = self._bodies[key] = self._chunks.pop(trace).content()

    def _count(self, counts: Counts) -> None:
        self._counted = True
        for (name, labels), by in counts.items():
            self.counters.inc(name, labels, by)

    def close_due(self, most: int, size: int) -> list[tuple[ClosingTrace, list[bytes]]]:
        """Close complete traces, up to `most` or `size` bytes, and return them with their spans.

        `handed_on` must be called for each of them before the next step.
        """
        closing = self._assembler.due(self.now(), most, size)
        for one in closing:
            if one.trace in self._chunks:
                self._flush(one.trace)
        return [
            (one, [span_body(self._bodies[key] or b"") for key in self._rows(one.trace)])
            for one in closing
        ]

    def _rows(self, trace: bytes) -> list[bytes]:
        """Return the keys of a trace's rows, in order of arrival."""
        return [row_key(_OPEN, trace.hex(), number) for number in self._row_numbers.get(trace, ())]

    def handed_on(self, closing: ClosingTrace, counts: Counts) -> None:
        """Delete the spans of a closed trace, and remember its id."""
        trace, now = closing.trace, self.now()
        for key in self._rows(trace):
            del self._bodies[key]
            self._pending_rows[key] = None
        del self._row_numbers[trace]
        self._count(counts)
        self._forgotten.pop(trace, None)
        self._forgotten.update(dict.fromkeys(self._assembler.closed(trace, now)))
        self._pending_rows[row_key(_CLOSED, trace.hex())] = json.dumps([now, closing.why]).encode()

    def gauges(self) -> list[GaugeSample]:
        """Return the number and size of open traces."""
        return [
            ("ragmeter_otlp_open_traces", (), float(len(self._assembler))),
            ("ragmeter_otlp_open_bytes", (), float(self._assembler.size)),
        ]

    @property
    def changed(self) -> bool:
        """Whether there is anything to make durable."""
        return self._changed or self._counted or bool(self._pending_rows)

    def step(self) -> Rows:
        """Return all that changed since the last call."""
        for trace in list(self._chunks):
            self._flush(trace)
        for trace in list(self._forgotten)[:_FORGET]:
            del self._forgotten[trace]
            if trace not in self._row_numbers:  # else it has come again
                self._pending_rows[row_key(_CLOSED, trace.hex())] = None
        if self._counted:
            content = [[name, labels, by] for (name, labels), by in sorted(self.counters.items())]
            self._pending_rows[row_key(_COUNTS)] = dump_json(content)
        rows, self._pending_rows = self._pending_rows, {}
        self._changed = self._counted = False
        rows[HEAD] = dump_json({"v": STATE_VERSION, "next": self._next_row})
        return rows

    def load(self, rows: Mapping[bytes, bytes]) -> None:
        """Restore the rows of all steps, in a new object; raises as `load_rows`."""
        load_rows(rows, "open spans", lambda head: self._load(rows.items(), head))

    def _load(self, rows: Iterable[tuple[bytes, bytes]], head: dict[str, Any]) -> None:
        self._next_row = int(head["next"])
        opened: list[tuple[int, bytes, list[Any]]] = []
        closed: dict[bytes, tuple[float, CloseReason]] = {}
        for row, data in rows:
            if row == HEAD:
                continue
            kind, parts = split_row_key(row)
            if kind == _OPEN:
                trace, number = bytes.fromhex(parts[0]), int(parts[1])
                self._bodies[row] = data
                opened.append((number, trace, json.loads(data.partition(b"\n")[0])))
            elif kind == _CLOSED:
                at, why = json.loads(data)
                closed[bytes.fromhex(parts[0])] = float(at), CloseReason(why)
            elif kind == _COUNTS:
                for name, labels, by in json.loads(data):
                    key = tuple((label, value) for label, value in labels)
                    self.counters.inc(name, key, by)
        self._restore(opened, closed)

    def _restore(
        self,
        rows: list[tuple[int, bytes, list[Any]]],
        closed: dict[bytes, tuple[float, CloseReason]],
    ) -> None:
        opened: dict[bytes, RestoredTrace] = {}
        for number, trace, (arrived, root, size, keys) in sorted(rows):
            one = opened.setdefault(trace, RestoredTrace(trace, float(arrived), [], 0, False))
            one.keys += map(bytes.fromhex, keys)
            one.size += int(size)
            one.root |= bool(root)
            self._row_numbers.setdefault(trace, []).append(number)
        gone = [(trace, at) for trace, (at, _) in closed.items() if trace not in opened]
        self._assembler.restore(opened.values(), sorted(gone, key=lambda one: one[1]), self.now())
