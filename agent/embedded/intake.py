"""Accept traces and feedback: validate timestamps, count, redact, and make them durable before acknowledging."""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from ragmeter.aggregate.feedback_records import labels_at, trace_key
from ragmeter.config.settings import LimitSettings, Settings
from ragmeter.core.counters import CounterKey
from ragmeter.core.feedback import Feedback
from ragmeter.ingest.dead_letters import DeadLetters
from ragmeter.ingest.native import DecodedTrace, DecodeFailure
from ragmeter.ingest.redaction import Redactor
from ragmeter.store.pending import FeedbackTable, NewFeedback
from ragmeter.store.rows import AcceptedArrivals, SourceProgress, TraceArrival
from ragmeter.store.sqlite import SqliteStore, TransactionStatements
from ragmeter.trace import Trace

IntakeItem = tuple[DecodedTrace | DecodeFailure, int]
"""What was read, and its position in its source."""

StateWriter = Callable[[Callable[[], Mapping[CounterKey, float]]], None]
"""Runs what writes to the state, and counts what that returns. Raises `Unavailable`."""


class QueueFull(Exception):
    """Too many traces wait; try again after `retry_after` seconds."""

    retry_after = 2


class StateUnavailable(Exception):
    """The state file cannot take anything now, and why; nothing was accepted. Try again after
    `retry_after` seconds."""

    retry_after = 5  # what fills a disk seldom goes at once


class _PassageHolding(Protocol):
    """Where traces wait for texts before they join the queue."""

    @property
    def full(self) -> bool: ...

    def wants(self, trace: Trace) -> bool: ...


class Intake:
    """The step between a source and the queue. `clock` is wall time. Safe from any thread.

    `holding` says which traces wait for texts first; while it is full, live ones go on without.
    """

    def __init__(
        self,
        store: SqliteStore,
        dead_letters: DeadLetters,
        limits: LimitSettings,
        clock: Callable[[], float],
        redactor: Redactor | None = None,
        holding: _PassageHolding | None = None,
    ) -> None:
        self._holding = holding
        self._redactor = redactor or Redactor()
        self._store = store
        self._dead = dead_letters
        self._limits = limits
        self._clock = clock

    def room(self) -> int:
        """How many traces the queue still takes."""
        return self._limits.queue - self._store.depth

    def accept(
        self,
        items: Sequence[IntakeItem],
        source: str,
        *,
        progress: SourceProgress | None,
        live: bool,
        written: set[int] | None,
        also: TransactionStatements | None = None,
        counts: Mapping[CounterKey, float] | None = None,
    ) -> tuple[AcceptedArrivals, dict[CounterKey, float]]:
        """Make the good items durable, once each; also returns the counts that are durable now.

        `written` None leaves the bad items to the caller; otherwise they are written to the
        dead-letter file first, but for the positions it holds already, and join it. A `live`
        trace from the future gets its arrival time. Raises `QueueFull` or `Unavailable`; then no
        trace was accepted and the call may be repeated. Raises `sqlite3.DatabaseError` for a
        damaged state file.

        `also` runs in the transaction that makes the traces durable, and the `counts` of the
        source are added in it.
        """
        now = self._clock()
        good = [item for item, _ in items if isinstance(item, DecodedTrace)]
        bad = [(item, position) for item, position in items if isinstance(item, DecodeFailure)]
        # a batch larger than the whole queue is taken when the queue is empty
        if good and self._store.depth and len(good) > self.room():
            raise QueueFull
        crowded = self._holding is not None and self._holding.full
        if good and crowded and not live:
            raise QueueFull  # a file is read more slowly
        told: dict[CounterKey, float] = dict(counts or {})
        good = [self._redactor.trace(item, told) for item in good]  # before it is anywhere
        arrivals = [self._arrival(item, now, live, crowded) for item in good]
        told |= self._counts(source, good, bad, arrivals)
        duplicates: CounterKey = ("ragmeter_traces_duplicate_total", (("source", source),))
        try:
            if written is not None:
                letters = [(item, position) for item, position in bad if position not in written]
                self._dead.write(letters, progress.source if progress else source, now)
                written.update(position for _, position in letters)
            done = self._store.accept(
                arrivals,
                now,
                progress=progress,
                counts=told,
                count_duplicates=duplicates,
                also=also,
            )
        except (sqlite3.OperationalError, OSError) as error:
            raise StateUnavailable(f"cannot write the state or the dead letters: {error}") from None
        if done.duplicates:
            told[duplicates] = done.duplicates
        return done, told

    def _arrival(self, item: DecodedTrace, now: float, live: bool, crowded: bool) -> TraceArrival:
        timestamp = item.trace.timestamp.timestamp()
        if live and timestamp > now + self._limits.future_seconds:
            timestamp = now
        trace = item.trace
        held = self._holding is not None and not crowded and self._holding.wants(trace)
        return TraceArrival(trace.service, trace.trace_id, timestamp, item.body, held)

    @staticmethod
    def _counts(
        source: str,
        good: Sequence[DecodedTrace],
        bad: Sequence[tuple[DecodeFailure, int]],
        arrivals: Sequence[TraceArrival],
    ) -> dict[CounterKey, float]:
        counts: dict[CounterKey, float] = {}
        label = (("source", source),)
        if good:
            counts["ragmeter_traces_received_total", label] = len(good)
        skewed = sum(
            arrival.timestamp != item.trace.timestamp.timestamp()
            for item, arrival in zip(good, arrivals, strict=True)
        )
        if skewed:
            counts["ragmeter_clock_skew_total", label] = skewed
        for letter, _ in bad:
            key = ("ragmeter_dead_letters_total", (("reason", letter.reason),))
            counts[key] = counts.get(key, 0) + 1
        return counts


def feedback_rows(
    items: Sequence[Feedback | DecodeFailure],
    event_time: float | None,
    now: float = math.inf,
    ahead: float = 0.0,
) -> list[NewFeedback]:
    """The rows of what could be read. A label more than `ahead` seconds after `now` (Unix time) is
    one of now, as with traces: of two words the later holds, and one wrong clock must not have the
    last word for years."""
    rows = []
    for item in items:
        if isinstance(item, DecodeFailure):
            continue
        at = item.timestamp.timestamp()
        if at > now + ahead:
            at = now
        rows.append(
            NewFeedback(
                trace_key(item.trace_id),
                item.service,
                item.scorer,
                at if event_time is None else event_time,
                labels_at(item, at).dump(),
            )
        )
    return rows


def write_feedback(
    table: FeedbackTable,
    settings: Settings,
    items: Sequence[Feedback | DecodeFailure],
    source: str,
    unread: int,
    event_time: float | None,
    now: float,
) -> Mapping[CounterKey, float]:
    """Make the good ones durable, as of Unix time `now`; the counts that are durable with them.
    Raises `QueueFull`, and what the store raises."""
    rows = feedback_rows(items, event_time, now, settings.limits.future_seconds)
    # more at once than there is room for is taken where nothing else waits
    if rows and unread and unread + len(rows) > settings.feedback.waiting:
        raise QueueFull
    counts: dict[CounterKey, float] = {}
    if rows:
        counts["ragmeter_feedback_received_total", (("source", source),)] = len(rows)
    for item in items:
        if isinstance(item, DecodeFailure):
            key = ("ragmeter_dead_letters_total", (("reason", item.reason),))
            counts[key] = counts.get(key, 0) + 1
    table.add(rows, counts)
    return counts
