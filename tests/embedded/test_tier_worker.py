from __future__ import annotations

import asyncio
import logging
import math
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, cast

import pytest
from ragmeter.core.score import Score, ScoreState
from ragmeter.core.tiers import MetricScorer, ScoringCost, Tier
from ragmeter.embedded.tier_worker import TierWorker
from ragmeter.store.rows import StoredDraw, TierDraw
from ragmeter.trace import Trace

from tests.traces import trace_line
from tests.waiting import PATIENCE, until


class Empty:
    """A state file in which nothing was ever drawn."""

    def pending_draws(self, tier: Tier, after: int, limit: int) -> list[StoredDraw]:
        return []


def test_a_job_that_fails_is_told_and_the_tiers_go_on(caplog: pytest.LogCaptureFixture) -> None:
    notified = threading.Event()

    class Notified(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            notified.set()

    async def broken() -> None:
        raise ValueError("a mistake of ours")

    worker = TierWorker(
        cast(Any, Empty()), {}, {"judge": 1}, on_finished=lambda: None, jobs=[broken]
    )
    log = logging.getLogger("ragmeter")
    handler = Notified()
    log.addHandler(handler)
    try:
        worker.start()
        assert notified.wait(PATIENCE)
        assert worker.fatal is None
        assert worker.stop(1)
    finally:
        log.removeHandler(handler)
    assert "a mistake of ours" in caplog.text


PAIRS: tuple[MetricScorer, ...] = (("answered", "judge"),)


class Backlog:
    """A state file with 100 drawn traces."""

    def pending_draws(self, tier: Tier, after: int, limit: int) -> list[StoredDraw]:
        rows = range(after + 1, min(after + limit, 100) + 1) if tier == "judge" else ()
        return [
            StoredDraw(n, TierDraw("judge", "bot", 0.0, 1.0, PAIRS, trace_line(n))) for n in rows
        ]


class Judge:
    """Fails while it is down; `hangs`: its traces never end."""

    tier: Tier = "judge"
    pairs: Sequence[MetricScorer] = PAIRS

    def __init__(self, *, hangs: bool = False) -> None:
        self.paused = True
        self.trying = False
        self.hangs = hangs
        self.asked = 0
        self.first_asked = math.inf

    async def score(self, trace: Trace, cost: ScoringCost) -> list[Score]:
        self.asked += 1
        self.first_asked = min(self.first_asked, time.monotonic())
        self.trying = False
        if self.hangs:
            await asyncio.sleep(2 * PATIENCE)
        state = ScoreState.UNSCORED if self.paused else ScoreState.SCORED
        return [Score("answered", "judge", state, None if self.paused else 1.0)]


@contextmanager
def holding(judge: Judge, *, live: bool = True, hold: float = 120) -> Iterator[TierWorker]:
    worker = TierWorker(
        cast(Any, Backlog()),
        {"judge": judge},
        {"judge": 8},
        on_finished=lambda: None,
        live=lambda: live,
        hold_seconds=hold,
    )
    worker.start()
    try:
        yield worker
    finally:
        assert worker.stop(30)


@pytest.mark.parametrize("live", [True, False])
def test_while_the_judge_is_down_traces_stay_but_for_one_that_tries_it(live: bool) -> None:
    judge = Judge()
    with holding(judge, live=live) as worker:
        time.sleep(0.7)
        assert judge.asked == 0
        for number in (1, 2):
            judge.trying = True
            until(lambda number=number: judge.asked == number)  # type: ignore[misc]
            time.sleep(0.2)
            assert judge.asked == number
        judge.paused = False
        until(lambda: judge.asked == 100)
        states: list[ScoreState] = []

        def all_told() -> bool:
            states.extend(one.results[0].state for one in worker.take())
            return len(states) == 100

        until(all_told)
        assert states.count(ScoreState.SCORED) == 98


def test_a_replay_goes_on_when_the_judge_stays_down() -> None:
    judge = Judge()
    began = time.monotonic()
    with holding(judge, live=False, hold=1.0):
        until(lambda: judge.asked == 100)
    assert judge.first_asked - began >= 1.0


def test_live_traffic_is_held_for_as_long_as_it_lasts() -> None:
    judge = Judge()
    with holding(judge, live=True, hold=0.1):
        time.sleep(1.5)
        assert judge.asked == 0


def test_stop_does_not_wait_for_a_judge_that_is_down() -> None:
    judge = Judge(hangs=True)
    judge.paused = False
    with holding(judge) as worker:
        until(lambda: judge.asked == 8)
        judge.paused = True
        begun = time.monotonic()
        assert worker.stop(PATIENCE)
        assert time.monotonic() - begun < PATIENCE / 2
        assert worker.take() == []  # they stay in the store


def test_where_one_tier_breaks_the_other_leaves_its_traces_durable() -> None:
    """A result of a scorer that is closed under a trace would be no result of the trace."""
    ended: list[str] = []

    class Slow:
        tier: Tier = "judge"
        pairs: Sequence[MetricScorer] = (("relevance", "umbrela"),)

        async def score(self, trace: Trace, cost: ScoringCost) -> list[Score]:
            try:
                await asyncio.sleep(2 * PATIENCE)
            except asyncio.CancelledError:
                ended.append("cancelled")
                raise
            return []

        async def __aenter__(self) -> Slow:
            return self

        async def __aexit__(self, *_: object) -> None:
            ended.append("closed")

    class Broken(Backlog):
        def pending_draws(self, tier: Tier, after: int, limit: int) -> list[StoredDraw]:
            if tier == "model":
                time.sleep(0.1)
                raise OSError("the disk is gone")
            return super().pending_draws(tier, after, limit)

    scorers: dict[Tier, Any] = {"judge": Slow(), "model": Slow()}
    worker = TierWorker(
        cast(Any, Broken()), scorers, {"judge": 4, "model": 4}, on_finished=lambda: None
    )
    worker.start()
    worker._thread.join(PATIENCE)
    assert worker.fatal is not None
    assert ended[0] == "cancelled"
    assert worker.take() == []
