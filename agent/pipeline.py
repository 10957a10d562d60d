"""The embedded agent: joins sources, score, aggregate and the state file in one process.

    arrivals -> accept (durable) -> queue -> score -> aggregate -> commit (durable)

`Instrument.accept` may be called from any thread. One worker thread does the rest in queue order,
so the result is a function of the queue alone. The clock does two things only: it sets a
timestamp from the future back to its arrival, and, once live traffic has been seen, it moves
event time on while nothing arrives.
"""

from __future__ import annotations

import json
import logging
import sqlite3
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

from agent.aggregate import Aggregator
from agent.alerts import Alert, Rule
from agent.config import Settings
from agent.counters import Counters
from agent.event_time import EventTime
from agent.evidence import EvidenceKeeper
from agent.ingest.native import Bad, decode_one
from agent.intake import Intake, Item, Unavailable
from agent.reading import Health
from agent.sampling import Sampler
from agent.score import Scorer
from agent.sources.dead_letters import DeadLetters
from agent.store.rows import Accepted, Commit, OutboxItem, Progress, Queued
from agent.store.sqlite import SqliteStore
from agent.trace import ScoredTrace, Trace
from agent.windows import Windows

__all__ = ["Instrument"]

log = logging.getLogger("ragmeter")

BATCH = 256  # traces a commit: one fsync for many, and under 0.3 s of work to redo after a kill
LOCK_SLICE = 16  # traces scored between two chances for a scrape to read
IDLE_SECONDS = 1.0  # how often event time moves on while nothing arrives
LINGER_SECONDS = 0.2  # live traffic is gathered so long: a commit costs more than a trace
COLLECT_SECONDS = 60.0  # how often the text of traces that are no longer the worst is let go
SAVE_IDLE_SECONDS = 60.0  # how often that is written down when nothing else changed


class Instrument:
    """The running agent; `agent.reading.Reading` for the exporters.

    `live=False` (a replay) leaves event time to the events until the first live trace.
    `notify` makes the outbox items of an alert that fired or resolved; they are stored in the
    same step as the alert. Raises `StateError` when the state file cannot be used.
    """

    def __init__(
        self,
        settings: Settings,
        rules: Sequence[Rule],
        *,
        live: bool = True,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
        notify: Callable[[Alert, float], Sequence[OutboxItem]] = lambda alert, now: (),
    ) -> None:
        limits = settings.limits
        self._settings = settings
        self._clock = clock
        self._monotonic = monotonic
        self._notify = notify
        self._live = live
        self._lock = threading.RLock()
        self._store = SqliteStore(
            settings.state.path,
            horizon=limits.dedupe_hours * 3600,
            synchronous=settings.state.synchronous,
            warn=log.error,
        )
        self._dead = DeadLetters(settings.state.dead_letters)
        self._intake = Intake(self._store, self._dead, limits, clock)
        self._scorer = Scorer(settings.builtin_scorers, sampler=Sampler(settings.sampling))
        self._rules = rules
        self._start_aggregator()
        self.segments = tuple(settings.segments)
        self._wake = threading.Event()
        self._stopping = False
        self._stop_early = threading.Event()
        self._problem: str | None = None
        self.fatal: str | None = None
        self._oldest_received: float | None = None
        self._thread = threading.Thread(target=self._run, name="ragmeter-worker", daemon=True)

    def _start_aggregator(self) -> None:
        try:
            self._aggregator = self._load()
        except (ValueError, KeyError, TypeError, AssertionError) as error:
            # bytes that SQLite took for sound but that are no windows of ours
            self._store.quarantine(f"its content makes no sense: {error}")
            self._aggregator = self._load()
        if self._store.quarantined:
            self._aggregator.counters.inc("ragmeter_state_quarantined_total")

    def _load(self) -> Aggregator:
        aggregator = Aggregator(self._settings, self._rules, self._scorer.expected)
        saved = self._store.saved()
        aggregator.windows.load(saved.buckets)
        aggregator.counters.load(saved.counters)
        aggregator.load(saved.meta)
        self._keeper = EvidenceKeeper(saved.evidence, self._settings.limits.evidence_bytes)
        self._time = EventTime()
        down = self._clock() - saved.meta.get("wall_time", 0.0)
        self._time.restore(aggregator.windows.now, down, self._monotonic())
        self._saved_at = self._collected_at = self._monotonic()
        return aggregator

    # Reading ------------------------------------------------------------------------------------

    @property
    def windows(self) -> Windows:
        return self._aggregator.windows

    @property
    def counters(self) -> Counters:
        return self._aggregator.counters

    @property
    def outbox(self) -> SqliteStore:
        return self._store

    def lock(self) -> AbstractContextManager[Any]:
        return self._lock

    def alerts(self) -> list[Alert]:
        return self._aggregator.engine.alerts()

    def evidence(self, service: str, trace_id: str) -> dict[str, Any] | None:
        body = self._store.evidence(service, trace_id)
        return json.loads(body) if body else None

    def health(self) -> Health:
        now = self._clock()
        oldest = self._oldest_received
        problems = tuple(filter(None, (self.fatal, self._problem)))
        waiting = self._store.depth
        return Health(
            problems=problems,
            queue_depth=waiting,
            oldest_unprocessed_seconds=max(0.0, now - oldest) if oldest and waiting else 0.0,
            processing_lag_seconds=None
            if self._time.event is None or not self._live
            else max(0.0, now - self._time.event),
        )

    # Traces in ----------------------------------------------------------------------------------

    def accept(
        self,
        items: Sequence[Item],
        source: str,
        *,
        progress: Progress | None = None,
        live: bool = False,
        written: set[int] | None = None,
    ) -> Accepted:
        """Make the good items durable, once each; `agent.intake.Intake.accept` says how."""
        if self.fatal:
            raise Unavailable(self.fatal)
        try:
            done, counts = self._intake.accept(
                items, source, progress=progress, live=live, written=written
            )
        except Unavailable as error:
            self._problem = str(error)
            raise
        except sqlite3.DatabaseError as error:
            self._die(error)
            raise Unavailable(str(self.fatal)) from None
        self._problem = None
        with self._lock:
            self.counters.add_saved(counts)
        self._live = self._live or (live and done.accepted > 0)
        self._wake.set()
        return done

    def room(self) -> int:
        """How many traces the queue still takes."""
        return self._intake.room()

    def position(self, source: str) -> int:
        return self._store.position(source)

    def dead_letters_from(self, source: str, position: int) -> set[int]:
        return self._dead.written_from(source, position)

    # The worker ---------------------------------------------------------------------------------

    def start(self) -> None:
        self._thread.start()

    def stop(self, timeout: float) -> bool:
        """Finish what is queued within `timeout` seconds; what is left stays durable.

        Returns whether the queue was emptied. The state file is closed.
        """
        deadline = time.monotonic() + timeout
        self._stop_early.set()
        while self._thread.is_alive() and self._store.depth and time.monotonic() < deadline:
            if self._problem or self.fatal:
                break
            time.sleep(0.01)
        self._stopping = True
        self._wake.set()
        if self._thread.ident is not None:
            self._thread.join(max(1.0, deadline - time.monotonic()))
        emptied = self._store.depth == 0
        if not self._thread.is_alive():
            self._store.close()
        return emptied

    def wait_idle(self, stopped: Callable[[], bool] = lambda: False) -> None:
        """Return when the queue is empty, the agent has died or `stopped` says so."""
        while self._store.depth and not self.fatal and not stopped():
            time.sleep(0.02)

    def _run(self) -> None:
        after = 0
        try:
            while not self._stopping:
                self._wake.clear()
                batch = self._store.take(after, BATCH)
                if batch:
                    self._process(batch)
                    after = batch[-1].seq
                    if self._live and len(batch) < BATCH and not self._stopping:
                        self._stop_early.wait(LINGER_SECONDS)
                else:
                    self._oldest_received = None
                    self._wake.wait(IDLE_SECONDS)
                    self._tick(after)
            self._commit(after, [], [])
        except (sqlite3.OperationalError, OSError) as error:
            self.fatal = f"cannot write the state: {error}"
            log.error(self.fatal)
        except sqlite3.DatabaseError as error:
            self._die(error)
        except Exception as error:
            log.exception("the worker stopped")
            self.fatal = f"the worker stopped: {error!r}"

    def _die(self, error: Exception) -> None:
        self.fatal = f"the state file is damaged: {error}; a restart moves it aside"
        log.error(self.fatal)

    def _process(self, batch: Sequence[Queued]) -> None:
        self._oldest_received = batch[0].received
        done: list[tuple[Trace, ScoredTrace]] = []
        transitions: list[Alert] = []
        unreadable: list[tuple[Bad, int]] = []
        for start in range(0, len(batch), LOCK_SLICE):
            scored = []
            for queued in batch[start : start + LOCK_SLICE]:
                item = decode_one(queued.body, len(queued.body))
                if isinstance(item, Bad):  # queued by a version with another schema
                    unreadable.append((item, queued.seq))
                else:
                    scored.append((item.trace, self._scorer.score(item.trace, queued.timestamp)))
            with self._lock:
                for _, result in scored:
                    transitions += self._aggregator.apply(result)
                self._aggregator.count_seen()
            done += scored
        if unreadable:
            self._persist(lambda: self._dead.write(unreadable, "queue", self._clock()))
            with self._lock:
                self.counters.inc(
                    "ragmeter_dead_letters_total", (("reason", "old_schema"),), len(unreadable)
                )
        self._time.reached(self.windows.now, self._monotonic())
        self._commit(batch[-1].seq, transitions, done)

    def _tick(self, upto: int) -> None:
        """Move event time on by the time that passed, where traffic is live."""
        event = self._time.now(self._monotonic())
        if not self._live or event is None or self._stopping:
            return
        with self._lock:
            transitions = self._aggregator.advance(event)
        if transitions or self._monotonic() - self._saved_at >= SAVE_IDLE_SECONDS:
            self._commit(upto, transitions, [])

    def _commit(
        self, upto: int, transitions: Sequence[Alert], done: Sequence[tuple[Trace, ScoredTrace]]
    ) -> None:
        now = self._clock()
        with self._lock:
            step = Commit(
                upto,
                buckets=self.windows.drain(),
                counters=self.counters.drain(),
                meta={**self._aggregator.dump(), "wall_time": now},
            )
            named = self.windows.take_named()
            if self._monotonic() - self._collected_at >= COLLECT_SECONDS or self._stopping:
                step.forget_evidence = self._keeper.forget(self.windows.worst_ids())
                self._collected_at = self._monotonic()
            keyed = [
                ((self._aggregator.service_of(scored), scored.trace_id), trace, scored)
                for trace, scored in done
            ]
        step.evidence = self._keeper.rows(named, keyed)
        step.outbox = [item for alert in transitions for item in self._notify(alert, now)]
        self._persist(lambda: self._store.commit(step))
        self._saved_at = self._monotonic()

    def _persist(self, write: Callable[[], object]) -> None:
        """Write; while the disk does not take it, try again, and do nothing else meanwhile."""
        pause = 0.1
        while True:
            try:
                write()
            except (sqlite3.OperationalError, OSError) as error:
                self._problem = f"cannot write the state: {error}"
                log.error("%s; next try in %.1f s", self._problem, pause)
                if self._stopping:
                    raise
                time.sleep(pause)
                pause = min(2 * pause, 5.0)
            else:
                self._problem = None
                return
