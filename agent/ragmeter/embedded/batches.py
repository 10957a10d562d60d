"""Batches of the queue that are scored while an earlier one is counted and committed."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, wait
from typing import NamedTuple

from ragmeter.scoring.threads import SamplingTerms, ScoredSource, ScorerThreads
from ragmeter.store.rows import QueuedTrace
from ragmeter.store.sqlite import SqliteStore

BATCH = 512  # traces a commit: one fsync for many, and some 0.5 s of work to redo after a kill
_BATCHES_AHEAD = 2  # one is scored while another is counted
_BEAT_SECONDS = 1.0

# A trace, and what a thread has returned for it; None if the worker itself scores.
ScoredRow = tuple[QueuedTrace, ScoredSource | None]


class QueuedBatch(NamedTuple):
    """Traces of the queue that are being scored.

    Args:
        rows: The traces.
        scores: What threads compute, in the order of the rows; None if the worker itself scores.
        terms: The terms of sampling when the traces were taken.
    """

    rows: Sequence[QueuedTrace]
    scores: Sequence[Future[list[ScoredSource]]] | None
    terms: SamplingTerms


class BatchesAhead:
    """Takes batches off the queue in its order, and hands them to the threads that score.

    Args:
        store: The queue.
        threads: The threads; None if the worker itself scores.
    """

    def __init__(self, store: SqliteStore, threads: ScorerThreads | None) -> None:
        self._store = store
        self._threads = threads
        self._ahead: deque[QueuedBatch] = deque()

    def take(self, after: int, terms: Callable[[], SamplingTerms]) -> QueuedBatch | None:
        """Return the next batch of the rows after `after`; None if the queue is empty.

        `terms` gives those of sampling, for every batch that is taken off the queue.
        """
        ahead = _BATCHES_AHEAD if self._threads is not None else 1
        rows: Sequence[QueuedTrace] = self._ahead[-1].rows if self._ahead else ()
        while len(self._ahead) < ahead:
            rows = self._store.take(rows[-1].seq if rows else after, BATCH)
            if not rows:
                break
            now = terms()
            scores = None
            if self._threads is not None:
                sources = [row.body if row.trace is None else row.trace for row in rows]
                scores = self._threads.submit(sources, now)
            self._ahead.append(QueuedBatch(rows, scores, now))
            if len(rows) < BATCH:  # what comes now is gathered for the next commit
                break
        return self._ahead.popleft() if self._ahead else None

    def await_scores(self, batch: QueuedBatch, beat: Callable[[], bool]) -> list[ScoredRow] | None:
        """Return the rows of a batch with what threads have scored.

        None if `beat`, which is called while they take their time, returns False.
        """
        if batch.scores is None:
            return [(queued, None) for queued in batch.rows]
        while beat():
            if not wait(batch.scores, _BEAT_SECONDS).not_done:
                results = [scored for part in batch.scores for scored in part.result()]
                return list(zip(batch.rows, results, strict=True))
        return None
