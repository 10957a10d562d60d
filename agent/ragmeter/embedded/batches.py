"""Batches of the queue that are scored while an earlier one is counted and committed."""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from typing import NamedTuple

from ragmeter.scoring.processes import SamplingTerms, ScoredBody, ScorerPool
from ragmeter.store.rows import QueuedTrace
from ragmeter.store.sqlite import SqliteStore

BATCH = 512  # traces a commit: one fsync for many, and some 0.5 s of work to redo after a kill
_BATCHES_AHEAD = 3  # keeps four processes busy while a batch is committed
_BEAT_SECONDS = 1.0

# A trace, and what a process has returned for it; None if the worker itself scores.
ScoredRow = tuple[QueuedTrace, ScoredBody | None]


class QueuedBatch(NamedTuple):
    """Traces of the queue that are being scored.

    Args:
        rows: The traces.
        scores: What processes compute; None if the worker itself does.
        terms: The terms of sampling when the traces were taken.
    """

    rows: Sequence[QueuedTrace]
    scores: Future[list[ScoredBody]] | None
    terms: SamplingTerms


class BatchesAhead:
    """Takes batches off the queue in its order, and hands them to the scorer processes.

    Args:
        store: The queue.
        pool: The processes; None if the worker itself scores.
        on_restarts: Called with the number of processes that were started again.
    """

    def __init__(
        self, store: SqliteStore, pool: ScorerPool | None, on_restarts: Callable[[int], None]
    ) -> None:
        self._store = store
        self._pool = pool
        self._on_restarts = on_restarts
        self._ahead: deque[QueuedBatch] = deque()

    def take(self, after: int, terms: Callable[[], SamplingTerms]) -> QueuedBatch | None:
        """Return the next batch of the rows after `after`; None if the queue is empty.

        `terms` gives those of sampling, for every batch that is taken off the queue.
        """
        ahead = _BATCHES_AHEAD if self._pool is not None else 1
        rows: Sequence[QueuedTrace] = self._ahead[-1].rows if self._ahead else ()
        while len(self._ahead) < ahead:
            rows = self._store.take(rows[-1].seq if rows else after, BATCH)
            if not rows:
                break
            now = terms()
            bodies = [row.body for row in rows]
            scores = self._pool.submit(bodies, now) if self._pool is not None else None
            self._ahead.append(QueuedBatch(rows, scores, now))
            if len(rows) < BATCH:  # what comes now is gathered for the next commit
                break
        return self._ahead.popleft() if self._ahead else None

    def await_scores(self, batch: QueuedBatch, beat: Callable[[], bool]) -> list[ScoredRow] | None:
        """Return the rows of a batch with what processes have scored.

        None if `beat`, which is called while they take their time, returns False.
        """
        if self._pool is None or batch.scores is None:
            return [(queued, None) for queued in batch.rows]
        while beat():
            with contextlib.suppress(FutureTimeout):
                results = batch.scores.result(_BEAT_SECONDS)
                break
        else:
            return None
        if restarts := self._pool.take_restarts():
            self._on_restarts(restarts)
        return list(zip(batch.rows, results, strict=True))
