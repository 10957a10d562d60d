"""The thread of the slow tiers: score drawn traces from the state file concurrently.

What it finds is handed to the worker, which counts it and takes the trace off the table in one
step. A process that dies in between scores the trace again; nothing is counted twice.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from ragmeter.core.process import Heartbeat
from ragmeter.core.score import Score
from ragmeter.core.tiers import EmbeddingScorer, PausableScorer, ScoringCost, Tier, TierScorer
from ragmeter.core.vectors import AnswerVectors
from ragmeter.ingest.native import DecodeFailure, decode_trace
from ragmeter.scoring.scorer import complete_results
from ragmeter.scoring.slow_tiers import expected_pairs, score_live_tier
from ragmeter.store.rows import StoredDraw, TierDraw
from ragmeter.trace import Trace

log = logging.getLogger("ragmeter")

HOLD = 120.0
"""Seconds of outage for which a replay holds back traces: it must end."""

_LOOK_SECONDS = 0.5
"""Between two looks at whether a scorer that has paused goes on."""


@dataclass(frozen=True, slots=True)
class FinishedDraw:
    """A drawn trace with one result for each pair it was promised; `trace` is None where its
    bytes can no longer be read. `vectors`: what the tier `embedding` has found, or why nothing."""

    drawn: StoredDraw
    trace: Trace | None
    results: list[Score]
    cost: ScoringCost
    vectors: AnswerVectors | str = "internal_error"


class _DrawnStore(Protocol):
    """The part of the state file that is read here."""

    def drawn(self, tier: Tier, after: int, limit: int) -> list[StoredDraw]:
        """The next drawn traces with `id > after`."""
        ...


async def _score_drawn(drawn: StoredDraw, scorer: TierScorer | None) -> FinishedDraw:
    """Score one drawn trace. Never raises but on cancellation: what goes wrong is a reason."""
    draw, cost = drawn.draw, ScoringCost()
    item = decode_trace(draw.body, len(draw.body))
    if isinstance(item, DecodeFailure):
        return FinishedDraw(drawn, None, complete_draw(draw, [], "old_schema"), cost)
    if draw.tier == "embedding":
        found = await _embedded(item.trace, scorer)
        return FinishedDraw(drawn, item.trace, [], cost, found)
    scores: list[Score] = []
    missing = "internal_error"
    if scorer is None:
        missing = "not_configured"
    else:
        try:
            scores = await score_live_tier(scorer, item.trace, cost)
        except Exception:
            log.exception("the %s tier failed on trace %r", draw.tier, item.trace.trace_id[:80])
        if not expected_pairs(scorer, item.trace).issuperset(draw.pairs) and scores:
            missing = "not_configured"  # drawn under other settings
    return FinishedDraw(drawn, item.trace, complete_draw(draw, scores, missing), cost)


async def _embedded(trace: Trace, scorer: TierScorer | None) -> AnswerVectors | str:
    if not isinstance(scorer, EmbeddingScorer):
        return "not_configured"
    try:
        return await scorer.embed(trace)
    except Exception:
        log.exception("the embedding of trace %r failed", trace.trace_id[:80])
        return "internal_error"


def complete_draw(
    draw: TierDraw, scores: Sequence[Score], missing: str = "internal_error"
) -> list[Score]:
    """One result for each pair that was promised, under what held when the trace was drawn."""
    return complete_results(
        scores,
        draw.pairs,
        draw.probability,
        missing,
        stratum=draw.stratum,
        cheap=draw.cheap,
    )


async def _log_failure(job: Coroutine[Any, Any, None]) -> None:
    """The job, whose failure nobody would hear of until the end: no one awaits it."""
    try:
        await job
    except Exception:
        log.exception("a job beside the slow tiers has ended")


class TierWorker:
    """Runs `scorers` in an event loop of its own, `in_flight` traces of each at a time.

    `finished` is told, from the loop's thread, that `take` has something. A scorer that is an
    async context manager is entered before its first trace and left after its last. `also` are
    further jobs for the same loop; they are cancelled at the end.

    While a scorer is `Pausing`, traces stay in the store, but for one at a time that tries it:
    for as long as it lasts where `live`, else for `hold` seconds, after which they are taken and
    fail.
    """

    def __init__(
        self,
        store: _DrawnStore,
        scorers: Mapping[Tier, TierScorer],
        in_flight: Mapping[Tier, int],
        *,
        finished: Callable[[], None],
        also: Sequence[Callable[[], Coroutine[Any, Any, None]]] = (),
        live: Callable[[], bool] = lambda: True,
        hold: float | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store = store
        self._scorers = scorers
        self._in_flight = in_flight
        self._finished = finished
        self._also = also
        self._live = live
        self._hold = HOLD if hold is None else hold
        self._monotonic = monotonic
        self._paused: dict[Tier, float] = {}  # since when
        self._done: deque[FinishedDraw] = deque()
        self._stopping = threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._news: dict[Tier, asyncio.Event] = {}
        self._deadline = 0.0
        self.fatal: str | None = None
        self.pulse = Heartbeat()
        self._thread = threading.Thread(target=self._main, name="ragmeter-tiers", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def wake(self) -> None:
        """Look for drawn traces now: some were put in."""
        loop = self._loop
        if loop is not None:
            with contextlib.suppress(RuntimeError):  # it has ended
                loop.call_soon_threadsafe(self._ring)

    def _ring(self) -> None:
        for event in self._news.values():
            event.set()

    def take(self) -> list[FinishedDraw]:
        """What was scored since the last call; each is given once."""
        found = []
        while self._done:
            found.append(self._done.popleft())
        return found

    def stop(self, timeout: float) -> bool:
        """Start no further trace and give those under way `timeout` seconds; what is not scored
        by then stays durable. Returns whether the thread has ended."""
        self._deadline = timeout
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
            self._finished()

    async def _run(self) -> None:
        beating = asyncio.create_task(self.pulse.run())
        async with contextlib.AsyncExitStack() as stack:
            stack.callback(beating.cancel)
            for scorer in self._scorers.values():
                if isinstance(scorer, contextlib.AbstractAsyncContextManager):
                    await stack.enter_async_context(scorer)
            self._news = {tier: asyncio.Event() for tier in self._in_flight}
            self._loop = asyncio.get_running_loop()
            others = [asyncio.create_task(_log_failure(job())) for job in self._also]
            async with asyncio.TaskGroup() as group:
                for tier in self._in_flight:
                    group.create_task(self._serve(tier))
            for task in others:
                task.cancel()
            await asyncio.gather(*others, return_exceptions=True)

    async def _serve(self, tier: Tier) -> None:
        tasks = set[asyncio.Task[None]]()
        try:
            await self._score_all(tier, tasks)
        finally:
            # however it ends: the scorer is closed next, and what is not scored is durable
            late = [task for task in tasks if task.cancel()]
            await asyncio.gather(*late, return_exceptions=True)

    async def _score_all(self, tier: Tier, tasks: set[asyncio.Task[None]]) -> None:
        news, after = self._news[tier], 0
        while not self._stopping.is_set():
            news.clear()
            held = self._held(tier)
            room = self._in_flight[tier] - len(tasks)
            if held:
                room = 1 if self._trying(tier) and not tasks else 0
            rows: Sequence[StoredDraw] = ()
            if room > 0:
                # not in the loop: a commit may hold the state file for the time of an fsync
                rows = await asyncio.to_thread(self._store.drawn, tier, after, room)
            for row in rows:
                after = row.id
                task = asyncio.create_task(self._score(row))
                tasks.add(task)
                task.add_done_callback(tasks.discard)
                task.add_done_callback(lambda _: news.set())
            if not rows and not self._stopping.is_set():
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(news.wait(), _LOOK_SECONDS if held else None)
        if tasks:
            # a judge that is down is not waited for: its traces are durable
            patience = 0.0 if self._pausing(tier) else self._deadline
            await asyncio.wait(tasks, timeout=patience)

    def _pausing(self, tier: Tier) -> bool:
        scorer = self._scorers.get(tier)
        return isinstance(scorer, PausableScorer) and scorer.paused

    def _trying(self, tier: Tier) -> bool:
        scorer = self._scorers.get(tier)
        return isinstance(scorer, PausableScorer) and scorer.trying

    def _held(self, tier: Tier) -> bool:
        """Whether traces are left in the store now."""
        if not self._pausing(tier):
            self._paused.pop(tier, None)
            return False
        now = self._monotonic()
        since = self._paused.setdefault(tier, now)
        return self._live() or now - since < self._hold

    async def _score(self, row: StoredDraw) -> None:
        self._done.append(await _score_drawn(row, self._scorers.get(row.draw.tier)))
        self._finished()
