"""Questions about the retrieved passages: UMBRELA grades and context recall.

Context recall: an LLM judge looks for the statements of a reference in the passages.

The statements are the facts that the reference names, else the sentences of its answer. One call
for a canary; other traces have no reference and cost nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Any

from ragmeter.core.score import JUDGE_SCORER, NoScore, Score, make_score
from ragmeter.core.tiers import ScoringCost
from ragmeter.metrics.ranking import context_recall, rank_order
from ragmeter.metrics.text_index import parse_answer
from ragmeter.scorers.judge import passages as umbrela
from ragmeter.scorers.judge.calls import (
    MAX_ANSWER_CHARS,
    MAX_DETAIL_TEXT,
    MAX_LISTED,
    MAX_PASSAGE_CHARS,
    MAX_QUERY_CHARS,
    JudgeResult,
    ask_judge,
    choice_schema,
    labels_schema,
    missing_text_reason,
    ranked_passage_texts,
)
from ragmeter.scorers.judge.prompts import load_prompt
from ragmeter.scorers.llm.questions import JudgeQuestion, QuestionAnswerer
from ragmeter.trace import Reference, Trace

MAX_GRADED_PASSAGES = (
    100  # graded of one trace; no one reads further, and it bounds what a trace costs
)
_UMBRELA_GRADES = ("0", "1", "2", "3")
_SINGLE_PROMPT = load_prompt("umbrela", 1)
_BATCH_PROMPT = load_prompt("umbrela-batch", 1)


def grade_question(query: str, passage: str) -> JudgeQuestion[int]:
    """The grade of one passage."""

    def read(reply: Any) -> int:
        return _UMBRELA_GRADES.index(reply["grade"])

    return _SINGLE_PROMPT.ask(
        {"query": query, "passage": passage},
        schema=choice_schema("grade", _UMBRELA_GRADES),
        read=read,
        max_output_tokens=200,
    )


def batch_grade_question(query: str, passages: Sequence[str]) -> JudgeQuestion[list[int]]:
    """The grades of several passages, in their order."""
    numbers = [str(n) for n in range(1, len(passages) + 1)]

    def read(reply: Any) -> list[int]:
        return [_UMBRELA_GRADES.index(reply[number]) for number in numbers]

    return _BATCH_PROMPT.ask(
        {"query": query, "passages": passages},
        facts={"count": len(passages)},
        schema=labels_schema(numbers, _UMBRELA_GRADES),
        read=read,
        max_output_tokens=200 + 10 * len(passages),
    )


async def grade_passages(
    asking: QuestionAnswerer,
    query: str | None,
    passages: Sequence[str | None],
    cost: ScoringCost,
    *,
    per_call: int = 1,
) -> list[JudgeResult[int]]:
    """A grade, or why there is none, for each passage, in rank order; all calls side by side.

    With `per_call` above 1 several passages share a call, and its fate.
    """
    no_query = missing_text_reason(query, MAX_QUERY_CHARS, "no_query")
    gaps = [
        no_query or missing_text_reason(passage, MAX_PASSAGE_CHARS)
        for passage in passages[:MAX_GRADED_PASSAGES]
    ]
    gaps += [NoScore("too_long")] * (len(passages) - len(gaps))
    out: dict[int, JudgeResult[int]] = {
        rank: JudgeResult(gap) for rank, gap in enumerate(gaps) if gap is not None
    }
    ranks = [rank for rank, gap in enumerate(gaps) if gap is None]
    parts = [ranks[at : at + per_call] for at in range(0, len(ranks), per_call)]

    async def part(ranks: list[int]) -> None:
        texts = [passages[rank] or "" for rank in ranks]
        if per_call == 1:
            out[ranks[0]] = await ask_judge(asking, grade_question(query or "", texts[0]), cost)
            return
        found = await ask_judge(asking, batch_grade_question(query or "", texts), cost)
        for at, rank in enumerate(ranks):
            value = found.value if isinstance(found.value, NoScore) else found.value[at]
            out[rank] = JudgeResult(value, found.fingerprint)

    await asyncio.gather(*map(part, parts))
    return [out[rank] for rank in range(len(passages))]


_JudgedGrades = list[JudgeResult[int]]
"""One for each passage, in rank order."""


class PassageGrading:
    """Asked for once, when first needed."""

    def __init__(
        self, asking: QuestionAnswerer, trace: Trace, cost: ScoringCost, per_call: int
    ) -> None:
        passages = trace.passages or []
        texts = [passages[index].text for index in rank_order(passages)]
        self._ask = partial(
            umbrela.grade_passages, asking, trace.query, texts, cost, per_call=per_call
        )
        self._task: asyncio.Task[_JudgedGrades] | None = None

    async def grades(self) -> _JudgedGrades:
        if self._task is None:
            self._task = asyncio.create_task(self._ask())
        return await self._task


_RECALL_METRIC = "context_recall"
_RECALL_SUPPORT = ("supported", "unsupported")
_MAX_SHOWN = 10  # statements that were missed and that a result carries
_RECALL_PROMPT = load_prompt("context-recall", 1)


def reference_statements(reference: Reference | None) -> list[str] | NoScore:
    """What the passages should hold."""
    if reference is None:
        return NoScore("no_reference", applies=False)
    if reference.answerable is False:
        return NoScore("unanswerable", applies=False)
    answer = reference.answer or ""
    found = [fact for fact in reference.facts if fact.strip()]
    if sum(map(len, found)) > MAX_ANSWER_CHARS or (not found and len(answer) > MAX_ANSWER_CHARS):
        return NoScore("too_long")
    found = [" ".join(text.split()) for text in found or _sentences(answer)]
    if not found:
        return NoScore("no_reference_answer", applies=False)
    return found if len(found) <= MAX_LISTED else NoScore("too_long")


def _sentences(answer: str) -> list[str]:
    return [claim.text for claim in parse_answer(answer).claims]


def context_recall_question(
    query: str, passages: Sequence[str], wanted: Sequence[str]
) -> JudgeQuestion[list[bool]]:
    """Whether the passages hold each of the statements."""
    numbers = [str(n) for n in range(1, len(wanted) + 1)]

    def read(reply: Any) -> list[bool]:
        return [reply[number] == _RECALL_SUPPORT[0] for number in numbers]

    return _RECALL_PROMPT.ask(
        {
            "query": query,
            "passages": passages,
            "statements": "\n".join(f"{n}. {text}" for n, text in enumerate(wanted, 1)),
        },
        facts={"count": len(wanted)},
        schema=labels_schema(numbers, _RECALL_SUPPORT),
        read=read,
        max_output_tokens=200 + 10 * len(wanted),
    )


async def score_context_recall(
    asking: QuestionAnswerer, trace: Trace, cost: ScoringCost
) -> list[Score]:
    """The result for `context_recall`. An empty retrieval holds no statement: 0, without a call."""
    if trace.reference is not None and trace.status != "ok":
        return [
            make_score(_RECALL_METRIC, trace, NoScore(trace.status, applies=False), JUDGE_SCORER)
        ]
    wanted = reference_statements(trace.reference)
    if isinstance(wanted, NoScore):
        return [make_score(_RECALL_METRIC, trace, wanted, JUDGE_SCORER)]
    texts = ranked_passage_texts(trace)
    if isinstance(texts, NoScore):
        return [make_score(_RECALL_METRIC, trace, texts, JUDGE_SCORER)]
    if not texts:
        return [make_score(_RECALL_METRIC, trace, 0.0, JUDGE_SCORER)]
    # cut, and no gap: it only tells what the statements are about
    asked = await ask_judge(
        asking, context_recall_question((trace.query or "")[:MAX_QUERY_CHARS], texts, wanted), cost
    )
    if isinstance(asked.value, NoScore):
        return [make_score(_RECALL_METRIC, trace, asked.value, JUDGE_SCORER)]
    missed = [text for text, held in zip(wanted, asked.value, strict=True) if not held]
    shown = {
        "statements": len(wanted),
        "missed": len(missed),
        "missed_statements": [text[:MAX_DETAIL_TEXT] for text in missed[:_MAX_SHOWN]],
    }
    value = context_recall(asked.value)
    return [
        make_score(
            _RECALL_METRIC, trace, value, JUDGE_SCORER, detail=shown, fingerprint=asked.fingerprint
        )
    ]
