"""The worker thread: take traces off the queue, score and aggregate them, commit the effect.

One thread does all of it in queue order, so the result is a function of the queue alone.
"""

from __future__ import annotations

import logging
import sqlite3
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from itertools import groupby
from typing import Any

from ragmeter.aggregate import aggregator as steps
from ragmeter.aggregate.aggregator import IDLE_SECONDS, SAVE_IDLE_SECONDS, Aggregator
from ragmeter.aggregate.feedback_join import CountedTrace, FeedbackJoin, ranked_passage_keys
from ragmeter.aggregate.index_events import IndexEvent
from ragmeter.aggregate.indexes import IndexOutcome
from ragmeter.alerts.alert import Alert
from ragmeter.alerts.rules import AlertRule
from ragmeter.config.scoring import SamplingSettings
from ragmeter.config.settings import Settings
from ragmeter.core.clocks import EventClock
from ragmeter.core.counters import GaugeSample
from ragmeter.core.errors import StateError, StateLostError, UnknownVersion, process_isolated
from ragmeter.core.process import Heartbeat
from ragmeter.core.score import ScoredTrace
from ragmeter.embedded.commands import CommandQueue, UnknownService
from ragmeter.embedded.commits import Commits, Notify, Results
from ragmeter.embedded.tier_draws import AnswerComparing, TierDraws
from ragmeter.embedded.tier_worker import FinishedDraw, complete_draw
from ragmeter.ingest.content_policy import ContentPolicy
from ragmeter.ingest.dead_letters import DeadLetters
from ragmeter.ingest.native import DecodeFailure, decode_trace
from ragmeter.scoring.scorer import CheapScores, summarise_trace
from ragmeter.scoring.slow_tiers import MakeTiers, SlowTiers
from ragmeter.store.pending import FeedbackChanges, FeedbackTable, StoredFeedback
from ragmeter.store.rows import QueuedTrace, TierDraw
from ragmeter.store.sqlite import SqliteStore
from ragmeter.trace import Trace

log = logging.getLogger("ragmeter")

_BATCH = 256  # traces a commit: one fsync for many, and under 0.3 s of work to redo after a kill
_LOCK_SLICE = 16  # traces scored between two chances for a scrape to read: a turn of the control
_LINGER_SECONDS = 0.2  # live traffic is gathered so long: a commit costs more than a trace

# Reasons of dead letters that the worker counts; the others are counted where traces come in.
_OLD_SCHEMA, _INTERNAL_ERROR = "old_schema", "internal_error"


class Worker:
    """Owns the aggregate half. Hold `lock` while reading `aggregator`.

    `fatal` says why the worker has ended, and is None in health. `live` lets event time move on
    with the clock while nothing arrives.
    """

    def __init__(
        self,
        settings: Settings,
        rules: Sequence[AlertRule],
        store: SqliteStore,
        dead_letters: DeadLetters,
        *,
        live: bool,
        clock: Callable[[], float],
        monotonic: Callable[[], float],
        notify: Notify,
        announced: Callable[[], None],
        tiers: MakeTiers = lambda saved: SlowTiers(),
        results: Results = lambda done: None,
        content: ContentPolicy | None = None,
    ) -> None:
        self._settings = settings
        self._rules = rules
        self._store = store
        self._dead = dead_letters
        self._clock = clock
        self._monotonic = monotonic
        self.lock = threading.RLock()
        self.intake_lock = threading.Lock()
        """Held while traces are accepted and counted; taken before `lock`."""
        self.refused: str | None = None
        """Why the last traces that came could not be made durable, until something can be."""
        self.fatal: str | None = None
        self.oldest_received: float | None = None
        self.pulse = Heartbeat()
        self._done = 0
        self._wake = threading.Event()
        self._hurry = threading.Event()
        self.orders: CommandQueue[str | None, dict[str, Any]] = CommandQueue(self._wake.set)
        self.index_orders: CommandQueue[Sequence[IndexEvent], list[IndexOutcome]] = CommandQueue(
            self._wake.set
        )
        self._slow = TierDraws(
            settings, store, tiers(store.meta()), clock=clock, finished=self._wake.set
        )
        self._slow.live = live
        self.scorer = self._slow.scorer
        self._comparing = AnswerComparing(settings, self._slow)
        self._commits = Commits(
            store, self._slow, content or ContentPolicy(), settings.limits.evidence_bytes,
            lock=self.lock, clock=clock, monotonic=monotonic,
            notify=notify, announced=announced, results=results,
            pulse=self.pulse, hurry=self._hurry,
        )  # fmt: skip
        self.labelling = FeedbackJoin(settings, FeedbackTable(store))
        self._start_aggregator()
        self._stopping = False
        self.ended = False
        """Whether the thread has come to its end: no order is carried out any more."""
        self._thread = threading.Thread(target=self._run, name="ragmeter-worker", daemon=True)

    # State --------------------------------------------------------------------------------------

    def _start_aggregator(self) -> None:
        empty = self._new_aggregator()  # a mistake in the settings raises here, outside the try
        try:
            self.aggregator = self._load(empty)
        except UnknownVersion as error:
            self._store.close()
            raise StateError(f"{self._settings.state.path}: {error}") from None
        except (ValueError, KeyError, TypeError, AssertionError) as error:
            # bytes that SQLite took for sound but that are no windows of ours
            self._store.quarantine(f"its content makes no sense: {error}")
            self.aggregator = self._load(self._new_aggregator())
        if self._store.quarantined:
            self.aggregator.counters.inc("ragmeter_state_quarantined_total")

    def _new_aggregator(self) -> Aggregator:
        return Aggregator(self._settings, self._rules, self.scorer.expected)

    def _load(self, aggregator: Aggregator) -> Aggregator:
        saved = self._store.saved()
        steps.restore_aggregator(aggregator, saved.buckets, saved.counters, saved.meta)
        aggregator.waiting.update(self._slow.restore(saved.meta))
        self.labelling.restore()
        self._commits.restore(saved.meta, saved.evidence)
        self.time = EventClock()
        down = self._clock() - saved.meta.get("wall_time", 0.0)
        self.time.restore(aggregator.windows.now, down, self._monotonic())
        return aggregator

    # The thread ---------------------------------------------------------------------------------

    def start(self) -> None:
        self._thread.start()
        self._slow.start()

    @property
    def problem(self) -> str | None:
        """Why the state cannot be written now; none in health."""
        return self._commits.problem

    @property
    def live(self) -> bool:
        """Whether live traffic has been seen."""
        return self._slow.live

    @live.setter
    def live(self, value: bool) -> None:
        self._slow.live = value

    def instruments(self) -> Sequence[Mapping[str, str]]:
        """Labels of each judge as it is served now."""
        return self._slow.instruments()

    def gauges(self) -> Sequence[GaugeSample]:
        """How the slow tiers and the drift detectors are. Hold `lock`."""
        slow = self._slow.gauges(self.aggregator.label)
        return [*slow, *self.aggregator.gauges(), *self.labelling.gauges()]

    @property
    def pending(self) -> dict[str, int]:
        """How many traces wait for each slow tier."""
        return self._slow.pending

    def marks(self) -> dict[str, object | None]:
        """For `ragmeter.core.process`: the thread always moves, the queue where something waits in it. It
        may stand still while the disk takes nothing (a restart would not help, and readiness is
        off), and while a replay waits for its judge."""
        waits = self._store.depth and not self.problem and (self.live or not self._slow.full)
        return {
            "the worker": self.pulse.count,
            "the queue": self._done if waits else None,
            "the slow tiers": self._slow.pulse.count if any(self.pending.values()) else None,
        }

    def resample(self, settings: SamplingSettings) -> None:
        """Draw by other rates and strata from the next trace on."""
        self._slow.resample(settings)
        with self.lock:
            self._settings = self._settings.model_copy(update={"sampling": settings})
            self.aggregator.resample(settings)

    def wake(self) -> None:
        """Look at the queue now: something was put in."""
        self._wake.set()

    def stop(self, timeout: float) -> bool:
        """Finish what is queued within `timeout` seconds; what is left stays durable.

        Returns whether the thread has ended.
        """
        deadline = time.monotonic() + timeout
        self._hurry.set()
        self._slow.stop(timeout / 2)
        while self._thread.is_alive() and self._store.depth and time.monotonic() < deadline:
            if self.problem or self.fatal:
                break
            time.sleep(0.01)
        self._stopping = self._commits.last = True
        self._wake.set()
        if self._thread.ident is not None:
            self._thread.join(max(1.0, deadline - time.monotonic()))
        self._slow.close()
        return not self._thread.is_alive()

    def _run(self) -> None:
        after = 0
        try:
            while not self._stopping:
                self._wake.clear()
                self.pulse.beat()
                self._finish_all(self._slow.take())
                self._add_extras()
                self._label()
                self.orders.execute_pending(self._promote)
                self.index_orders.execute_pending(self._index)
                if self._slow.fatal:
                    self.fatal = self._slow.fatal
                    return
                if not self.live and self._slow.full:
                    self._wake.wait(IDLE_SECONDS)  # a replay goes no faster than its judge
                    continue
                batch = self._store.take(after, _BATCH)
                if batch:
                    self._process_all(batch)
                    after = batch[-1].seq
                    if self.live and len(batch) < _BATCH and not self._stopping:
                        self._hurry.wait(_LINGER_SECONDS)
                else:
                    self.oldest_received = None
                    self._wake.wait(IDLE_SECONDS)
                    self._tick(after)
                    self._try_again()
            self._finish_all(self._slow.take())
            self._commit(after, [], [])
        except StateLostError as error:
            self.fatal = str(error)
        except (sqlite3.OperationalError, OSError) as error:
            self.fatal = f"cannot write the state: {error}"
        except sqlite3.DatabaseError as error:
            self.damaged(error)
        except Exception as error:
            log.exception("the worker stopped")
            self.fatal = f"the worker stopped: {error!r}"
        finally:
            self.ended = True
            for orders in (self.orders, self.index_orders):
                orders.reject_pending(self.fatal or "the agent is stopping")

    def _try_again(self) -> None:
        """Where nothing could be accepted: whether it can be now. Who is not ready is sent nothing
        that would show it."""
        if self.refused is not None and not self._stopping:
            try:
                self._store.probe()
            except (sqlite3.OperationalError, OSError):
                return
            self.refused = None
            log.info("the state can be written again")

    def damaged(self, error: Exception) -> None:
        self.fatal = f"the state file is damaged: {error}; a restart moves it aside"

    def _process_all(self, batch: Sequence[QueuedTrace]) -> None:
        process_isolated(batch, self._process, reset=self._reload, give_up=self._bury)

    def _bury(self, queued: QueuedTrace, error: Exception) -> None:
        log.error("trace %d of the queue cannot be counted; it is a dead letter", queued.seq)
        bad = DecodeFailure(_INTERNAL_ERROR, (("", repr(error)[:200]),), queued.body)
        self._commits.persist(lambda: self._dead.write([(bad, queued.seq)], "queue", self._clock()))
        with self.lock:
            label = (("reason", bad.reason),)
            self.aggregator.counters.inc("ragmeter_dead_letters_total", label)
        self._commit(queued.seq, [], [])

    def _reload(self) -> None:
        """Give up what was not committed."""
        with self.intake_lock, self.lock:
            self.aggregator = self._load(self._new_aggregator())

    def _process(self, batch: Sequence[QueuedTrace]) -> None:
        self.oldest_received = batch[0].received
        done: list[tuple[Trace, ScoredTrace]] = []
        placed: list[tuple[str, ...]] = []  # the segments of each
        drawn: list[TierDraw] = []
        transitions: list[Alert] = []
        unreadable: list[tuple[DecodeFailure, int]] = []
        for turn, part in groupby(batch, lambda queued: queued.seq // _LOCK_SLICE):
            scored: list[tuple[QueuedTrace, Trace, CheapScores]] = []
            self._slow.learn(self.aggregator.control(turn))
            for queued in part:
                item = decode_trace(queued.body, len(queued.body))
                if isinstance(item, DecodeFailure):  # queued by a version with another schema
                    unreadable.append((item, queued.seq))
                else:
                    found = self.scorer.score(item.trace, queued.timestamp)
                    found.trace.wording = self._comparing.wording(item.trace, self.aggregator)
                    scored.append((queued, item.trace, found))
            self.pulse.beat()
            with self.lock:
                for queued, trace, found in scored:
                    late = self.aggregator.windows.too_late(queued.timestamp)
                    drawn += self._slow.draws(queued, found, late=late)
                    owed = [
                        pair
                        for tier in found.drawn
                        for pair in self.scorer.pending_pairs(found, tier)
                    ]
                    applied = self.aggregator.apply(found.trace, owed, turn)
                    transitions += applied.alerts
                    placed.append(applied.segments)
                    done.append((trace, applied.trace))
                    drawn += self._comparing.draws(queued, applied.trace, self.aggregator)
                self.aggregator.settle()
        if unreadable:
            self._commits.persist(lambda: self._dead.write(unreadable, "queue", self._clock()))
            with self.lock:
                self.aggregator.counters.inc(
                    "ragmeter_dead_letters_total", (("reason", _OLD_SCHEMA),), len(unreadable)
                )
        self.time.observe(self.aggregator.windows.now, self._monotonic())
        with self.lock:
            frames = self.labelling.remember(
                (
                    CountedTrace(trace.service, ranked_passage_keys(trace), scored, segments)
                    for (trace, scored), segments in zip(done, placed, strict=True)
                ),
                self.aggregator,
            )
        self._commit(batch[-1].seq, transitions, done, drawn, also=frames)

    # Labels -------------------------------------------------------------------------------------

    def _label(self) -> None:
        """Count the labels that have come."""
        rows = self.labelling.take(_BATCH, self.aggregator.windows.now)
        if rows:
            process_isolated(rows, self._join, reset=self._reload, give_up=self._give_up_feedback)
            self.labelling.mark_read()

    def _join(self, rows: Sequence[StoredFeedback]) -> None:
        with self.lock:
            step = self.labelling.join(rows, self.aggregator)
            self.aggregator.settle()
        if step.done:
            self._commit(0, [], [], also=step)

    def _give_up_feedback(self, row: StoredFeedback, _: Exception) -> None:
        with self.lock:
            step = self.labelling.give_up(row, self.aggregator)
        self._commit(0, [], [], also=step)

    # Slow tiers ---------------------------------------------------------------------------------

    def _finish_all(self, finished: Sequence[FinishedDraw]) -> None:
        """Count what the slow tiers have found."""
        if finished:
            process_isolated(finished, self._finish, reset=self._reload, give_up=self._finish_blank)

    def _finish_blank(self, one: FinishedDraw, _: Exception) -> None:
        log.error("the results of drawn trace %d cannot be counted", one.drawn.id)
        blank = complete_draw(one.drawn.draw, [])
        self._finish([FinishedDraw(one.drawn, one.trace, blank, one.cost)])

    def _finish(self, finished: Sequence[FinishedDraw]) -> None:
        done: list[tuple[Trace, ScoredTrace]] = []
        with self.lock:
            for one in finished:
                if one.drawn.draw.tier == "embedding":
                    self._comparing.embedded(one, self.aggregator)
                    continue
                if one.trace is None:  # its bytes are not readable any more: no window to go to
                    self.aggregator.lose(one.results)
                    continue
                part = summarise_trace(one.trace, one.results, one.drawn.draw.timestamp)
                part.partial, part.timings = True, {}
                done.append((one.trace, self.aggregator.finish(part)))
            self.aggregator.settle()
        self._commit(0, [], done, finished=finished)

    def _add_extras(self) -> None:
        """Count what came of probes, at the event time that has been reached: a wall clock would
        take a replay along. Before the first trace there is no time to count them at."""
        now = self.aggregator.windows.now
        extras = self._slow.extras() if now is not None else []
        if now is None or not extras:
            return
        with self.lock:
            for scored in extras:
                scored.timestamp, scored.partial = now, True
                self.aggregator.add_extra(scored)
            self.aggregator.settle()
        self._commit(0, [], [])

    def _promote(self, service: str | None) -> dict[str, Any]:
        """At the event time that has been reached, between two batches; committed on return."""
        with self.lock:
            found = self.aggregator.promote(service)
            if found is None:
                raise UnknownService(f"no service {service!r} is watched for drift")
            done, transitions = found
        self._commit(0, transitions, [])
        return done

    def _index(self, events: Sequence[IndexEvent]) -> list[IndexOutcome]:
        """Count what indexing jobs say; committed on return."""
        latest = self._clock() + self._settings.limits.future_seconds
        with self.lock:
            done = []
            for event in events:
                at = event.timestamp.timestamp()
                done.append(self.aggregator.index(event, at if at <= latest else self._clock()))
        self._commit(0, [], [])
        return done

    def _tick(self, upto: int) -> None:
        """Move event time on by the time that passed, where traffic is live."""
        event = self.time.now(self._monotonic())
        if not self.live or event is None or self._stopping:
            return
        with self.lock:
            transitions = self.aggregator.advance(event)
        if transitions or self._monotonic() - self._commits.saved_at >= SAVE_IDLE_SECONDS:
            self._commit(upto, transitions, [])

    def _commit(
        self,
        upto: int,
        transitions: Sequence[Alert],
        done: Sequence[tuple[Trace, ScoredTrace]],
        drawn: Sequence[TierDraw] = (),
        finished: Sequence[FinishedDraw] = (),
        also: FeedbackChanges | None = None,
    ) -> None:
        self._commits.commit(self.aggregator, upto, transitions, done, drawn, finished, also)
        self._done = max(self._done, upto)
