"""Ranking and context metrics from grades or hits of the retrieved passages.

Grades are those of UMBRELA (arXiv 2406.06519) and of the TREC Deep Learning tracks, 0 to 3; a
passage is relevant from grade 2 on, as in those tracks. A hit is 1 or 0. A value that is unknown is
a `NoScore`: it makes those metrics unknown that it could change, and only those.

Context metrics are those of RAGAS and RAG Guardian.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import cast

from ragmeter.core.metric_specs import name_at_cutoff
from ragmeter.core.score import NoScore, most_common_reason
from ragmeter.reasons import Reason
from ragmeter.trace import Passage

UMBRELA = "umbrela"
RELEVANT_GRADE = 2  # the least of a relevant passage, as in the Deep Learning tracks
_BEST_GRADE = 3  # the highest grade of a passage
_NO_PASSAGES = NoScore(Reason.NO_PASSAGES, applies=False)

# Formulas that have changed: a score of another formula belongs to another series, so the judge's
# fingerprint is combined with this. 2: nDCG is 0, and no longer left out, where all grades are 0.
FORMULA_VERSIONS = {"ndcg_at_k": 2}

# The value of each passage in rank order, or the reason why it is unknown.
Hits = Sequence[float | NoScore]
Grades = Sequence[float | NoScore]

CONTEXT_METRICS = ("context_relevancy", "context_precision")
CONTEXT_RECALL = ("context_recall",)


def hit_share(hits: Hits, k: int) -> float | NoScore:
    """Compute (hits among the first k) / k; not applicable with fewer than k passages."""
    if not hits:
        return _NO_PASSAGES
    if len(hits) < k:
        return NoScore(Reason.TOO_FEW_PASSAGES, applies=False)
    top = hits[:k]
    return _unknown(top) or sum(one for one in top if not isinstance(one, NoScore)) / k


def any_hit(hits: Hits, k: int) -> float | NoScore:
    """Return 1 if there is a hit among the first k, else 0; one known hit suffices."""
    if not hits:
        return _NO_PASSAGES
    top = hits[:k]
    if 1.0 in top:
        return 1.0
    return _unknown(top) or 0.0


def reciprocal_rank_at(hits: Hits, k: int) -> float | NoScore:
    """Compute 1 / rank of the first hit among the first k; 0 without any (Voorhees, TREC-8 QA)."""
    if not hits:
        return _NO_PASSAGES
    for rank, one in enumerate(hits[:k], 1):
        if one == 1.0:
            # an unknown value before it might be the first hit
            return _unknown(hits[:rank]) or 1.0 / rank
    return _unknown(hits[:k]) or 0.0


def ranking_names(ks: Sequence[int]) -> list[str]:
    """Return the names of the metrics of `ranking_scores`, `relevance` first."""
    names = ["relevance"]
    for name in ("precision_at_k", "average_precision_at_k", "reciprocal_rank", "ndcg_at_k"):
        names += [name_at_cutoff(name, k) for k in ks] if name.endswith("_at_k") else [name]
    return names


def rank_order(passages: Sequence[Passage]) -> list[int]:
    """Return the passages' indices by rank, in their given order if ranks are missing or repeat."""
    ranks = [passage.rank for passage in passages]
    order = list(range(len(ranks)))
    if None not in ranks and len(set(ranks)) == len(ranks):
        order.sort(key=cast(list[int], ranks).__getitem__)
    return order


def mean_grade(grades: Grades) -> float | NoScore:
    """Compute the mean of the known grades, 0 to 3."""
    known = [grade for grade in grades if not isinstance(grade, NoScore)]
    if known:
        return sum(known) / len(known)
    return _unknown(grades) or _NO_PASSAGES


def precision_at(grades: Grades, k: int) -> float | NoScore:
    """Compute precision@k; not applicable with fewer than k passages."""
    return hit_share(_hits(grades), k)


def average_precision(grades: Grades, k: int) -> float | NoScore:
    """Compute AP@k, normalised by the relevant passages among the first k; 0 without any."""
    if not grades:
        return _NO_PASSAGES
    reason = _unknown(grades[:k])
    if reason is not None:
        return reason
    relevant = 0
    total = 0.0
    for rank, hit in enumerate(_hits(grades[:k]), 1):
        if hit == 1.0:
            relevant += 1
            total += relevant / rank
    return total / relevant if relevant else 0.0


def reciprocal_rank(grades: Grades) -> float | NoScore:
    """Compute 1 / rank of the first relevant passage of the whole list; 0 without any."""
    return reciprocal_rank_at(_hits(grades), len(grades))


def ndcg_at(grades: Grades, k: int) -> float | NoScore:
    """Compute nDCG@k against the best order of the retrieved passages; 0 if all grades are 0.

    As Järvelin and Kekäläinen (2002), with gains of Burges et al. (2005). Without a gain every
    order is as good, and trec_eval gives 0: left out, a retriever that fails would lift the mean.
    It needs every grade: an unknown one below rank k might belong above it.
    """
    if not grades:
        return _NO_PASSAGES
    reason = _unknown(grades)
    if reason is not None:
        return reason
    known = [grade for grade in grades if not isinstance(grade, NoScore)]
    best = _dcg(sorted(known, reverse=True)[:k])
    # two orders of one sum may differ in the last bit
    return min(1.0, _dcg(known[:k]) / best) if best else 0.0


def ranking_scores(grades: Grades, ks: Sequence[int]) -> dict[str, float | NoScore]:
    """Return every metric of `ranking_names(ks)`, in that order."""
    out = {"relevance": mean_grade(grades)}
    out |= {name_at_cutoff("precision_at_k", k): precision_at(grades, k) for k in ks}
    out |= {name_at_cutoff("average_precision_at_k", k): average_precision(grades, k) for k in ks}
    out["reciprocal_rank"] = reciprocal_rank(grades)
    out |= {name_at_cutoff("ndcg_at_k", k): ndcg_at(grades, k) for k in ks}
    return out


def context_scores(grades: Grades) -> dict[str, float | NoScore]:
    """Return the metrics of `CONTEXT_METRICS`; precision needs every grade."""
    mean = mean_grade(grades)
    return {
        "context_relevancy": mean if isinstance(mean, NoScore) else mean / _BEST_GRADE,
        "context_precision": average_precision(grades, len(grades)),
    }


def context_recall(attributed: Sequence[bool]) -> float | NoScore:
    """Compute found statements / statements, from one entry a statement."""
    if not attributed:
        return NoScore(Reason.NO_REFERENCE_ANSWER, applies=False)
    return sum(attributed) / len(attributed)


def _hits(grades: Grades) -> list[float | NoScore]:
    return [
        grade if isinstance(grade, NoScore) else float(grade >= RELEVANT_GRADE) for grade in grades
    ]


def _unknown(values: Sequence[float | NoScore]) -> NoScore | None:
    """Return the most common reason among the values, or None if all are known."""
    reasons = [value for value in values if isinstance(value, NoScore)]
    return most_common_reason(reasons) if reasons else None


def _dcg(grades: Sequence[float]) -> float:
    return sum(
        (math.exp2(grade) - 1.0) / math.log2(rank + 1) for rank, grade in enumerate(grades, 1)
    )
