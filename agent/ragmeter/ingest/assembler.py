"""Collect the spans of each trace and decide when the trace is complete, without I/O or clock.

No convention marks the last span: children end and arrive first, the root last, in several
requests, and again if a sender got no answer. A trace is therefore closed by quiet: a short one
once its root is in, a longer one without. Closed traces are remembered for a while: a span that
comes later is late, and does not start a second trace of the same id.

Parts are taken in by `plan` and `apply`, so that the caller can store them in between: a plan that
could not be stored has changed nothing.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from ragmeter.config.inputs import OtlpSettings

# For so long after a log event with content every trace is given the longer quiet time.
_LOGS_SECONDS = 3600.0
# Open traces may exceed their bounds by this factor until the oldest are closed; then no more
# parts are taken.
_OVERSHOOT = 1.25


@dataclass(frozen=True, slots=True)
class AssemblyBounds:
    """Bounds on the memory and the disk that a hostile or broken sender can take.

    Attributes:
        open_traces: Open traces; beyond it the oldest are closed early. A thousand traces a second
            are open for ten seconds.
        open_bytes: Spans of all open traces on the disk; beyond it the oldest are closed early.
            The chart's volume has room for it beside the queue.
        trace_spans: Spans and log events at which a trace is closed: an agent that loops.
        trace_bytes: Bytes of spans at which a trace is closed: a hundred times what a trace of a
            hundred documents takes.
        remembered: Closed traces known at a time; the oldest are forgotten.
    """

    open_traces: int = 10_000
    open_bytes: int = 256 * 2**20
    trace_spans: int = 10_000
    trace_bytes: int = 16 * 2**20
    remembered: int = 100_000


BOUNDS = AssemblyBounds()

# Quiet time that closes a trace whose root has come while log events carry content: exporters send
# them up to 5 s after the spans.
LOGS_GRACE_SECONDS = 6.0


class PartFate(StrEnum):
    """What becomes of a span or a log event."""

    ACCEPTED = "accepted"
    DUPLICATE = "duplicate"
    LATE = "late"
    OVER_LIMIT = "over_limit"


class CloseReason(StrEnum):
    """Why a trace is closed."""

    ROOT = "root"
    IDLE = "idle"
    AGE = "age"
    SPANS = "spans"
    BYTES = "bytes"
    EVICTED = "evicted"


class TracePart(NamedTuple):  # one a span: a frozen dataclass takes eight times as long to make
    """A span or a log event; `key` identifies it within its trace, `size` is its cost in bytes."""

    trace: bytes
    key: bytes
    size: int
    root: bool = False
    log: bool = False


@dataclass(slots=True)
class AssemblyPlan:
    """The fate of each part, and the indexes of the accepted ones by trace."""

    now: float
    parts: Sequence[TracePart]
    fates: list[PartFate] = field(default_factory=list)
    accepted: dict[bytes, list[int]] = field(default_factory=dict)
    late: set[bytes] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class ClosingTrace:
    """A trace of `size` bytes that takes no more spans until `Assembler.closed` is called."""

    trace: bytes
    why: CloseReason
    size: int


@dataclass(slots=True)
class RestoredTrace:
    """An open trace from saved state; `first` is the time of its first part."""

    trace: bytes
    first: float
    keys: list[bytes]
    size: int
    root: bool


@dataclass(slots=True)
class _OpenTrace:
    first: float
    last: float
    keys: set[bytes] = field(default_factory=set)
    size: int = 0
    root: bool = False
    due: float = float("inf")  # when it is checked next; the heap has an entry for it


class Assembler:
    """The open, closing and remembered traces.

    All methods take the time as `now`, in seconds of one clock that never goes back.
    """

    def __init__(self, settings: OtlpSettings, bounds: AssemblyBounds | None = None) -> None:
        self._settings = settings
        self._bounds = bounds or BOUNDS
        self._open: dict[bytes, _OpenTrace] = {}  # in order of their first arrival
        self._closing: dict[bytes, _OpenTrace] = {}
        self._closed: dict[bytes, float] = {}  # in order of the last span, late ones included
        self._heap: list[tuple[float, bytes]] = []
        self._size = 0  # bytes of open and closing traces
        self._logs_at = float("-inf")

    def __len__(self) -> int:
        """Return the number of open and closing traces."""
        return len(self._open) + len(self._closing)

    def __contains__(self, trace: bytes) -> bool:
        """Return whether a trace is open."""
        return trace in self._open

    @property
    def size(self) -> int:
        """Bytes of open and closing traces."""
        return self._size

    @property
    def full(self) -> bool:
        """Whether no more parts may be taken until traces are closed."""
        bounds = self._bounds
        return (
            len(self) >= _OVERSHOOT * bounds.open_traces
            or self._size >= _OVERSHOOT * bounds.open_bytes
        )

    def plan(self, parts: Sequence[TracePart], now: float) -> AssemblyPlan:
        """Decide the fate of parts without changing anything."""
        bounds = self._bounds
        plan = AssemblyPlan(now, parts)
        added: dict[bytes, tuple[set[bytes], int]] = {}
        for index, part in enumerate(parts):
            if self._is_closed(part.trace, now):
                plan.fates.append(PartFate.LATE)
                plan.late.add(part.trace)
                continue
            opened = self._open.get(part.trace)
            keys, size = added.get(part.trace) or (set(), 0)
            if part.key in keys or (opened and part.key in opened.keys):
                plan.fates.append(PartFate.DUPLICATE)
                continue
            number = len(keys) + (len(opened.keys) if opened else 0)
            before = size + (opened.size if opened else 0)
            if number >= bounds.trace_spans or before >= bounds.trace_bytes:
                plan.fates.append(PartFate.OVER_LIMIT)
                continue
            keys.add(part.key)
            added[part.trace] = keys, size + part.size
            plan.accepted.setdefault(part.trace, []).append(index)
            plan.fates.append(PartFate.ACCEPTED)
        return plan

    def apply(self, plan: AssemblyPlan) -> None:
        """Take the accepted parts of a plan in; no other method may be called in between."""
        now = plan.now
        for trace in plan.late:
            if self._closed.pop(trace, None) is not None:
                self._closed[trace] = now  # remembered for as long as spans of it come
        for trace, indexes in plan.accepted.items():
            opened = self._open.get(trace)
            if opened is None:
                opened = self._open[trace] = _OpenTrace(now, now)
            opened.last = now
            for index in indexes:
                part = plan.parts[index]
                opened.keys.add(part.key)
                opened.size += part.size
                self._size += part.size
                opened.root |= part.root
                if part.log:
                    self._logs_at = now
            self._schedule(trace, opened, now)

    def due(self, now: float, most: int, size: int) -> list[ClosingTrace]:
        """Start to close the traces that are due; `closed` must be called for each of them.

        These are at most `most` traces of at most `size` bytes together; one alone may be larger.
        """
        closing: list[ClosingTrace] = []
        total = 0
        for trace, why in self._next_due(now):
            opened = self._open[trace]
            if closing and total + opened.size > size:
                self._push(trace, opened, now)
                break
            total += opened.size
            closing.append(self.resume(trace, why))
            if len(closing) == most:
                break
        return closing

    def resume(self, trace: bytes, why: CloseReason) -> ClosingTrace:
        """Go on closing a trace that `restore` has opened again after `due` returned it."""
        closing = self._closing[trace] = self._open.pop(trace)
        return ClosingTrace(trace, why, closing.size)

    def closed(self, trace: bytes, now: float) -> list[bytes]:
        """Forget the spans of a closing trace; return the ids that are no longer remembered."""
        self._size -= self._closing.pop(trace).size
        self._closed.pop(trace, None)
        self._closed[trace] = now
        return self._forget(now)

    def restore(
        self, opened: Iterable[RestoredTrace], closed: Iterable[tuple[bytes, float]], now: float
    ) -> None:
        """Restore saved state.

        Quiet time begins anew, and a trace that is too old gets one more idle time: while nobody
        listened, senders could only retry. Open traces come in the order of their first arrival,
        closed ones in that of their last span, whose time comes with them.
        """
        settings = self._settings
        oldest = now - max(0.0, settings.max_age_seconds - settings.idle_seconds)
        for trace, at in closed:
            self._closed[trace] = min(at, now)
        for saved in opened:
            first = min(max(saved.first, oldest), now)
            restored = _OpenTrace(
                first=first, last=now, keys=set(saved.keys), size=saved.size, root=saved.root
            )
            self._open[saved.trace] = restored
            self._size += saved.size
            self._schedule(saved.trace, restored, now)

    def _is_closed(self, trace: bytes, now: float) -> bool:
        if trace in self._closing:
            return True
        at = self._closed.get(trace)
        return at is not None and at >= now - self._settings.remember_seconds

    def _forget(self, now: float) -> list[bytes]:
        forgotten: list[bytes] = []
        for trace, at in self._closed.items():
            too_many = len(self._closed) - len(forgotten) > self._bounds.remembered
            if not too_many and at >= now - self._settings.remember_seconds:
                break
            forgotten.append(trace)
        for trace in forgotten:
            del self._closed[trace]
        return forgotten

    def _next_due(self, now: float) -> Iterator[tuple[bytes, CloseReason]]:
        """Yield traces to close; before the next step the caller takes them out of the open ones.

        After those that are due come the oldest, while there are too many.
        """
        while self._heap and self._heap[0][0] <= now:
            due, trace = heapq.heappop(self._heap)
            opened = self._open.get(trace)
            if opened is None or opened.due != due:
                continue  # closed, or due earlier by another entry
            why, at = self._next_close(opened, now)
            if at <= now:
                yield trace, why
            else:
                self._push(trace, opened, at)
        bounds = self._bounds
        size = 0
        if self._size > bounds.open_bytes:  # of closing traces, too
            size = sum(opened.size for opened in self._open.values())
        while self._open and (len(self._open) > bounds.open_traces or size > bounds.open_bytes):
            trace = next(iter(self._open))
            size -= self._open[trace].size
            yield trace, CloseReason.EVICTED

    def _next_close(self, opened: _OpenTrace, now: float) -> tuple[CloseReason, float]:
        """Return why and when a trace is closed if no more parts arrive."""
        settings = self._settings
        bounds = self._bounds
        if len(opened.keys) >= bounds.trace_spans:
            return CloseReason.SPANS, opened.last
        if opened.size >= bounds.trace_bytes:
            return CloseReason.BYTES, opened.last
        quiet = settings.idle_seconds
        why = CloseReason.IDLE
        if opened.root:
            logs = now - self._logs_at < _LOGS_SECONDS
            grace = LOGS_GRACE_SECONDS if logs else 0.0
            quiet = min(quiet, max(settings.grace_seconds, grace))
            why = CloseReason.ROOT
        too_old = opened.first + settings.max_age_seconds
        if too_old < opened.last + quiet:
            return CloseReason.AGE, too_old
        return why, opened.last + quiet

    def _schedule(self, trace: bytes, opened: _OpenTrace, now: float) -> None:
        _, at = self._next_close(opened, now)
        if at < opened.due:  # a later time is noticed when the earlier entry comes up
            self._push(trace, opened, at)

    def _push(self, trace: bytes, opened: _OpenTrace, at: float) -> None:
        opened.due = at
        heapq.heappush(self._heap, (at, trace))
