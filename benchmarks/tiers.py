"""What each tier does with the bundled traces: traces a second of one core, calls and tokens a
trace, and the cost of 1,000 traces at given prices.

    python -m benchmarks.tiers [--input-usd 0.15 --output-usd 0.60] [--hhem DIR]
    python -m benchmarks.tiers --stages [FILE]

The judge is the stub of the tests: its verdicts are random, so the number of nuggets and of
passages worth reading is that of a coin. Tokens are characters / 4. Prices are USD per million
tokens. HHEM needs a converted model; the tiny one of the tests says nothing about speed.

With `--stages` the cheap pass and the built-in scorers alone, by stage, on the traces of a file of
JSON lines, or on those of `benchmarks.throughput` where no passage comes twice.
Figures are medians over chunks, also as a ratio to `json.loads` of the same lines just before and
after: a busy machine is slower at both. Stages overlap: coverage, conflicts and sentence features
are part of the features.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import statistics
import time
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any
from unittest import mock

from ragmeter.app.settings import load_settings
from ragmeter.config.settings import Settings
from ragmeter.core.score import ScoreState
from ragmeter.core.tiers import ScoringCost, TierScorer
from ragmeter.ingest.files import InputFile
from ragmeter.ingest.native import DecodedTrace, DecodeFailure, decode_trace
from ragmeter.metrics import (
    builtin,
    citation_support,
    grounding,
    grounding_features,
    text_index,
)
from ragmeter.metrics.builtin import PreparedTrace, score_builtin, score_cheap
from ragmeter.metrics.comparison import Comparison
from ragmeter.scoring.scorer import Scorer
from ragmeter.scoring.slow_tiers import ConfiguredTiers
from ragmeter.trace import Trace

from benchmarks.throughput import distinct
from benchmarks.throughput import traces as throughput_traces
from tests.scorers.judge.stub_process import stub_judge

__all__ = ["main"]

TRACES = Path(__file__).parent.parent / "examples" / "mtrag.jsonl"
IN_FLIGHT = 16
CHUNK = 100  # traces between two looks at the machine's speed
STAGES: tuple[tuple[Any, str], ...] = (
    (text_index.PassageIndex, "read"),
    (builtin, "parse_answer"),
    (builtin, "compare_texts"),
    (Comparison, "grade_passages"),
    (Comparison, "extract_features"),
    (grounding_features, "compare_record"),
    (grounding_features, "find_novel_numbers"),
    (grounding, "grounding_probability"),
    (grounding, "explain_grounding"),
    (citation_support, "score_support"),
)


def traces(settings: Settings) -> list[Trace]:
    items = (item for item, _ in InputFile(TRACES).read(settings.limits.trace_bytes))
    return [item.trace for item in items if not isinstance(item, DecodeFailure)]


async def judged(tier: TierScorer, todo: list[Trace]) -> tuple[ScoringCost, Counter[ScoreState]]:
    """Score all, `IN_FLIGHT` at a time; the cost and the states of all pairs."""
    cost = ScoringCost()
    states = Counter[ScoreState]()
    queue = list(reversed(todo))

    async def work() -> None:
        while queue:
            states.update(score.state for score in await tier.score(queue.pop(), cost))

    async with contextlib.AsyncExitStack() as stack:
        if isinstance(tier, contextlib.AbstractAsyncContextManager):
            await stack.enter_async_context(tier)
        await asyncio.gather(*(work() for _ in range(IN_FLIGHT)))
    return cost, states


def fresh_traces() -> list[bytes]:
    """Two rounds of `benchmarks.throughput`, with a word of its own in each text."""
    lines = throughput_traces()
    return [line for edition in (1, 2) for line in distinct(lines, edition)]


def stages(lines: list[bytes]) -> None:
    """Print the microseconds of each stage of the built-in scorers and its ratio to the JSON."""
    spent: defaultdict[str, float] = defaultdict(float)

    def timed(name: str, call: Any) -> Any:
        def run(*args: Any, **kwargs: Any) -> Any:
            begin = time.process_time()
            try:
                return call(*args, **kwargs)
            finally:
                spent[name] += time.process_time() - begin

        return run

    def parse(chunk: list[bytes]) -> None:
        begin = time.process_time()
        for line in chunk:
            json.loads(line)
        spent["json.loads"] += (time.process_time() - begin) / 2

    def cheap(prepared: list[PreparedTrace]) -> None:
        for one in prepared:
            score_cheap(one)

    def score(prepared: list[PreparedTrace]) -> None:
        for one in prepared:
            score_builtin(one)

    rounds: list[dict[str, float]] = []
    with contextlib.ExitStack() as stack:
        for owner, name in STAGES:
            stack.enter_context(mock.patch.object(owner, name, timed(name, getattr(owner, name))))
        for first in range(0, len(lines), CHUNK):
            chunk = lines[first : first + CHUNK]
            items = [decode_trace(line, 2**21) for line in chunk]
            prepared = [PreparedTrace(i.trace) for i in items if isinstance(i, DecodedTrace)]
            spent.clear()
            parse(chunk)
            timed("cheap pass", cheap)(prepared)
            timed("all built-in scorers", score)(prepared)
            parse(chunk)
            rounds.append({name: seconds / len(chunk) for name, seconds in spent.items()})
    del rounds[0]  # fills the table of stems
    size = sum(map(len, lines)) / len(lines)
    print(f"{len(lines)} traces of {size:.0f} bytes, process CPU\n")
    print("| stage | µs a trace | x json.loads |\n| --- | ---: | ---: |")
    for name in ("json.loads", "cheap pass", "all built-in scorers", *(name for _, name in STAGES)):
        times = statistics.median(one.get(name, 0.0) for one in rounds)
        ratio = statistics.median(one.get(name, 0.0) / one["json.loads"] for one in rounds)
        print(f"| {name} | {1e6 * times:.0f} | {ratio:.1f} |")


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--input-usd", type=float, default=0.15)
    parser.add_argument("--output-usd", type=float, default=0.60)
    parser.add_argument("--hhem", type=Path)
    parser.add_argument("--limit", type=int, default=10**9)
    parser.add_argument("--stages", nargs="?", const="", metavar="FILE")
    args = parser.parse_args(arguments)
    if args.stages is not None:
        lines = Path(args.stages).read_bytes().splitlines() if args.stages else fresh_traces()
        stages(lines[: args.limit])
        return
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
