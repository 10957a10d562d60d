"""The built-in scores of one trace: the cheap pass and the lexical quality pass."""

from __future__ import annotations

from typing import Any

from ragmeter.core.score import (
    NoScore,
    Score,
    find_answer_reason,
    make_not_applicable,
    make_plain_score,
    make_scored,
    make_unscored,
)
from ragmeter.metrics import (
    abstention,
    citation_support,
    citations,
    grounding,
    operational,
    relevance,
)
from ragmeter.metrics.answer_text import AnswerText, parse_answer
from ragmeter.metrics.citations import Citations, resolve_citations
from ragmeter.metrics.cited_statements import missing_citation_reason
from ragmeter.metrics.comparison import Comparison, compare_texts
from ragmeter.metrics.custom import CUSTOM_SCORER
from ragmeter.metrics.language import (
    NOT_MEASURED,
    READ_BY_ENGLISH,
    identify_answer,
)
from ragmeter.metrics.missing_fields import restore_missing_reasons, visible_trace
from ragmeter.metrics.registry import custom_metrics
from ragmeter.metrics.text_index import PassageIndex, QueryText
from ragmeter.reasons import Reason
from ragmeter.trace import Trace

_CITATION_METRICS = ("citation_precision", "citation_recall", "citation_f1")
_NO_PASSAGES_CAPTURED = NoScore(Reason.NO_PASSAGES_CAPTURED)
_NO_PASSAGES = NoScore(Reason.NO_PASSAGES, applies=False)
_NO_TEXT = NoScore(Reason.NO_TEXT)
_NO_CLAIMS = NoScore(Reason.NO_CLAIMS, applies=False)
_MAX_DETAIL_PAIRS = 10
_MAX_DETAIL_GRADES = 100


class PreparedTrace:
    """A trace with what several scorers need of it, computed once when it is first used.

    Args:
        trace: The trace as it came, which must not change any more.
    """

    __slots__ = ("_derived", "trace")

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self._derived: tuple[Trace, float | None, Citations, str] | None = None

    def derive(self) -> tuple[Trace, float | None, Citations, str]:
        """Return the trace without missing fields, its value of `answered`, citations, language."""
        if self._derived is None:
            visible = bare = visible_trace(self.trace)
            if visible is not self.trace:
                # ids tell a citation from other brackets even where texts of passages are missing
                bare = visible.model_copy(update={"passages": self.trace.passages})
            language = identify_answer(visible)
            answered = abstention.answered_value(visible, language)
            self._derived = visible, answered, resolve_citations(bare), language
        return self._derived


def score_cheap(prepared: PreparedTrace) -> list[Score]:
    """Score operation, abstention, citation presence and users' own metrics.

    This runs on every trace and takes some tens of microseconds without users' metrics.
    """
    trace, answered, cited, language = prepared.derive()
    own = trace  # users' metrics read the answer as it came: one may check that it is JSON
    if trace.answer is not None and trace.answer is not prepared.trace.answer:
        own = trace.model_copy(update={"answer": prepared.trace.answer})
    scores = [
        *operational.score_operational(prepared.trace),
        abstention.score_answered(trace, answered, language),
        *citations.score_citations(trace, answered, cited, language),
        *(metric.score(own) for metric in custom_metrics(CUSTOM_SCORER)),
    ]
    return restore_missing_reasons(prepared.trace, scores)


def score_builtin(prepared: PreparedTrace) -> list[Score]:
    """Score relevance, grounding and citation support by lexical means (scorer `builtin`)."""
    return restore_missing_reasons(prepared.trace, _score_quality(*prepared.derive()))


def _score_quality(
    trace: Trace, answered: float | None, cited: Citations, language: str
) -> list[Score]:
    pages = PassageIndex.read([p.text or "" for p in trace.passages or ()])
    wanted = (
        trace.status == "ok"
        and trace.answer
        and (answered is None or pages.passages or cited.marks)
    )
    query = QueryText.read(trace.query if pages.passages else None, pages.texts)
    markers = () if cited.explicit else [(mark.start, mark.end) for mark in cited.marks]
    answer = (
        parse_answer(trace.answer or "", pages.texts, query.text, markers)
        if wanted
        else AnswerText()
    )
    texts = compare_texts(pages, answer, query)
    return [
        _relevance(trace, pages, query, texts),
        _grounding(
            trace=trace,
            answered=answered,
            language=language,
            pages=pages,
            answer=answer,
            texts=texts,
        ),
        *_citations(
            trace=trace,
            answered=answered,
            cited=cited,
            language=language,
            pages=pages,
            answer=answer,
            texts=texts,
        ),
    ]


def _relevance(trace: Trace, pages: PassageIndex, query: QueryText, texts: Comparison) -> Score:
    name = "relevance"
    reason = relevance.find_relevance_reason(trace, pages, query)
    if reason is not None:
        return make_plain_score(name, trace.probability, reason)
    grades = texts.grade_passages()
    known = [grade for grade in grades if grade is not None]
    detail = {"grades": [None if g is None else round(g, 3) for g in grades[:_MAX_DETAIL_GRADES]]}
    return make_scored(name, trace, sum(known) / len(known), detail)


def _no_evidence(trace: Trace, pages: PassageIndex, language: str) -> NoScore | None:
    """Return why an answer can't be compared with its passages, None if it can."""
    if trace.passages is None:
        return _NO_PASSAGES_CAPTURED
    if not trace.passages:
        return _NO_PASSAGES
    if not pages.has_text or trace.answer is None:
        return _NO_TEXT
    if not {language, pages.language} <= READ_BY_ENGLISH:
        return NOT_MEASURED
    return None


def _grounding(
    trace: Trace,
    answered: float | None,
    language: str,
    pages: PassageIndex,
    answer: AnswerText,
    texts: Comparison,
) -> Score:
    name = "grounding"
    reason = find_answer_reason(trace, answered)
    if (
        reason is not None
        and reason.reason == Reason.NO_ANSWER
        and trace.abstained is None
        and abstention.has_further_claims(trace.answer or "")
    ):
        reason = None  # "The documents don't say. However, …": what follows is checked
    reason = reason or _no_evidence(trace, pages, language)
    if reason is None and not texts.has_content:
        reason = _NO_CLAIMS
    if reason is not None:
        return make_plain_score(name, trace.probability, reason)
    features = texts.extract_features()
    worst = ""
    if features.worst is not None:
        _, _, first, last, worst = answer.read.sentence(features.worst.index)
        if features.replaced:  # in what was compared such values are marked
            start, end = answer.read.place(first, last)
            worst = (trace.answer or "")[start:end]
    ids = [passage.id for passage in trace.passages or ()]
    detail = grounding.explain_grounding(features, worst, ids)
    return make_scored(name, trace, grounding.grounding_probability(features), detail)


def _citations(
    trace: Trace,
    answered: float | None,
    cited: Citations,
    language: str,
    pages: PassageIndex,
    answer: AnswerText,
    texts: Comparison,
) -> list[Score]:
    reason = missing_citation_reason(trace, answered, cited)
    if reason is None and trace.passages:
        reason = _no_evidence(trace, pages, language)
    if reason is None and not len(answer.read):
        reason = _NO_CLAIMS
    if reason is not None:
        return [make_plain_score(name, trace.probability, reason) for name in _CITATION_METRICS]
    support = citation_support.score_support(
        trace.answer or "", pages, answer.claims, cited, texts.measure_support
    )
    detail: dict[str, Any] = {
        "pairs": [
            {
                "sentence": sentence,
                "passage_id": None if p is None else (trace.passages or ())[p].id,
                "support": round(value, 3),
            }
            for sentence, p, value in support.pairs[:_MAX_DETAIL_PAIRS]
        ]
    }
    scores: list[Score] = []
    for name, value in zip(
        _CITATION_METRICS, (support.precision, support.recall, support.f1), strict=True
    ):
        if value is not None:
            scores.append(
                make_scored(name, trace, value, detail if name == _CITATION_METRICS[0] else None)
            )
        elif support.unjudged:
            scores.append(make_unscored(name, trace, Reason.NO_TEXT))
        else:
            scores.append(make_not_applicable(name, trace, Reason.NO_CLAIMS))
    return scores
