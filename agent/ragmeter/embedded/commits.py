"""Commit everything that a batch of the worker has changed in one transaction, then notify."""

from __future__ import annotations

import logging
import sqlite3
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ragmeter.aggregate.evidence import EvidenceKeeper, EvidenceKey, scores_in_evidence
from ragmeter.aggregate.outputs import AgentOutputs
from ragmeter.aggregate.service_state import ServiceState
from ragmeter.core.clocks import Clocks
from ragmeter.core.counters import CounterKey
from ragmeter.core.process import Heartbeat
from ragmeter.core.score import ScoredTrace
from ragmeter.embedded.tier_draws import TierDraws, is_canary_draw
from ragmeter.embedded.tier_worker import FinishedDraw
from ragmeter.ingest.content_policy import ContentPolicy
from ragmeter.store.rows import StateCommit, TierDraw
from ragmeter.store.sqlite import SqliteStore
from ragmeter.trace import Trace

log = logging.getLogger(__name__)


class CountedScores(NamedTuple):
    """The scores of a trace as they were counted."""

    scored: ScoredTrace
    trace: Trace

    @property
    def key(self) -> EvidenceKey:
        """Service and trace id."""
        return self.scored.service, self.scored.trace_id


@dataclass(eq=False)
class RetriedWrites:
    """Writes of the worker, repeated until the disk accepts them.

    Args:
        hurry: While it is set, tries are 0.1 s apart; else up to 5 s.

    Attributes:
        problem: Why the state cannot be written now; None in health.
        last: Whether a failure is final, as the agent is stopping.
    """

    _heartbeat: Heartbeat
    _hurry: threading.Event
    problem: str | None = None
    last: bool = False

    def run(self, write: Callable[[], object]) -> None:
        """Write, and block until that succeeds; raise the disk's error if it is the `last`."""
        pause = 0.1
        while True:
            try:
                write()
            except (sqlite3.OperationalError, OSError) as error:
                self.problem = f"cannot write the state (state.path): {error}"
                log.error("%s; next try in %.1f s", self.problem, pause)
                if self.last:
                    raise
                self._heartbeat.beat()
                time.sleep(pause)
                pause = 0.1 if self._hurry.is_set() else min(2 * pause, 5.0)
            else:
                self.problem = None
                return


@dataclass(eq=False)
class Commits:
    """The commits of the worker; they run in its thread.

    Args:
        _on_counted: Called with counts that were stored for a source.

    Attributes:
        upto: The last row of the queue that was committed.
    """

    _store: SqliteStore
    _draws: TierDraws
    _content: ContentPolicy
    _lock: threading.RLock
    _clocks: Clocks
    _outputs: AgentOutputs
    _writes: RetriedWrites
    _on_counted: Callable[[Mapping[CounterKey, float]], None]
    upto: int = field(init=False, default=0)

    def restore(self, meta: Mapping[str, Any], evidence: Sequence[EvidenceKey]) -> None:
        """Start from the store's `meta` and the keys of its evidence rows.

        Evidence with more text than is allowed now is deleted.
        """
        mode = str(meta.get("content", self._content.mode))  # a new file has none
        if self._content.changed(mode):
            self._store.commit(
                StateCommit(0, forget_evidence=evidence, meta={"content": self._content.mode})
            )
            evidence = []
        self._keeper = EvidenceKeeper(evidence, content=self._content)

    def commit(
        self,
        state: ServiceState,
        upto: int = 0,
        *,
        traces: Sequence[CountedScores] = (),
        draws: Sequence[TierDraw] = (),
        finished: Sequence[FinishedDraw] = (),
    ) -> None:
        """Commit the changes of the state since the last commit, and what belongs to them.

        `upto` is the last row of the queue that is done, 0 if none was. Results of `draws` are
        pending from now on; those of `finished` were counted.
        """
        aggregator = state.aggregator
        with self._lock:
            for done in finished:
                draw = done.row.draw
                canary = is_canary_draw(draw.pairs)
                self._draws.record_cost(draw.tier, draw.service, done.cost, canary)
            for key, by in self._draws.tiers.spending.take().items():
                aggregator.counters.inc(*key, by)
            moved = bool(state.transitions)
            step = state.changes(upto, whole=self._writes.last)
            step.meta |= self._draws.state()
            step.draws = draws
            step.finished = [done.row.id for done in finished]
            named = state.take_new_evidence()
            if self._keeper.pace.due(self._clocks.monotonic()) or self._writes.last:
                step.forget_evidence = self._keeper.forget(state.evidence_keys())
        keyed = [
            (one.key, one.trace, one.scored)
            for one in traces
            if one.scored.partial or one.key in named
        ]
        step.evidence = self._keeper.rows(named, keyed, self._earlier_scores)
        new = {(service, trace_id): body for service, trace_id, _, body in step.evidence}

        def read(service: str, trace_id: str) -> bytes | None:
            key = (service, trace_id)
            return new.get(key) or self._store.evidence(*key)

        with self._lock:
            state.add_notifications(step, read)
        self._writes.run(lambda: self._on_counted(self._store.commit(step)))
        with self._lock:
            state.committed()
        self._draws.committed(draws, finished)
        if traces and self._outputs.on_results is not None:
            self._outputs.on_results([(one.trace, one.scored) for one in traces])
        self._outputs.on_scores([one.scored for one in traces])
        if moved:
            self._outputs.on_notifications()
        self.upto = max(self.upto, upto)

    def _earlier_scores(self, key: EvidenceKey, trace: Trace) -> list[dict[str, Any]]:
        """Return the scores of a trace besides those that a slow tier has just brought."""
        stored = scores_in_evidence(self._store.evidence(*key))
        if stored:
            return list(stored)
        scorer = self._draws.scorer
        scores = scorer.score_reference(trace) if trace.canary else scorer.score_cheap(trace)
        return [score.to_dict() for score in scores]
