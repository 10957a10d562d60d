"""Questions about the retrieved passages: UMBRELA grades and context recall.

Context recall looks for the statements of a reference in the passages: the facts that it names, or
else the sentences of its answer. It takes one call for a canary; other traces have no reference
and cost nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Any

from ragmeter.core.score import NoScore
from ragmeter.core.tiers import ScoringCost
from ragmeter.metrics.answer_text import parse_answer
from ragmeter.metrics.ranking import context_recall, context_scores, rank_order, ranking_scores
from ragmeter.reasons import Reason
from ragmeter.scorers.judge.calls import FamilyScores, JudgeResult, all_fingerprints, ask_judge
from ragmeter.scorers.judge.listed_items import MAX_DETAIL_TEXT, MAX_LISTED, number_lines
from ragmeter.scorers.judge.material import (
    MAX_ANSWER_CHARS,
    MAX_PASSAGE_CHARS,
    MAX_QUERY_CHARS,
    missing_text_reason,
    ranked_passage_texts,
)
from ragmeter.scorers.judge.prompts import load_prompt
from ragmeter.scorers.llm.questions import JudgeQuestion, QuestionAnswerer
from ragmeter.trace import Reference, Trace

# Passages graded of one trace: no one reads further, and it bounds the cost of a trace.
_MAX_GRADED_PASSAGES = 100
_MAX_SHOWN = 10  # missed statements that a result carries
_GRADES = {str(grade): grade for grade in range(4)}
_RECALL_LABELS = {"supported": True, "unsupported": False}
_SINGLE_PROMPT = load_prompt("umbrela", 2)
_RECALL_PROMPT = load_prompt("context-recall", 1)


def grade_question(query: str, passage: str) -> JudgeQuestion[int]:
    """Return the question for the grade of one passage."""
    return _SINGLE_PROMPT.ask_label("grade", _GRADES, {"query": query, "passage": passage})


async def grade_passages(
    judge: QuestionAnswerer,
    query: str | None,
    passages: Sequence[str | None],
    cost: ScoringCost,
) -> list[JudgeResult[int]]:
    """Return the grade of each passage in rank order, or why it has none.

    Each is asked for in a call of its own, since grades in one call influence each other. The calls
    run side by side.
    """
    no_query = missing_text_reason(query, MAX_QUERY_CHARS, Reason.NO_QUERY)
    reasons = [
        no_query or missing_text_reason(passage, MAX_PASSAGE_CHARS)
        for passage in passages[:_MAX_GRADED_PASSAGES]
    ]
    reasons += [NoScore(Reason.TOO_LONG)] * (len(passages) - len(reasons))
    out: dict[int, JudgeResult[int]] = {
        rank: JudgeResult(reason) for rank, reason in enumerate(reasons) if reason is not None
    }

    async def grade(rank: int) -> None:
        question = grade_question(query or "", passages[rank] or "")
        out[rank] = await ask_judge(judge, question, cost)

    await asyncio.gather(*[grade(rank) for rank, reason in enumerate(reasons) if reason is None])
    return [out[rank] for rank in range(len(passages))]


class PassageGrading:
    """The grades of one trace's passages, asked for once, when first needed."""

    def __init__(self, judge: QuestionAnswerer, trace: Trace, cost: ScoringCost) -> None:
        passages = trace.passages or []
        texts = [passages[index].text for index in rank_order(passages)]
        self._grade = partial(grade_passages, judge, trace.query, texts, cost)
        self._task: asyncio.Task[list[JudgeResult[int]]] | None = None

    async def grades(self) -> list[JudgeResult[int]]:
        """Return the grade of each passage, or why it has none, in rank order."""
        if self._task is None:
            self._task = asyncio.create_task(self._grade())
        return await self._task


async def score_relevance(
    trace: Trace, grading: PassageGrading, ks: Sequence[int]
) -> FamilyScores | NoScore:
    """Return the ranking metrics with cut-offs `ks`; the detail of `relevance` has the grades."""
    if trace.passages is None:
        return NoScore(Reason.NO_PASSAGES_CAPTURED)
    grades = await grading.grades()
    by_index = dict(zip(rank_order(trace.passages), grades, strict=True))
    return FamilyScores.build(
        ranking_scores([result.value for result in grades], ks),
        all_fingerprints(grades),
        relevance=_grades_detail([by_index[index].value for index in sorted(by_index)]),
    )


async def score_context(trace: Trace, grading: PassageGrading) -> FamilyScores | NoScore:
    """Return the context metrics that follow from the grades."""
    if trace.passages is None:
        return NoScore(Reason.NO_PASSAGES_CAPTURED)
    grades = await grading.grades()
    values = context_scores([result.value for result in grades])
    return FamilyScores.build(values, all_fingerprints(grades))


def _grades_detail(grades: Sequence[int | NoScore]) -> dict[str, Any]:
    """Grades in the order of the trace, and for each reason the passages without one."""
    shown = grades[:_MAX_GRADED_PASSAGES]
    missing: dict[str, list[int]] = {}
    for index, grade in enumerate(shown):
        if isinstance(grade, NoScore):
            missing.setdefault(grade.reason, []).append(index)
    detail = {"grades": [None if isinstance(grade, NoScore) else grade for grade in shown]}
    return {**detail, "missing": missing} if missing else detail


def reference_statements(reference: Reference | None) -> list[str] | NoScore:
    """Return what the passages should hold."""
    if reference is None:
        return NoScore(Reason.NO_REFERENCE, applies=False)
    if reference.answerable is False:
        return NoScore(Reason.UNANSWERABLE, applies=False)
    answer = reference.answer or ""
    texts = [fact for fact in reference.facts if fact.strip()]
    if sum(map(len, texts)) > MAX_ANSWER_CHARS or (not texts and len(answer) > MAX_ANSWER_CHARS):
        return NoScore(Reason.TOO_LONG)
    texts = texts or [claim.text for claim in parse_answer(answer).claims]
    if not texts:
        return NoScore(Reason.NO_REFERENCE_ANSWER, applies=False)
    if len(texts) > MAX_LISTED:
        return NoScore(Reason.TOO_LONG)
    return [" ".join(text.split()) for text in texts]


def context_recall_question(
    query: str, passages: Sequence[str], statements: Sequence[str]
) -> JudgeQuestion[list[bool]]:
    """Return the question whether the passages hold each of the statements."""
    data = {"query": query, "passages": passages, "statements": number_lines(statements)}
    return _RECALL_PROMPT.ask_labels(len(statements), _RECALL_LABELS, data)


async def score_context_recall(
    judge: QuestionAnswerer, trace: Trace, cost: ScoringCost
) -> FamilyScores | NoScore:
    """Return the metric `context_recall`; its detail has the statements that were missed."""
    if trace.reference is not None and trace.status != "ok":
        return NoScore(trace.status, applies=False)
    statements = reference_statements(trace.reference)
    if isinstance(statements, NoScore):
        return statements
    texts = ranked_passage_texts(trace)
    if isinstance(texts, NoScore):
        return texts
    if not texts:  # an empty retrieval holds no statement: no call is needed
        return FamilyScores.build({"context_recall": 0.0}, None)
    # a long query is cut: it only tells what the statements are about
    query = (trace.query or "")[:MAX_QUERY_CHARS]
    result = await ask_judge(judge, context_recall_question(query, texts, statements), cost)
    if isinstance(result.value, NoScore):
        return result.value
    missed = [text for text, held in zip(statements, result.value, strict=True) if not held]
    detail = {
        "statements": len(statements),
        "missed": len(missed),
        "missed_statements": [text[:MAX_DETAIL_TEXT] for text in missed[:_MAX_SHOWN]],
    }
    values = {"context_recall": context_recall(result.value)}
    return FamilyScores.build(values, result.fingerprint, context_recall=detail)
