"""The built-in quality scores of one trace: texts are read once, each metric stands alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from agent.metrics import answered as answers
from agent.metrics import grounding, relevance, support
from agent.metrics.evidence import Answer, Pages, Query, limited, read_answer
from agent.metrics.grounding_features import read
from agent.metrics.markers import Cited
from agent.metrics.results import (
    BUILTIN,
    not_applicable,
    result,
    scored,
    standing,
    unscored,
)
from agent.metrics.statements import citing_hindrance
from agent.metrics.words import script
from agent.trace import Score, Trace

__all__ = ["SPECS", "score"]

SPECS = (*relevance.SPECS, *grounding.SPECS, *support.SPECS)
CITATION = ("citation_precision", "citation_recall", "citation_f1")
MAX_DETAIL_PAIRS = 10
MAX_DETAIL_GRADES = 100


def _relevance(
    trace: Trace, pages: Pages | None, query: Query, places: Mapping[str, list[int]]
) -> Score:
    name = "relevance"
    if trace.passages is None:
        return unscored(name, trace, "no_passages_captured")
    if not trace.passages or pages is None:
        return not_applicable(name, trace, "no_passages")
    if not trace.query or trace.query.isspace():
        return unscored(name, trace, "no_query")
    if not pages.has_text:
        return unscored(name, trace, "no_text")
    if not query.words:  # nothing but stop words, which no passage is known by
        return unscored(name, trace, "no_query")
    if script(trace.query) != pages.script:
        return unscored(name, trace, "unsupported_language")
    grades = relevance.grades(pages, query.words, places)
    known = [grade for grade in grades if grade is not None]
    detail = {"grades": [None if g is None else round(g, 3) for g in grades[:MAX_DETAIL_GRADES]]}
    return scored(name, trace, sum(known) / len(known), detail)


def _no_evidence(name: str, trace: Trace, pages: Pages | None) -> Score | None:
    """Why an answer can't be held against its passages; None where it can."""
    if trace.passages is None:
        return unscored(name, trace, "no_passages_captured")
    if pages is None:
        return not_applicable(name, trace, "no_passages")
    if not pages.has_text or trace.answer is None:
        return unscored(name, trace, "no_text")
    if script(trace.answer) not in (pages.script, ""):
        return unscored(name, trace, "unsupported_language")
    return None


def _grounding(
    trace: Trace,
    answered: float | None,
    pages: Pages | None,
    answer: Answer,
    query: Query,
    places: Mapping[str, list[int]],
) -> Score:
    name = "grounding"
    stop = standing(name, trace, answered)
    if (
        stop is not None
        and stop.reason == "no_answer"
        and trace.abstained is None
        and answers.claims_more(trace.answer or "")
    ):
        stop = None  # "The documents don't say. However, …": what follows is checked
    stop = stop or _no_evidence(name, trace, pages)
    if stop is not None or pages is None:
        return stop or not_applicable(name, trace, "no_passages")
    if not any(claim.content for claim in answer.claims):
        return not_applicable(name, trace, "no_claims")
    reading = read(pages, answer, places, query)
    ids = [passage.id for passage in trace.passages or ()]
    detail = grounding.explain(reading, pages, answer.claims, places, ids)
    return scored(name, trace, grounding.probability(reading.values, reading.sentences), detail)


def _citations(
    trace: Trace,
    answered: float | None,
    cited: Cited,
    pages: Pages | None,
    answer: Answer,
    places: Mapping[str, list[int]],
) -> list[Score]:
    gap = citing_hindrance(trace, answered, cited)
    stop = None if gap is None else result(CITATION[0], trace, gap, BUILTIN)
    if stop is None and trace.passages:
        stop = _no_evidence(CITATION[0], trace, pages)
    if stop is None and not answer.claims:
        stop = not_applicable(CITATION[0], trace, "no_claims")
    if stop is not None:
        return [replace(stop, metric=name) for name in CITATION]
    verdict = support.judge(
        trace.answer or "", pages or Pages.read(()), answer.claims, places, cited
    )
    detail: dict[str, Any] = {
        "pairs": [
            {
                "sentence": sentence,
                "passage_id": None if p is None else (trace.passages or ())[p].id,
                "support": round(value, 3),
            }
            for sentence, p, value in verdict.pairs[:MAX_DETAIL_PAIRS]
        ]
    }
    out: list[Score] = []
    for name, value in zip(CITATION, (verdict.precision, verdict.recall, verdict.f1), strict=True):
        if value is not None:
            out.append(scored(name, trace, value, detail if name == CITATION[0] else None))
        elif verdict.unjudged:
            out.append(unscored(name, trace, "no_text"))
        else:
            out.append(not_applicable(name, trace, "no_claims"))
    return out


def score(trace: Trace, answered: float | None, cited: Cited) -> list[Score]:
    """Scores of every metric in `SPECS`, in their order."""
    pages = Pages.read([p.text or "" for p in trace.passages]) if trace.passages else None
    wanted = trace.status == "ok" and trace.answer and (answered is None or pages or cited.marks)
    answer = read_answer(trace.answer or "") if wanted else Answer()
    query = Query.read(trace.query if pages else None)
    found = pages.locate(answer.content.union(query.stems)) if pages else {}
    places = limited(found)
    return [
        _relevance(trace, pages, query, found),
        _grounding(trace, answered, pages, answer, query, places),
        *_citations(trace, answered, cited, pages, answer, places),
    ]
