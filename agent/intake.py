"""Traces in: counted, checked against the clock, and durable before anybody is told so."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from agent.config import Limits
from agent.counters import CounterKey
from agent.ingest.native import Bad, Good
from agent.privacy.redactor import Redactor
from agent.sources.dead_letters import DeadLetters
from agent.store.rows import Accepted, Arrival, Progress
from agent.store.sqlite import SqliteStore, Statements
from agent.trace import Trace

__all__ = ["Holding", "Intake", "Item", "QueueFull", "Unavailable", "Write"]

Item = tuple[Good | Bad, int]
"""What was read, and its position in its source."""

Write = Callable[[Callable[[], Mapping[CounterKey, float]]], None]
"""Runs what writes to the state, and counts what that returns. Raises `Unavailable`."""


class QueueFull(Exception):
    """Too many traces wait; try again after `retry_after` seconds."""

    retry_after = 2


class Unavailable(Exception):
    """The state file cannot take anything now, and why; nothing was accepted. Try again after
    `retry_after` seconds."""

    retry_after = 5  # what fills a disk seldom goes at once


class Holding(Protocol):
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
        limits: Limits,
        clock: Callable[[], float],
        redactor: Redactor | None = None,
        holding: Holding | None = None,
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
        items: Sequence[Item],
        source: str,
        *,
        progress: Progress | None,
        live: bool,
        written: set[int] | None,
        also: Statements | None = None,
        counts: Mapping[CounterKey, float] | None = None,
    ) -> tuple[Accepted, dict[CounterKey, float]]:
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
        good = [item for item, _ in items if isinstance(item, Good)]
        bad = [(item, position) for item, position in items if isinstance(item, Bad)]
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
            raise Unavailable(f"cannot write the state or the dead letters: {error}") from None
        if done.duplicates:
            told[duplicates] = done.duplicates
        return done, told

    def _arrival(self, item: Good, now: float, live: bool, crowded: bool) -> Arrival:
        timestamp = item.trace.timestamp.timestamp()
        if live and timestamp > now + self._limits.future_seconds:
            timestamp = now
        trace = item.trace
        held = self._holding is not None and not crowded and self._holding.wants(trace)
        return Arrival(trace.service, trace.trace_id, timestamp, item.body, held)

    @staticmethod
    def _counts(
        source: str,
        good: Sequence[Good],
        bad: Sequence[tuple[Bad, int]],
        arrivals: Sequence[Arrival],
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
