"""Citation support of judged (statement, passage) instances: pure formulas.

The labels are those of the TREC 2024 RAG track (arXiv 2504.15205): full 1, partial 0.5, none 0.
Per instance follows the track, per passage follows open-rag-eval. Unlike there, a citation that
resolves to no passage counts against the answer.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from agent.metrics.results import JUDGE, Gap, prevailing
from agent.metrics.spec import MetricSpec
from agent.metrics.statements import Statements

__all__ = ["NAMES", "SPECS", "WHOLE", "Instance", "citation_scores", "f1", "instances"]

WHOLE = -1
"""In place of a statement's index: the answer as a whole."""

NAMES = (
    "citation_precision",
    "citation_recall",
    "citation_f1",
    "citation_passage_precision",
    "citation_passage_f1",
)

SPECS = (
    MetricSpec(
        name="citation_passage_precision",
        kind="mean",
        tier="judge",
        scorers=(JUDGE,),
        meaning="how well each cited passage supports the statements that cite it",
        formula="mean over cited passages of their mean support; a dangling citation counts as a"
        " passage with 0",
        needs="answer sentences and the passages that they cite",
        source="open-rag-eval",
    ),
    MetricSpec(
        name="citation_passage_f1",
        kind="mean",
        tier="judge",
        scorers=(JUDGE,),
        meaning="balance of citation precision per passage and citation recall",
        formula="2PR / (P + R) of citation_passage_precision and citation_recall; 0 where both"
        " are 0",
        needs="answer sentences and the passages that they cite",
        source="open-rag-eval",
    ),
)


@dataclass(frozen=True, slots=True)
class Instance:
    """One citation: the index of the statement, or `WHOLE`, and of the passage."""

    statement: int
    passage: int


def instances(statements: Statements) -> list[Instance]:
    """What has to be judged, in the order of the answer."""
    placed = [
        Instance(index, passage)
        for index, item in enumerate(statements.items)
        for passage in item.passages
    ]
    return placed + [Instance(WHOLE, passage) for passage in statements.whole]


def f1(precision: float | Gap, recall: float | Gap) -> float | Gap:
    """Harmonic mean, 0 where both are 0; with a gap in either: the gap."""
    if isinstance(precision, Gap):
        return precision
    if isinstance(recall, Gap):
        return recall
    both = precision + recall
    return 2 * precision * recall / both if both else 0.0


def _mean(values: list[float], empty: Gap) -> float | Gap:
    return sum(values) / len(values) if values else empty


def _recall(statements: Statements, supports: Mapping[Instance, float | Gap]) -> float | Gap:
    """Mean over statements, each the mean of the support of its citations.

    A statement whose citations all failed makes it unknown: to leave it out would shift the
    weight to uncited statements, which never fail, and so bend the mean down.
    """
    cites_whole = bool(statements.whole or statements.whole_dangling)
    parts = [
        (index, item.passages, item.dangling, item.needs_citation and not cites_whole)
        for index, item in enumerate(statements.items)
    ]
    parts.append((WHOLE, statements.whole, statements.whole_dangling, False))
    values: list[float] = []
    for index, passages, dangling, needed in parts:
        found = [supports[Instance(index, passage)] for passage in passages]
        known = [value for value in found if not isinstance(value, Gap)]
        if found and not known:
            return prevailing([value for value in found if isinstance(value, Gap)])
        if known or dangling:
            values.append(sum(known) / (len(known) + dangling))
        elif needed:
            values.append(0.0)
    return _mean(values, Gap("no_claims", applies=False))


def citation_scores(
    statements: Statements, supports: Mapping[Instance, float | Gap]
) -> dict[str, float | Gap]:
    """Every metric of `NAMES`. `supports` has a value 0..1 or a gap for each of `instances`.

    Means of precision stand over the instances that were judged; where none of several was,
    the precision is not that of the dangling ones alone but unknown.
    """
    known: dict[int, list[float]] = {}
    gaps: list[Gap] = []
    for instance, value in supports.items():
        if isinstance(value, Gap):
            gaps.append(value)
        else:
            known.setdefault(instance.passage, []).append(value)
    if gaps and not known:
        return dict.fromkeys(NAMES, prevailing(gaps))
    none = Gap("no_citations", applies=False)
    lost = [0.0] * statements.dangling
    precision = _mean([value for values in known.values() for value in values] + lost, none)
    by_passage = _mean([sum(values) / len(values) for values in known.values()] + lost, none)
    recall = _recall(statements, supports)
    return {
        "citation_precision": precision,
        "citation_recall": recall,
        "citation_f1": f1(precision, recall),
        "citation_passage_precision": by_passage,
        "citation_passage_f1": f1(by_passage, recall),
    }
