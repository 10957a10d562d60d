"""Collect the spans of each trace and decide when the trace is complete; a pure state machine without I/O or clock.


No convention says "that was the last span": children end and come first, the root last, in
several requests, again and again where a sender got no answer. So a trace is closed by quiet: a
short one once its root is in, a longer one without. What is closed stays known for a while: a span
that comes later is late, and is never the start of a second trace of the same id.

To take parts in is two steps, `plan` and `apply`, so that the caller can make them durable in
between: a plan that came to nothing has changed nothing.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from ragmeter.config.inputs import OtlpSettings

_LOGS_SECONDS = 3600.0
"""For so long after a log event with content every trace is given the longer quiet time."""

_OVERSHOOT = 1.25
"""Open traces may pass their bounds by so much until the oldest are closed; beyond it nothing more
is taken."""


class PartFate(StrEnum):
    """What became of a span or a log event."""

    ACCEPTED = "accepted"
    DUPLICATE = "duplicate"
    LATE = "late"
    OVER_LIMIT = "over_limit"


class CloseReason(StrEnum):
    """What closed a trace."""

    ROOT = "root"
    IDLE = "idle"
    AGE = "age"
    SPANS = "spans"
    BYTES = "bytes"
    EVICTED = "evicted"


class TracePart(NamedTuple):  # one a span: a frozen dataclass takes eight times as long to make
    """A span or a log event: `key` tells it from the others of its trace, `size` is its cost in
    bytes."""

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
    """A trace that takes no more spans; it is forgotten or remembered when `closed` is called."""

    trace: bytes
    why: CloseReason
    size: int


@dataclass(slots=True)
class RestoredTrace:
    """An open trace as a state file had it."""

    trace: bytes
    first: float
    keys: list[bytes]
    size: int
    root: bool


@dataclass(slots=True)
class _Open:
    first: float
    last: float
    keys: set[bytes] = field(default_factory=set)
    size: int = 0
    root: bool = False
    due: float = float("inf")
    """When it is looked at next; the heap has an entry for it."""


class Assembler:
    """`now` is in seconds of any clock that does not go back; it is the same one for all calls."""

    def __init__(self, settings: OtlpSettings) -> None:
        self._settings = settings
        self._open: dict[bytes, _Open] = {}  # in order of their first arrival
        self._closing: dict[bytes, _Open] = {}
        self._closed: dict[bytes, float] = {}  # in order of the last span, late ones included
        self._heap: list[tuple[float, bytes]] = []
        self._size = 0  # of open and closing ones
        self._logs_at = float("-inf")

    def __len__(self) -> int:
        """Traces whose spans are held: open, or closing."""
        return len(self._open) + len(self._closing)

    def __contains__(self, trace: bytes) -> bool:
        """Whether a trace is open: parts of it have been taken, and more may be."""
        return trace in self._open

    @property
    def size(self) -> int:
        """Bytes of all of them."""
        return self._size

    @property
    def full(self) -> bool:
        """Whether nothing more may be taken until some are closed."""
        settings = self._settings
        return (
            len(self) >= _OVERSHOOT * settings.max_open_traces
            or self._size >= _OVERSHOOT * settings.max_open_bytes
        )

    # Parts in -----------------------------------------------------------------------------------

    def plan(self, parts: Sequence[TracePart], now: float) -> AssemblyPlan:
        """What taking these parts in would do; nothing is changed."""
        plan = AssemblyPlan(now, parts)
        added: dict[bytes, tuple[set[bytes], int]] = {}
        for index, part in enumerate(parts):
            if self._is_closed(part.trace, now):
                plan.fates.append(PartFate.LATE)
                plan.late.add(part.trace)
                continue
            found = self._open.get(part.trace)
            keys, size = added.get(part.trace) or (set(), 0)
            if part.key in keys or (found and part.key in found.keys):
                plan.fates.append(PartFate.DUPLICATE)
                continue
            number = len(keys) + (len(found.keys) if found else 0)
            before = size + (found.size if found else 0)
            if self._over(number, before):
                plan.fates.append(PartFate.OVER_LIMIT)
                continue
            keys.add(part.key)
            added[part.trace] = keys, size + part.size
            plan.accepted.setdefault(part.trace, []).append(index)
            plan.fates.append(PartFate.ACCEPTED)
        return plan

    def apply(self, plan: AssemblyPlan) -> None:
        """Do as planned. Nothing else may have been called in between."""
        now = plan.now
        for trace in plan.late:
            if self._closed.pop(trace, None) is not None:
                self._closed[trace] = now  # known for as long as spans of it come
        for trace, indexes in plan.accepted.items():
            found = self._open.get(trace)
            if found is None:
                found = self._open[trace] = _Open(now, now)
            found.last = now
            for index in indexes:
                part = plan.parts[index]
                found.keys.add(part.key)
                found.size += part.size
                self._size += part.size
                found.root |= part.root
                if part.log:
                    self._logs_at = now
            self._schedule(trace, found, now)

    def _is_closed(self, trace: bytes, now: float) -> bool:
        if trace in self._closing:
            return True
        at = self._closed.get(trace)
        return at is not None and at >= now - self._settings.remember_seconds

    def _over(self, number: int, size: int) -> bool:
        settings = self._settings
        return number >= settings.max_trace_spans or size >= settings.max_trace_bytes

    # Closing ------------------------------------------------------------------------------------

    def due(self, now: float, most: int, size: int) -> list[ClosingTrace]:
        """Traces that are to be closed now, at most `most` of them, or of `size` bytes where that
        is more than one. They take no more spans; `closed` is to be called for each."""
        out: list[ClosingTrace] = []
        taken = 0
        for trace, why in self._next(now):
            found = self._open[trace]
            if out and taken + found.size > size:
                self._push(trace, found, now)
                break
            self._closing[trace] = self._open.pop(trace)
            taken += found.size
            out.append(ClosingTrace(trace, why, found.size))
            if len(out) == most:
                break
        return out

    def resume(self, trace: bytes, why: CloseReason) -> ClosingTrace:
        """Go on closing a trace that `restore` has just opened: `due` had named it before."""
        found = self._closing[trace] = self._open.pop(trace)
        return ClosingTrace(trace, why, found.size)

    def closed(self, trace: bytes, now: float) -> list[bytes]:
        """The spans of a closing trace are gone. Returns the ids that are no longer remembered."""
        self._size -= self._closing.pop(trace).size
        self._closed.pop(trace, None)
        self._closed[trace] = now
        return self._forget(now)

    def _forget(self, now: float) -> list[bytes]:
        out: list[bytes] = []
        for trace, at in self._closed.items():
            too_many = len(self._closed) - len(out) > self._settings.max_remembered
            if not too_many and at >= now - self._settings.remember_seconds:
                break
            out.append(trace)
        for trace in out:
            del self._closed[trace]
        return out

    def _next(self, now: float) -> Iterator[tuple[bytes, CloseReason]]:
        """Each trace to be closed; whoever asks on has taken it out of the open ones."""
        while self._heap and self._heap[0][0] <= now:
            due, trace = heapq.heappop(self._heap)
            found = self._open.get(trace)
            if found is None or found.due != due:
                continue  # closed, or to be looked at sooner, by another entry
            why, at = self._verdict(found, now)
            if at <= now:
                yield trace, why
            else:
                self._push(trace, found, at)
        settings = self._settings
        held = sum(found.size for found in self._open.values()) if self._over_all() else 0
        while self._open and (
            len(self._open) > settings.max_open_traces or held > settings.max_open_bytes
        ):
            trace = next(iter(self._open))
            held -= self._open[trace].size
            yield trace, CloseReason.EVICTED

    def _over_all(self) -> bool:
        return self._size > self._settings.max_open_bytes

    def _verdict(self, found: _Open, now: float) -> tuple[CloseReason, float]:
        """What closes a trace next, if nothing else comes, and when."""
        settings = self._settings
        if len(found.keys) >= settings.max_trace_spans:
            return CloseReason.SPANS, found.last
        if found.size >= settings.max_trace_bytes:
            return CloseReason.BYTES, found.last
        quiet, why = settings.idle_seconds, CloseReason.IDLE
        if found.root:
            logs = now - self._logs_at < _LOGS_SECONDS
            grace = settings.logs_grace_seconds if logs else 0.0
            quiet, why = min(quiet, max(settings.grace_seconds, grace)), CloseReason.ROOT
        if found.first + settings.max_age_seconds < found.last + quiet:
            return CloseReason.AGE, found.first + settings.max_age_seconds
        return why, found.last + quiet

    def _schedule(self, trace: bytes, found: _Open, now: float) -> None:
        _, at = self._verdict(found, now)
        if at < found.due:  # a later one is found out when the entry there is comes up
            self._push(trace, found, at)

    def _push(self, trace: bytes, found: _Open, at: float) -> None:
        found.due = at
        heapq.heappush(self._heap, (at, trace))

    # Restart ------------------------------------------------------------------------------------

    def restore(
        self, opened: Iterable[RestoredTrace], closed: Iterable[tuple[bytes, float]], now: float
    ) -> None:
        """Go on with what a state file had, in the order of its first arrivals.

        Quiet time begins anew, and a trace that is too old is given an idle time once more: while
        nobody listened, senders could only wait and try again.
        """
        settings = self._settings
        oldest = now - max(0.0, settings.max_age_seconds - settings.idle_seconds)
        for trace, at in closed:
            self._closed[trace] = min(at, now)
        for one in opened:
            first = min(max(one.first, oldest), now)
            found = _Open(first, now, set(one.keys), one.size, one.root)
            self._open[one.trace] = found
            self._size += one.size
            self._schedule(one.trace, found, now)
