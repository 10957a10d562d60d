"""What labels of the retrieved passages say of retrieval: pure formulas.

For one trace with labels t (topically relevant), s (evidence sufficient) and m (misleading) of the
passage at each rank, as in the metrics taxonomy of pragmata; a window averages over traces.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from agent.feedback.labels import ANNOTATION, HUMAN, PassageLabels
from agent.metrics.hits import any_hit, reciprocal_rank_at, share
from agent.metrics.names import at
from agent.metrics.ranking import ndcg, rank_order
from agent.metrics.results import Gap
from agent.metrics.spec import Kind, MetricSpec
from agent.trace import Trace

__all__ = [
    "NDCG",
    "RECIPROCAL_RANK",
    "SPECS",
    "Labelled",
    "grades",
    "in_rank_order",
    "names",
    "passage_scores",
]

Labelled = Sequence[PassageLabels | None]
"""One for each passage, in rank order; None where nobody has labelled it."""

NOT_LABELLED = Gap("not_labelled")
_SOURCE = "pragmata, metrics taxonomy"
SUFFICIENT, TOPICAL = 2.0, 1.0  # grades of nDCG; gains 2^grade - 1 are 3 and 1
NDCG = "ndcg_at_k"
"""The quantity that an LLM judge's grades give too (agent.metrics.ranking), by other scorers."""
RECIPROCAL_RANK = "reciprocal_rank_at_k"


def _spec(name: str, kind: Kind, meaning: str, formula: str, good: bool = True) -> MetricSpec:
    return MetricSpec(
        name=name,
        kind=kind,
        tier="feedback",
        scorers=(HUMAN, ANNOTATION),
        meaning=meaning,
        formula=formula,
        needs="labels of the retrieved passages",
        source=_SOURCE,
        good="higher" if good else "lower",
        labels=("k",),
    )


SPECS = (
    _spec(
        "topical_precision_at_k",
        "mean",
        "share of passages on the topic among the first k",
        "(t_1 + … + t_k) / k; not applicable with fewer than k",
    ),
    _spec(
        "sufficiency_hit_at_k",
        "ratio",
        "share of queries with sufficient evidence in one of the first k passages",
        "1 if any of s_1 … s_k is 1, else 0",
    ),
    _spec(
        "sufficiency_rate_at_k",
        "mean",
        "share of passages that are sufficient evidence each for itself among the first k",
        "(s_1 + … + s_k) / k; not applicable with fewer than k",
    ),
    _spec(
        "misleading_context_rate_at_k",
        "mean",
        "share of misleading passages among the first k",
        "(m_1 + … + m_k) / k; not applicable with fewer than k",
        good=False,
    ),
    _spec(
        RECIPROCAL_RANK,
        "mean",
        "how early the first relevant passage among the first k stands",
        "1 / rank of the first passage with t = 1 among the first k; 0 without any",
    ),
    _spec(
        NDCG,
        "mean",
        "order of the first k passages against the best order",
        "DCG_k / ideal DCG_k, gains 2^w - 1, w = 2 if s, else 1 if t, else 0; discount "
        "log2(rank + 1)",
    ),
)


def names(ks: Sequence[int]) -> list[str]:
    """The names of all metrics of this module for these cut-offs."""
    return [at(spec.name, k) for spec in SPECS for k in ks]


def in_rank_order(trace: Trace, labels: Mapping[str, PassageLabels]) -> Labelled | Gap:
    """The labels by passage id, brought into the order of the trace's passages."""
    if trace.passages is None:
        return Gap("no_passages_captured")
    passages = trace.passages
    return [labels.get(passages[index].id) for index in rank_order(passages)]


def _values(labels: Labelled, name: str) -> list[float | Gap]:
    found = [None if one is None else getattr(one, name) for one in labels]
    return [NOT_LABELLED if value is None else float(value) for value in found]


def grades(labels: Labelled) -> list[float | Gap]:
    """2 where the passage is sufficient evidence, 1 where it is on the topic only, else 0.

    A grade is known only where both labels are, or the first is yes.
    """
    out: list[float | Gap] = []
    for one in labels:
        if one is None or one.evidence_sufficient is None:
            out.append(NOT_LABELLED)
        elif one.evidence_sufficient:
            out.append(SUFFICIENT)
        elif one.topically_relevant is None:
            out.append(NOT_LABELLED)
        else:
            out.append(TOPICAL if one.topically_relevant else 0.0)
    return out


def passage_scores(labels: Labelled, ks: Sequence[int]) -> dict[str, float | Gap]:
    """Every metric of `names(ks)`, in that order.

    nDCG is held against the best order of all passages that were retrieved, not of the first k
    alone: what a better order would have brought up counts.
    """
    topical = _values(labels, "topically_relevant")
    sufficient = _values(labels, "evidence_sufficient")
    misleading = _values(labels, "misleading")
    graded = grades(labels)
    out: dict[str, float | Gap] = {}
    out |= {at("topical_precision_at_k", k): share(topical, k) for k in ks}
    out |= {at("sufficiency_hit_at_k", k): any_hit(sufficient, k) for k in ks}
    out |= {at("sufficiency_rate_at_k", k): share(sufficient, k) for k in ks}
    out |= {at("misleading_context_rate_at_k", k): share(misleading, k) for k in ks}
    out |= {at(RECIPROCAL_RANK, k): reciprocal_rank_at(topical, k) for k in ks}
    out |= {at(NDCG, k): ndcg(graded, k) for k in ks}
    return out
