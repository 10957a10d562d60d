"""Commit everything that a batch of the worker has changed in one transaction, then notify."""

from __future__ import annotations

import logging
import sqlite3
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ragmeter.aggregate import aggregator as steps
from ragmeter.aggregate.aggregator import Aggregator
from ragmeter.aggregate.evidence import (
    COLLECT_ROWS,
    COLLECT_SECONDS,
    EvidenceKeeper,
    EvidenceKey,
    scores_in_evidence,
)
from ragmeter.alerts.alert import Alert
from ragmeter.core.process import Heartbeat
from ragmeter.core.score import ScoredTrace
from ragmeter.embedded.tier_draws import TierDraws, is_canary_draw
from ragmeter.embedded.tier_worker import FinishedDraw
from ragmeter.ingest.content_policy import ContentPolicy
from ragmeter.store.pending import FeedbackChanges
from ragmeter.store.rows import OutboxItem, StateCommit, TierDraw
from ragmeter.store.sqlite import SqliteStore
from ragmeter.trace import Trace

log = logging.getLogger("ragmeter")


Notify = Callable[[Alert, float], Sequence[OutboxItem]]

Results = Callable[[Sequence[tuple[Trace, ScoredTrace]]], None]
"""Gets what is durable, in the worker's thread: it must neither wait nor raise."""


class Commits:
    """Belongs to the worker's thread. `lock` is held while the aggregator is read; `problem` says
    why the state cannot be written now. `evidence_bytes`: most of what is kept of a trace. With
    `hurry` set, a disk that takes nothing is tried ten times a second.
    """

    def __init__(
        self,
        store: SqliteStore,
        slow: TierDraws,
        content: ContentPolicy,
        evidence_bytes: int,
        *,
        lock: threading.RLock,
        clock: Callable[[], float],
        monotonic: Callable[[], float],
        notify: Notify,
        announced: Callable[[], None],
        results: Results,
        pulse: Heartbeat,
        hurry: threading.Event,
    ) -> None:
        self._store = store
        self._slow = slow
        self._content = content
        self._evidence_bytes = evidence_bytes
        self._lock = lock
        self._clock = clock
        self._monotonic = monotonic
        self._notify = notify
        self._announced = announced
        self._results = results
        self._pulse = pulse
        self._hurry = hurry
        self.problem: str | None = None
        self.last = False
        """No more after this one: what cannot be written is not tried again."""

    def restore(self, meta: Mapping[str, Any], kept: Sequence[EvidenceKey]) -> None:
        """Begin with what the store holds: `kept` are the (service, trace id) of whose text it
        has."""
        mode = meta.get("content", "full")  # files of older versions hold whole texts
        if self._content.changed(str(mode)):
            self._store.commit(
                StateCommit(0, forget_evidence=kept, meta={"content": self._content.mode})
            )
            kept = []
        self._keeper = EvidenceKeeper(kept, self._evidence_bytes, self._content)
        self.saved_at = self._collected_at = self._monotonic()

    def commit(
        self,
        aggregator: Aggregator,
        upto: int,
        transitions: Sequence[Alert],
        done: Sequence[tuple[Trace, ScoredTrace]],
        drawn: Sequence[TierDraw],
        finished: Sequence[FinishedDraw],
        also: FeedbackChanges | None,
    ) -> None:
        """What was done with the queue up to and with row `upto`, and all that it has changed."""
        now = self._clock()
        with self._lock:
            for one in finished:
                draw = one.drawn.draw
                self._slow.settle(draw.tier, draw.service, one.cost, is_canary_draw(draw.pairs))
            for key, by in self._slow.take_spending().items():
                aggregator.counters.inc(*key, by)
            changes = steps.take_changes(aggregator)
            step = StateCommit(
                upto,
                buckets=changes.buckets,
                counters=changes.counters,
                meta={
                    **changes.meta,
                    **self._slow.state(),
                    "wall_time": now,
                    "content": self._content.mode,
                },
                drawn=drawn,
                finished=[one.drawn.id for one in finished],
                also=also,
            )
            named = aggregator.windows.take_new_worst()
            idle = self._monotonic() - self._collected_at
            if idle >= COLLECT_SECONDS or self._keeper.added >= COLLECT_ROWS or self.last:
                step.forget_evidence = self._keeper.forget(steps.evidence_trace_ids(aggregator))
                self._collected_at = self._monotonic()
            keyed = [((scored.service, scored.trace_id), trace, scored) for trace, scored in done]
        step.evidence = self._keeper.rows(named, keyed, self._earlier)
        step.outbox = [item for alert in transitions for item in self._notify(alert, now)]
        self.persist(lambda: self._store.commit(step))
        self._slow.committed(drawn, finished)
        if done:
            self._results(done)
        if transitions:
            self._announced()
        self.saved_at = self._monotonic()

    def _earlier(self, key: EvidenceKey, trace: Trace) -> list[dict[str, Any]]:
        """What is known of a trace besides what a slow tier has just found."""
        kept = scores_in_evidence(self._store.evidence(*key))
        scorer = self._slow.scorer
        known = scorer.against_reference(trace) if trace.canary else scorer.score_cheap(trace)
        return kept or [score.to_dict() for score in known]

    def persist(self, write: Callable[[], object]) -> None:
        """Write; while the disk does not take it, try again, and do nothing else meanwhile. Raises
        what the disk says where this is the last."""
        pause = 0.1
        while True:
            try:
                write()
            except (sqlite3.OperationalError, OSError) as error:
                self.problem = f"cannot write the state: {error}"
                log.error("%s; next try in %.1f s", self.problem, pause)
                if self.last:
                    raise
                self._pulse.beat()
                time.sleep(pause)
                pause = 0.1 if self._hurry.is_set() else min(2 * pause, 5.0)
            else:
                self.problem = None
                return
