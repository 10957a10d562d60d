"""The grades of one trace's passages, which several families need."""

from __future__ import annotations

import asyncio
from functools import partial

from agent.judge import umbrela
from agent.judge.asked import Asked
from agent.judge.question import Asking
from agent.metrics.ranking import rank_order
from agent.tiers import Cost
from agent.trace import Trace

__all__ = ["Grades", "Grading"]

Grades = list[Asked[int]]
"""One for each passage, in rank order."""


class Grading:
    """Asked for once, when first needed."""

    def __init__(self, asking: Asking, trace: Trace, cost: Cost, per_call: int) -> None:
        passages = trace.passages or []
        texts = [passages[index].text for index in rank_order(passages)]
        self._ask = partial(umbrela.grade, asking, trace.query, texts, cost, per_call=per_call)
        self._task: asyncio.Task[Grades] | None = None

    async def grades(self) -> Grades:
        if self._task is None:
            self._task = asyncio.create_task(self._ask())
        return await self._task
