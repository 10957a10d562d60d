"""Write the traces that the published figures of speed are measured on.

    python -m benchmarks.workload OUT.jsonl --data DIR [--traces N] [--seed S] [--services K]

Texts are those of five data sets with real questions, passages and answers: RAGTruth, ClapNQ,
MTRAG, DelucionQA and ExpertQA. No text is invented, but traces are combined anew, so that
20,000 of them are distinct: each has two to eight passages (its own first, the rest from the same
data set and task), and an answer of its own sentences with one sentence of another answer put in,
under a case number that no other trace has. Every answer and four of five queries are unique,
while passages repeat as those of a knowledge base do. Event time advances by 20 traces a second
with up to two seconds of disorder; two traces of a hundred failed; timings, usage and three tags
are filled in.

The output is a function of the data, the number of traces, the number of services and the seed.
"""

from __future__ import annotations

import argparse
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from training.devdata import rows

__all__ = ["main", "make_traces"]

# The shares of the data sets follow their numbers of rows, as in production one service
# dominates; DelucionQA has no passages of its own and borrows ClapNQ's and MTRAG's.
SETS = (
    "grounding_ragtruth",
    "abstention_clapnq",
    "abstention_mtrag_un",
    "abstention_delucionqa",
    "citation_expertqa",
)
LENDERS = ("abstention_clapnq", "abstention_mtrag_un")
START = 1_760_000_000  # event time of the first trace, Unix seconds
RATE = 20.0  # traces a second of event time
DISORDER_SECONDS = 2.0
# A trace gets passages until its texts have so many characters: with ids, timings and tags the
# mean trace has 5.3 kB, as the workload of the review that set the goals had.
MIN_CHARACTERS, MAX_CHARACTERS = 2_600, 6_500
MAX_PASSAGES = 8


def make_traces(
    data: Path, traces: int, seed: int = 0, services: int = 3
) -> Iterator[dict[str, Any]]:
    """Yield traces of the native schema.

    Args:
        data: Folder of the development data.
        traces: How many.
        seed: Of all choices.
        services: The traces are spread over so many services, evenly.
    """
    rng = random.Random(seed)
    sets = {name: [row for row in rows(data, name) if row["answer"]] for name in SETS}
    pools: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for name, found in sets.items():
        for row in found:
            pool = pools.setdefault((name, row["task"]), [])
            pool += [passage for passage in row["passages"] if passage["text"]]
    borrowed = [pool for (name, _), pool in pools.items() if name in LENDERS]
    base = [(name, row) for name, found in sets.items() for row in found]
    for number in range(traces):
        name, row = base[rng.randrange(len(base))]
        other = rng.choice(sets[name])
        pool = pools[name, row["task"]]
        yield {
            "trace_id": f"{rng.getrandbits(128):032x}",
            "service": f"service-{number % services}",
            "timestamp": START + number / RATE + rng.uniform(-DISORDER_SECONDS, DISORDER_SECONDS),
            **_make_content(rng, row, other, pool or rng.choice(borrowed), number),
        }


def _make_content(
    rng: random.Random,
    row: dict[str, Any],
    other: dict[str, Any],
    pool: list[dict[str, Any]],
    number: int,
) -> dict[str, Any]:
    query = row["query"]
    if rng.random() < 0.8:
        query = f"{query} (case {number})"
    failed = rng.random() < 0.02
    total = rng.lognormvariate(0.5, 0.5)
    content: dict[str, Any] = {
        "query": query,
        "passages": _choose_passages(rng, row, pool),
        "answer": None if failed else _mix_answers(rng, row["answer"], other["answer"], number),
        "status": rng.choice(["error", "timeout"]) if failed else "ok",
        "timings": {
            "retrieval": round(total * 0.2, 4),
            "generation": round(total * 0.8, 4),
            "total": round(total, 4),
        },
        "usage": {
            "input_tokens": rng.randrange(600, 2_000),
            "output_tokens": rng.randrange(40, 400),
            "cost_usd": round(rng.uniform(1e-4, 4e-3), 6),
        },
        "tags": {
            "model": row.get("model") or "unknown",
            "prompt_version": f"v{number % 3}",
            "tenant": f"tenant-{rng.randrange(10)}",
        },
    }
    return content


def _choose_passages(
    rng: random.Random, row: dict[str, Any], pool: list[dict[str, Any]]
) -> list[dict[str, Any]]:
    chosen = [passage for passage in row["passages"] if passage["text"]][:MAX_PASSAGES]
    ids = {passage["id"] for passage in chosen}
    characters = sum(len(passage["text"]) for passage in chosen)
    while len(chosen) < MAX_PASSAGES and (len(chosen) < 2 or characters < MIN_CHARACTERS):
        passage = rng.choice(pool)
        if passage["id"] in ids:
            continue
        ids.add(passage["id"])
        chosen.append(passage)
        characters += len(passage["text"])
    result = []
    for rank, passage in enumerate(chosen, start=1):
        room = max(200, MAX_CHARACTERS // len(chosen))
        text = passage["text"] if characters <= MAX_CHARACTERS else passage["text"][:room]
        result.append({"id": passage["id"], "text": text, "rank": rank, "score": 1 / rank})
    return result


def _mix_answers(rng: random.Random, answer: str, other: str, number: int) -> str:
    """Put one sentence of `other` and a unique case number between the sentences of `answer`."""
    sentences = answer.split(". ")
    strange = rng.choice(other.split(". "))
    sentences.insert(rng.randrange(len(sentences) + 1), f"{strange.strip('. ')} (case {number})")
    return ". ".join(sentences)


def main() -> None:
    """Write the workload and print its size."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("out", type=Path)
    parser.add_argument("--data", type=Path, required=True, help="the folder of the data sets")
    parser.add_argument("--traces", type=int, default=20_000)
    parser.add_argument("--services", type=int, default=3)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    size = number = passages = 0
    queries, answers = set(), set()
    with options.out.open("w", encoding="utf-8") as file:
        for trace in make_traces(options.data, options.traces, options.seed, options.services):
            size += file.write(json.dumps(trace, ensure_ascii=False) + "\n")
            number += 1
            passages += len(trace["passages"])
            queries.add(trace["query"])
            answers.add(trace["answer"])
    means = f"mean {size / number:.0f} characters and {passages / number:.1f} passages"
    answers.discard(None)
    print(f"{number} traces, {means}; distinct: {len(queries)} queries, {len(answers)} answers")


if __name__ == "__main__":
    main()
