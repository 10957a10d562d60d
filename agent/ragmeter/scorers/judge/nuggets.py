"""AutoNuggetizer: find the facts an answer should hold, weigh them, and look for them in it.

Creation walks the relevant passages in windows of ten, one call after another; then importance and
assignment go in batches of ten, side by side (arXiv 2411.09607, 2504.15068). With at most
`MAX_SCORED_NUGGETS` nuggets none is left out, so assignment does not wait for importance.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from ragmeter.core.score import NoScore, most_common_reason
from ragmeter.core.tiers import ScoringCost
from ragmeter.metrics.nuggets import (
    MAX_SCORED_NUGGETS,
    NUGGET_IMPORTANCE,
    NUGGET_SUPPORT,
    NUGGET_VALUES,
    NuggetImportance,
    NuggetSupport,
    nugget_scores,
    select_nuggets,
)
from ragmeter.metrics.ranking import rank_order
from ragmeter.reasons import Reason
from ragmeter.scorers.judge.calls import (
    FamilyScores,
    Fingerprints,
    JudgeResult,
    ListedItems,
    all_fingerprints,
    ask_judge,
)
from ragmeter.scorers.judge.listed_items import MAX_DETAIL_TEXT, number_lines
from ragmeter.scorers.judge.material import (
    MAX_ANSWER_CHARS,
    MAX_MATERIAL_CHARS,
    MAX_QUERY_CHARS,
    missing_answer_reason,
    missing_text_reason,
)
from ragmeter.scorers.judge.passages import PassageGrading
from ragmeter.scorers.judge.prompts import load_prompt
from ragmeter.scorers.judge.schemas import list_schema, object_schema
from ragmeter.scorers.llm.questions import JudgeQuestion, QuestionAnswerer
from ragmeter.trace import Trace

T = TypeVar("T")

_MIN_GRADE = 1  # of a passage that nuggets are taken from
_PER_CALL = 10  # passages or nuggets of one call
_MAX_NUGGETS = 30
_MAX_WORDS = 12
# Judges miscount words, and a fact of 14 is one still: only a nugget far too long is refused.
_TOLERATED_WORDS = 2 * _MAX_WORDS
_MAX_CHARS = 300  # of one nugget, for languages that write no spaces
_CREATE_PROMPT = load_prompt("nuggets-create", 2)
_WEIGH_PROMPT = load_prompt("nuggets-importance", 2)
_ASSIGN_PROMPT = load_prompt("nuggets-assign", 2)
_LIST_SCHEMA = object_schema({"nuggets": list_schema({"type": "string"})})


@dataclass(slots=True)
class NuggetFindings:
    """The nuggets that count, at most `MAX_SCORED_NUGGETS`, with a label each.

    `importance` is a reason where any call for it failed. `created` is the number of nuggets
    before the cut. `calls` are those that created and assigned, `weighing` those for importance.
    """

    texts: list[str]
    importance: list[NuggetImportance] | NoScore
    supports: list[NuggetSupport | NoScore]
    created: int = 0
    calls: Sequence[JudgeResult[Any]] = ()
    weighing: Sequence[JudgeResult[Any]] = ()


def passage_windows(passages: Sequence[str]) -> list[list[str]]:
    """Return the passages in windows of ten at most, fewer where they are long."""
    out: list[list[str]] = []
    size = 0
    for passage in passages:
        if not out or len(out[-1]) == _PER_CALL or size + len(passage) > MAX_MATERIAL_CHARS:
            out.append([])
            size = 0
        out[-1].append(passage)
        size += len(passage)
    return out


def _read_list(reply: Any) -> list[str]:
    out: dict[str, str] = {}
    for number, raw in enumerate(reply["nuggets"], 1):
        text = re.sub(r"\s+", " ", raw).strip()
        if not re.search(r"\w", text):
            raise ValueError(f"nugget {number} is empty")
        if len(text.split()) > _TOLERATED_WORDS or len(text) > _MAX_CHARS:
            raise ValueError(f"nugget {number} is too long: at most {_MAX_WORDS} words")
        out.setdefault(text.casefold(), text)
    return list(out.values())[:_MAX_NUGGETS]


def creation_question(
    query: str, passages: Sequence[str], nuggets: Sequence[str]
) -> JudgeQuestion[list[str]]:
    """Return the question that brings the nuggets so far up to date with these passages."""
    return _CREATE_PROMPT.ask(
        {"query": query, "nuggets": number_lines(nuggets), "passages": passages},
        schema=_LIST_SCHEMA,
        read=_read_list,
        max_output_tokens=2000,
    )


def importance_question(
    query: str, nuggets: Sequence[str]
) -> JudgeQuestion[list[NuggetImportance]]:
    """Return the question whether each of at most ten nuggets is vital or okay."""
    labels: dict[str, NuggetImportance] = {label: label for label in NUGGET_IMPORTANCE}
    data = {"query": query, "nuggets": number_lines(nuggets)}
    return _WEIGH_PROMPT.ask_labels(len(nuggets), labels, data, tokens=20)


def assignment_question(
    query: str, answer: str, nuggets: Sequence[str]
) -> JudgeQuestion[list[NuggetSupport]]:
    """Return the question how far the answer supports each of at most ten nuggets."""
    labels: dict[str, NuggetSupport] = {label: label for label in NUGGET_SUPPORT}
    data = {"query": query, "answer": answer, "nuggets": number_lines(nuggets)}
    return _ASSIGN_PROMPT.ask_labels(len(nuggets), labels, data, tokens=20)


async def label_nuggets(
    judge: QuestionAnswerer,
    trace: Trace,
    supports: Sequence[str],
    importances: Sequence[str],
    cost: ScoringCost,
) -> tuple[list[NuggetSupport | NoScore], list[NuggetImportance | NoScore], Fingerprints]:
    """Label the nuggets of another judge: the support of some, the importance of others."""
    query = trace.query or ""
    answer = trace.answer or ""
    assign = partial(assignment_question, query, answer)
    weigh = partial(importance_question, query)
    (labels, calls), (weights, weighing) = await asyncio.gather(
        _label_in_batches(judge, assign, supports, cost),
        _label_in_batches(judge, weigh, importances, cost),
    )
    return labels, weights, all_fingerprints([*calls, *weighing])


async def _label_in_batches(
    judge: QuestionAnswerer,
    make: Callable[[Sequence[str]], JudgeQuestion[list[T]]],
    nuggets: Sequence[str],
    cost: ScoringCost,
) -> tuple[list[T | NoScore], list[JudgeResult[list[T]]]]:
    """Return a label or a reason for each nugget, and the calls behind them."""
    batches = [nuggets[at : at + _PER_CALL] for at in range(0, len(nuggets), _PER_CALL)]
    calls = await asyncio.gather(*[ask_judge(judge, make(batch), cost) for batch in batches])
    labels: list[T | NoScore] = []
    for batch, call in zip(batches, calls, strict=True):
        labels += [call.value] * len(batch) if isinstance(call.value, NoScore) else call.value
    return labels, calls


async def judge_right_answers(
    judge: QuestionAnswerer, trace: Trace, answers: Sequence[str], cost: ScoringCost
) -> float | NoScore:
    """Return how far the answer of a canary states one of these right answers: 1, 0.5 or 0."""
    reason = missing_text_reason(trace.answer, MAX_ANSWER_CHARS) or missing_text_reason(
        trace.query, MAX_QUERY_CHARS, Reason.NO_QUERY
    )
    if reason is not None:
        return reason
    question = assignment_question(trace.query or "", trace.answer or "", answers[:_PER_CALL])
    labels = (await ask_judge(judge, question, cost)).value
    if isinstance(labels, NoScore):
        return labels
    return max(NUGGET_VALUES[label] for label in labels)


async def nuggetize(
    judge: QuestionAnswerer, query: str, passages: Sequence[str], answer: str, cost: ScoringCost
) -> NuggetFindings | NoScore:
    """Create, weigh and assign nuggets of the relevant passages, which are in rank order."""
    texts: list[str] = []
    creation: list[JudgeResult[Any]] = []
    for window in passage_windows(passages):
        created = await ask_judge(judge, creation_question(query, window, texts), cost)
        if isinstance(created.value, NoScore):
            return created.value
        creation.append(created)
        texts = created.value
    if not texts:
        return NoScore(Reason.NO_NUGGETS, applies=False)

    assign = partial(_label_in_batches, judge, partial(assignment_question, query, answer))
    weigh = _label_in_batches(judge, partial(importance_question, query), texts, cost)
    importance: list[NuggetImportance] | NoScore
    if len(texts) <= MAX_SCORED_NUGGETS:
        (labels, weighing), (supports, assignment) = await asyncio.gather(
            weigh, assign(texts, cost)
        )
        importance = _all_or_reason(labels)
        scored = texts
    else:
        labels, weighing = await weigh
        importance = _all_or_reason(labels)
        if isinstance(importance, NoScore):  # which nuggets count is not known
            return importance
        indices = select_nuggets(importance)
        scored = [texts[index] for index in indices]
        importance = [importance[index] for index in indices]
        supports, assignment = await assign(scored, cost)
    calls = [*creation, *assignment]
    return NuggetFindings(
        texts=scored,
        importance=importance,
        supports=supports,
        created=len(texts),
        calls=calls,
        weighing=weighing,
    )


def _all_or_reason(labels: Sequence[T | NoScore]) -> list[T] | NoScore:
    reasons = [label for label in labels if isinstance(label, NoScore)]
    if reasons:
        return most_common_reason(reasons)
    return [label for label in labels if not isinstance(label, NoScore)]


async def _relevant_texts(trace: Trace, grading: PassageGrading) -> list[str] | NoScore:
    """Return relevant passages in rank order; one without a grade is left out."""
    reason = missing_answer_reason(trace) or missing_text_reason(trace.answer, MAX_ANSWER_CHARS)
    if reason is None and trace.passages is None:
        reason = NoScore(Reason.NO_PASSAGES_CAPTURED)
    if reason is None and not trace.passages:
        reason = NoScore(Reason.NO_PASSAGES, applies=False)
    reason = reason or missing_text_reason(trace.query, MAX_QUERY_CHARS, Reason.NO_QUERY)
    if reason is not None:
        return reason
    grades = [result.value for result in await grading.grades()]
    passages = trace.passages or []
    texts = [
        passages[index].text or ""
        for index, grade in zip(rank_order(passages), grades, strict=True)
        if not isinstance(grade, NoScore) and grade >= _MIN_GRADE
    ]
    if texts:
        return texts
    reasons = [grade for grade in grades if isinstance(grade, NoScore)]
    return (
        most_common_reason(reasons) if reasons else NoScore(Reason.NOTHING_RELEVANT, applies=False)
    )


async def score_nuggets(
    judge: QuestionAnswerer, trace: Trace, cost: ScoringCost, grading: PassageGrading
) -> FamilyScores | NoScore:
    """Return the nugget metrics; the detail of `nugget_all` has the nuggets."""
    texts = await _relevant_texts(trace, grading)
    if isinstance(texts, NoScore):
        return texts
    findings = await nuggetize(
        judge=judge, query=trace.query or "", passages=texts, answer=trace.answer or "", cost=cost
    )
    if isinstance(findings, NoScore):
        return findings
    # The instrument is the whole chain. Importance is left out where a score does not rest on it,
    # though it may have chosen the nuggets: else `nugget_all` had another fingerprint with 21
    # nuggets than with 20.
    chain = [*await grading.grades(), *findings.calls]
    lenient = all_fingerprints(chain)
    weighed = all_fingerprints([*chain, *findings.weighing])
    values = nugget_scores(findings.supports, findings.importance)
    return FamilyScores(
        values,
        {
            name: lenient
            if name in ("nugget_all", "nugget_all_strict", "nugget_count")
            else weighed
            for name in values
        },
        {"nugget_all": nuggets_detail(findings)},
        _items(findings),
    )


def _items(findings: NuggetFindings) -> ListedItems:
    weights = [] if isinstance(findings.importance, NoScore) else findings.importance
    supports = zip(findings.texts, findings.supports, strict=True)
    return {
        "nugget": [(text, label) for text, label in supports if not isinstance(label, NoScore)],
        "importance": list(zip(findings.texts, weights, strict=False)),
    }


def nuggets_detail(findings: NuggetFindings) -> dict[str, Any]:
    """Return the nuggets with their labels; a missing label is None."""
    kinds: Sequence[str | None] = (
        [None] * len(findings.texts)
        if isinstance(findings.importance, NoScore)
        else findings.importance
    )
    return {
        "nuggets": [
            {
                "text": text[:MAX_DETAIL_TEXT],
                "importance": kind,
                "support": None if isinstance(support, NoScore) else support,
            }
            for text, kind, support in zip(findings.texts, kinds, findings.supports, strict=True)
        ],
        "created": findings.created,
    }
