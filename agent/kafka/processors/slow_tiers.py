"""Score a trace by its slow tiers inline, within a deadline and behind a breaker.

A circuit breaker that counts deadlines: leaves a tier alone that does not answer in time.

A trace waits in line for its tiers, and no offset goes further than `kafka.in_flight` beyond it.
A judge that hangs would hold every partition to that many traces in each deadline, for ever; its
own breaker does not see it, for what the deadline cuts off is no answer. So after some that were
late in a row the tier is not asked, but by one trace now and then.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from functools import partial

from ragmeter.config.scoring import SamplingSettings
from ragmeter.config.settings import Settings
from ragmeter.core.clocks import time_limit
from ragmeter.core.counters import Counters, GaugeSample
from ragmeter.core.label_bounds import LabelBounds
from ragmeter.core.score import Score, ScoredTrace
from ragmeter.core.tiers import ScoringCost, Tier
from ragmeter.sampling.sampler import Sampler, StratumClassifier
from ragmeter.score.scorer import Scorer
from ragmeter.score.slow_tiers import (
    MAIN,
    ConfiguredTiers,
    build_controllers,
    sampling_scale_gauges,
    score_live_tier,
)
from ragmeter.scorers.hhem.workers import MAX_ADMITTED_TRACES
from ragmeter.scorers.llm.billing import count_attempt, count_canary, count_verdict
from ragmeter.trace import Trace

MAX_TIMEOUTS = 5  # in a row; a tier that is slow, but answers, hardly gets there
# Between two tries, the second when they fail. A try that fails holds up its partition for the 20 s
# of a deadline: at most two fifths of the time at first, and a fifteenth of it in the end.
FIRST_PAUSE, LONGEST_PAUSE = 30.0, 300.0


class DeadlineBreaker:
    """`may` before the tier is asked; if so, `answered` or `late` afterwards, or `dropped` where
    nobody waited for an answer."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._late = 0
        self._next = 0.0
        self._pause = FIRST_PAUSE
        self._trying = False

    @property
    def is_open(self) -> bool:
        return self._late >= MAX_TIMEOUTS

    def allows(self) -> bool:
        if not self.is_open:
            return True
        if self._trying or self._monotonic() < self._next:
            return False
        self._trying = True
        return True

    def succeeded(self) -> None:
        self._late, self._pause, self._trying = 0, FIRST_PAUSE, False

    def timed_out(self) -> bool:
        """Whether the tier is left alone from now on."""
        was, tried = self.is_open, self._trying
        self._late += 1
        if not self.is_open or (was and not tried):
            return False  # those that were under way when it blew say nothing new
        if was:
            self._pause = min(2 * self._pause, LONGEST_PAUSE)
        self._trying = False
        self._next = self._monotonic() + self._pause
        return not was

    def abandoned(self) -> None:
        self._trying = False


log = logging.getLogger("ragmeter.kafka")

_DEADLINE = 20.0
"""Seconds for all that a tier does with a trace. A rebalance waits for what is under way, and a
member that takes longer than `broker_rebalance_timeout` (60 s) for it is thrown out of the group:
model and judge, side by side, and the send of the record fit well below that."""


class InlineTiers:
    """`scorer` with the tiers that the settings ask for; `whole` completes a trace. Results of a
    tier that did not answer within `deadline` are unscored with the reason `timeout`."""

    def __init__(
        self,
        settings: Settings,
        counters: Counters,
        *,
        deadline: float = _DEADLINE,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._deadline = deadline
        self._clock = clock
        self._most = settings.kafka.in_flight
        self.instruments = ConfiguredTiers(
            settings,
            observe=partial(count_attempt, counters.inc),
            count=partial(count_verdict, counters.inc, MAIN),
            watched=True,
        )
        self._counters = counters
        scorers = self.instruments.scorers
        self._controllers = build_controllers(settings, scorers)
        for controller in self._controllers.values():
            controller.begin(clock())
        limits = settings.limits
        self._names = LabelBounds(
            limits.services, limits.segment_values, limits.label_chars, lambda label: None
        )
        self._waiting: Counter[Tier] = Counter()  # for a place
        self._fuses: dict[Tier, DeadlineBreaker] = {
            tier: DeadlineBreaker(time.monotonic) for tier in scorers
        }
        self._places = {
            "judge": asyncio.Semaphore(settings.judge.concurrency),
            "model": asyncio.Semaphore(MAX_ADMITTED_TRACES),
        }
        self.strata = StratumClassifier(settings.sampling, settings.segments)
        self._sampler = Sampler(settings.sampling, self._controllers, clock)
        self.scorer = Scorer(
            settings.builtin_scorers,
            sampler=self._sampler,
            tiers={tier: scorer.pairs for tier, scorer in scorers.items()},
            strata=self.strata,
            ks=settings.judge.k,
            judge_canaries=settings.judge.budget.canaries > 0,
        )
        self.newest: float | None = None
        """The newest event time of all traces that were read here."""
        self._stack = contextlib.AsyncExitStack()

    async def __aenter__(self) -> InlineTiers:
        for scorer in self.instruments.scorers.values():
            if isinstance(scorer, contextlib.AbstractAsyncContextManager):
                await self._stack.enter_async_context(scorer)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    def resample(self, settings: SamplingSettings) -> None:
        """Other rates, strata or salt, from the next trace on."""
        self._sampler.update(settings)
        self.strata.update(settings)

    async def score_trace(self, trace: Trace, timestamp: float) -> ScoredTrace:
        """Score a trace by all tiers that draw it."""
        self.newest = timestamp if self.newest is None else max(self.newest, timestamp)
        cheap = self.scorer.score(trace, timestamp)
        tiers = list(cheap.draws)
        answers = await asyncio.gather(*(self._ask(tier, trace) for tier in tiers))
        for tier, (scores, missing) in zip(tiers, answers, strict=True):
            cheap = self.scorer.add_results(cheap, tier, scores, missing)
        return cheap.trace

    async def _ask(self, tier: Tier, trace: Trace) -> tuple[list[Score], str]:
        cost, scores, missing = ScoringCost(), list[Score](), "internal_error"
        fuse = self._fuses[tier]
        if not fuse.allows():
            missing = "timeout"
        else:
            try:
                async with time_limit(self._deadline), self._place(tier):
                    scores = await score_live_tier(self.instruments.scorers[tier], trace, cost)
                fuse.succeeded()
            except TimeoutError:
                missing = "timeout"
                if fuse.timed_out():
                    log.error("the %s tier does not answer; it is tried now and then", tier)
            except Exception:
                fuse.abandoned()
                log.exception("the %s tier failed on trace %r", tier, trace.trace_id[:80])
            except BaseException:
                fuse.abandoned()
                raise
        if trace.canary:
            count_canary(self._counters.inc, cost)
        controller = self._controllers.get(tier)
        if controller is not None:
            settle = controller.settle_canary if trace.canary else controller.settle
            settle(trace.service, cost, self._clock())
        return scores, missing

    @contextlib.asynccontextmanager
    async def _place(self, tier: Tier) -> AsyncIterator[None]:
        """One of the places of a tier. What waits for one fills the window of the stage, so less is
        drawn the more there is of it."""
        self._wait(tier, 1)
        try:
            await self._places[tier].acquire()
        finally:
            self._wait(tier, -1)
        try:
            yield
        finally:
            self._places[tier].release()

    def _wait(self, tier: Tier, more: int) -> None:
        self._waiting[tier] += more
        controller = self._controllers.get(tier)
        if controller is not None:
            controller.backlog(self._waiting[tier], self._most)

    def set_share(self, part: float) -> None:
        """This worker reads so much of all traces, and has as much of the budgets."""
        if part > 0:  # with nothing to read there is nothing to spend
            for controller in self._controllers.values():
                controller.set_share(part)

    def charge(self, service: str, cost: ScoringCost) -> None:
        """What the judge was asked beside the traces."""
        controller = self._controllers.get("judge")
        if controller is not None:
            controller.charge(service, cost, self._clock())

    def gauges(self) -> list[GaugeSample]:
        """How the tiers are, and the scale of the sampling rates by tier and service; of services
        that share a name the lowest counts."""
        scales = sampling_scale_gauges(self._controllers, self._names.service)
        return [*scales, *self.instruments.gauges()]
