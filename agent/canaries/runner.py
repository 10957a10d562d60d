"""The canary runner: it asks every question of a suite on a schedule.

A service in production is a guest's table: at most so many questions at a time and a minute, a
pause where it asks for one, and no attempt is repeated that was not asked for (a retry would hide
the failure that it is there to measure).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from ragmeter.canaries.client import CanaryClient
from ragmeter.canaries.delivery import TraceDelivery
from ragmeter.canaries.suite import CanaryQuestion, CanarySuite
from ragmeter.canaries.verdicts import CanaryVerdict, evaluate_canary
from ragmeter.core.pacing import Pace
from ragmeter.scoring.scorer import Scorer
from ragmeter.trace import Trace

log = logging.getLogger("ragmeter.canary")

MAX_JITTER_SECONDS = 60.0
"""Seconds by which the first round is put off at most: runners that a deploy has started together
should not ask together."""


@dataclass(frozen=True, slots=True)
class CanarySchedule:
    """`every`: seconds from the start of a round to that of the next; None for one round alone.
    `per_minute` bounds the questions, retried ones too."""

    every: float | None
    concurrency: int = 1
    per_minute: float = 60.0


@dataclass(slots=True)
class CanaryRound:
    """`asked` of `questions`: fewer where a stop came."""

    questions: int
    verdicts: list[CanaryVerdict] = field(default_factory=list)

    @property
    def complete(self) -> bool:
        return len(self.verdicts) == self.questions

    @property
    def passed(self) -> bool:
        """Nothing that is required has failed."""
        return self.complete and all(one.passed or not one.required for one in self.verdicts)


class CanaryRunner:
    """`stop` ends it in order: what is under way is finished and handed over, no more is asked.
    `measure` adds to a trace what costs a call of its own. `told` hears of each question, `ended`
    of each round of several."""

    def __init__(
        self,
        suite: CanarySuite,
        asker: CanaryClient,
        delivery: TraceDelivery,
        pace: CanarySchedule,
        *,
        ks: Sequence[int],
        told: Callable[[CanaryVerdict], None] = lambda verdict: None,
        ended: Callable[[CanaryRound], None] = lambda done: None,
        measure: Callable[[Trace], Awaitable[Trace]] | None = None,
        rng: random.Random | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._suite = suite
        self._asker = asker
        self._delivery = delivery
        self._pace = pace
        self._scorer = Scorer(builtin=False, ks=ks)
        self._on_verdict = told
        self._on_round = ended
        self._measure = measure
        self._rng = rng or random.Random()
        self._monotonic = monotonic
        self._stopped = asyncio.Event()
        self._questions = Pace(pace.per_minute / 60, monotonic)
        self._lock = asyncio.Lock()

    def stop(self) -> None:
        self._stopped.set()

    async def run(self) -> CanaryRound:
        """The last round."""
        every = self._pace.every
        if every is None:
            return await self._round()
        due = self._monotonic() + self._rng.uniform(0, min(MAX_JITTER_SECONDS, every / 10))
        done = CanaryRound(len(self._suite.questions))
        while await self._wait_until(due):
            done = await self._round()
            self._on_round(done)
            now = self._monotonic()
            missed = int((now - due) // every)
            if missed:
                log.warning("a round took %.0f s, longer than %.0f s between two", now - due, every)
            due += every * (missed + 1)
        return done

    async def _round(self) -> CanaryRound:
        done = CanaryRound(len(self._suite.questions))
        todo = iter(list(self._suite.questions))

        async def work() -> None:
            for question in todo:
                found = await self._ask_question(question)
                if found is None:
                    return
                done.verdicts.append(found)
                self._on_verdict(found)

        async with asyncio.TaskGroup() as group:
            for _ in range(self._pace.concurrency):
                group.create_task(work())
        return done

    async def _ask_question(self, question: CanaryQuestion) -> CanaryVerdict | None:
        """None where a stop came first. Where the service says when to come back, it is asked once
        more, then."""
        if not await self._wait_for_turn():
            return None
        asked = await self._asker.ask(question)
        if asked.pause is not None:
            self._questions.hold(asked.pause)
            log.info("the service wants to be left alone for %.0f s", asked.pause)
            if await self._wait_for_turn():
                asked = await self._asker.ask(question)
                if asked.pause is not None:
                    self._questions.hold(asked.pause)
        trace = asked.trace if self._measure is None else await self._measure(asked.trace)
        self._delivery.put(trace)
        return evaluate_canary(self._suite, question, trace, self._scorer.against_reference(trace))

    async def _wait_for_turn(self) -> bool:
        """Wait for a place; whether there is one. A pause holds back everybody."""
        async with self._lock:
            while (seconds := self._questions.delay()) > 0:
                if not await self._wait_until(self._monotonic() + seconds):
                    return False
            self._questions.begin()
        return not self._stopped.is_set()

    async def _wait_until(self, due: float) -> bool:
        """Whether the time has come, and no stop."""
        left = due - self._monotonic()
        if left > 0 and not self._stopped.is_set():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(left):
                    await self._stopped.wait()
        return not self._stopped.is_set()
