"""The embedded agent: sources, scoring, aggregation and the state file in one process.

    arrivals -> accept (durable) -> queue -> score -> aggregate -> commit (durable)

`Instrument.accept` may be called from any thread; the worker does the rest. The clock does two
things only: it sets a timestamp from the future back to its arrival, and, once live traffic has
been seen, it moves event time on while nothing arrives.
"""

from __future__ import annotations

import json
import logging
import math
import sqlite3
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, TypeVar

from ragmeter.aggregate.agent_view import AgentHealth
from ragmeter.aggregate.consistency import AnswerComparison
from ragmeter.aggregate.index_events import IndexEvent
from ragmeter.aggregate.indexes import IndexOutcome, IndexVersion
from ragmeter.alerts.alert import Alert
from ragmeter.alerts.rules import AlertRule
from ragmeter.config.privacy import PrivacySettings
from ragmeter.config.scoring import SamplingSettings
from ragmeter.config.settings import Settings
from ragmeter.core.counters import CounterKey, Counters, GaugeSample
from ragmeter.core.errors import StateLostError
from ragmeter.core.feedback import Feedback
from ragmeter.core.process import Watchdog, is_unready
from ragmeter.embedded.commits import Notify, Results
from ragmeter.embedded.intake import Intake, IntakeItem, StateUnavailable, write_feedback
from ragmeter.embedded.open_traces import OpenTraces
from ragmeter.embedded.passage_resolution import PassageResolution
from ragmeter.embedded.trace_closer import SOURCE as OTLP
from ragmeter.embedded.trace_closer import TraceCloser
from ragmeter.embedded.worker import Worker
from ragmeter.ingest.content_policy import ContentPolicy
from ragmeter.ingest.dead_letters import DeadLetters
from ragmeter.ingest.live_inspection import LiveInspection
from ragmeter.ingest.native import DecodeFailure
from ragmeter.ingest.redaction import Redactor
from ragmeter.ingest.requests.extraction import ExtractedRequests, extract_requests
from ragmeter.ingest.spans import Span
from ragmeter.scoring.slow_tiers import MakeTiers, SlowTiers
from ragmeter.store.pending import FeedbackTable, OpenSpanTable
from ragmeter.store.rows import AcceptedArrivals, SourceProgress, StoreOptions
from ragmeter.store.sqlite import SqliteStore, TransactionStatements, add_counts
from ragmeter.windows.windows import Windows

log = logging.getLogger("ragmeter")

_T = TypeVar("_T")


class EmbeddedAgent:
    """The running agent; `ragmeter.aggregate.agent_view.Reading` for the exporters.

    `live=False` (a replay) leaves event time to the events until the first live trace.
    `notify` makes the outbox items of an alert that fired or resolved; they are stored in the
    same step as the alert, and `announced` is called when that is durable. Raises `StateError`
    when the state file cannot be used. `results` gets the scores of each trace once they are
    durable; it must neither wait nor raise.
    """

    def __init__(
        self,
        settings: Settings,
        rules: Sequence[AlertRule],
        *,
        live: bool = True,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
        notify: Notify = lambda alert, now: (),
        announced: Callable[[], None] = lambda: None,
        tiers: MakeTiers = lambda saved: SlowTiers(),
        results: Results = lambda done: None,
    ) -> None:
        self._settings = settings
        self._limits = settings.limits
        self._clock = clock
        self._monotonic = monotonic
        self.segments = tuple(settings.segments)
        self.redactor = Redactor(settings.privacy)
        self.content = ContentPolicy(settings.privacy)
        self._store = SqliteStore(
            settings.state.path,
            StoreOptions(
                horizon=settings.limits.dedupe_hours * 3600,
                synchronous=settings.state.synchronous,
                overwrite=not self.content.full,
            ),
            warn=log.error,
        )
        self._feedback = FeedbackTable(self._store)
        self._dead = DeadLetters(settings.state.dead_letters, self.redactor, self.content)
        self._resolving = PassageResolution(
            settings.resolvers, self._store, self.redactor, settings.limits.trace_bytes, self._write
        )
        self._intake = Intake(
            self._store, self._dead, settings.limits, clock, self.redactor, self._resolving
        )
        self._worker = Worker(
            settings,
            rules,
            self._store,
            self._dead,
            live=live,
            clock=clock,
            monotonic=monotonic,
            notify=notify,
            announced=announced,
            tiers=tiers,
            results=results,
            content=self.content,
        )
        self._otlp = settings.otlp
        self.watchers = LiveInspection(self.content)
        spans = OpenSpanTable(self._store)
        ids = spans.ids()
        self.assembly = OpenTraces(
            settings.otlp, spans, self._write, clock=clock, monotonic=monotonic
        )
        self._stalls: Watchdog[str] = Watchdog(monotonic)
        self._stalled: dict[str, float] = {}
        self._closer = TraceCloser(
            self.assembly,
            spans,
            self.accept,
            self._extract,
            settings.limits.trace_bytes,
            written=ids & self._dead.written_from(OTLP, min(ids)) if ids else set(),
            damaged=self._worker.damaged,
        )

    def _extract(self, spans: Sequence[Span]) -> ExtractedRequests:
        found = extract_requests(spans, self._otlp)
        self.watchers.publish(found)
        return found

    def start(self) -> None:
        self._worker.start()
        self._resolving.start(self._worker.wake)
        self._closer.start()

    def stop(self, timeout: float) -> bool:
        """Finish what is queued within `timeout` seconds; what is left stays durable.

        Returns whether the queue was emptied. The state file is closed.
        """
        closed = self._closer.stop()
        closed = self._resolving.stop() and closed
        ended = self._worker.stop(timeout) and closed
        emptied = self._store.depth == 0
        if ended:
            self._store.close()
        return emptied

    def wait_idle(self, stopped: Callable[[], bool] = lambda: False) -> None:
        """Return when nothing waits any more, the agent has died or `stopped` says so."""
        while (
            self._store.depth or self._store.held_count or any(self._worker.pending.values())
        ) and not (self.fatal or stopped()):
            time.sleep(0.02)

    def wait_replayed(self, stopped: Callable[[], bool] = lambda: False) -> None:
        """Return when all that is in now is counted, the agent has died or `stopped` says so.

        In a replay that holds for slow tiers too. Beside live traffic they owe something at any
        moment, and for as long as a judge is down: what is to be read next cannot wait for that.
        """

        def ended() -> bool:
            return self.fatal is not None or stopped()

        for table in ("held", "inbox"):  # in this order: what was held joins the queue
            last = self._store.last_id(table)
            while self._store.has_waiting(table, last) and not ended():
                time.sleep(0.02)
        while not self._worker.live and any(self._worker.pending.values()) and not ended():
            time.sleep(0.02)

    @property
    def fatal(self) -> str | None:
        """Why the agent has died; the process should end with a failure."""
        return self._worker.fatal or self._closer.fatal or self._resolving.fatal

    # Reading ------------------------------------------------------------------------------------

    @property
    def windows(self) -> Windows:
        return self._worker.aggregator.windows

    @property
    def counters(self) -> Counters:
        return self._worker.aggregator.counters

    @property
    def outbox(self) -> SqliteStore:
        return self._store

    @property
    def waiting(self) -> Mapping[tuple[str, str], int]:
        return self._worker.aggregator.waiting

    def instruments(self) -> Sequence[Mapping[str, str]]:
        return self._worker.instruments()

    def gauges(self) -> Sequence[GaugeSample]:
        held = ("ragmeter_held_traces", (), float(self._store.held_count))
        return [*self._worker.gauges(), *self.assembly.gauges(), held]

    def indexes(self) -> Sequence[IndexVersion]:
        return list(self._worker.aggregator.indexing.versions())

    def consistency(self, service: str, window: str) -> AnswerComparison:
        return self._worker.aggregator.consistency.compared(service, window)

    def lock(self) -> AbstractContextManager[Any]:
        return self._worker.lock

    def alerts(self) -> list[Alert]:
        return self._worker.aggregator.engine.alerts()

    def evidence(self, service: str, trace_id: str) -> dict[str, Any] | None:
        body = self._store.evidence(service, trace_id)
        return json.loads(body) if body else None

    def health(self) -> AgentHealth:
        now = self._clock()
        waiting = self._store.depth
        oldest, event = self._worker.oldest_received, self._worker.time.event
        problems = (
            self.fatal,
            self._worker.refused,
            self._worker.problem,
            self._closer.problem,
            *self._stuck(),
            self._ahead(now),
        )
        return AgentHealth(
            problems=tuple(problem for problem in problems if problem),
            queue_depth=waiting,
            drawn=self._worker.pending,
            oldest_unprocessed_seconds=max(0.0, now - oldest) if oldest and waiting else 0.0,
            processing_lag_seconds=None
            if event is None or not self._worker.live
            else (max(0.0, now - event) if waiting else 0.0),
        )

    def check_stalled(self) -> str | None:
        """What has not moved for `limits.stalled_seconds` although work waits; the process should
        end with a failure. To be called every second or so."""
        held = self._store.held_count
        self._stalled = self._stalls.update(
            {
                **self._worker.marks(),
                "the closing of traces": self._closer.pulse.count,
                "the resolving of passages": self._resolving.pulse.count if held else None,
            }
        )
        limit = self._limits.stalled_seconds
        return next((_still(*item) for item in self._stalled.items() if item[1] > limit), None)

    def _stuck(self) -> list[str]:
        limit = self._limits.stalled_seconds
        return [_still(*item) for item in self._stalled.items() if is_unready(item[1], limit)]

    def _ahead(self, now: float) -> str | None:
        """What is wrong where a replayed trace from the future has taken the time along."""
        event = self._worker.time.event
        if not self._worker.live or event is None:
            return None
        ahead = event - now - self._limits.future_seconds
        if ahead <= 0:
            return None
        return (
            f"event time is {ahead / 3600:.1f} hours ahead of the clock (a replayed trace was dated"
            " in the future, or the clock was ahead at a start): live traces come late to the short"
            " windows, and to all if it is more; move the state file aside or use --fresh"
        )

    def resample(self, settings: SamplingSettings) -> None:
        """Draw by other rates and strata from the next trace on: no estimate jumps."""
        self._worker.resample(settings)

    def redact(self, settings: PrivacySettings) -> None:
        """Redact by other rules from the next trace on."""
        self.redactor.update(settings)

    # Traces in ----------------------------------------------------------------------------------

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
        """Make the good items durable, once each; `ragmeter.embedded.intake.Intake.accept` says how."""
        done = self._counted(
            lambda: self._intake.accept(
                items,
                source,
                progress=progress,
                live=live,
                written=written,
                also=also,
                counts=counts,
            )
        )
        if live and done.accepted and not self._worker.live:
            self._worker.live = True
            if ahead := self._ahead(self._clock()):
                log.error("%s", ahead)
        self._worker.wake()
        self._resolving.wake()
        return done

    def _write(self, write: Callable[[], Mapping[CounterKey, float]]) -> None:
        """Run what writes to the state besides traces. Raises `Unavailable`."""

        def guarded() -> tuple[None, Mapping[CounterKey, float]]:
            try:
                return None, write()
            except sqlite3.OperationalError as error:
                raise StateUnavailable(f"cannot write the state: {error}") from None

        self._counted(guarded)

    def _counted(self, write: Callable[[], tuple[_T, Mapping[CounterKey, float]]]) -> _T:
        """What `write` has made durable; its counts are shown. Raises `Unavailable`."""
        if self.fatal:
            raise StateUnavailable(self.fatal)
        with self._worker.intake_lock:
            try:
                done, counts = write()
            except StateUnavailable as error:
                if self._worker.refused is None:
                    log.error("%s; nothing is accepted until that is mended", error)
                self._worker.refused = str(error)
                raise
            except StateLostError as error:
                self._worker.fatal = str(error)
                raise StateUnavailable(self._worker.fatal) from None
            except sqlite3.DatabaseError as error:
                self._worker.damaged(error)
                raise StateUnavailable(str(self.fatal)) from None
            self._worker.refused = None
            with self._worker.lock:
                self.counters.add_saved(counts)
        return done

    def room(self) -> int:
        """How many traces the queue still takes."""
        return self._intake.room()

    def baselines(self) -> list[dict[str, Any]]:
        """What the drift detectors compare with, a row a series."""
        with self._worker.lock:
            return self._worker.aggregator.drift.baselines()

    def promote(self, service: str | None) -> dict[str, Any]:
        """Make what is normal now the drift baseline of a service, or of all: done and durable on
        return. Raises `ragmeter.embedded.commands.UnknownService` and `Unavailable`."""
        if self.fatal or self._worker.ended:
            raise StateUnavailable(self.fatal or "the agent is stopping")
        return self._worker.orders.submit(service)

    def accept_feedback(
        self, items: Sequence[Feedback | DecodeFailure], source: str, *, live: bool
    ) -> int:
        """Make the good ones durable, to be joined to their traces; how many there were. Raises
        `QueueFull` and `Unavailable`; then nothing was accepted."""

        def add() -> Mapping[CounterKey, float]:
            return write_feedback(
                self._feedback,
                self._settings,
                items,
                source,
                self._worker.labelling.unread(),
                self.windows.now,
                self._clock() if live else math.inf,  # a file is taken at its word
            )

        self._write(add)
        self._worker.wake()
        return sum(isinstance(item, Feedback) for item in items)

    def wait_feedback(self, stopped: Callable[[], bool] = lambda: False) -> None:
        """Return when all feedback that is in now was looked at, the agent has died or `stopped`
        says so."""
        last = self._feedback.last()
        while not self._worker.labelling.has_read_up_to(last) and not (self.fatal or stopped()):
            time.sleep(0.02)

    def index(
        self, events: Sequence[IndexEvent], counts: Mapping[CounterKey, float]
    ) -> list[IndexOutcome]:
        """Count what indexing jobs say, durable on return, and the `counts` of the source. Raises
        `Unavailable`; then it may be said again: what was counted is known by its id."""
        if self._worker.ended:
            raise StateUnavailable(self.fatal or "the agent is stopping")

        def add() -> Mapping[CounterKey, float]:
            with self._store.transaction() as db:
                add_counts(db, counts)
            return counts

        if counts:
            self._write(add)
        elif self.fatal:
            raise StateUnavailable(self.fatal)
        return self._worker.index_orders.submit(events) if events else []

    def position(self, source: str) -> int:
        return self._store.position(source)

    def dead_letters_from(self, source: str, position: int) -> set[int]:
        return self._dead.written_from(source, position)


def _still(place: str, seconds: float) -> str:
    return f"{place} has not moved for {seconds:.0f} s although work waits"
