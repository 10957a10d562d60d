"""The traces that labels can be joined to, and the labels that wait for theirs.

Every trace is remembered, and few get labels. So traces are gathered in chunks, which are
compressed, in memory as in the rows of the state: a trace takes some 350 bytes. A trace that has
changed has a row of its own beside that, so that a label costs one small row.
"""

from __future__ import annotations

import heapq
import json
import math
import zlib
from collections.abc import Iterable
from dataclasses import dataclass, field

from pydantic import Base64Bytes, TypeAdapter

from ragmeter.core.feedback import PEOPLE
from ragmeter.metrics.labelled import LabelValue
from ragmeter.metrics.merged_labels import GivenLabels, trace_key

CHUNK = 64  # traces of a row: some 8 kB compressed; the last one is written at every commit
_NOTHING = GivenLabels()
_LEVEL = 1  # the hashes of passages do not shrink, the rest does at any level


@dataclass(slots=True)
class ScorerLabels:
    """All labels of one scorer for a trace, and which of their results are counted.

    Args:
        given: The labels, and the latest probability that was given.
        counted: (metric, value) in the windows under the probability `weighed`; a value is None
            if the metric does not apply, and a text says why it is missing.
    """

    given: GivenLabels = _NOTHING
    counted: tuple[tuple[str, LabelValue], ...] = ()
    weighed: float = 1.0


@dataclass(slots=True)
class RememberedTrace:
    """A counted trace that labels may come for.

    Args:
        service: The bounded name of its service; `sent_as` is the one that was sent.
        segments: The segments it was counted in.
        probability: The upstream inclusion probability of the trace.
        passages: The hashes of its passages in rank order; None: not captured.
        cheap: Where people's labels are drawn (`sampling.people`), the built-in scores by metric of
            theirs that they help to estimate; else None.
        by_scorer: The labels by scorer.
    """

    trace_id: str
    service: str
    sent_as: str
    segments: tuple[str, ...]
    timestamp: float
    probability: float
    passages: tuple[str, ...] | None
    cheap: dict[str, float] | None = None
    by_scorer: dict[str, ScorerLabels] = field(default_factory=dict)

    def drawn_from(self, labels: ScorerLabels, scorer: str) -> dict[str, float] | None:
        """Return the built-in scores of a trace that was drawn to be labelled by people."""
        return self.cheap if scorer == PEOPLE and labels.given.probability is not None else None


_TRACE = TypeAdapter(RememberedTrace)
_TRACES = TypeAdapter(list[RememberedTrace])


@dataclass(frozen=True, slots=True)
class TraceChunk:
    """A row of the state: the traces from a number on as they came, as compressed JSON."""

    first: int
    packed: Base64Bytes


@dataclass(frozen=True, slots=True)
class ChangedTrace:
    """A row of the state: a trace with its labels, in place of the one in its chunk."""

    number: int
    trace: RememberedTrace


@dataclass(frozen=True, slots=True)
class TraceCount:
    """A row of the state: how many traces have come, and before which time all are forgotten."""

    traces: int
    forgotten: float | None


@dataclass(frozen=True, slots=True)
class WaitingLabels:
    """A row of the state: labels that wait for their trace since an event time."""

    number: int
    trace: str
    service: str | None
    scorer: str
    since: float
    given: GivenLabels


@dataclass(frozen=True, slots=True)
class WaitingCount:
    """A row of the state: the number of the last labels that had to wait."""

    last_waiting: int


TracesState = TraceChunk | ChangedTrace | TraceCount | WaitingLabels | WaitingCount
"""A row of the state of remembered traces and of waiting labels."""


def _row_name(*key: str | int) -> str:
    return json.dumps(key)


_COUNT_ROW = _row_name("traces")
_LAST_ROW = _row_name("last_waiting")


class RememberedTraces:
    """Traces by number, in the order in which they came; a trace id may come twice."""

    def __init__(self) -> None:
        self._next = 0
        self._open: list[RememberedTrace] = []  # of the last chunk
        self._packed: dict[int, bytes] = {}  # earlier chunks
        self._changed: dict[int, bytes] = {}  # traces with a row of their own
        self._numbers: dict[bytes, tuple[int, ...]] = {}  # by the hash of the trace's id
        # a heap of times, numbers and hashed ids: traces are forgotten in its order
        self._ages: list[tuple[float, int, bytes]] = []
        self._live: dict[int, int] = {}  # traces of a chunk that are not forgotten
        self._forgotten = -math.inf
        self._unsaved: dict[tuple[str, int], None] = {}  # rows by kind and number

    def __len__(self) -> int:
        return len(self._ages)

    def add(self, trace: RememberedTrace) -> int:
        """Remember a trace, and return its number."""
        number = self._next
        self._next += 1
        self._enter(number, trace)
        self._open.append(trace)
        chunk = number // CHUNK
        self._save("chunk", chunk)
        if len(self._open) == CHUNK:
            if chunk in self._live:
                self._packed[chunk] = _pack(self._open)
            self._open = []
        return number

    def _enter(self, number: int, trace: RememberedTrace) -> None:
        key = trace_key(trace.trace_id)
        self._numbers[key] = (*self._numbers.get(key, ()), number)
        heapq.heappush(self._ages, (trace.timestamp, number, key))
        chunk = number // CHUNK
        self._live[chunk] = self._live.get(chunk, 0) + 1

    def _save(self, kind: str, number: int) -> None:
        self._unsaved[kind, number] = None

    def find(self, key: bytes) -> list[tuple[int, RememberedTrace]]:
        """Return the traces of a hashed id with their numbers: the latest of each service."""
        latest = {}
        for number in self._numbers.get(key, ()):
            trace = self._read(number)
            latest[trace.sent_as] = (number, trace)
        return list(latest.values())

    def _read(self, number: int) -> RememberedTrace:
        if number in self._changed:
            return _TRACE.validate_json(self._changed[number])
        chunk, place = divmod(number, CHUNK)
        if chunk in self._packed:
            return _unpack(self._packed[chunk])[place]
        # a copy: what came is what the row of the chunk says
        return _TRACE.validate_json(_TRACE.dump_json(self._open[place]))

    def update(self, number: int, trace: RememberedTrace) -> None:
        """Replace a trace that has changed."""
        self._changed[number] = _TRACE.dump_json(trace)
        self._save("trace", number)

    def forget_before(self, past: float) -> None:
        """Forget the traces from before an event time."""
        if past > self._forgotten:
            self._forgotten = past
            while self._ages and self._ages[0][0] < past:
                self._forget_oldest()

    def shed(self, most: int) -> int:
        """Forget the oldest traces beyond so many; return how many they were."""
        over = max(0, len(self._ages) - most)
        for _ in range(over):
            self._forget_oldest()
        return over

    def _forget_oldest(self) -> None:
        _, number, key = heapq.heappop(self._ages)
        chunk = number // CHUNK
        rest = tuple(one for one in self._numbers[key] if one != number)
        if rest:
            self._numbers[key] = rest
        else:
            del self._numbers[key]
        if self._changed.pop(number, None) is not None:
            self._save("trace", number)
        self._live[chunk] -= 1
        if not self._live[chunk]:
            del self._live[chunk]
            self._packed.pop(chunk, None)
            self._save("chunk", chunk)

    def changes(self) -> dict[str, TracesState | None]:
        """Return the rows that changed since the last call, None for those to delete."""
        unsaved, self._unsaved = self._unsaved, {}
        rows = {_row_name(*key): self._row(*key) for key in unsaved}
        if rows:
            past = None if math.isinf(self._forgotten) else self._forgotten
            rows[_COUNT_ROW] = TraceCount(self._next, past)
        return rows

    def _row(self, kind: str, number: int) -> TracesState | None:
        if kind == "trace":
            body = self._changed.get(number)
            return None if body is None else ChangedTrace(number, _TRACE.validate_json(body))
        if number in self._packed:
            return TraceChunk(number * CHUNK, self._packed[number])
        if number == self._next // CHUNK and self._open:
            return TraceChunk(number * CHUNK, _pack(self._open))
        return None

    def restore(self, rows: Iterable[TracesState]) -> None:
        """Load rows as `changes` returned them."""
        chunks = {}
        for row in rows:
            if isinstance(row, TraceCount):
                self._next = row.traces
                self._forgotten = -math.inf if row.forgotten is None else row.forgotten
            elif isinstance(row, ChangedTrace):
                self._changed[row.number] = _TRACE.dump_json(row.trace)
            elif isinstance(row, TraceChunk):
                chunks[row.first] = row.packed
        for first, packed in sorted(chunks.items()):
            traces = _unpack(packed)
            for number, trace in enumerate(traces, first):
                self._enter(number, trace)
            if first // CHUNK == self._next // CHUNK:
                self._open = traces
            else:
                self._packed[first // CHUNK] = packed
        past, self._forgotten = self._forgotten, -math.inf
        self.forget_before(past)


def _pack(traces: list[RememberedTrace]) -> bytes:
    return zlib.compress(_TRACES.dump_json(traces), _LEVEL)


def _unpack(packed: bytes) -> list[RememberedTrace]:
    return _TRACES.validate_json(zlib.decompress(packed))


class WaitingRoom:
    """The labels that wait for their trace, oldest first."""

    def __init__(self) -> None:
        self._labels: dict[int, WaitingLabels] = {}
        self._by_trace: dict[str, dict[int, None]] = {}
        self._last = 0
        self._unsaved: dict[int, None] = {}

    def __len__(self) -> int:
        return len(self._labels)

    def add(
        self, trace: str, service: str | None, scorer: str, *, since: float, given: GivenLabels
    ) -> None:
        """Have labels wait from an event time on."""
        self._enter(
            WaitingLabels(
                number=self._last + 1,
                trace=trace,
                service=service,
                scorer=scorer,
                since=since,
                given=given,
            )
        )
        self._unsaved[self._last] = None

    def _enter(self, row: WaitingLabels) -> None:
        self._last = max(self._last, row.number)
        self._labels[row.number] = row
        self._by_trace.setdefault(row.trace, {})[row.number] = None

    def waiting_for(self, trace: str) -> list[WaitingLabels]:
        """Return what waits for a trace."""
        return [self._labels[number] for number in self._by_trace.get(trace, ())]

    def oldest(self) -> WaitingLabels:
        """Return what has waited longest."""
        return next(iter(self._labels.values()))

    def since_before(self, past: float) -> list[WaitingLabels]:
        """Return what waits since a time before `past`."""
        return [row for row in self._labels.values() if row.since < past]

    def remove(self, row: WaitingLabels) -> None:
        """Remove what need not wait any more."""
        del self._labels[row.number]
        same = self._by_trace[row.trace]
        del same[row.number]
        if not same:
            del self._by_trace[row.trace]
        self._unsaved[row.number] = None

    def changes(self) -> dict[str, TracesState | None]:
        """Return the rows that changed since the last call, None for those to delete."""
        numbers, self._unsaved = self._unsaved, {}
        rows: dict[str, TracesState | None] = {
            _row_name("waiting", number): self._labels.get(number) for number in numbers
        }
        if rows:
            rows[_LAST_ROW] = WaitingCount(self._last)
        return rows

    def restore(self, rows: Iterable[TracesState]) -> None:
        """Load rows as `changes` returned them."""
        rows = list(rows)
        found = [row for row in rows if isinstance(row, WaitingLabels)]
        counts = [row for row in rows if isinstance(row, WaitingCount)]
        for row in sorted(found, key=lambda one: one.number):
            self._enter(row)
        self._last = max([self._last, *(row.last_waiting for row in counts)])
