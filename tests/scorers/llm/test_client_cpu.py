"""What a call costs us, beside the bare HTTP call: CPU time of this process, the stub in another,
64 calls in flight. The figure in milliseconds is for benchmarks/judge.py to say."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Awaitable, Callable

import aiohttp
from ragmeter.config.scoring import JudgeSettings
from ragmeter.core.tiers import ScoringCost
from ragmeter.scorers.judge.cache import CachedJudge, MemoryVerdictStore
from ragmeter.scorers.llm.client import JudgeClient

from tests.scorers.judge.asking import question
from tests.scorers.judge.stub_process import stub_judge

IN_FLIGHT, ROUNDS = 64, 4
# Measured 2.6 to 2.8 times a bare aiohttp call; with httpx's own transport it was 50 times.
MOST = 6

_numbers = itertools.count()


def _text() -> str:
    # about as long as a prompt with a passage
    return f"{next(_numbers)} " + "a passage of some words, ünd more " * 80


async def _seconds(call: Callable[[str], Awaitable[object]]) -> float:
    """CPU seconds a call."""

    async def work(rounds: int) -> None:
        for _ in range(rounds):
            await call(_text())

    await asyncio.gather(*(work(1) for _ in range(IN_FLIGHT)))  # connections are open now
    begun = time.process_time()
    await asyncio.gather(*(work(ROUNDS) for _ in range(IN_FLIGHT)))
    return (time.process_time() - begun) / (IN_FLIGHT * ROUNDS)


async def _ours(base_url: str) -> float:
    client = JudgeClient(JudgeSettings(base_url=base_url, model="asked-1", concurrency=IN_FLIGHT))
    judge = CachedJudge(client, MemoryVerdictStore(10_000))
    try:
        return await _seconds(
            lambda text: judge.ask(question(text, system="You grade. " * 100), ScoringCost())
        )
    finally:
        await client.aclose()


async def _bare(base_url: str) -> float:
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:

        async def call(text: str) -> None:
            system = {"role": "system", "content": "You grade. " * 100}
            messages = [system, {"role": "user", "content": text}]
            body = {"model": "asked-1", "messages": messages}
            async with session.post(f"{base_url}/chat/completions", json=body) as reply:
                await reply.read()

        return await _seconds(call)


def test_a_call_costs_a_few_times_the_bare_one() -> None:
    with stub_judge(0.1) as stub:
        ratios = []
        for _ in range(5):  # the best: others on the machine only ever add
            ratios.append(asyncio.run(_ours(stub.base_url)) / asyncio.run(_bare(stub.base_url)))
            if ratios[-1] < MOST:
                break
    assert min(ratios) < MOST, ratios
