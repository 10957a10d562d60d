"""The texts of a trace that a judge is shown, within their bounds, or why there are none."""

from __future__ import annotations

from typing import NamedTuple

from ragmeter.core.score import NoScore
from ragmeter.metrics.operational import has_empty_answer
from ragmeter.metrics.ranking import rank_order
from ragmeter.reasons import Reason
from ragmeter.trace import Trace

# Characters of one text. Longer ones are never cut, but are `too_long`. A passage of 40,000 is some
# 10,000 tokens: judges of today take it, and hardly any retriever returns as much.
MAX_PASSAGE_CHARS = 40_000
MAX_ANSWER_CHARS = 20_000
MAX_QUERY_CHARS = 4_000

# Passages of one call: the 150 labels of an annotation are as many as a judge keeps apart.
MAX_PASSAGES = 50

# Characters of all passages of one call, some 25,000 tokens.
MAX_MATERIAL_CHARS = 100_000


def missing_text_reason(
    text: str | None, limit: int, absent: str = Reason.NO_TEXT
) -> NoScore | None:
    """Return why a text cannot be put to a judge, if so."""
    if text is None or not text.strip():
        return NoScore(absent)
    return NoScore(Reason.TOO_LONG) if len(text) > limit else None


def missing_answer_reason(trace: Trace) -> NoScore | None:
    """Return why there is no answer to judge, if so; an answer that refuses is judged."""
    if trace.status != "ok":
        return NoScore(trace.status, applies=False)
    return NoScore(Reason.EMPTY_ANSWER, applies=False) if has_empty_answer(trace) else None


def ranked_passage_texts(trace: Trace) -> list[str] | NoScore:
    """Return all passages in rank order, as any of them may support the answer."""
    if trace.passages is None:
        return NoScore(Reason.NO_PASSAGES_CAPTURED)
    texts = [trace.passages[index].text or "" for index in rank_order(trace.passages)]
    for text in texts:
        if reason := missing_text_reason(text, MAX_PASSAGE_CHARS):
            return reason
    if len(texts) > MAX_PASSAGES or sum(map(len, texts)) > MAX_MATERIAL_CHARS:
        return NoScore(Reason.TOO_LONG)
    return texts


class JudgeMaterial(NamedTuple):
    """Query, passages in rank order (at least one) and answer, each within its bound."""

    query: str
    passages: list[str]
    answer: str


def prepare_material(trace: Trace) -> JudgeMaterial | NoScore:
    """Return what an answer is held against its passages with, or why that is impossible."""
    reason = (
        missing_answer_reason(trace)
        or missing_text_reason(trace.answer, MAX_ANSWER_CHARS)
        or missing_text_reason(trace.query, MAX_QUERY_CHARS, Reason.NO_QUERY)
    )
    if reason is not None:
        return reason
    texts = ranked_passage_texts(trace)
    if isinstance(texts, NoScore):
        return texts
    if not texts:
        return NoScore(Reason.NO_PASSAGES, applies=False)
    return JudgeMaterial(trace.query or "", texts, trace.answer or "")
