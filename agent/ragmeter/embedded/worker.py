"""The worker thread: take traces off the queue, have them scored, aggregate and commit the effect.

Scores of one trace depend on no other trace, so other threads may compute them ahead
(`ragmeter.scoring.threads`). Everything else is done by one thread in queue order: the result is a
function of the queue alone, whatever the number of threads.
"""

from __future__ import annotations

import logging
import math
import sqlite3
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import chain, groupby
from typing import Any, NamedTuple, TypeVar

from ragmeter.aggregate.aggregator import Aggregator
from ragmeter.aggregate.commands import UnknownService
from ragmeter.aggregate.counting import Arriving
from ragmeter.aggregate.evidence import Results, scores_in_evidence
from ragmeter.aggregate.outputs import AgentOutputs
from ragmeter.aggregate.service_state import IDLE_SECONDS, ServiceState
from ragmeter.alerts.rules import AlertRule
from ragmeter.config.scoring import SamplingSettings
from ragmeter.config.settings import Settings
from ragmeter.core.clocks import FUTURE_SECONDS, Clocks
from ragmeter.core.counters import CounterKey, GaugeSample
from ragmeter.core.errors import (
    DataError,
    StateError,
    StateLostError,
    StateUnavailable,
    UnknownVersion,
)
from ragmeter.core.isolation import process_isolated
from ragmeter.core.process import Heartbeat
from ragmeter.embedded.batches import BATCH, BatchesAhead, ScoredRow
from ragmeter.embedded.commands import CommandQueue
from ragmeter.embedded.commits import Commits, CountedScores, RetriedWrites
from ragmeter.embedded.tier_draws import TierDraws
from ragmeter.embedded.tier_worker import FinishedDraw, complete_draw
from ragmeter.ingest.content_policy import ContentPolicy
from ragmeter.ingest.dead_letters import DeadLetters
from ragmeter.ingest.native import DecodeFailure, decode_trace
from ragmeter.parts.collection import PartKinds
from ragmeter.parts.contract import Arrival, Document
from ragmeter.parts.views import ControlSource
from ragmeter.scoring.scorer import CheapScores, TraceScores, summarise_trace
from ragmeter.scoring.slow_tiers import MakeTiers
from ragmeter.scoring.threads import SamplingTerms, ScoredSource, Unscorable, start_threads
from ragmeter.store.rows import QueuedTrace, TierDraw
from ragmeter.store.sqlite import SqliteStore
from ragmeter.trace import Trace

log = logging.getLogger(__name__)

_T = TypeVar("_T")

_TURN = 64  # traces that one control record holds for; a scrape waits while they are counted
_HELD_SECONDS = 0.02  # of the lock, while rules are evaluated across a gap of event time
_LINGER_SECONDS = 1.0  # live traffic is gathered so long: a commit costs as much as 15 traces

# The reason of the dead letters of the worker; the others are counted where traces come in.
_INTERNAL_ERROR = "internal_error"


_Drawn = tuple[QueuedTrace, TraceScores, CheapScores]
"""A trace of the queue with its scores, and what slow tiers have drawn of it."""


class _Unscored(DataError):
    """A trace that a thread could not score."""


class SentDocuments(NamedTuple):
    """Documents of a part on their way into the state.

    Args:
        source: Where they come from, as in the label `source` of counters.
        live: Whether the clock bounds their times; those of a file are believed.
    """

    part: str
    documents: Sequence[Document]
    source: str
    live: bool


class Worker:
    """The thread that owns the state of all services.

    Attributes:
        lock: Held while `state` is read or changed.
        refused: Why the last write of another thread failed, until one succeeds.
        fatal: Why the worker has ended; None in health.
        oldest_received: Unix time at which the oldest trace in progress was received.
        promotions: Commands to promote the baselines of a service; None stands for all.
        documents: Commands to have a part count documents.
        ended: Whether the thread has ended, so that no command is executed any more.

    Raises:
        StateError: The state file was written by another version.
    """

    def __init__(
        self,
        settings: Settings,
        rules: Sequence[AlertRule],
        store: SqliteStore,
        dead_letters: DeadLetters,
        clocks: Clocks,
        tiers: MakeTiers,
        outputs: AgentOutputs,
        parts: PartKinds = (),
    ) -> None:
        self._settings = settings
        self._part_kinds = parts
        self._rules = rules
        self._store = store
        self._dead_letters = dead_letters
        self._clocks = clocks
        self.lock = threading.RLock()
        self._intake_lock = threading.Lock()  # held while traces are accepted; before `lock`
        self.refused: str | None = None
        self.fatal: str | None = None
        self.oldest_received: float | None = None
        self.heartbeat = Heartbeat()
        self._wake = threading.Event()
        self._hurry = threading.Event()
        self.promotions: CommandQueue[str | None, dict[str, Any]] = CommandQueue(self._wake.set)
        self.documents: CommandQueue[SentDocuments, list[str]] = CommandQueue(self._wake.set)
        self.draws = TierDraws(
            settings, store, tiers(store.meta()), clock=clocks.wall, on_finished=self._wake.set
        )
        self._scorers = start_threads(settings)
        self._ahead = BatchesAhead(store, self._scorers)
        self._writes = RetriedWrites(self.heartbeat, self._hurry)
        self._commits = Commits(
            store,
            self.draws,
            ContentPolicy(settings.privacy),
            self.lock,
            clocks,
            outputs,
            self._writes,
            self._add_saved,
        )
        self._notify = outputs.make_notifications
        self._load_state()
        self._stopping = False
        self.ended = False
        self._thread = threading.Thread(target=self._run, name="ragmeter-worker", daemon=True)

    def _add_saved(self, counts: Mapping[CounterKey, float]) -> None:
        """Show counts that are durable."""
        with self._intake_lock:
            self.aggregator.counters.add_saved(counts)

    def _load_state(self) -> None:
        empty = self._new_state()  # a mistake in the settings raises here, outside the try
        try:
            self.state = self._load(empty)
        except UnknownVersion as error:
            self._store.close()
            raise StateError(f"{self._settings.state.path}: {error}") from None
        except (ValueError, KeyError, TypeError) as error:
            # SQLite took the bytes for sound, but they are no state of ours
            self._store.quarantine(f"its content makes no sense: {error}")
            self.state = self._load(self._new_state())
        if self._store.quarantined:
            self.aggregator.counters.inc("ragmeter_state_quarantined_total")

    def _new_state(self) -> ServiceState:
        return ServiceState(
            self._settings,
            self._rules,
            self.draws.scorer.pairs,
            clocks=self._clocks,
            notify=self._notify,
            parts=self._part_kinds,
            stored_scores=self._stored_scores,
        )

    def _stored_scores(self, service: str, trace_id: str) -> Results:
        return scores_in_evidence(self._store.evidence(service, trace_id))

    def _load(self, state: ServiceState) -> ServiceState:
        saved = self._store.saved()
        state.restore(saved)
        state.aggregator.accounting.pending.update(self.draws.restore(saved.meta))
        self._commits.restore(saved.meta, saved.evidence)
        return state

    def _reload(self) -> None:
        """Drop all changes that were not committed."""
        with self._intake_lock, self.lock:
            self.state = self._load(self._new_state())

    @property
    def aggregator(self) -> Aggregator:
        """The aggregator of `state`."""
        return self.state.aggregator

    def start(self) -> None:
        """Start the worker and the slow tiers."""
        self._thread.start()
        self.draws.thread.start()

    @property
    def problem(self) -> str | None:
        """Why the state cannot be written now; None in health."""
        return self._writes.problem

    def gauges(self) -> Sequence[GaugeSample]:
        """Return gauges of scoring and of the state. Hold `lock`."""
        tiers = self.draws.gauges(self.aggregator.names.label)
        return [*tiers, *self.state.gauges()]

    def progress(self) -> dict[str, object | None]:
        """Return marks for the watchdog, which must change; None while there is nothing to do.

        The queue may stand still while the disk refuses writes (a restart would not help, and
        readiness is off), and while a replay waits for its judge.
        """
        waits = self._store.depth and not self.problem and (self.draws.live or not self.draws.full)
        pending = any(self.draws.pending.values())
        return {
            "the worker": self.heartbeat.count,
            "the queue": self._commits.upto if waits else None,
            "the slow tiers": self.draws.thread.heartbeat.count if pending else None,
        }

    def resample(self, settings: SamplingSettings) -> None:
        """Draw by other rates and strata from the next trace on."""
        self.draws.resample(settings)
        with self.lock:
            self._settings = self._settings.model_copy(update={"sampling": settings})
            self.state.resample(settings)

    def wake(self) -> None:
        """Fetch from the queue now: something was added."""
        if not self._wake.is_set():  # a worker that is awake clears it before it fetches
            self._wake.set()

    def mark_damaged(self, error: Exception) -> None:
        """End the worker, as the state file is damaged."""
        self.fatal = f"the state file is damaged: {error}; a restart moves it aside"

    def run_counted(self, write: Callable[[], tuple[_T, Mapping[CounterKey, float]]]) -> _T:
        """Write to the state in the thread of the caller, and show the counts that are durable.

        Raises:
            StateUnavailable: The agent has died, or `write` failed.
        """
        if self.fatal:
            raise StateUnavailable(self.fatal)
        with self._intake_lock:
            try:
                result, counts = write()
            except (StateUnavailable, sqlite3.OperationalError) as error:
                known = isinstance(error, StateUnavailable)
                why = str(error) if known else f"cannot write the state (state.path): {error}"
                if self.refused is None:
                    log.error("%s; nothing is accepted until that is mended", why)
                self.refused = why
                raise StateUnavailable(why) from None
            except StateLostError as error:
                self.fatal = str(error)
                raise StateUnavailable(self.fatal) from None
            except sqlite3.DatabaseError as error:
                self.mark_damaged(error)
                raise StateUnavailable(str(self.fatal)) from None
            self.refused = None
            self.aggregator.counters.add_saved(counts)  # without `lock`: no sender waits for it
        return result

    def write(self, write: Callable[[], Mapping[CounterKey, float]]) -> None:
        """Write to the state, as `run_counted` does, without a result."""
        self.run_counted(lambda: (None, write()))

    def stop(self, timeout: float) -> bool:
        """Finish what is queued within `timeout` seconds; the rest stays durable.

        Returns whether the thread has ended.
        """
        deadline = time.monotonic() + timeout
        self._hurry.set()
        self.draws.thread.stop(timeout / 2)
        while self._thread.is_alive() and self._store.depth and time.monotonic() < deadline:
            if self.problem or self.fatal:
                break
            time.sleep(0.01)
        self._stopping = self._writes.last = True
        self._wake.set()
        if self._thread.ident is not None:
            self._thread.join(max(1.0, deadline - time.monotonic()))
        if self._scorers is not None:
            self._scorers.close()
        self.draws.tiers.close()
        return not self._thread.is_alive()

    def _run(self) -> None:
        after = 0  # the last trace that is done
        try:
            while not self._stopping:
                self._wake.clear()
                self.heartbeat.beat()
                self._finish_all(self.draws.thread.take())
                self._add_probe_results()
                self.promotions.execute_pending(self._promote)
                self.documents.execute_pending(self._receive)
                if self.draws.thread.fatal:
                    self.fatal = self.draws.thread.fatal
                    return
                if not self.draws.live and self.draws.full:
                    self._wake.wait(IDLE_SECONDS)  # a replay goes no faster than its judge
                    continue
                batch = self._ahead.take(after, self._sampling_terms)
                if batch is not None:
                    rows = self._ahead.await_scores(batch, self._beat)
                    if rows is None:
                        break
                    self._process_all(rows, batch.terms)
                    after = batch.rows[-1].seq
                    if self.draws.live and len(rows) < BATCH and not self._stopping:
                        self._hurry.wait(_LINGER_SECONDS)
                else:
                    self.oldest_received = None
                    self._wake.wait(IDLE_SECONDS)
                    self._advance_time(after)
                    self._probe_disk()
            self._finish_all(self.draws.thread.take())
            self._commits.commit(self.state, after)
        except StateLostError as error:
            self.fatal = str(error)
        except (sqlite3.OperationalError, OSError) as error:
            self.fatal = f"cannot write the state (state.path): {error}"
        except sqlite3.DatabaseError as error:
            self.mark_damaged(error)
        except Exception as error:
            log.exception("the worker stopped")
            self.fatal = f"the worker stopped: {error!r}"
        finally:
            self.ended = True
            for commands in (self.promotions, self.documents):
                commands.reject_pending(self.fatal or "the agent is stopping")

    def _sampling_terms(self) -> SamplingTerms:
        with self.lock:
            control = self.aggregator.view(ControlSource).latest_control
        return self.draws.sampling_terms(self._store.depth, control)

    def _probe_disk(self) -> None:
        """Probe the disk after a refused write.

        Senders stay away while readiness is off, so no other request would reveal that it accepts
        writes again.
        """
        if self.refused is not None and not self._stopping:
            try:
                self._store.probe()
            except (sqlite3.OperationalError, OSError):
                return
            self.refused = None
            log.info("the state can be written again")

    def _advance_time(self, upto: int) -> None:
        """Move event time on with the clock, if traffic is live."""
        event = self.state.time.now(self._clocks.monotonic())
        due = False
        if self.draws.live and event is not None and not self._stopping:
            with self.lock:
                self._advance(event)
            due = self.state.due
        if due or self.state.outbox.changed:
            self._commits.commit(self.state, upto)

    def _advance(self, to: float) -> None:
        """Move event time on, with the lock held once; others may take it in a long gap."""
        since = self._clocks.monotonic()
        for alerts in self.aggregator.advance_steps(to):
            self.state.transitions += alerts
            since = self._give_turn(since)

    def _give_turn(self, since: float) -> float:
        """Let others have the lock if it was held for long, and return since when it is."""
        if self._clocks.monotonic() - since <= _HELD_SECONDS:
            return since
        self.heartbeat.beat()
        self.lock.release()
        time.sleep(0.001)  # a lock that is taken again at once gives nobody a turn
        self.lock.acquire()
        return self._clocks.monotonic()

    def _beat(self) -> bool:
        """Show that the worker is alive; False if it should stop."""
        self.heartbeat.beat()
        return not self._stopping

    def _process_all(self, rows: Sequence[ScoredRow], terms: SamplingTerms) -> None:
        self.draws.apply_terms(terms)
        process_isolated(rows, self._process, reset=self._reload, give_up=self._give_up_trace)

    def _give_up_trace(self, row: ScoredRow, error: Exception) -> None:
        queued, _ = row
        log.error("trace %d of the queue cannot be counted; it is a dead letter", queued.seq)
        failure = DecodeFailure(_INTERNAL_ERROR, (("", repr(error)[:200]),), queued.body)
        self._write_dead_letters([(failure, queued.seq)])
        self._commits.commit(self.state, queued.seq)

    def _write_dead_letters(self, letters: Sequence[tuple[DecodeFailure, int]]) -> None:
        self._writes.run(lambda: self._dead_letters.write(letters, "queue", self._clocks.wall()))
        with self.lock:
            self.aggregator.counters.inc(
                "ragmeter_dead_letters_total", (("reason", _INTERNAL_ERROR),), len(letters)
            )

    def _score(
        self, queued: QueuedTrace, result: ScoredSource | None
    ) -> TraceScores | DecodeFailure:
        """Return the scores of a trace, computed ahead or now.

        Raises:
            _Unscored: The trace raised where it was scored ahead.
        """
        if isinstance(result, Unscorable):
            raise _Unscored(result.why)
        if isinstance(result, DecodeFailure):
            return result
        if result is not None:
            if result.summary.timestamp != queued.timestamp:
                result.summary = result.summary._replace(timestamp=queued.timestamp)
            return result
        trace = _decode(queued)
        if isinstance(trace, DecodeFailure):
            return trace
        return self.draws.scorer.score_alone(trace, queued.timestamp)

    def _process(self, rows: Sequence[ScoredRow]) -> None:
        self.oldest_received = rows[0][0].received
        traces: list[CountedScores] = []
        draws: list[TierDraw] = []
        unreadable: list[tuple[DecodeFailure, int]] = []
        for turn, part in groupby(rows, lambda row: row[0].seq // _TURN):
            scored: list[_Drawn] = []
            with self.lock:
                control = self.aggregator.control(turn)
            self.draws.apply_control(control)
            for queued, result in part:
                scores = self._score(queued, result)
                if isinstance(scores, DecodeFailure):  # queued by a version with another schema
                    unreadable.append((scores, queued.seq))
                else:
                    scored.append((queued, scores, self.draws.scorer.draw(scores)))
            self.heartbeat.beat()
            with self.lock:
                applied = self._count(scored, turn, draws)
            for (_, scores, _), arrival in zip(scored, applied, strict=True):
                traces.append(CountedScores(arrival.trace, scores.prepared.trace))
        if unreadable:
            self._write_dead_letters(unreadable)
        with self.lock:
            self.state.settle()
        self._commits.commit(self.state, rows[-1][0].seq, traces=traces, draws=draws)

    def _count(self, scored: Sequence[_Drawn], turn: int, draws: list[TierDraw]) -> list[Arrival]:
        """Count traces of a turn, and add what the tiers drew of them to `draws`. Hold `lock`."""

        def ready(number: int, late: bool) -> Arriving:
            queued, _, cheap = scored[number]
            cheap, new_draws = self.draws.make_rows(queued, cheap, late=late)
            draws.extend(new_draws)
            pairs = [self.draws.scorer.pending_pairs(cheap, tier) for tier in cheap.draws]
            return cheap.trace, list(chain.from_iterable(pairs))

        since = self._clocks.monotonic()
        applied: list[Arrival] = []
        for run in self.state.count_all([cheap.trace for *_, cheap in scored], turn, ready):
            applied += run.traces
            if not run.traces:  # the rules were evaluated across a gap of event time
                since = self._give_turn(since)
        return applied

    def _finish_all(self, finished: Sequence[FinishedDraw]) -> None:
        """Count the results of the slow tiers."""
        if finished:
            process_isolated(
                finished, self._finish, reset=self._reload, give_up=self._finish_without_results
            )

    def _finish_without_results(self, done: FinishedDraw, _: Exception) -> None:
        log.error("the results of draw %d cannot be counted", done.row.id)
        self._finish([replace(done, results=complete_draw(done.row.draw, []))])

    def _finish(self, finished: Sequence[FinishedDraw]) -> None:
        traces: list[CountedScores] = []
        with self.lock:
            for done in finished:
                if done.trace is None:  # its bytes are not readable any more: it has no window
                    self.aggregator.accounting.lose(done.results)
                else:
                    scored = summarise_trace(done.trace, done.results, done.row.draw.timestamp)
                    scored = scored._replace(partial=True, timings={})
                    scored = self.state.finish(scored)
                    traces.append(CountedScores(scored, done.trace))
        self._commits.commit(self.state, traces=traces, finished=finished)

    def _add_probe_results(self) -> None:
        """Count the results of probes at the event time that has been reached.

        By a wall clock they would move a replay's time. Before the first trace there is no time.
        """
        now = self.aggregator.windows.now
        results = self.draws.take_probe_results() if now is not None else []
        if now is None or not results:
            return
        with self.lock:
            for scored in results:
                self.aggregator.add_extra(scored._replace(timestamp=now, partial=True))
        self._commits.commit(self.state)

    def _promote(self, service: str | None) -> dict[str, Any]:
        with self.lock:
            promoted = self.state.promote(service)
        if promoted is None:
            raise UnknownService(f"no service {service!r} is watched for drift")
        self._commits.commit(self.state)
        return promoted

    def _receive(self, sent: SentDocuments) -> list[str]:
        now = self._clocks.wall()
        latest = now + FUTURE_SECONDS if sent.live else math.inf
        outcomes = []
        with self.lock:
            for document in sent.documents:
                at = document.timestamp.timestamp()
                at = at if at <= latest else now
                outcomes.append(
                    self.aggregator.receive(sent.part, document, at=at, source=sent.source)
                )
        self._commits.commit(self.state)
        return outcomes


def _decode(queued: QueuedTrace) -> Trace | DecodeFailure:
    if queued.trace is not None:
        return queued.trace
    item = decode_trace(queued.body, len(queued.body))
    return item if isinstance(item, DecodeFailure) else item.trace
