"""Ranking and context metrics from grades or hits of the retrieved passages.

Rankings of yes and no: of each passage, in rank order, 1, 0, or the `Gap` why it isn't known.

A gap takes away what it could change, and only that, as in `ragmeter.metrics.ranking`.

Ranking metrics from grades of the retrieved passages: pure formulas.

Grades are those of UMBRELA (arXiv 2406.06519) and of the TREC Deep Learning tracks, 0 to 3. A
passage counts as relevant from grade 2 on, as in those tracks. A grade that could not be had is a
`Gap` and never a number: it takes away the metrics that it could change, and only those.

How good the retrieved context is, in the words of RAGAS and RAG Guardian: pure formulas.

Relevancy and precision follow from the same grades of passages as every ranking metric; recall
needs a reference, and a judge that looks for its statements in the passages.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from ragmeter.core.metric_specs import MetricSpec, name_at_cutoff
from ragmeter.core.score import JUDGE_SCORER, NoScore, most_common_reason
from ragmeter.trace import Passage

Hits = Sequence[float | NoScore]

_NO_PASSAGES = NoScore("no_passages", applies=False)


def _unknown_hits(hits: Hits) -> NoScore | None:
    gaps = [one for one in hits if isinstance(one, NoScore)]
    return most_common_reason(gaps) if gaps else None


def hit_share(hits: Hits, k: int) -> float | NoScore:
    """(hits among the first k) / k. With fewer than k passages there is none, as with precision@k:
    k passages were never shown."""
    if not hits:
        return _NO_PASSAGES
    if len(hits) < k:
        return NoScore("too_few_passages", applies=False)
    top = hits[:k]
    return _unknown_hits(top) or sum(one for one in top if not isinstance(one, NoScore)) / k


def any_hit(hits: Hits, k: int) -> float | NoScore:
    """1 if there is a hit among the first k, else 0. A known hit stands beside any gap."""
    if not hits:
        return _NO_PASSAGES
    top = hits[:k]
    if 1.0 in top:
        return 1.0
    return _unknown_hits(top) or 0.0


def reciprocal_rank_at(hits: Hits, k: int) -> float | NoScore:
    """1 / rank of the first hit among the first k, 0 without any (Voorhees, TREC-8 QA, 1999)."""
    if not hits:
        return _NO_PASSAGES
    for rank, one in enumerate(hits[:k], 1):
        if one == 1.0:
            # an unknown one before it might have been the first
            return _unknown_hits(hits[:rank]) or 1.0 / rank
    return _unknown_hits(hits[:k]) or 0.0


UMBRELA = "umbrela"
RELEVANT_GRADE = (
    2  # the least grade of a relevant passage: binary judgments of the Deep Learning tracks
)
_RANKING_NEEDS = "query and passage texts, graded 0 to 3 by an LLM judge"
_MISSING = NoScore("no_passages", applies=False)

RANKING_SPECS = tuple(
    MetricSpec(
        name=name,
        kind="mean",
        tier="judge",
        scorers=(UMBRELA,),
        meaning=meaning,
        formula=formula,
        needs=_RANKING_NEEDS,
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

Grades = Sequence[float | NoScore]
"""One for each passage, in rank order."""


def ranking_names(ks: Sequence[int]) -> list[str]:
    """The names of all metrics of this module for these cut-offs, `relevance` first."""
    out = ["relevance"]
    for spec in RANKING_SPECS:
        out += [name_at_cutoff(spec.name, k) for k in ks] if spec.labels else [spec.name]
    return out


def rank_order(passages: Sequence[Passage]) -> list[int]:
    """Indices of the passages by rank. Where ranks are missing or doubled: as they stand."""
    order = list(range(len(passages)))
    ranks = {p.rank for p in passages}
    if None not in ranks and len(ranks) == len(passages):
        order.sort(key=lambda index: passages[index].rank or 0)
    return order


def _missing_grades(grades: Grades) -> list[NoScore]:
    return [grade for grade in grades if isinstance(grade, NoScore)]


def _unknown_grades(grades: Grades) -> NoScore | None:
    """The gap that stands for a part of which not all is known."""
    gaps = _missing_grades(grades)
    return most_common_reason(gaps) if gaps else None


def _relevant(grade: float | NoScore) -> bool:
    return not isinstance(grade, NoScore) and grade >= RELEVANT_GRADE


def mean_grade(grades: Grades) -> float | NoScore:
    """Mean of the grades that are known, 0 to 3."""
    known = [grade for grade in grades if not isinstance(grade, NoScore)]
    if known:
        return sum(known) / len(known)
    return _unknown_grades(grades) or _MISSING


def precision_at(grades: Grades, k: int) -> float | NoScore:
    """precision@k. With fewer than k passages there is none: k passages were never shown."""
    if not grades:
        return _MISSING
    if len(grades) < k:
        return NoScore("too_few_passages", applies=False)
    top = grades[:k]
    return _unknown_grades(top) or sum(map(_relevant, top)) / k


def average_precision(grades: Grades, k: int) -> float | NoScore:
    """AP@k; its normaliser is the number of relevant passages among the first k."""
    if not grades:
        return _MISSING
    gap = _unknown_grades(grades[:k])
    if gap is not None:
        return gap
    found, total = 0, 0.0
    for rank, grade in enumerate(grades[:k], 1):
        if _relevant(grade):
            found += 1
            total += found / rank
    return total / found if found else 0.0


def reciprocal_rank(grades: Grades) -> float | NoScore:
    """1 / rank of the first relevant passage of the whole list; 0 without any."""
    if not grades:
        return _MISSING
    for rank, grade in enumerate(grades, 1):
        if _relevant(grade):
            # an unknown one before it might have been the first
            return _unknown_grades(grades[:rank]) or 1.0 / rank
    return _unknown_grades(grades) or 0.0


def _dcg(grades: Sequence[float]) -> float:
    return sum(
        (math.exp2(grade) - 1.0) / math.log2(rank + 1) for rank, grade in enumerate(grades, 1)
    )


def ndcg_at(grades: Grades, k: int) -> float | NoScore:
    """nDCG@k against the best order of the retrieved passages (Burges et al. 2005 gains).

    Needs every grade: an unknown one below rank k might belong above it.
    """
    if not grades:
        return _MISSING
    known = [grade for grade in grades if not isinstance(grade, NoScore)]
    if len(known) < len(grades):
        return most_common_reason(_missing_grades(grades))
    if not any(known):
        return NoScore("nothing_relevant", applies=False)
    best = _dcg(sorted(known, reverse=True)[:k])
    return min(1.0, _dcg(known[:k]) / best)  # two orders of one sum may differ in the last bit


def ranking_scores(grades: Grades, ks: Sequence[int]) -> dict[str, float | NoScore]:
    """Every metric of `names(ks)`, in that order."""
    out = {"relevance": mean_grade(grades)}
    out |= {name_at_cutoff("precision_at_k", k): precision_at(grades, k) for k in ks}
    out |= {name_at_cutoff("average_precision_at_k", k): average_precision(grades, k) for k in ks}
    out["reciprocal_rank"] = reciprocal_rank(grades)
    out |= {name_at_cutoff("ndcg_at_k", k): ndcg_at(grades, k) for k in ks}
    return out


_BEST_GRADE = 3  # the highest grade of a passage

CONTEXT_SPECS = (
    MetricSpec(
        name="context_relevancy",
        kind="mean",
        tier="judge",
        scorers=(UMBRELA,),
        meaning="how relevant the retrieved passages are on average",
        formula="mean grade / 3",
        needs="grades 0 to 3 of the passages",
        source="RAG Guardian",
    ),
    MetricSpec(
        name="context_precision",
        kind="mean",
        tier="judge",
        scorers=(UMBRELA,),
        meaning="how far up the relevant ones stand among all retrieved passages",
        formula="mean over relevant passages i (grade >= 2) of the share of relevant ones among the"
        " first i; 0 without any",
        needs="grades 0 to 3 of the passages",
        source="RAGAS",
    ),
    MetricSpec(
        name="context_recall",
        kind="mean",
        tier="judge",
        scorers=(JUDGE_SCORER,),
        meaning="share of the statements of the right answer that the passages hold",
        formula="statements that the passages support / statements: the reference's facts, else"
        " the sentences of its answer",
        needs="passages and the reference of a canary",
        source="RAGAS",
    ),
)
CONTEXT_METRICS = ("context_relevancy", "context_precision")
CONTEXT_RECALL = ("context_recall",)


def context_scores(grades: Grades) -> dict[str, float | NoScore]:
    """Both metrics of `NAMES`. Precision needs every grade, as its average runs over all ranks."""
    mean = mean_grade(grades)
    return {
        "context_relevancy": mean if isinstance(mean, NoScore) else mean / _BEST_GRADE,
        "context_precision": average_precision(grades, len(grades)),
    }


def context_recall(attributed: Sequence[bool]) -> float | NoScore:
    """Statements found / statements, one entry for each."""
    if not attributed:
        return NoScore("no_reference_answer", applies=False)
    return sum(attributed) / len(attributed)
