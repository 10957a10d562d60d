"""The traces of `benchmarks.judge` and the judge that answers for them.

    python -m benchmarks.judge_workload [--latency 0.2] [--malformed 0.05]

serves that judge: the stub of the tests, in a process of its own, answering both our prompts and
those of open-rag-eval by their schemas. An answer depends only on which made-up items the question
names, so a passage gets the same grade alone and among others: what differs then is plumbing.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import re
import zlib
from collections.abc import Mapping, Sequence
from itertools import count
from typing import Any

from tests.scorers.judge.stub_answers import Messages
from tests.scorers.judge.stub_judge import StubJudge

__all__ = ["NUGGETS", "Workload", "answer", "main", "workload"]

NUGGETS = 12
PASSAGES = 5
SENTENCES = 8  # of a passage
# Four statements: five citations, and one without any.
CITATIONS: Sequence[Sequence[int]] = ((1,), (2, 3), (1, 4), ())

WORDS = [
    start + end
    for start in ("har", "led", "cop", "mea", "sig", "orch", "turb", "gla", "pam", "lan")
    for end in ("bour", "ger", "per", "dow", "nal", "ard")
]

Workload = list[dict[str, Any]]
"""One dict a query: `id`, `query`, `passages` (texts in rank order) and `parts`, each of a `text`
and the ranks that it cites."""


def workload(queries: int, seed: int = 7) -> Workload:
    """Made-up queries; no two share a passage."""
    rng = random.Random(seed)
    out: Workload = []
    for number in range(queries):
        items = [f"item{seed}x{number}x{rank}" for rank in range(1, PASSAGES + 1)]
        parts = [
            {"text": _sentence(rng, f"Part {index} of answer {number} says that"), "cites": cites}
            for index, cites in enumerate(CITATIONS)
        ]
        passages = [
            " ".join(
                _sentence(rng, f"The {item} report" if not i else "It") for i in range(SENTENCES)
            )
            for item in items
        ]
        query = f"what happened to the {rng.choice(WORDS)} of case {number} in series {seed}?"
        out.append(
            {"id": f"q{seed}-{number}", "query": query, "passages": passages, "parts": parts}
        )
    return out


def _sentence(rng: random.Random, start: str) -> str:
    return f"{start} {' '.join(rng.choice(WORDS) for _ in range(12))}."


def answer(messages: Messages, schema: Mapping[str, Any]) -> object:
    """A valid answer, the same for the same question."""
    question = messages[1]["content"]
    items = iter(re.findall(r"item\d+x\d+x\d+", question))
    several = re.search(r"label each of the (\d+) nuggets", question)  # open-rag-eval's words
    length = int(several[1]) if several else NUGGETS
    definitions = schema.get("$defs", {})
    places = count()

    def value(part: Mapping[str, Any]) -> object:
        if "$ref" in part:  # as pydantic writes open-rag-eval's schemas
            return value(definitions[part["$ref"].rpartition("/")[2]])
        if "enum" in part:
            if [str(one) for one in part["enum"]] == ["0", "1", "2", "3"]:
                # never 0: every passage takes part in the search for nuggets
                return part["enum"][1 + _hash(next(items, question)) % 3]
            return part["enum"][_hash(f"{next(places)} {question}") % len(part["enum"])]
        if part["type"] == "object":
            return {name: value(one) for name, one in part["properties"].items()}
        if part["type"] == "array":
            return [value(part["items"]) for _ in range(length)]
        return f"fact {next(places)} of {_hash(question):08x}"

    return value(schema)


def _hash(text: str) -> int:
    return zlib.crc32(text.encode())


async def serve(latency: float, malformed: float) -> None:
    faults = {"malformed": malformed} if malformed else {}
    stub = StubJudge(latency=latency, answer=answer, faults=faults, seed=1, keep_bodies=False)
    print(await stub.start(), flush=True)
    await asyncio.Event().wait()


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--latency", type=float, default=0.2, help="seconds")
    parser.add_argument("--malformed", type=float, default=0.0, help="share of answers")
    options = parser.parse_args()
    asyncio.run(serve(options.latency, options.malformed))


if __name__ == "__main__":
    main()
