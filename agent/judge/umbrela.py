"""UMBRELA: an LLM judge grades passages for a query, 0 to 3 (arXiv 2406.06519)."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from agent.judge.asked import MAX_PASSAGE, MAX_QUERY, Asked, ask, choice, labels, text_gap
from agent.judge.prompts import load
from agent.judge.question import Asking, Question
from agent.metrics.results import Gap
from agent.tiers import Cost

__all__ = ["MAX_PASSAGES", "batch_question", "grade", "question"]

MAX_PASSAGES = 100  # graded of one trace; no one reads further, and it bounds what a trace costs
GRADES = ("0", "1", "2", "3")
ONE = load("umbrela", 1)
BATCH = load("umbrela-batch", 1)


def question(query: str, passage: str) -> Question[int]:
    """The grade of one passage."""

    def read(reply: Any) -> int:
        return GRADES.index(reply["grade"])

    return ONE.ask(
        {"query": query, "passage": passage},
        schema=choice("grade", GRADES),
        read=read,
        max_output_tokens=200,
    )


def batch_question(query: str, passages: Sequence[str]) -> Question[list[int]]:
    """The grades of several passages, in their order."""
    numbers = [str(n) for n in range(1, len(passages) + 1)]

    def read(reply: Any) -> list[int]:
        return [GRADES.index(reply[number]) for number in numbers]

    return BATCH.ask(
        {"query": query, "passages": passages},
        facts={"count": len(passages)},
        schema=labels(numbers, GRADES),
        read=read,
        max_output_tokens=200 + 10 * len(passages),
    )


async def grade(
    asking: Asking,
    query: str | None,
    passages: Sequence[str | None],
    cost: Cost,
    *,
    per_call: int = 1,
) -> list[Asked[int]]:
    """A grade, or why there is none, for each passage, in rank order; all calls side by side.

    With `per_call` above 1 several passages share a call, and its fate.
    """
    no_query = text_gap(query, MAX_QUERY, "no_query")
    gaps = [no_query or text_gap(passage, MAX_PASSAGE) for passage in passages[:MAX_PASSAGES]]
    gaps += [Gap("too_long")] * (len(passages) - len(gaps))
    out: dict[int, Asked[int]] = {
        rank: Asked(gap) for rank, gap in enumerate(gaps) if gap is not None
    }
    ranks = [rank for rank, gap in enumerate(gaps) if gap is None]
    parts = [ranks[at : at + per_call] for at in range(0, len(ranks), per_call)]

    async def part(ranks: list[int]) -> None:
        texts = [passages[rank] or "" for rank in ranks]
        if per_call == 1:
            out[ranks[0]] = await ask(asking, question(query or "", texts[0]), cost)
            return
        found = await ask(asking, batch_question(query or "", texts), cost)
        for at, rank in enumerate(ranks):
            value = found.value if isinstance(found.value, Gap) else found.value[at]
            out[rank] = Asked(value, found.fingerprint)

    await asyncio.gather(*map(part, parts))
    return [out[rank] for rank in range(len(passages))]
