"""What a call costs us: CPU time of this process, the stub in another, 64 calls in flight."""

from __future__ import annotations

import asyncio
import itertools
import subprocess
import sys
import time

from agent.config import Judge
from agent.judge.cache import CachedJudge, MemoryVerdicts
from agent.judge.client import JudgeClient
from agent.tiers import Cost
from tests.judge.asking import question

IN_FLIGHT, ROUNDS = 64, 6


async def seconds_a_call(base_url: str) -> float:
    client = JudgeClient(Judge(base_url=base_url, model="asked-1", concurrency=IN_FLIGHT))
    judge = CachedJudge(client, MemoryVerdicts(10_000, 30))
    numbers = itertools.count()

    async def work(rounds: int) -> None:
        for _ in range(rounds):
            # about as long as a prompt with a passage
            text = f"{next(numbers)} " + "a passage of some words, ünd more " * 80
            await judge.ask(question(text, system="You grade. " * 100), Cost())

    await asyncio.gather(*(work(1) for _ in range(IN_FLIGHT)))  # connections are open now
    begun = time.process_time()
    await asyncio.gather(*(work(ROUNDS) for _ in range(IN_FLIGHT)))
    used = time.process_time() - begun
    await client.aclose()
    return used / (IN_FLIGHT * ROUNDS)


def test_a_call_costs_at_most_a_millisecond_of_cpu() -> None:
    command = [sys.executable, "-m", "tests.judge.stub_judge", "--latency", "0.2"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as stub:
        try:
            assert stub.stdout is not None
            url = stub.stdout.readline().strip()
            best = 1.0
            for _ in range(5):  # the best: others on the machine only ever add
                best = min(best, asyncio.run(seconds_a_call(url)))
                if best < 0.001:
                    break
            assert best < 0.001
        finally:
            stub.terminate()
