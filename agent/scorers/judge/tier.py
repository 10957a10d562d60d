"""The judge tier: ask an LLM judge about one trace and build the scores with their details.

The judge tier: everything that an LLM judge is asked about one trace, and the scores from it.

The families (relevance and ranking, answered, citations, nuggets, claims, facts, context and its
recall, annotation) run side by side, and so do the calls of each that need nothing of one another.
A call that fails leaves a gap in what it belongs to; a family that breaks leaves `internal_error`
in its own metrics. Nothing else is touched.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any

from ragmeter.config.scoring import JudgeSettings
from ragmeter.core.feedback import ANNOTATION
from ragmeter.core.score import JUDGE_SCORER, NoScore, Score, make_score, most_common_reason
from ragmeter.core.tiers import MetricScorer, ScoringCost, Tier
from ragmeter.metrics import abstention, cited_statements, claims_and_nuggets, ranking
from ragmeter.metrics.citations import resolve_citations
from ragmeter.metrics.cited_statements import (
    WHOLE_ANSWER,
    CitationInstance,
    CitedStatements,
    attach_citations,
    citation_scores,
    missing_citation_reason,
)
from ragmeter.metrics.claims_and_nuggets import (
    AUTONUGGETIZER,
    CLAIM_METRICS,
    FACT_METRICS,
    nugget_scores,
)
from ragmeter.metrics.labelled import labelled_metric_names
from ragmeter.metrics.operational import has_empty_answer
from ragmeter.metrics.ranking import UMBRELA, context_scores, rank_order
from ragmeter.metrics.text import MAX_SENTENCES, find_sentence_spans
from ragmeter.metrics.text_index import parse_answer
from ragmeter.scorers.judge import annotation, answers, nuggets, passages
from ragmeter.scorers.judge.calls import (
    MAX_ANSWER_CHARS,
    MAX_QUERY_CHARS,
    ask_judge,
    combined_fingerprint,
    missing_text_reason,
)
from ragmeter.scorers.judge.nuggets import MIN_NUGGET_GRADE, NuggetFindings
from ragmeter.scorers.judge.passages import MAX_GRADED_PASSAGES, PassageGrading
from ragmeter.scorers.llm.questions import QuestionAnswerer
from ragmeter.trace import Trace

_MAX_DETAIL_PAIRS = 20
MAX_DETAIL_TEXT = 120  # characters of a nugget that a result carries


def _grades_detail(grades: Sequence[int | NoScore]) -> dict[str, Any]:
    """Grades in the order of the trace, and for each reason the passages without one."""
    shown = grades[:MAX_GRADED_PASSAGES]
    detail: dict[str, Any] = {"grades": [None if isinstance(g, NoScore) else g for g in shown]}
    missing: dict[str, list[int]] = {}
    for index, grade in enumerate(shown):
        if isinstance(grade, NoScore):
            missing.setdefault(grade.reason, []).append(index)
    if missing:
        detail["missing"] = missing
    return detail


def _pairs_detail(
    supports: Mapping[CitationInstance, float | NoScore], dangling: int, ids: Sequence[str]
) -> dict[str, Any]:
    """The support of each citation; `sentence` is None for one of the whole answer."""
    detail: dict[str, Any] = {"pairs": []}
    for instance, value in list(supports.items())[:_MAX_DETAIL_PAIRS]:
        pair: dict[str, Any] = {
            "sentence": None if instance.statement == WHOLE_ANSWER else instance.statement,
            "passage_id": ids[instance.passage],
            "support": None if isinstance(value, NoScore) else value,
        }
        if isinstance(value, NoScore):
            pair["reason"] = value.reason
        detail["pairs"].append(pair)
    if dangling:
        detail["dangling"] = dangling
    missing = sum(isinstance(value, NoScore) for value in supports.values())
    if missing:
        detail["missing"] = missing
    return detail


def nuggets_detail(found: NuggetFindings) -> dict[str, Any]:
    """The nuggets with their labels; a label that is missing is None."""
    kinds: Sequence[str | None]
    kinds = [None] * len(found.texts) if isinstance(found.importance, NoScore) else found.importance
    return {
        "nuggets": [
            {
                "text": text[:MAX_DETAIL_TEXT],
                "importance": kind,
                "support": None if isinstance(support, NoScore) else support,
            }
            for text, kind, support in zip(found.texts, kinds, found.supports, strict=True)
        ],
        "created": found.created,
    }


log = logging.getLogger("ragmeter.judge")


class JudgeTier:
    """Scores traces by asking a judge, as `settings` say. A `TierScorer`."""

    def __init__(self, asking: QuestionAnswerer, settings: JudgeSettings) -> None:
        self._asking = asking
        self._per_call = settings.passages_per_call
        self._ks = sorted(set(settings.k))
        scorers = {
            "relevance": [(name, UMBRELA) for name in ranking.ranking_names(self._ks)],
            "answered": [("answered", JUDGE_SCORER)],
            "citations": [(name, JUDGE_SCORER) for name in cited_statements.CITATION_METRICS],
            "nuggets": [(name, AUTONUGGETIZER) for name in claims_and_nuggets.NUGGET_METRICS],
            "claims": [(name, JUDGE_SCORER) for name in CLAIM_METRICS],
            "facts": [(name, JUDGE_SCORER) for name in FACT_METRICS],
            "context": [(name, UMBRELA) for name in ranking.CONTEXT_METRICS],
            "context_recall": [(name, JUDGE_SCORER) for name in ranking.CONTEXT_RECALL],
            "annotation": [(name, ANNOTATION) for name in labelled_metric_names(self._ks)],
        }
        self._pairs: dict[str, list[MetricScorer]] = {
            family: pairs for family, pairs in scorers.items() if family in settings.metrics
        }

    @property
    def tier(self) -> Tier:
        return "judge"

    @property
    def pairs(self) -> Sequence[MetricScorer]:
        """The (metric, scorer) pairs that every trace gets a result for."""
        return [pair for pairs in self._pairs.values() for pair in pairs]

    async def score(self, trace: Trace, cost: ScoringCost) -> list[Score]:
        """One result for each of `pairs`, in their order. What it cost is added to `cost`."""
        grading = PassageGrading(self._asking, trace, cost, self._per_call)
        asking = self._asking
        start: dict[str, Callable[[], Coroutine[Any, Any, list[Score]]]] = {
            "relevance": lambda: self._relevance(trace, grading),
            "answered": lambda: self._answered(trace, cost),
            "citations": lambda: self._citations(trace, cost),
            "nuggets": lambda: self._nuggets(trace, cost, grading),
            "claims": lambda: answers.score_claims(asking, trace, cost),
            "facts": lambda: answers.score_facts(asking, trace, cost),
            "context": lambda: self._context(trace, grading),
            "context_recall": lambda: passages.score_context_recall(asking, trace, cost),
            "annotation": lambda: annotation.score_annotation(asking, trace, self._ks, cost),
        }
        runs = {family: start[family]() for family in self._pairs}
        done = await asyncio.gather(*runs.values(), return_exceptions=True)
        out: list[Score] = []
        for family, found in zip(runs, done, strict=True):
            if isinstance(found, Exception):
                log.error("judging %s of trace %r failed", family, trace.trace_id[:80],
                          exc_info=found)  # fmt: skip
                gap = NoScore("internal_error")
                found = [make_score(name, trace, gap, by) for name, by in self._pairs[family]]
            elif isinstance(found, BaseException):
                raise found
            out += found
        for score in out:
            score.probability = 1.0  # that of the tier's draw, which is not known here
        return out

    async def _relevance(self, trace: Trace, grading: PassageGrading) -> list[Score]:
        if trace.passages is None:
            gap = NoScore("no_passages_captured")
            return [make_score(name, trace, gap, by) for name, by in self._pairs["relevance"]]
        grades = await grading.grades()
        order = rank_order(trace.passages)
        by_index = dict(zip(order, grades, strict=True))
        detail = _grades_detail([by_index[index].value for index in sorted(by_index)])
        return _named_results(
            trace,
            ranking.ranking_scores([one.value for one in grades], self._ks),
            UMBRELA,
            combined_fingerprint(grades),
            {"relevance": detail},
        )

    async def _context(self, trace: Trace, grading: PassageGrading) -> list[Score]:
        if trace.passages is None:
            gap = NoScore("no_passages_captured")
            return [make_score(name, trace, gap, by) for name, by in self._pairs["context"]]
        grades = await grading.grades()
        values = context_scores([one.value for one in grades])
        return _named_results(trace, values, UMBRELA, combined_fingerprint(grades), {})

    async def _answered(self, trace: Trace, cost: ScoringCost) -> list[Score]:
        value: float | NoScore
        detail: dict[str, Any] | None = None
        by: str | None = None
        if trace.status != "ok":
            value = NoScore(trace.status, applies=False)
        elif has_empty_answer(trace):
            value = 0.0  # a blank answer attempts nothing; no judge need say so
        else:
            gap = missing_text_reason(trace.answer, MAX_ANSWER_CHARS) or missing_text_reason(
                trace.query, MAX_QUERY_CHARS, "no_query"
            )
            if gap is not None:
                value = gap
            else:
                question = answers.attempt_question(trace.query or "", trace.answer or "")
                asked = await ask_judge(self._asking, question, cost)
                by = asked.fingerprint
                if isinstance(asked.value, NoScore):
                    value = asked.value
                else:
                    value, detail = answers.attempt_value(asked.value), {"attempt": asked.value}
        return [make_score("answered", trace, value, JUDGE_SCORER, detail=detail, fingerprint=by)]

    async def _citations(self, trace: Trace, cost: ScoringCost) -> list[Score]:
        found = _cited_statements(trace)
        if isinstance(found, NoScore):
            return [make_score(name, trace, found, by) for name, by in self._pairs["citations"]]
        passages = trace.passages or []
        asked = await answers.judge_citations(
            self._asking, found, [passage.text for passage in passages], cost
        )
        supports = {instance: one.value for instance, one in asked.items()}
        ids = [passage.id for passage in passages]
        return _named_results(
            trace,
            citation_scores(found, supports),
            JUDGE_SCORER,
            combined_fingerprint(asked.values()),
            {"citation_precision": _pairs_detail(supports, found.dangling, ids)},
        )

    async def _nuggets(
        self, trace: Trace, cost: ScoringCost, grading: PassageGrading
    ) -> list[Score]:
        texts = await _relevant_texts(trace, grading)
        if isinstance(texts, NoScore):
            found = NuggetFindings(gap=texts)
        else:
            found = await nuggets.nuggetize(
                self._asking, trace.query or "", texts, trace.answer or "", cost
            )
        if found.gap is not None:
            gap = found.gap
            return [make_score(name, trace, gap, by) for name, by in self._pairs["nuggets"]]
        # The instrument is the whole chain. Importance is left out where a score does not rest on
        # it, though it may have chosen the nuggets: else `nugget_all` had another fingerprint with
        # 21 nuggets than with 20.
        chain = [*await grading.grades(), *found.creation, *found.assignment]
        lenient = combined_fingerprint(chain)
        weighed = combined_fingerprint([*chain, *found.weighing])
        values = nugget_scores(found.supports, found.importance)
        return [
            make_score(
                name,
                trace,
                value,
                AUTONUGGETIZER,
                detail=nuggets_detail(found) if name == "nugget_all" else None,
                fingerprint=None
                if isinstance(value, NoScore)
                else (lenient if "_all" in name else weighed),
            )
            for name, value in values.items()
        ]


def _named_results(
    trace: Trace,
    values: Mapping[str, float | NoScore],
    scorer: str,
    by: str | None,
    details: Mapping[str, dict[str, Any]],
) -> list[Score]:
    return [
        make_score(
            name,
            trace,
            value,
            scorer,
            detail=details.get(name),
            fingerprint=None if isinstance(value, NoScore) else by,
        )
        for name, value in values.items()
    ]


def _cited_statements(trace: Trace) -> CitedStatements | NoScore:
    """The answer's statements with what they cite, or why they can't be judged."""
    marks = resolve_citations(trace)
    gap = missing_citation_reason(trace, abstention.answered_value(trace), marks)
    answer = trace.answer or ""
    if gap is not None:
        return gap
    if len(answer) > MAX_ANSWER_CHARS or len(find_sentence_spans(answer)) >= MAX_SENTENCES:
        return NoScore("too_long")  # the rest would not be read
    claims = parse_answer(answer).claims
    if not claims:
        return NoScore("no_claims", applies=False)
    return attach_citations(answer, claims, marks)


async def _relevant_texts(trace: Trace, grading: PassageGrading) -> list[str] | NoScore:
    """The passages that nuggets are taken from, in rank order, or why there are no nuggets.

    A passage whose grade is not known is left out, as one that is not relevant. An answer that
    refuses is judged as any other: it holds what it holds.
    """
    if trace.status != "ok":
        return NoScore(trace.status, applies=False)
    if has_empty_answer(trace):
        return NoScore("empty_answer", applies=False)
    gap = missing_text_reason(trace.answer, MAX_ANSWER_CHARS)
    if gap is None and trace.passages is None:
        gap = NoScore("no_passages_captured")
    if gap is None and not trace.passages:
        gap = NoScore("no_passages", applies=False)
    gap = gap or missing_text_reason(trace.query, MAX_QUERY_CHARS, "no_query")
    if gap is not None:
        return gap
    grades = [one.value for one in await grading.grades()]
    passages = trace.passages or []
    texts = [
        passages[index].text or ""
        for index, grade in zip(rank_order(passages), grades, strict=True)
        if not isinstance(grade, NoScore) and grade >= MIN_NUGGET_GRADE
    ]
    lost = [grade for grade in grades if isinstance(grade, NoScore)]
    if texts:
        return texts
    return most_common_reason(lost) if lost else NoScore("nothing_relevant", applies=False)
