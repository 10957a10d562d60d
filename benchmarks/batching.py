"""Whether a judge grades passages alike alone and several in a call.

    python -m benchmarks.batching --base-url URL --model NAME [--passages-per-call 5] [TRACES]

The key is read from RAGMETER_JUDGE__API_KEY. Every passage is graded alone, alone once more (how
far the judge agrees with itself: no batching can agree better) and together with others. Agreement
is Cohen's kappa on the four grades and on grade >= 2. Without TRACES the bundled ones are graded.
Run it for the model that is used, before `judge.passages_per_call` goes above 1.
"""

from __future__ import annotations

import argparse
import asyncio
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from ragmeter.config.loader import load_settings
from ragmeter.config.scoring import JudgeSettings
from ragmeter.core.tiers import ScoringCost
from ragmeter.ingest.files import InputFile
from ragmeter.ingest.native import DecodeFailure
from ragmeter.metrics.ranking import rank_order
from ragmeter.scorers.judge.passages import grade_passages
from ragmeter.scorers.llm.client import JudgeClient
from ragmeter.scorers.llm.questions import QuestionAnswerer
from ragmeter.trace import Trace

__all__ = ["Grades", "graded", "kappa", "main", "report"]

TRACES = Path(__file__).parent.parent / "examples" / "mtrag.jsonl"
RELEVANT = 2

Grades = list[int | None]


def kappa(pairs: Sequence[tuple[int, int]]) -> float:
    """Cohen's kappa (1960) of two gradings: 1 agrees always, 0 as often as by chance."""
    if not pairs:
        return float("nan")
    n = len(pairs)
    agreed = sum(one == other for one, other in pairs) / n
    left, right = Counter(one for one, _ in pairs), Counter(other for _, other in pairs)
    chance = sum(left[value] * right[value] for value in left) / n**2
    return 1.0 if chance == 1 else (agreed - chance) / (1 - chance)


async def graded(
    asking: QuestionAnswerer, traces: Sequence[Trace], per_call: int, cost: ScoringCost
) -> Grades:
    """The grades of all passages, traces side by side; None where there is none."""

    async def one(trace: Trace) -> Grades:
        passages = trace.passages or []
        texts = [passages[index].text for index in rank_order(passages)]
        found = await grade_passages(asking, trace.query, texts, cost, per_call=per_call)
        return [item.value if isinstance(item.value, int) else None for item in found]

    return [value for part in await asyncio.gather(*map(one, traces)) for value in part]


def report(name: str, one: Grades, other: Grades) -> str:
    """A row: passages with both grades, kappa on grades, kappa on grade >= 2, mean difference."""
    pairs = [(a, b) for a, b in zip(one, other, strict=True) if a is not None and b is not None]
    binary = [(int(a >= RELEVANT), int(b >= RELEVANT)) for a, b in pairs]
    shift = sum(b - a for a, b in pairs) / len(pairs) if pairs else float("nan")
    return f"| {name} | {len(pairs)} | {kappa(pairs):.3f} | {kappa(binary):.3f} | {shift:+.3f} |"


async def _measure(settings: JudgeSettings, traces: Sequence[Trace]) -> None:
    client = JudgeClient(settings)
    rows, calls = [], []
    found: list[Grades] = []
    try:
        for per_call in (1, 1, settings.passages_per_call):
            cost = ScoringCost()
            found.append(await graded(client, traces, per_call, cost))
            calls.append(cost.requests)
    finally:
        await client.aclose()
    rows.append(report("alone, twice", found[0], found[1]))
    rows.append(report(f"alone and {settings.passages_per_call} in a call", found[0], found[2]))
    print("| | passages | kappa, grades | kappa, grade >= 2 | mean difference |")
    print("| --- | ---: | ---: | ---: | ---: |")
    print("\n".join(rows))
    print(f"\ncalls: {calls[0]} alone, {calls[2]} together")


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("traces", nargs="?", type=Path, default=TRACES, metavar="TRACES")
    parser.add_argument("--base-url", required=True)
    parser.add_argument("--model", required=True)
    parser.add_argument("--passages-per-call", type=int, default=5)
    parser.add_argument("--limit", type=int, default=100, help="traces at most (100)")
    args = parser.parse_args(arguments)
    judge = {
        "base_url": args.base_url,
        "model": args.model,
        "passages_per_call": args.passages_per_call,
    }
    settings = load_settings(overrides={"judge": judge})
    items = (item for item, _ in InputFile(args.traces).read(settings.limits.trace_bytes))
    traces = [item.trace for item in items if not isinstance(item, DecodeFailure)][: args.limit]
    asyncio.run(_measure(settings.judge, traces))


if __name__ == "__main__":
    main()
