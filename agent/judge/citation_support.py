"""Citation support: an LLM judge says how far a passage supports a statement that cites it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from agent.judge.asked import MAX_ANSWER, MAX_PASSAGE, Asked, ask, choice, text_gap
from agent.judge.prompts import load
from agent.judge.question import Asking, Question
from agent.metrics.cited import WHOLE, Instance, instances
from agent.metrics.results import Gap
from agent.metrics.statements import Statements
from agent.tiers import Cost

__all__ = ["MAX_INSTANCES", "SUPPORT", "judge", "question"]

MAX_INSTANCES = 100  # judged of one answer; bounds what an answer of nothing but markers costs
SUPPORT = {"full": 1.0, "partial": 0.5, "none": 0.0}
PROMPT = load("citation-support", 1)


def question(statement: str, passage: str) -> Question[float]:
    """How far the passage supports the statement: 1, 0.5 or 0."""

    def read(reply: Any) -> float:
        return SUPPORT[reply["support"]]

    return PROMPT.ask(
        {"statement": statement, "passage": passage},
        schema=choice("support", list(SUPPORT)),
        read=read,
        max_output_tokens=200,
    )


async def judge(
    asking: Asking, statements: Statements, passages: Sequence[str | None], cost: Cost
) -> dict[Instance, Asked[float]]:
    """The support, or why there is none, of every citation; all calls side by side."""
    whole = " ".join(item.claim.text for item in statements.items)

    async def one(number: int, instance: Instance) -> Asked[float]:
        passage = passages[instance.passage]
        text = whole
        if instance.statement != WHOLE:
            text = statements.items[instance.statement].claim.text
        gap = text_gap(text, MAX_ANSWER) or text_gap(passage, MAX_PASSAGE)
        if gap is None and number >= MAX_INSTANCES:
            gap = Gap("too_long")
        return Asked(gap) if gap else await ask(asking, question(text, passage or ""), cost)

    asked = instances(statements)
    found = await asyncio.gather(*[one(number, what) for number, what in enumerate(asked)])
    return dict(zip(asked, found, strict=True))
