"""How many calls a client keeps in flight with providers of several kinds, in virtual time."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Callable
from dataclasses import dataclass, field

import httpx
import pytest
from ragmeter.config.scoring import JudgeSettings
from ragmeter.core.tiers import ScoringCost
from ragmeter.scorers.llm.admission import START_SLOTS
from ragmeter.scorers.llm.client import JudgeClient
from ragmeter.scorers.llm.exchange import ClientTiming
from ragmeter.scorers.llm.questions import JudgeFailed

from tests.scorers.judge.asking import completion, question

CEILING = JudgeSettings().concurrency
BASE = 1.0  # seconds of an answer, of a server that is not busy
ASKERS = 100


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop whose time jumps to the next timer instead of passing."""

    now = 0.0

    def time(self) -> float:
        return self.now

    def _run_once(self) -> None:
        if not self._ready and self._scheduled:  # type: ignore[attr-defined]
            self.now = max(self.now, self._scheduled[0].when())  # type: ignore[attr-defined]
        super()._run_once()  # type: ignore[misc]


@dataclass
class Provider:
    """A provider: seconds of an answer, or a refusal, by the number of requests in flight."""

    seconds: Callable[[int, float], float]
    refuses: Callable[[int, float], httpx.Response | None] = lambda in_flight, now: None
    in_flight: int = 0
    refused: int = 0
    answered: int = 0
    timeline: list[tuple[float, int, int]] = field(default_factory=list)  # time, limit, in flight

    async def handle(self, request: httpx.Request) -> httpx.Response:
        loop = asyncio.get_running_loop()
        self.in_flight += 1
        try:
            refusal = self.refuses(self.in_flight, loop.time())
            if refusal is not None:
                self.refused += 1
                await asyncio.sleep(0.01)
                return refusal
            scale = 5 if "long" in json.loads(request.content)["messages"][1]["content"] else 1
            await asyncio.sleep(scale * self.seconds(self.in_flight, loop.time()))
            self.answered += 1
            return httpx.Response(200, json=completion())
        finally:
            self.in_flight -= 1

    def mean_limit(self, begin: float, end: float) -> float:
        limits = [limit for now, limit, _ in self.timeline if begin <= now < end]
        return sum(limits) / len(limits)


def run(provider: Provider, seconds: float, concurrency: int = CEILING) -> list[str]:
    """Ask as fast as the client lets us; return the reasons of the calls that failed."""
    failed: list[str] = []

    async def ask(client: JudgeClient, number: int, end: float) -> None:
        loop = asyncio.get_running_loop()
        kind = "long" if number % 5 == 0 else "short"
        while loop.time() < end:
            try:
                await client.ask(question(kind, prompt=f"{kind}@1"), ScoringCost())
            except JudgeFailed as error:
                failed.append(error.reason)

    async def main() -> None:
        loop = asyncio.get_running_loop()
        client = JudgeClient(
            JudgeSettings(base_url="http://judge.test/v1", model="m", concurrency=concurrency),
            http=httpx.AsyncClient(transport=httpx.MockTransport(provider.handle)),
            timing=ClientTiming(loop.time, loop.time, asyncio.sleep, random.Random(1)),
        )
        tasks = [asyncio.create_task(ask(client, n, seconds)) for n in range(ASKERS)]
        while loop.time() < seconds:
            provider.timeline.append((loop.time(), client.limit, client.in_flight))
            await asyncio.sleep(0.1)
        await asyncio.gather(*tasks)

    loop = VirtualLoop()
    try:
        loop.run_until_complete(main())
    finally:
        loop.close()
    return failed


def test_a_provider_that_takes_everything_gets_the_ceiling_within_seconds() -> None:
    provider = Provider(lambda in_flight, now: BASE)
    assert run(provider, 40) == []
    assert provider.timeline[0][1] == START_SLOTS
    assert provider.mean_limit(20, 40) == CEILING


def test_answers_that_vary_widely_are_no_reason_to_shrink() -> None:
    rng = random.Random(3)
    provider = Provider(lambda in_flight, now: BASE * rng.lognormvariate(0, 0.7))
    assert run(provider, 40) == []
    assert provider.mean_limit(20, 40) > 0.9 * CEILING


@pytest.mark.parametrize("takes", [24, 57])
def test_a_provider_that_answers_429_above_so_many_is_kept_just_below(takes: int) -> None:
    def refuse(in_flight: int, now: float) -> httpx.Response | None:
        return httpx.Response(429, json={}) if in_flight > takes else None

    provider = Provider(lambda in_flight, now: BASE, refuse)
    assert run(provider, 50) == []
    assert 0.75 * takes < provider.mean_limit(30, 50) <= takes
    assert provider.refused < 0.01 * provider.answered


def test_a_provider_that_slows_down_with_the_load_is_not_loaded_further() -> None:
    # one queue before so many places: more in flight only wait longer
    for places in (8, 32):
        provider = Provider(lambda in_flight, now, n=places: BASE * max(1.0, in_flight / n))  # type: ignore[misc]
        assert run(provider, 60) == []
        most = max(START_SLOTS, places)
        assert most <= provider.mean_limit(30, 60) < 1.5 * most
        best = 60 * places / BASE / 1.8  # 1.8: mean length of a question, in short ones
        assert provider.answered > 0.9 * best


@pytest.mark.slow
def test_a_provider_that_is_slow_for_a_while_keeps_the_start_and_gets_more_again() -> None:
    provider = Provider(lambda in_flight, now: BASE * (3 if 40 <= now < 100 else 1))
    assert run(provider, 190) == []
    assert min(limit for _, limit, _ in provider.timeline) >= START_SLOTS
    assert provider.mean_limit(170, 190) > 0.9 * CEILING


def test_a_limit_of_requests_a_minute_is_used_nearly_in_full() -> None:
    tokens, last = 20.0, 0.0

    def refuse(in_flight: int, now: float) -> httpx.Response | None:
        nonlocal tokens, last
        tokens = min(20.0, tokens + (now - last) * 12)
        last = now  # 12 requests a second
        if tokens < 1:
            return httpx.Response(429, json={}, headers={"retry-after": "1"})
        tokens -= 1
        return None

    provider = Provider(lambda in_flight, now: BASE, refuse)
    failed = run(provider, 100)
    assert len(failed) < 0.01 * provider.answered
    assert provider.answered > 0.8 * 100 * 12


@pytest.mark.slow
def test_after_timeouts_the_limit_falls_at_once_and_grows_again() -> None:
    provider = Provider(lambda in_flight, now: 1000.0 if 30 <= now < 35 else BASE)
    run(provider, 200)
    assert min(limit for now, limit, _ in provider.timeline if 90 < now < 110) <= CEILING / 2
    assert provider.mean_limit(160, 200) > 0.8 * CEILING


def test_a_ceiling_below_the_start_is_obeyed() -> None:
    provider = Provider(lambda in_flight, now: BASE)
    run(provider, 10, concurrency=4)
    assert {limit for _, limit, _ in provider.timeline} == {4}
    assert max(in_flight for *_, in_flight in provider.timeline) == 4
