"""Accept traces: check timestamps, count, redact, make durable, acknowledge."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from ragmeter.config.settings import LimitSettings
from ragmeter.core.clocks import FUTURE_SECONDS
from ragmeter.core.counters import CounterKey
from ragmeter.core.errors import QueueFull, StateUnavailable
from ragmeter.ingest.dead_letters import DeadLetters
from ragmeter.ingest.native import DecodedTrace, DecodeFailure
from ragmeter.ingest.redaction import Redactor
from ragmeter.store.rows import AcceptedArrivals, SourceProgress, TraceArrival
from ragmeter.store.sqlite import SqliteStore, TransactionStatements
from ragmeter.trace import Trace

# An item and its position in its source.
IntakeItem = tuple[DecodedTrace | DecodeFailure, int]

_Accepted = tuple[AcceptedArrivals, Mapping[CounterKey, float]]


class _PassageResolution(Protocol):
    @property
    def full(self) -> bool: ...

    def wants(self, trace: Trace) -> bool: ...


@dataclass(eq=False)
class Intake:
    """The step between a source and the queue; safe from any thread.

    Args:
        resolution: Holds traces until their passages are resolved; while it is full, live ones go
            on without.
        run: `Worker.run_counted`.
        on_accepted: Called after a write with whether it was of live traces that were new.
    """

    _store: SqliteStore
    _dead_letters: DeadLetters
    _limits: LimitSettings
    _clock: Callable[[], float]
    _redactor: Redactor
    _resolution: _PassageResolution
    _run: Callable[[Callable[[], _Accepted]], AcceptedArrivals]
    _on_accepted: Callable[[bool], None]

    def room(self) -> int:
        """Return how many more traces the queue takes."""
        return self._limits.queue - self._store.depth

    def accept(
        self,
        items: Sequence[IntakeItem],
        source: str,
        *,
        progress: SourceProgress | None = None,
        live: bool = False,
        written: set[int] | None = None,
        also: TransactionStatements | None = None,
        counts: Mapping[CounterKey, float] | None = None,
    ) -> AcceptedArrivals:
        """Make the good items durable, once each.

        Those of a source that is not `live` and has `progress` are read again after a crash: they
        are durable where they are, and `progress` is once they are counted.

        Args:
            items: Traces and failures.
            source: The label of the source in counters.
            progress: How far the source has been read with these items.
            live: Whether a trace from the future gets its arrival time.
            written: Positions of failures that the dead-letter file has; the others are written to
                it first and added here. None leaves all failures to the caller.
            also: Runs in the same transaction.
            counts: Counts of the source, added in the same transaction.

        Raises:
            QueueFull: No trace was accepted; the call may be repeated.
            StateUnavailable: Likewise.
        """
        arrivals = self._run(
            lambda: self._accept(
                items=items,
                source=source,
                progress=progress,
                live=live,
                written=written,
                also=also,
                counts=counts,
            )
        )
        self._on_accepted(live and arrivals.accepted > 0)
        return arrivals

    def _accept(
        self,
        items: Sequence[IntakeItem],
        source: str,
        progress: SourceProgress | None,
        live: bool,
        written: set[int] | None,
        also: TransactionStatements | None,
        counts: Mapping[CounterKey, float] | None,
    ) -> _Accepted:
        now = self._clock()
        good = [item for item, _ in items if isinstance(item, DecodedTrace)]
        bad = [(item, position) for item, position in items if isinstance(item, DecodeFailure)]
        # a batch larger than the whole queue is taken when the queue is empty
        if good and self._store.depth and len(good) > self.room():
            raise QueueFull("the queue is full")
        crowded = self._resolution.full
        if good and not live and (crowded or self._store.crowded):
            raise QueueFull("the queue is full")  # a file is read more slowly
        durable: dict[CounterKey, float] = dict(counts or {})
        good = [self._redactor.trace(item, durable) for item in good]  # before it is anywhere
        arrivals = [self._make_arrival(item, now, live, crowded) for item in good]
        durable |= _count_items(source, good, bad, arrivals)
        duplicates: CounterKey = ("ragmeter_traces_duplicate_total", (("source", source),))
        try:
            if written is not None:
                letters = [(item, position) for item, position in bad if position not in written]
                self._dead_letters.write(letters, progress.source if progress else source, now)
                written.update(position for _, position in letters)
            accepted = self._store.accept(
                arrivals,
                now,
                progress=progress,
                counts=durable,
                count_duplicates=duplicates,
                also=also,
                again=progress is not None and not live,
            )
        except (sqlite3.OperationalError, OSError) as error:
            raise StateUnavailable(
                f"cannot write the state or the dead letters (state.path): {error}"
            ) from None
        if not accepted.stored:
            return accepted, {}
        if accepted.duplicates:
            durable[duplicates] = accepted.duplicates
        return accepted, durable

    def _make_arrival(
        self, item: DecodedTrace, now: float, live: bool, crowded: bool
    ) -> TraceArrival:
        trace = item.trace
        timestamp = trace.timestamp.timestamp()
        if live and timestamp > now + FUTURE_SECONDS:
            timestamp = now
        held = not crowded and self._resolution.wants(trace)
        # A redacted trace is what the rules made of it, not what its bytes say once decoded.
        kept = None if self._redactor.edits else trace
        return TraceArrival(
            service=trace.service,
            trace_id=trace.trace_id,
            timestamp=timestamp,
            body=item.body,
            held=held,
            trace=kept,
        )


def count_failures(items: Sequence[object]) -> dict[CounterKey, float]:
    """Return the counts of the dead letters among `items`, by reason."""
    reasons = Counter(item.reason for item in items if isinstance(item, DecodeFailure))
    return {
        ("ragmeter_dead_letters_total", (("reason", reason),)): float(number)
        for reason, number in reasons.items()
    }


def _count_items(
    source: str,
    good: Sequence[DecodedTrace],
    bad: Sequence[tuple[DecodeFailure, int]],
    arrivals: Sequence[TraceArrival],
) -> dict[CounterKey, float]:
    counts = count_failures([item for item, _ in bad]) if bad else {}
    label = (("source", source),)
    if good:
        counts["ragmeter_traces_received_total", label] = len(good)
    skewed = sum(
        arrival.timestamp != item.trace.timestamp.timestamp()
        for item, arrival in zip(good, arrivals, strict=True)
    )
    if skewed:
        counts["ragmeter_clock_skew_total", label] = skewed
    return counts
