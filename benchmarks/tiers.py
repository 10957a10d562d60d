"""What each tier does with the bundled traces: traces a second of one core, calls and tokens a
trace, and the cost of 1,000 traces at given prices.

    python -m benchmarks.tiers [--input-usd 0.15 --output-usd 0.60] [--hhem DIR]

The judge is the stub of the tests: its verdicts are random, so the number of nuggets and of
passages worth reading is that of a coin. Tokens are characters / 4. Prices are USD per million
tokens. HHEM needs a converted model; the tiny one of the tests says nothing about speed.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import time
from collections import Counter
from pathlib import Path

from ragmeter.config.loader import load_settings
from ragmeter.config.settings import Settings
from ragmeter.core.score import ScoreState
from ragmeter.core.tiers import ScoringCost, TierScorer
from ragmeter.ingest.files import InputFile
from ragmeter.ingest.native import DecodeFailure
from ragmeter.scoring.scorer import Scorer
from ragmeter.scoring.slow_tiers import ConfiguredTiers
from ragmeter.trace import Trace
from tests.scorers.judge.stub_process import stub_judge

__all__ = ["main"]

TRACES = Path(__file__).parent.parent / "examples" / "mtrag.jsonl"
IN_FLIGHT = 16


def traces(settings: Settings) -> list[Trace]:
    items = (item for item, _ in InputFile(TRACES).read(settings.limits.trace_bytes))
    return [item.trace for item in items if not isinstance(item, DecodeFailure)]


async def judged(tier: TierScorer, todo: list[Trace]) -> tuple[ScoringCost, Counter[ScoreState]]:
    """Score all, `IN_FLIGHT` at a time; the cost and the states of all pairs."""
    cost, states, queue = ScoringCost(), Counter[ScoreState](), list(reversed(todo))

    async def work() -> None:
        while queue:
            states.update(score.state for score in await tier.score(queue.pop(), cost))

    async with contextlib.AsyncExitStack() as stack:
        if isinstance(tier, contextlib.AbstractAsyncContextManager):
            await stack.enter_async_context(tier)
        await asyncio.gather(*(work() for _ in range(IN_FLIGHT)))
    return cost, states


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--input-usd", type=float, default=0.15)
    parser.add_argument("--output-usd", type=float, default=0.60)
    parser.add_argument("--hhem", type=Path)
    parser.add_argument("--limit", type=int, default=10**9)
    args = parser.parse_args(arguments)
    todo = traces(load_settings(environ={}))[: args.limit]
    print(f"{len(todo)} traces, process CPU\n")
    print("| tier | ms a trace | traces a second and core |")
    print("| --- | ---: | ---: |")
    for name, scorer in (("cheap", Scorer(builtin=False)), ("cheap and built-in", Scorer())):
        scorer.score_cheap(todo[0])
        start = time.process_time()
        for trace in todo:
            scorer.score_cheap(trace)
        _row(name, time.process_time() - start, len(todo))
    if args.hhem:
        settings = load_settings(environ={}, overrides={"hhem": {"path": str(args.hhem)}})
        start = time.process_time()
        _, states = asyncio.run(judged(ConfiguredTiers(settings).scorers["model"], todo))
        _row(
            f"model (HHEM, {states[ScoreState.SCORED]} scored)",
            time.process_time() - start,
            len(todo),
        )
    rows = []
    with stub_judge() as stub:
        for name, entries in (("no cache", 0), ("cache", 100_000)):
            judge = {
                "base_url": stub.base_url,
                "model": "m",
                "concurrency": 64,
                "cache": {"entries": entries},
                "input_usd_per_million": args.input_usd,
                "output_usd_per_million": args.output_usd,
            }
            settings = load_settings(environ={}, overrides={"judge": judge})
            start = time.process_time()
            cost, _ = asyncio.run(judged(ConfiguredTiers(settings).scorers["judge"], todo))
            _row(f"judge (our side, {name})", time.process_time() - start, len(todo))
            rows.append((name, cost))
    print(
        f"\n| judge, 1,000 traces | calls | tokens in | tokens out | USD at {args.input_usd} in,"
        f" {args.output_usd} out |"
    )
    print("| --- | ---: | ---: | ---: | ---: |")
    for name, cost in rows:
        k = 1000 / len(todo)
        counts = (cost.requests, cost.input_tokens, cost.output_tokens)
        cells = [*(f"{number * k:,.0f}" for number in counts), f"{cost.usd * k:.2f}"]
        print(f"| {name} | {' | '.join(cells)} |")


def _row(name: str, seconds: float, count: int) -> None:
    print(f"| {name} | {1000 * seconds / count:.2f} | {count / seconds:,.0f} |")


if __name__ == "__main__":
    main()
