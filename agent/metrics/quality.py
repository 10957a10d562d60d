"""First version of the built-in quality scorers: plain word overlap."""

from __future__ import annotations

import re

from agent.metrics.markers import Cited
from agent.metrics.results import BUILTIN, not_applicable, scored, standing, unscored
from agent.metrics.spec import MetricSpec
from agent.trace import Score, Trace

__all__ = ["SPECS", "score"]

SPECS = (
    MetricSpec(
        name="relevance",
        kind="mean",
        tier="cheap",
        scorers=(BUILTIN,),
        meaning="mean grade of the retrieved passages, 0 (off topic) to 3 (answers the query)",
        formula="mean over passages of a lexical grade in 0..3",
        source="query and passage texts",
        high=3.0,
    ),
    MetricSpec(
        name="grounding",
        kind="mean",
        tier="cheap",
        scorers=(BUILTIN,),
        meaning="consistency of the answer with its passages",
        formula="fitted logistic of lexical features of answer and passages",
        source="answer and passage texts",
    ),
    *(
        MetricSpec(
            name=f"citation_{name}",
            kind="mean",
            tier="cheap",
            scorers=(BUILTIN,),
            meaning=meaning,
            formula=formula,
            source="answer sentences and the passages that they cite",
        )
        for name, meaning, formula in (
            (
                "precision",
                "how well cited passages support the statements that cite them",
                "mean support over (statement, citation) pairs; a dangling citation counts 0",
            ),
            (
                "recall",
                "how far statements are supported by what they cite",
                "mean over statements of the support by their citations; an uncited one counts 0",
            ),
            ("f1", "balance of citation precision and recall", "2PR / (P + R)"),
        )
    ),
)

_WORD = re.compile(r"\w+")
CITATION = ("citation_precision", "citation_recall", "citation_f1")


def _overlap(part: set[str], whole: set[str]) -> float:
    return len(part & whole) / len(part) if part else 1.0


def score(trace: Trace, answered: float | None, cited: Cited) -> list[Score]:
    """Scores of every metric in `SPECS`, in their order."""
    passages = trace.passages
    names = ("grounding", *CITATION)
    if passages is None:
        out = [unscored("relevance", trace, "no_passages_captured")]
        rest = [
            standing(n, trace, answered) or unscored(n, trace, "no_passages_captured")
            for n in names
        ]
        return out + rest
    texts = [set(_WORD.findall((p.text or "").lower())) for p in passages]
    if not passages:
        relevance = not_applicable("relevance", trace, "no_passages")
    elif not trace.query:
        relevance = unscored("relevance", trace, "no_query")
    elif not any(texts):
        relevance = unscored("relevance", trace, "no_text")
    else:
        query = set(_WORD.findall(trace.query.lower()))
        grades = [3.0 * _overlap(query, text) for text in texts if text]
        relevance = scored("relevance", trace, sum(grades) / len(grades), {"grades": grades})
    out = [relevance]
    answer = set(_WORD.findall((trace.answer or "").lower()))
    union: set[str] = set().union(*texts)
    for name in names:
        stop = standing(name, trace, answered)
        if stop is None and not passages:
            stop = not_applicable(name, trace, "no_passages")
        if stop is None and (not union or not answer):
            stop = unscored(name, trace, "no_text")
        if stop is None and name != "grounding" and not cited.marks:
            stop = not_applicable(name, trace, "no_citations")
        out.append(stop or scored(name, trace, _overlap(answer, union)))
    return out
