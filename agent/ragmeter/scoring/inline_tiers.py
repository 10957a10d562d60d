"""Score a trace by its slow tiers inline, within a deadline and behind a breaker.

A trace waits for its tiers, and no offset goes further than `kafka.in_flight` beyond it. A judge
that hangs would hold every partition to that many traces in each deadline, for ever, and its own
breaker does not see it, because a call that the deadline cuts off is no answer. So after several
timeouts in a row only one trace now and then asks the tier.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain

from ragmeter.config.settings import Settings
from ragmeter.core.counters import Counters, GaugeSample
from ragmeter.core.deadlines import time_limit
from ragmeter.core.judging import MAIN_JUDGE
from ragmeter.core.label_bounds import MAX_LABEL_CHARS, LabelBounds
from ragmeter.core.score import Score, ScoredTrace
from ragmeter.core.tiers import ScoringCost, Tier
from ragmeter.reasons import Reason
from ragmeter.sampling.control import SamplingControl
from ragmeter.scorers.llm.admission import BreakerPolicy, CircuitBreaker
from ragmeter.scorers.llm.billing import count_attempt, count_canary, count_verdict
from ragmeter.scoring.scorer import CheapScores, TraceScores
from ragmeter.scoring.slow_tiers import (
    ConfiguredTiers,
    TierSampling,
    build_controllers,
    score_live_tier,
    tier_places,
)
from ragmeter.scoring.threads import ScoredSource, start_threads
from ragmeter.trace import Trace

# Five timeouts in a row open it: a tier that is slow, but answers, hardly gets there. A trial that
# fails holds up its partition for the 20 s of a deadline: at most two fifths of the time at first,
# and a fifteenth of it in the end.
TIMEOUT_POLICY = BreakerPolicy(streak=5, first_pause=30.0, longest_pause=300.0)

log = logging.getLogger(__name__)

# Seconds for all that a tier does with a trace. A rebalance waits for what is under way, and a
# member that takes longer than `broker_rebalance_timeout` (60 s) for it is thrown out of the group:
# model and judge, side by side, and the send of the record fit well below that.
_DEADLINE = 20.0


class InlineTiers(TierSampling):
    """A `Scorer` with the slow tiers of the settings, which completes a trace at once.

    Results of a tier that does not answer within `deadline` seconds are unscored with the reason
    `timeout`. `newest` is the newest event time of all traces that were scored here, `terms` are
    those of the built-in tier, `ahead` the threads that score ahead, if any.
    """

    def __init__(
        self,
        settings: Settings,
        counters: Counters,
        *,
        deadline: float = _DEADLINE,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._deadline = deadline
        self._most = settings.kafka.in_flight
        configured = ConfiguredTiers(
            settings,
            observe=partial(count_attempt, counters.inc),
            count=partial(count_verdict, counters.inc, MAIN_JUDGE),
            watched=True,
            background=True,
        )
        self._counters = counters
        self.tier_scorers = scorers = configured.scorers
        self.judges = configured.judges
        super().__init__(settings, scorers, build_controllers(settings, scorers), clock)
        limits = settings.limits
        self._names = LabelBounds(
            services=limits.services,
            segment_values=limits.segment_values,
            chars=MAX_LABEL_CHARS,
            overflow=lambda label: None,
            reserved=limits.reserved,
        )
        self._waiting: Counter[Tier] = Counter()  # for a place
        self._breakers: dict[Tier, CircuitBreaker] = {
            tier: CircuitBreaker(TIMEOUT_POLICY, time.monotonic) for tier in scorers
        }
        self._places = {
            tier: asyncio.Semaphore(number) for tier, number in tier_places(settings).items()
        }
        self.ahead = start_threads(settings)
        self._share = 1.0
        self.newest: float | None = None
        self._stack = contextlib.AsyncExitStack()

    async def __aenter__(self) -> InlineTiers:
        for scorer in self.tier_scorers.values():
            if isinstance(scorer, contextlib.AbstractAsyncContextManager):
                await self._stack.enter_async_context(scorer)
        if self.ahead is not None:
            self._stack.push_async_callback(asyncio.to_thread, self.ahead.close)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    def apply_control(self, control: SamplingControl) -> None:
        """Draw by other knowledge of services, versions and segments."""
        super().apply_control(control)
        self.terms = replace(self.terms, control=control)

    async def score_bodies(self, bodies: Sequence[bytes]) -> list[ScoredSource]:
        """Have the threads of `ahead` score traces."""
        if self.ahead is None:
            raise RuntimeError("ahead is missing")
        parts = [asyncio.wrap_future(part) for part in self.ahead.submit(bodies, self.terms)]
        return list(chain.from_iterable(await asyncio.gather(*parts)))

    def draw(self, scores: TraceScores) -> CheapScores:
        """Draw a trace for the slow tiers."""
        timestamp = scores.summary.timestamp
        self.newest = timestamp if self.newest is None else max(self.newest, timestamp)
        cheap = self.scorer.draw(scores)
        self._overloads.report()
        return cheap

    async def finish(self, trace: Trace, cheap: CheapScores) -> ScoredTrace:
        """Return the trace with the results of the tiers that drew it."""
        tiers = list(cheap.draws)
        answers = await asyncio.gather(*(self._ask(tier, trace) for tier in tiers))
        for tier, (scores, missing) in zip(tiers, answers, strict=True):
            cheap = self.scorer.add_results(cheap, tier, scores, missing)
        return cheap.trace

    async def _call(self, tier: Tier, trace: Trace, cost: ScoringCost) -> list[Score] | str:
        """Return the scores of a tier, or the reason for none."""
        breaker = self._breakers[tier]
        was_open = breaker.is_open
        ticket = breaker.enter()
        if ticket is None:
            return Reason.TIMEOUT
        try:
            async with time_limit(self._deadline), self._place(tier):
                scores = await score_live_tier(self.tier_scorers[tier], trace, cost)
            breaker.succeeded(ticket)
            return scores
        except TimeoutError:
            if breaker.failed(ticket) and not was_open:
                log.error("the %s tier does not answer; it is tried now and then", tier)
            return Reason.TIMEOUT
        except Exception:
            breaker.abandoned(ticket)
            log.exception("the %s tier failed on trace %r", tier, trace.trace_id[:80])
            return Reason.INTERNAL_ERROR
        except BaseException:
            breaker.abandoned(ticket)
            raise

    async def _ask(self, tier: Tier, trace: Trace) -> tuple[list[Score], str]:
        cost = ScoringCost()
        answer = await self._call(tier, trace, cost)
        if trace.canary:
            count_canary(self._counters.inc, cost)
        self.settle(tier, trace.service, cost, canary=trace.canary)
        return ([], answer) if isinstance(answer, str) else (answer, Reason.INTERNAL_ERROR)

    @contextlib.asynccontextmanager
    async def _place(self, tier: Tier) -> AsyncIterator[None]:
        """Hold one of the places of a tier.

        Traces that wait for one fill the window of the processor, so less is drawn the more wait.
        """
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

    def set_share(self, share: float) -> None:
        """Take the share of the budgets that this worker reads of all traces, 0..1."""
        if share in (0, self._share):  # with nothing to read there is nothing to spend
            return
        self._share = share
        for controller in self._controllers.values():
            controller.set_share(share)

    def gauges(self) -> list[GaugeSample]:
        """Return the state of the tiers, and the scale of sampling rates by tier and service."""
        return [*self.scale_gauges(self._names.service), *self.judges.gauges()]
