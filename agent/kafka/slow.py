"""The slow tiers in line: a trace's record is sent when all that drew it have answered."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from typing import Any

from agent.budget import BudgetController, judge_controller, model_controller
from agent.config import Sampling, Settings
from agent.counters import Counters
from agent.instruments import Instruments
from agent.judge.attempt import Attempt
from agent.models.workers import ADMITTED
from agent.sampling import Sampler
from agent.score import Scored, Scorer, complete
from agent.strata import Strata
from agent.tiers import Cost, Tier, ask_tier
from agent.trace import Score, Trace

__all__ = ["DEADLINE", "InLine"]

log = logging.getLogger("ragmeter.kafka")

DEADLINE = 20.0
"""Seconds for all that a tier does with a trace. A rebalance waits for what is under way, and a
member that takes longer than `broker_rebalance_timeout` (60 s) for it is thrown out of the group:
model and judge, side by side, and the send of the record fit well below that."""


class InLine:
    """`scorer` with the tiers that the settings ask for; `whole` completes a trace. Results of a
    tier that did not answer within `deadline` are unscored with the reason `timeout`."""

    def __init__(
        self, settings: Settings, counters: Counters, *, deadline: float = DEADLINE
    ) -> None:
        self._counters = counters
        self._deadline = deadline
        self.instruments = Instruments(settings, observe=self._observe, count=self._count)
        scorers = self.instruments.scorers
        self._controllers: dict[Tier, BudgetController] = {}
        if "judge" in scorers:
            self._controllers["judge"] = judge_controller(settings.judge)
        if "model" in scorers:
            self._controllers["model"] = model_controller(settings.hhem)
        self._places = {
            "judge": asyncio.Semaphore(settings.judge.concurrency),
            "model": asyncio.Semaphore(ADMITTED),
        }
        self.strata = Strata(settings.sampling, settings.segments)
        self._sampler = Sampler(settings.sampling, self._controllers, time.time)
        self.scorer = Scorer(
            settings.builtin_scorers,
            sampler=self._sampler,
            tiers={tier: scorer.pairs for tier, scorer in scorers.items()},
            strata=self.strata,
        )
        self._stack = contextlib.AsyncExitStack()

    async def __aenter__(self) -> InLine:
        for scorer in self.instruments.scorers.values():
            if isinstance(scorer, contextlib.AbstractAsyncContextManager):
                await self._stack.enter_async_context(scorer)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    def resample(self, settings: Sampling) -> None:
        """Other rates, strata or salt, from the next trace on."""
        self._sampler.update(settings)
        self.strata.update(settings)

    async def whole(self, trace: Trace, timestamp: float) -> Scored:
        """The trace with one result for each expected pair."""
        found = self.scorer.score(trace, timestamp)
        tiers = list(found.drawn)
        answers = await asyncio.gather(*(self._ask(tier, trace) for tier in tiers))
        for tier, (scores, missing) in zip(tiers, answers, strict=True):
            pairs = self.scorer.tiers[tier]
            gone = set(pairs)
            found.trace.frame = [row for row in found.trace.frame if row[:2] not in gone]
            found.trace.results += complete(
                scores,
                pairs,
                found.drawn[tier],
                missing,
                stratum=found.strata[tier],
                cheap=found.cheap,
            )
        return found

    async def _ask(self, tier: Tier, trace: Trace) -> tuple[list[Score], str]:
        cost, scores, missing = Cost(), list[Score](), "internal_error"
        try:
            async with asyncio.timeout(self._deadline), self._places[tier]:
                scores = await ask_tier(self.instruments.scorers[tier], trace, cost)
        except TimeoutError:
            missing = "timeout"
        except Exception:
            log.exception("the %s tier failed on trace %r", tier, trace.trace_id[:80])
        controller = self._controllers.get(tier)
        if controller is not None:
            controller.settle(trace.service, cost, time.time())
        return scores, missing

    def _count(self, source: str) -> None:
        labels = (("judge", "judge"), ("source", source))
        self._counters.inc("ragmeter_judge_verdicts_total", labels)

    def _observe(self, attempt: Attempt) -> None:
        judge, inc = ("judge", attempt.judge), self._counters.inc
        inc("ragmeter_judge_requests_total", (judge, ("outcome", attempt.outcome)))
        tokens = {"input": attempt.input_tokens, "output": attempt.output_tokens}
        for direction, number in tokens.items():
            if number:
                inc("ragmeter_judge_tokens_total", (judge, ("direction", direction)), number)
        if attempt.usd:
            inc("ragmeter_judge_cost_usd_total", (judge,), attempt.usd)

    def gauges(self) -> list[Any]:
        return self.instruments.gauges()
