"""The thread of the slow tiers: score drawn traces from the state file concurrently.

The worker counts the results and removes the draw from the table in one transaction. A process
that dies in between scores the trace again; nothing is counted twice.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from ragmeter.core.process import Heartbeat, Job, run_jobs
from ragmeter.core.score import Score
from ragmeter.core.tiers import PausableScorer, ScoringCost, Tier, TierScorer
from ragmeter.ingest.native import DecodeFailure, decode_trace
from ragmeter.reasons import Reason
from ragmeter.scoring.scorer import complete_results
from ragmeter.scoring.slow_tiers import answered_pairs, score_live_tier
from ragmeter.store.rows import StoredDraw, TierDraw
from ragmeter.store.sqlite import SqliteStore
from ragmeter.trace import Trace

log = logging.getLogger(__name__)

# Seconds of an outage for which a replay leaves draws pending: it must end.
HOLD_SECONDS = 120.0
_CHECK_SECONDS = 0.5  # between two checks whether a paused scorer is available again


@dataclass(frozen=True, slots=True)
class FinishedDraw:
    """A draw with one result for each of its pairs."""

    row: StoredDraw
    trace: Trace | None  # None if its bytes can no longer be read
    results: list[Score]
    cost: ScoringCost


def complete_draw(
    draw: TierDraw, scores: Sequence[Score], missing: str = Reason.INTERNAL_ERROR
) -> list[Score]:
    """Return one result for each pair of a draw, under the terms of the draw."""
    return complete_results(
        scores, draw.pairs, draw.probability, missing, stratum=draw.stratum, cheap=draw.cheap
    )


class TierWorker:
    """Scores drawn traces in a thread with an event loop.

    A scorer that is an async context manager is entered before its first trace and left after its
    last. While a scorer is paused, its draws stay in the store, but for one at a time that tries
    it: as long as that lasts if traffic is live, else for `hold_seconds`, after which they are
    scored and fail.

    Args:
        scorers: The scorer of each tier; draws of other tiers become `not_configured`.
        in_flight: The number of traces to score at a time, by tier.
        on_finished: Called from the loop's thread when `take` has something.
        jobs: Further jobs for the same loop, as of `run_jobs`.
        hold_seconds: `HOLD_SECONDS` by default.

    Attributes:
        fatal: Why the thread has ended; None in health.
    """

    def __init__(
        self,
        store: SqliteStore,
        scorers: Mapping[Tier, TierScorer],
        in_flight: Mapping[Tier, int],
        *,
        on_finished: Callable[[], None],
        jobs: Sequence[Job] = (),
        live: Callable[[], bool] = lambda: True,
        hold_seconds: float | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store = store
        self._scorers = scorers
        self._in_flight = in_flight
        self._on_finished = on_finished
        self._jobs = jobs
        self._live = live
        self._hold_seconds = HOLD_SECONDS if hold_seconds is None else hold_seconds
        self._monotonic = monotonic
        self._paused_since: dict[Tier, float] = {}
        self._finished: deque[FinishedDraw] = deque()
        self._stopping = threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._wakeups: dict[Tier, asyncio.Event] = {}
        self._stop_timeout = 0.0
        self.fatal: str | None = None
        self.heartbeat = Heartbeat()
        self._thread = threading.Thread(target=self._main, name="ragmeter-tiers", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def wake(self) -> None:
        """Fetch draws now: some were added."""
        loop = self._loop
        if loop is not None:
            with contextlib.suppress(RuntimeError):  # it has ended
                for event in self._wakeups.values():
                    loop.call_soon_threadsafe(event.set)

    def take(self) -> list[FinishedDraw]:
        """Return the draws that were finished since the last call."""
        return [self._finished.popleft() for _ in range(len(self._finished))]

    def stop(self, timeout: float) -> bool:
        """Score no further draw and give those in flight `timeout` seconds.

        Draws that are not finished by then stay durable. Returns whether the thread has ended.
        """
        self._stop_timeout = timeout
        self._stopping.set()
        self.wake()
        if self._thread.ident is not None:
            self._thread.join(timeout + 5)
        return not self._thread.is_alive()

    def _main(self) -> None:
        try:
            asyncio.run(self._run())
        except Exception as error:
            log.exception("the slow tiers stopped")
            self.fatal = f"the slow tiers stopped: {error!r}"
            self._on_finished()

    async def _run(self) -> None:
        beating = asyncio.create_task(self.heartbeat.run())
        async with contextlib.AsyncExitStack() as stack:
            stack.callback(beating.cancel)
            for scorer in self._scorers.values():
                if isinstance(scorer, contextlib.AbstractAsyncContextManager):
                    await stack.enter_async_context(scorer)
            self._wakeups = {tier: asyncio.Event() for tier in self._in_flight}
            self._loop = asyncio.get_running_loop()
            async with run_jobs(self._jobs), asyncio.TaskGroup() as group:
                for tier in self._in_flight:
                    group.create_task(self._serve(tier))

    async def _serve(self, tier: Tier) -> None:
        tasks = set[asyncio.Task[None]]()
        try:
            await self._score_all(tier, tasks)
        finally:
            # however it ends: the scorer is closed next, and unfinished draws are durable
            unfinished = [task for task in tasks if task.cancel()]
            await asyncio.gather(*unfinished, return_exceptions=True)

    async def _score_all(self, tier: Tier, tasks: set[asyncio.Task[None]]) -> None:
        wakeup = self._wakeups[tier]
        after = 0
        while not self._stopping.is_set():
            wakeup.clear()
            held = self._is_held(tier)
            room = self._in_flight[tier] - len(tasks)
            if held:
                scorer = self._scorers.get(tier)
                trial = isinstance(scorer, PausableScorer) and scorer.trying
                room = 1 if trial and not tasks else 0
            rows: Sequence[StoredDraw] = ()
            if room > 0:
                # not in the loop: a commit may hold the state file for the time of an fsync
                rows = await asyncio.to_thread(self._store.pending_draws, tier, after, room)
            for row in rows:
                after = row.id
                task = asyncio.create_task(self._score(row))
                tasks.add(task)
                task.add_done_callback(tasks.discard)
                task.add_done_callback(lambda _: wakeup.set())
            if not rows and not self._stopping.is_set():
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(_CHECK_SECONDS if held else None):
                        await wakeup.wait()
        if tasks:
            # a paused scorer is not waited for: its draws are durable
            timeout = 0.0 if self._is_paused(tier) else self._stop_timeout
            await asyncio.wait(tasks, timeout=timeout)

    def _is_paused(self, tier: Tier) -> bool:
        scorer = self._scorers.get(tier)
        return isinstance(scorer, PausableScorer) and scorer.paused

    def _is_held(self, tier: Tier) -> bool:
        """Return whether draws are left in the store now."""
        if not self._is_paused(tier):
            self._paused_since.pop(tier, None)
            return False
        now = self._monotonic()
        since = self._paused_since.setdefault(tier, now)
        return self._live() or now - since < self._hold_seconds

    async def _score(self, row: StoredDraw) -> None:
        self._finished.append(await _score_draw(row, self._scorers.get(row.draw.tier)))
        self._on_finished()


async def _score_draw(row: StoredDraw, scorer: TierScorer | None) -> FinishedDraw:
    """Score one draw. It raises nothing but cancellation: an error becomes a reason."""
    draw = row.draw
    cost = ScoringCost()
    item = decode_trace(draw.body, len(draw.body))
    if isinstance(item, DecodeFailure):
        return FinishedDraw(row, None, complete_draw(draw, []), cost)
    scores: list[Score] = []
    missing = Reason.INTERNAL_ERROR
    if scorer is None:
        missing = Reason.NOT_CONFIGURED
    else:
        try:
            scores = await score_live_tier(scorer, item.trace, cost)
        except Exception:
            log.exception("the %s tier failed on trace %r", draw.tier, item.trace.trace_id[:80])
        if not answered_pairs(scorer, item.trace).issuperset(draw.pairs) and scores:
            missing = Reason.NOT_CONFIGURED  # drawn under other settings
    return FinishedDraw(row, item.trace, complete_draw(draw, scores, missing), cost)
