"""The canary runner: it asks every question of a suite on a schedule.

The service is in production, so it is asked one question at a time, at a bounded rate. A
failed question is not retried, as a retry would hide the failure that canaries measure; only a
service that sends Retry-After is asked once more.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import time
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field

from ragmeter.canaries.client import CanaryClient
from ragmeter.canaries.delivery import TraceDelivery
from ragmeter.canaries.suite import CanaryQuestion, CanarySuite
from ragmeter.canaries.verdicts import CanaryVerdict, evaluate_canary
from ragmeter.core.pacing import Pace
from ragmeter.core.score import Score
from ragmeter.trace import Trace

log = logging.getLogger(__name__)

# The longest delay of the first round: runners that a deploy starts together must not ask together.
MAX_JITTER_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class CanarySchedule:
    """The times at which questions are asked.

    Args:
        every: Seconds from the start of a round to the start of the next; None for one round.
        per_minute: The most questions a minute, including those asked again.
    """

    every: float | None
    per_minute: float = 60.0
    rng: random.Random = field(default_factory=random.Random)


@dataclass(slots=True)
class CanaryRound:
    """The verdicts of one round, one for each question that was asked; fewer after a stop."""

    questions: int
    verdicts: list[CanaryVerdict] = field(default_factory=list)

    @property
    def complete(self) -> bool:
        """True if every question was asked."""
        return len(self.verdicts) == self.questions

    @property
    def passed(self) -> bool:
        """True if the round is complete and every required question passed."""
        return self.complete and all(v.passed or not v.required for v in self.verdicts)


class CanaryRunner:
    """Asks the questions of a suite and hands the answers over as traces.

    Args:
        score: Scores a trace, against its reference at least.
        on_verdict: Called with the verdict on each question.
        on_round: Called after each round of a repeated schedule.
        measure: Adds to a trace what takes another call, such as a judge's verdict.
    """

    def __init__(
        self,
        suite: CanarySuite,
        client: CanaryClient,
        delivery: TraceDelivery,
        schedule: CanarySchedule,
        *,
        score: Callable[[Trace], Awaitable[Iterable[Score]]],
        on_verdict: Callable[[CanaryVerdict], None] = lambda verdict: None,
        on_round: Callable[[CanaryRound], None] = lambda done: None,
        measure: Callable[[Trace], Awaitable[Trace]] | None = None,
    ) -> None:
        self.suite = suite
        self._client = client
        self._delivery = delivery
        self._schedule = schedule
        self._score = score
        self._on_verdict = on_verdict
        self._on_round = on_round
        self._measure = measure
        self._stopped = asyncio.Event()
        self._questions = Pace(schedule.per_minute / 60)

    def stop(self) -> None:
        """Ask no more; what is under way is finished and handed over."""
        self._stopped.set()

    async def run(self) -> CanaryRound:
        """Ask until the schedule ends or `stop` is called, and return the last round."""
        every = self._schedule.every
        if every is None:
            return await self._round()
        due = time.monotonic() + self._schedule.rng.uniform(0, min(MAX_JITTER_SECONDS, every / 10))
        done = CanaryRound(len(self.suite.questions))
        while await self._wait_until(due):
            done = await self._round()
            self._on_round(done)
            now = time.monotonic()
            missed = int((now - due) // every)
            if missed:
                log.warning("a round took %.0f s, longer than %.0f s between two", now - due, every)
            due += every * (missed + 1)
        return done

    async def _round(self) -> CanaryRound:
        done = CanaryRound(len(self.suite.questions))
        for question in self.suite.questions:
            verdict = await self._ask_question(question)
            if verdict is None:
                break
            done.verdicts.append(verdict)
            self._on_verdict(verdict)
        return done

    async def _ask_question(self, question: CanaryQuestion) -> CanaryVerdict | None:
        """Ask a question, once more after the pause that the service asks for; None if stopped."""
        if not await self._wait_for_turn():
            return None
        asked = await self._client.ask(question)
        if asked.pause is not None:
            self._questions.hold(asked.pause)
            log.info("the service asks for a pause of %.0f s", asked.pause)
            if await self._wait_for_turn():
                asked = await self._client.ask(question)
                if asked.pause is not None:
                    self._questions.hold(asked.pause)
        trace = asked.trace if self._measure is None else await self._measure(asked.trace)
        self._delivery.put(trace)
        return evaluate_canary(self.suite, question, trace, await self._score(trace))

    async def _wait_for_turn(self) -> bool:
        """Wait for the rate limit, pauses included, and return False if stopped."""
        while (seconds := self._questions.delay()) > 0:
            if not await self._wait_until(time.monotonic() + seconds):
                return False
        self._questions.begin()
        return not self._stopped.is_set()

    async def _wait_until(self, due: float) -> bool:
        """Wait and return False if stopped."""
        left = due - time.monotonic()
        if left > 0 and not self._stopped.is_set():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(left):
                    await self._stopped.wait()
        return not self._stopped.is_set()
