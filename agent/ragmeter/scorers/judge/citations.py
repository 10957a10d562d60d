"""Ask the judge whether the citations of an answer hold: one call for each."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from ragmeter.core.score import NoScore
from ragmeter.core.tiers import ScoringCost
from ragmeter.metrics import abstention
from ragmeter.metrics.answer_text import parse_answer
from ragmeter.metrics.citations import resolve_citations
from ragmeter.metrics.cited_statements import (
    WHOLE_ANSWER,
    CitationInstance,
    CitedStatements,
    attach_citations,
    citation_scores,
    list_citation_instances,
    missing_citation_reason,
)
from ragmeter.metrics.sentences import MAX_SENTENCES, find_sentence_spans
from ragmeter.reasons import Reason
from ragmeter.scorers.judge.calls import FamilyScores, JudgeResult, all_fingerprints, ask_judge
from ragmeter.scorers.judge.material import (
    MAX_ANSWER_CHARS,
    MAX_PASSAGE_CHARS,
    missing_text_reason,
)
from ragmeter.scorers.judge.prompts import load_prompt
from ragmeter.scorers.llm.questions import JudgeQuestion, QuestionAnswerer
from ragmeter.trace import Trace

CITATION_SUPPORT_VALUES = {"full": 1.0, "partial": 0.5, "none": 0.0}

# Citations judged of one answer: it bounds the cost of an answer of nothing but markers.
_MAX_INSTANCES = 100
_MAX_DETAIL_PAIRS = 20
_CITATION_PROMPT = load_prompt("citation-support", 2)


def citation_question(statement: str, passage: str) -> JudgeQuestion[float]:
    """Return the question how far the passage supports the statement: 1, 0.5 or 0."""
    data = {"statement": statement, "passage": passage}
    return _CITATION_PROMPT.ask_label("support", CITATION_SUPPORT_VALUES, data)


async def _judge_citations(
    judge: QuestionAnswerer,
    statements: CitedStatements,
    passages: Sequence[str | None],
    cost: ScoringCost,
) -> dict[CitationInstance, JudgeResult[float]]:
    whole = " ".join(item.claim.text for item in statements.items)

    async def support(number: int, instance: CitationInstance) -> JudgeResult[float]:
        passage = passages[instance.passage]
        text = whole
        if instance.statement != WHOLE_ANSWER:
            text = statements.items[instance.statement].claim.text
        reason = missing_text_reason(text, MAX_ANSWER_CHARS) or missing_text_reason(
            passage, MAX_PASSAGE_CHARS
        )
        if reason is None and number >= _MAX_INSTANCES:
            reason = NoScore(Reason.TOO_LONG)
        if reason is not None:
            return JudgeResult(reason)
        return await ask_judge(judge, citation_question(text, passage or ""), cost)

    instances = list_citation_instances(statements)
    results = await asyncio.gather(*map(support, range(len(instances)), instances))
    return dict(zip(instances, results, strict=True))


def _cited_statements(trace: Trace) -> CitedStatements | NoScore:
    marks = resolve_citations(trace)
    reason = missing_citation_reason(trace, abstention.answered_value(trace), marks)
    if reason is not None:
        return reason
    answer = trace.answer or ""
    if len(answer) > MAX_ANSWER_CHARS or len(find_sentence_spans(answer)) >= MAX_SENTENCES:
        return NoScore(Reason.TOO_LONG)  # the rest would not be read
    claims = parse_answer(answer).claims
    if not claims:
        return NoScore(Reason.NO_CLAIMS, applies=False)
    return attach_citations(answer, claims, marks)


async def score_citations(
    judge: QuestionAnswerer, trace: Trace, cost: ScoringCost
) -> FamilyScores | NoScore:
    """Return the citation metrics; the detail of the precision has the support of each citation."""
    statements = _cited_statements(trace)
    if isinstance(statements, NoScore):
        return statements
    passages = trace.passages or []
    texts = [passage.text for passage in passages]
    results = await _judge_citations(judge, statements, texts, cost)
    supports = {instance: result.value for instance, result in results.items()}
    detail = _citations_detail(supports, statements.dangling, [passage.id for passage in passages])
    return FamilyScores.build(
        citation_scores(statements, supports),
        all_fingerprints(results.values()),
        citation_precision=detail,
    )


def _citations_detail(
    supports: Mapping[CitationInstance, float | NoScore], dangling: int, ids: Sequence[str]
) -> dict[str, Any]:
    pairs = []
    for instance, value in list(supports.items())[:_MAX_DETAIL_PAIRS]:
        pair: dict[str, Any] = {
            # None: a citation of the whole answer
            "sentence": None if instance.statement == WHOLE_ANSWER else instance.statement,
            "passage_id": ids[instance.passage],
            "support": None if isinstance(value, NoScore) else value,
        }
        pairs.append(pair | ({"reason": value.reason} if isinstance(value, NoScore) else {}))
    missing = sum(isinstance(value, NoScore) for value in supports.values())
    counts = {"dangling": dangling, "missing": missing}
    return {"pairs": pairs, **{name: count for name, count in counts.items() if count}}
