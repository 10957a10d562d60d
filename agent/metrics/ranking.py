"""Ranking metrics from grades of the retrieved passages: pure formulas.

Grades are those of UMBRELA (arXiv 2406.06519) and of the TREC Deep Learning tracks, 0 to 3. A
passage counts as relevant from grade 2 on, as in those tracks. A grade that could not be had is a
`Gap` and never a number: it takes away the metrics that it could change, and only those.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from agent.metrics.names import at
from agent.metrics.results import Gap, prevailing
from agent.metrics.spec import MetricSpec
from agent.trace import Passage

__all__ = [
    "RELEVANT",
    "SPECS",
    "UMBRELA",
    "average_precision",
    "mean_grade",
    "names",
    "ndcg",
    "precision",
    "rank_order",
    "ranking",
    "reciprocal_rank",
]

UMBRELA = "umbrela"
RELEVANT = 2  # the least grade of a relevant passage: binary judgments of the Deep Learning tracks
_NEEDS = "query and passage texts, graded 0 to 3 by an LLM judge"
_MISSING = Gap("no_passages", applies=False)

SPECS = tuple(
    MetricSpec(
        name=name,
        kind="mean",
        tier="judge",
        scorers=(UMBRELA,),
        meaning=meaning,
        formula=formula,
        needs=_NEEDS,
        labels=labels,
        source=source,
    )
    for name, labels, meaning, formula, source in (
        (
            "precision_at_k",
            ("k",),
            "share of relevant passages among the first k",
            "(passages of grade >= 2 among the first k) / k; not applicable with fewer than k",
            "TREC; open-rag-eval",
        ),
        (
            "average_precision_at_k",
            ("k",),
            "how early the relevant passages among the first k stand",
            "mean over relevant ranks i <= k of (relevant among the first i) / i; 0 without any",
            "TREC; normalised as open-rag-eval has it",
        ),
        (
            "reciprocal_rank",
            (),
            "how early the first relevant passage stands",
            "1 / rank of the first passage of grade >= 2; 0 without any",
            "Voorhees, TREC-8 question answering track, 1999",
        ),
        (
            "ndcg_at_k",
            ("k",),
            "how near the order of the first k comes to the best order of what was retrieved",
            "DCG / ideal DCG, gain 2^grade - 1, discount log2(rank + 1); not applicable where"
            " every grade is 0",
            "Järvelin and Kekäläinen 2002, gains of Burges et al. 2005",
        ),
    )
)

Grades = Sequence[float | Gap]
"""One for each passage, in rank order."""


def names(ks: Sequence[int]) -> list[str]:
    """The names of all metrics of this module for these cut-offs, `relevance` first."""
    out = ["relevance"]
    for spec in SPECS:
        out += [at(spec.name, k) for k in ks] if spec.labels else [spec.name]
    return out


def rank_order(passages: Sequence[Passage]) -> list[int]:
    """Indices of the passages by rank. Where ranks are missing or doubled: as they stand."""
    order = list(range(len(passages)))
    ranks = {p.rank for p in passages}
    if None not in ranks and len(ranks) == len(passages):
        order.sort(key=lambda index: passages[index].rank or 0)
    return order


def _gaps(grades: Grades) -> list[Gap]:
    return [grade for grade in grades if isinstance(grade, Gap)]


def _unknown(grades: Grades) -> Gap | None:
    """The gap that stands for a part of which not all is known."""
    gaps = _gaps(grades)
    return prevailing(gaps) if gaps else None


def _relevant(grade: float | Gap) -> bool:
    return not isinstance(grade, Gap) and grade >= RELEVANT


def mean_grade(grades: Grades) -> float | Gap:
    """Mean of the grades that are known, 0 to 3."""
    known = [grade for grade in grades if not isinstance(grade, Gap)]
    if known:
        return sum(known) / len(known)
    return _unknown(grades) or _MISSING


def precision(grades: Grades, k: int) -> float | Gap:
    """precision@k. With fewer than k passages there is none: k passages were never shown."""
    if not grades:
        return _MISSING
    if len(grades) < k:
        return Gap("too_few_passages", applies=False)
    top = grades[:k]
    return _unknown(top) or sum(map(_relevant, top)) / k


def average_precision(grades: Grades, k: int) -> float | Gap:
    """AP@k; its normaliser is the number of relevant passages among the first k."""
    if not grades:
        return _MISSING
    gap = _unknown(grades[:k])
    if gap is not None:
        return gap
    found, total = 0, 0.0
    for rank, grade in enumerate(grades[:k], 1):
        if _relevant(grade):
            found += 1
            total += found / rank
    return total / found if found else 0.0


def reciprocal_rank(grades: Grades) -> float | Gap:
    """1 / rank of the first relevant passage of the whole list; 0 without any."""
    if not grades:
        return _MISSING
    for rank, grade in enumerate(grades, 1):
        if _relevant(grade):
            # an unknown one before it might have been the first
            return _unknown(grades[:rank]) or 1.0 / rank
    return _unknown(grades) or 0.0


def _dcg(grades: Sequence[float]) -> float:
    return sum(
        (math.exp2(grade) - 1.0) / math.log2(rank + 1) for rank, grade in enumerate(grades, 1)
    )


def ndcg(grades: Grades, k: int) -> float | Gap:
    """nDCG@k against the best order of the retrieved passages (Burges et al. 2005 gains).

    Needs every grade: an unknown one below rank k might belong above it.
    """
    if not grades:
        return _MISSING
    known = [grade for grade in grades if not isinstance(grade, Gap)]
    if len(known) < len(grades):
        return prevailing(_gaps(grades))
    if not any(known):
        return Gap("nothing_relevant", applies=False)
    best = _dcg(sorted(known, reverse=True)[:k])
    return min(1.0, _dcg(known[:k]) / best)  # two orders of one sum may differ in the last bit


def ranking(grades: Grades, ks: Sequence[int]) -> dict[str, float | Gap]:
    """Every metric of `names(ks)`, in that order."""
    out = {"relevance": mean_grade(grades)}
    out |= {at("precision_at_k", k): precision(grades, k) for k in ks}
    out |= {at("average_precision_at_k", k): average_precision(grades, k) for k in ks}
    out["reciprocal_rank"] = reciprocal_rank(grades)
    out |= {at("ndcg_at_k", k): ndcg(grades, k) for k in ks}
    return out
