"""The open traces of one partition of the spans topic, and their rows.

Open traces of one partition of the spans: what it holds, and what a step has changed.

As `ragmeter.embedded.open_traces` with the state file, with one difference. What comes of a trace goes into a
topic, which no step can undo. So a trace is closed in two steps: the first says that it takes no
more spans; then it is read and handed on; the second takes its spans away. Whoever takes over in
between reads the same spans and hands on the same, and that is counted once by its ids.

Pure but for the clocks it is given. Bodies are not in it: `rows` says where they are.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ragmeter.config.inputs import OtlpSettings
from ragmeter.core.counters import Counters, Counts, GaugeSample
from ragmeter.core.errors import UnknownVersion
from ragmeter.embedded.open_traces import LOGS, TRACES, parts_total
from ragmeter.ingest.assembler import Assembler, CloseReason, ClosingTrace, RestoredTrace
from ragmeter.ingest.stored_spans import join_lines
from ragmeter.kafka.span_records import RECORD_BYTES, SpanRecord
from ragmeter.kafka.state.duplicates import SpanRedeliveryGuard
from ragmeter.kafka.state.ledger import LedgerError
from ragmeter.kafka.state.rows import Rows, row_key, split_row_key


@dataclass(slots=True)
class SpanChunk:
    """What has come of a trace since the last step: one row of the next."""

    arrived: float
    root: bool = False
    size: int = 0
    keys: list[str] = field(default_factory=list)
    lines: list[bytes] = field(default_factory=list)

    def content(self) -> bytes:
        head = json.dumps([self.arrived, self.root, self.size, self.keys], separators=(",", ":"))
        return head.encode() + b"\n" + join_lines(self.lines)


def span_body(row: bytes) -> bytes:
    """The lines of a row of spans, for `ragmeter.ingest.stored_spans.read`."""
    return row.partition(b"\n")[2]


def partition_share(settings: OtlpSettings, partitions: int) -> OtlpSettings:
    """The bounds of one partition: those of all together are the settings', whoever owns how many
    of them. The least that is of use is a partition's in any case."""
    return settings.model_copy(
        update={
            "max_open_traces": max(100, settings.max_open_traces // partitions),
            "max_open_bytes": max(settings.max_trace_bytes, settings.max_open_bytes // partitions),
            "max_remembered": max(1000, settings.max_remembered // partitions),
        }
    )


VERSION = 1
_FORGET = 128  # ids that are no longer remembered and go in one step; they harm nobody meanwhile

_OPEN, _CLOSED, _COUNTS = "o", "x", "n"


class AssemblyStep(NamedTuple):
    rows: Rows
    head: bytes


class AssemblyState:
    """`settings` are the partition's share; `width` is that of the guard, 2K; a row has `row_bytes`
    at most, or one span. `clock` is wall time, so that arrivals can be kept."""

    def __init__(
        self,
        settings: OtlpSettings,
        *,
        width: int,
        row_bytes: int = RECORD_BYTES,
        clock: Callable[[], float],
        monotonic: Callable[[], float],
    ) -> None:
        # the wall clock of the start, going on evenly: nothing is closed because it was set
        begin = clock() - monotonic()
        self.now: Callable[[], float] = lambda: begin + monotonic()
        self.counters = Counters()
        self._assembler = Assembler(settings)
        self._guard = SpanRedeliveryGuard(width)
        self._row_bytes = row_bytes
        self._next = 0  # number of the next row of spans
        self._rows: dict[bytes, list[int]] = {}  # of each open or closing trace
        self._fresh: dict[bytes, SpanChunk] = {}
        self._due: list[ClosingTrace] = []  # this step is to say that they are closing
        self._ready: list[ClosingTrace] = []  # the last one has said so
        self._given: Rows = {}
        self._forgotten: dict[bytes, None] = {}
        self._counted = False
        self._changed = False

    # Spans in -----------------------------------------------------------------------------------

    def apply(self, records: Sequence[SpanRecord | None]) -> int:
        """Take records in, in the order of the partition, until there is no more room; returns how
        many. None is one that could not be read."""
        for number, record in enumerate(records):
            if self._assembler.full:
                return number
            if record is not None:
                self._apply(record)
        return len(records)

    def _apply(self, record: SpanRecord) -> None:
        if not self._guard.accept(record.source, record.number, record.count):
            self.counters.inc("ragmeter_replayed_total")
            return
        self._changed = True
        now = self.now()
        plan = self._assembler.plan([one.part for one in record.parts], now)
        for one, fate in zip(record.parts, plan.fates, strict=True):
            self._count({parts_total(LOGS if one.part.log else TRACES, fate): 1})
        for trace, indexes in plan.accepted.items():
            if trace not in self._rows and trace not in self._fresh:
                # of an earlier trace of this id, forgotten since: else it would look closed
                self._given[row_key(_CLOSED, trace.hex())] = None
            for index in indexes:
                part, line = record.parts[index].part, record.parts[index].line
                chunk = self._fresh.setdefault(trace, SpanChunk(now))
                if chunk.lines and chunk.size + part.size > self._row_bytes:
                    self._flush(trace)
                    chunk = self._fresh[trace] = SpanChunk(now)
                chunk.root |= part.root
                chunk.size += part.size
                chunk.keys.append(part.key.hex())
                chunk.lines.append(line)
        self._assembler.apply(plan)

    def _flush(self, trace: bytes) -> None:
        number, self._next = self._next, self._next + 1
        self._rows.setdefault(trace, []).append(number)
        self._given[row_key(_OPEN, trace.hex(), number)] = self._fresh.pop(trace).content()

    def _count(self, counts: Counts) -> None:
        self._counted = True
        for (name, labels), by in counts.items():
            self.counters.inc(name, labels, by)

    # Traces out ---------------------------------------------------------------------------------

    def close_due(self, most: int, size: int) -> int:
        """Close what is complete now, up to `most` traces or `size` bytes; returns how many. They
        are `ready` when the next step is durable."""
        now = self.now()
        due = self._assembler.due(now, most, size)
        for one in due:
            self._given[row_key(_CLOSED, one.trace.hex())] = json.dumps([now, one.why]).encode()
        self._due += due
        return len(due)

    def ready(self) -> list[ClosingTrace]:
        """Traces that are durably closed and whose spans are still there, to be handed on."""
        return list(self._ready)

    def rows(self, trace: bytes) -> list[bytes]:
        """The keys of its rows, in the order in which they came."""
        return [row_key(_OPEN, trace.hex(), number) for number in self._rows.get(trace, ())]

    def handed_on(self, trace: bytes, counts: Counts) -> None:
        """What came of a ready trace is where it has to be: its spans go, with the next step."""
        self._ready = [one for one in self._ready if one.trace != trace]
        for key in self.rows(trace):
            self._given[key] = None
        del self._rows[trace]
        self._count(counts)
        self._forgotten.pop(trace, None)
        self._forgotten.update(dict.fromkeys(self._assembler.closed(trace, self.now())))

    def gauges(self) -> list[GaugeSample]:
        return [
            ("ragmeter_otlp_open_traces", (), float(len(self._assembler))),
            ("ragmeter_otlp_open_bytes", (), float(self._assembler.size)),
        ]

    # State --------------------------------------------------------------------------------------

    @property
    def changed(self) -> bool:
        return self._changed or self._counted or bool(self._given)

    def touch(self) -> None:
        """Have another step though nothing has changed: it sweeps what earlier ones have left."""
        self._changed = True

    def step(self) -> AssemblyStep:
        """All that changed since the last call."""
        for trace in list(self._fresh):
            self._flush(trace)
        for trace in list(self._forgotten)[:_FORGET]:
            del self._forgotten[trace]
            if trace not in self._rows:  # else it has come again
                self._given[row_key(_CLOSED, trace.hex())] = None
        if self._counted:
            content = [[name, labels, by] for (name, labels), by in sorted(self.counters.items())]
            self._given[row_key(_COUNTS)] = json.dumps(content, separators=(",", ":")).encode()
        rows, self._given = self._given, {}
        self._ready += self._due
        self._due = []
        self._changed = self._counted = False
        head = {"v": VERSION, "guard": self._guard.dump(), "next": self._next}
        return AssemblyStep(rows, json.dumps(head, separators=(",", ":")).encode())

    def load(self, rows: Mapping[bytes, bytes], head: bytes | None) -> None:
        """What a ledger has recovered, into a new object. Raises `UnknownVersion` for what a newer
        program has written, `LedgerError` for what makes no sense."""
        if head is None:
            return
        try:
            self._load(rows.items(), json.loads(head))
        except UnknownVersion:
            raise
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise LedgerError(f"rows of open spans that make no sense: {error!r}") from None

    def _load(self, rows: Iterable[tuple[bytes, bytes]], head: dict[str, Any]) -> None:
        if head["v"] > VERSION:
            raise UnknownVersion(
                f"open spans of format version {head['v']}; this program reads up to {VERSION}"
            )
        self._guard = SpanRedeliveryGuard.load(self._guard.width, head["guard"])
        self._next = int(head["next"])
        found: list[tuple[int, bytes, list[Any]]] = []
        closed: dict[bytes, tuple[float, CloseReason]] = {}
        for row, data in rows:
            kind, parts = split_row_key(row)
            if kind == _OPEN:
                trace, number = bytes.fromhex(parts[0]), int(parts[1])
                found.append((number, trace, json.loads(data.partition(b"\n")[0])))
            elif kind == _CLOSED:
                at, why = json.loads(data)
                closed[bytes.fromhex(parts[0])] = float(at), CloseReason(why)
            elif kind == _COUNTS:
                for name, labels, by in json.loads(data):
                    key = tuple((label, value) for label, value in labels)
                    self.counters.inc(name, key, by)
        self._restore(found, closed)

    def _restore(
        self,
        found: list[tuple[int, bytes, list[Any]]],
        closed: dict[bytes, tuple[float, CloseReason]],
    ) -> None:
        opened: dict[bytes, RestoredTrace] = {}
        for number, trace, (arrived, root, size, keys) in sorted(found):
            one = opened.setdefault(trace, RestoredTrace(trace, float(arrived), [], 0, False))
            one.keys += map(bytes.fromhex, keys)
            one.size += int(size)
            one.root |= bool(root)
            self._rows.setdefault(trace, []).append(number)
        gone = [(trace, at) for trace, (at, _) in closed.items() if trace not in opened]
        self._assembler.restore(opened.values(), sorted(gone, key=lambda one: one[1]), self.now())
        # it was said that they are closing: what they hold is what was, or is to be, handed on
        self._ready = [
            self._assembler.resume(trace, why)
            for trace, (_, why) in sorted(closed.items(), key=lambda one: one[1][0])
            if trace in opened
        ]
