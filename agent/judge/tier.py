"""The judge tier: everything that an LLM judge is asked about one trace, and the scores from it.

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

from agent.config import Judge
from agent.feedback.labels import ANNOTATION
from agent.judge import (
    annotation,
    attempted,
    autonuggetizer,
    citation_support,
    claims,
    context_recall,
    facts,
)
from agent.judge.asked import MAX_ANSWER, MAX_QUERY, ask, fingerprint, text_gap
from agent.judge.autonuggetizer import LEAST_GRADE, Nuggets
from agent.judge.details import grades_detail, nuggets_detail, pairs_detail
from agent.judge.grading import Grading
from agent.judge.question import Asking
from agent.metrics import answered, cited, context, nuggets, ranking
from agent.metrics.cited import citation_scores
from agent.metrics.claims import CLAIMS, FACTS
from agent.metrics.context import context_scores
from agent.metrics.evidence import read_answer
from agent.metrics.labelled.scores import metric_names
from agent.metrics.markers import resolve
from agent.metrics.nuggets import AUTONUGGETIZER, nugget_scores
from agent.metrics.operational import is_empty
from agent.metrics.ranking import UMBRELA, rank_order
from agent.metrics.results import JUDGE, Gap, prevailing, result
from agent.metrics.sentences import MAX_SENTENCES, sentence_spans
from agent.metrics.statements import Statements, attach, citing_hindrance
from agent.tiers import Cost, Pair, Tier
from agent.trace import Score, Trace

__all__ = ["JudgeTier"]

log = logging.getLogger("ragmeter.judge")


class JudgeTier:
    """Scores traces by asking a judge, as `settings` say. A `TierScorer`."""

    def __init__(self, asking: Asking, settings: Judge) -> None:
        self._asking = asking
        self._per_call = settings.passages_per_call
        self._ks = sorted(set(settings.k))
        scorers = {
            "relevance": [(name, UMBRELA) for name in ranking.names(self._ks)],
            "answered": [("answered", JUDGE)],
            "citations": [(name, JUDGE) for name in cited.NAMES],
            "nuggets": [(name, AUTONUGGETIZER) for name in nuggets.NAMES],
            "claims": [(name, JUDGE) for name in CLAIMS],
            "facts": [(name, JUDGE) for name in FACTS],
            "context": [(name, UMBRELA) for name in context.NAMES],
            "context_recall": [(name, JUDGE) for name in context.RECALL],
            "annotation": [(name, ANNOTATION) for name in metric_names(self._ks)],
        }
        self._pairs: dict[str, list[Pair]] = {
            family: pairs for family, pairs in scorers.items() if family in settings.metrics
        }

    @property
    def tier(self) -> Tier:
        return "judge"

    @property
    def pairs(self) -> Sequence[Pair]:
        """The (metric, scorer) pairs that every trace gets a result for."""
        return [pair for pairs in self._pairs.values() for pair in pairs]

    async def score(self, trace: Trace, cost: Cost) -> list[Score]:
        """One result for each of `pairs`, in their order. What it cost is added to `cost`."""
        grading = Grading(self._asking, trace, cost, self._per_call)
        asking = self._asking
        start: dict[str, Callable[[], Coroutine[Any, Any, list[Score]]]] = {
            "relevance": lambda: self._relevance(trace, grading),
            "answered": lambda: self._answered(trace, cost),
            "citations": lambda: self._citations(trace, cost),
            "nuggets": lambda: self._nuggets(trace, cost, grading),
            "claims": lambda: claims.score(asking, trace, cost),
            "facts": lambda: facts.score(asking, trace, cost),
            "context": lambda: self._context(trace, grading),
            "context_recall": lambda: context_recall.score(asking, trace, cost),
            "annotation": lambda: annotation.score(asking, trace, self._ks, cost),
        }
        runs = {family: start[family]() for family in self._pairs}
        done = await asyncio.gather(*runs.values(), return_exceptions=True)
        out: list[Score] = []
        for family, found in zip(runs, done, strict=True):
            if isinstance(found, Exception):
                log.error("judging %s of trace %r failed", family, trace.trace_id[:80],
                          exc_info=found)  # fmt: skip
                gap = Gap("internal_error")
                found = [result(name, trace, gap, by) for name, by in self._pairs[family]]
            elif isinstance(found, BaseException):
                raise found
            out += found
        for score in out:
            score.probability = 1.0  # that of the tier's draw, which is not known here
        return out

    async def _relevance(self, trace: Trace, grading: Grading) -> list[Score]:
        if trace.passages is None:
            gap = Gap("no_passages_captured")
            return [result(name, trace, gap, by) for name, by in self._pairs["relevance"]]
        grades = await grading.grades()
        order = rank_order(trace.passages)
        by_index = dict(zip(order, grades, strict=True))
        detail = grades_detail([by_index[index].value for index in sorted(by_index)])
        return _results(
            trace,
            ranking.ranking([one.value for one in grades], self._ks),
            UMBRELA,
            fingerprint(grades),
            {"relevance": detail},
        )

    async def _context(self, trace: Trace, grading: Grading) -> list[Score]:
        if trace.passages is None:
            gap = Gap("no_passages_captured")
            return [result(name, trace, gap, by) for name, by in self._pairs["context"]]
        grades = await grading.grades()
        values = context_scores([one.value for one in grades])
        return _results(trace, values, UMBRELA, fingerprint(grades), {})

    async def _answered(self, trace: Trace, cost: Cost) -> list[Score]:
        value: float | Gap
        detail: dict[str, Any] | None = None
        by: str | None = None
        if trace.status != "ok":
            value = Gap(trace.status, applies=False)
        elif is_empty(trace):
            value = 0.0  # a blank answer attempts nothing; no judge need say so
        else:
            gap = text_gap(trace.answer, MAX_ANSWER) or text_gap(trace.query, MAX_QUERY, "no_query")
            if gap is not None:
                value = gap
            else:
                question = attempted.question(trace.query or "", trace.answer or "")
                asked = await ask(self._asking, question, cost)
                by = asked.fingerprint
                if isinstance(asked.value, Gap):
                    value = asked.value
                else:
                    value, detail = attempted.value(asked.value), {"attempt": asked.value}
        return [result("answered", trace, value, JUDGE, detail=detail, fingerprint=by)]

    async def _citations(self, trace: Trace, cost: Cost) -> list[Score]:
        found = _statements(trace)
        if isinstance(found, Gap):
            return [result(name, trace, found, by) for name, by in self._pairs["citations"]]
        passages = trace.passages or []
        asked = await citation_support.judge(
            self._asking, found, [passage.text for passage in passages], cost
        )
        supports = {instance: one.value for instance, one in asked.items()}
        ids = [passage.id for passage in passages]
        return _results(
            trace,
            citation_scores(found, supports),
            JUDGE,
            fingerprint(asked.values()),
            {"citation_precision": pairs_detail(supports, found.dangling, ids)},
        )

    async def _nuggets(self, trace: Trace, cost: Cost, grading: Grading) -> list[Score]:
        texts = await _relevant_texts(trace, grading)
        if isinstance(texts, Gap):
            found = Nuggets(gap=texts)
        else:
            found = await autonuggetizer.nuggetize(
                self._asking, trace.query or "", texts, trace.answer or "", cost
            )
        if found.gap is not None:
            gap = found.gap
            return [result(name, trace, gap, by) for name, by in self._pairs["nuggets"]]
        # The instrument is the whole chain. Importance is left out where a score does not rest on
        # it, though it may have chosen the nuggets: else `nugget_all` had another fingerprint with
        # 21 nuggets than with 20.
        chain = [*await grading.grades(), *found.creation, *found.assignment]
        lenient = fingerprint(chain)
        weighed = fingerprint([*chain, *found.weighing])
        values = nugget_scores(found.supports, found.importance)
        return [
            result(
                name,
                trace,
                value,
                AUTONUGGETIZER,
                detail=nuggets_detail(found) if name == "nugget_all" else None,
                fingerprint=None
                if isinstance(value, Gap)
                else (lenient if "_all" in name else weighed),
            )
            for name, value in values.items()
        ]


def _results(
    trace: Trace,
    values: Mapping[str, float | Gap],
    scorer: str,
    by: str | None,
    details: Mapping[str, dict[str, Any]],
) -> list[Score]:
    return [
        result(
            name,
            trace,
            value,
            scorer,
            detail=details.get(name),
            fingerprint=None if isinstance(value, Gap) else by,
        )
        for name, value in values.items()
    ]


def _statements(trace: Trace) -> Statements | Gap:
    """The answer's statements with what they cite, or why they can't be judged."""
    marks = resolve(trace)
    gap = citing_hindrance(trace, answered.verdict(trace), marks)
    answer = trace.answer or ""
    if gap is not None:
        return gap
    if len(answer) > MAX_ANSWER or len(sentence_spans(answer)) >= MAX_SENTENCES:
        return Gap("too_long")  # the rest would not be read
    claims = read_answer(answer).claims
    if not claims:
        return Gap("no_claims", applies=False)
    return attach(answer, claims, marks)


async def _relevant_texts(trace: Trace, grading: Grading) -> list[str] | Gap:
    """The passages that nuggets are taken from, in rank order, or why there are no nuggets.

    A passage whose grade is not known is left out, as one that is not relevant. An answer that
    refuses is judged as any other: it holds what it holds.
    """
    if trace.status != "ok":
        return Gap(trace.status, applies=False)
    if is_empty(trace):
        return Gap("empty_answer", applies=False)
    gap = text_gap(trace.answer, MAX_ANSWER)
    if gap is None and trace.passages is None:
        gap = Gap("no_passages_captured")
    if gap is None and not trace.passages:
        gap = Gap("no_passages", applies=False)
    gap = gap or text_gap(trace.query, MAX_QUERY, "no_query")
    if gap is not None:
        return gap
    grades = [one.value for one in await grading.grades()]
    passages = trace.passages or []
    texts = [
        passages[index].text or ""
        for index, grade in zip(rank_order(passages), grades, strict=True)
        if not isinstance(grade, Gap) and grade >= LEAST_GRADE
    ]
    lost = [grade for grade in grades if isinstance(grade, Gap)]
    if texts:
        return texts
    return prevailing(lost) if lost else Gap("nothing_relevant", applies=False)
