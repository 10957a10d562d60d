"""Metrics that follow from labels of people or of an annotation judge.

An answer metric is a share of answers, so the value of one trace is 0 or 1: its label. A passage
metric follows from the labels t (topically relevant), s (evidence sufficient) and m (misleading) of
the passage at each rank, as in pragmata's metrics taxonomy. Only labelled traces are measured: a
label that is missing gives no result, not even `unscored`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from ragmeter.core.feedback import AnswerLabels, PassageLabels
from ragmeter.core.metric_specs import name_at_cutoff
from ragmeter.core.score import NoScore, Score, ScoreState
from ragmeter.metrics.ranking import any_hit, hit_share, ndcg_at, reciprocal_rank_at

# The label that each metric is the share of. The built-in scorer gives `citation_presence` and
# `citation_fabricated`, too (ragmeter.metrics.citations).
LABEL_BY_METRIC = {
    "grounding_presence": "support_present",
    "unsupported_claim": "unsupported_claim_present",
    "contradiction": "contradicted_claim_present",
    "citation_presence": "source_cited",
    "citation_fabricated": "fabricated_source",
    "proper_action": "proper_action",
    "on_topic": "response_on_topic",
    "helpfulness": "helpful",
    "incompleteness": "incomplete",
    "unsafe_content": "unsafe_content",
}
_FABRICATED = "citation_fabricated"  # a share of the answers that cite only
_NOT_LABELLED = NoScore("not_labelled")
_SUFFICIENT, _TOPICAL = 2.0, 1.0  # grades of nDCG; gains 2^grade - 1 are 3 and 1

# The labels of each passage in rank order; None for a passage without labels.
RankedLabels = Sequence[PassageLabels | None]

PASSAGE_METRICS = (
    *("topical_precision_at_k", "sufficiency_hit_at_k", "sufficiency_rate_at_k"),
    *("misleading_context_rate_at_k", "reciprocal_rank_at_k", "ndcg_at_k"),
)


def score_answer_labels(labels: AnswerLabels) -> dict[str, float | NoScore]:
    """Return every metric of `LABEL_BY_METRIC`, in that order.

    `citation_fabricated` is not applicable to an answer that cites nothing, and unknown without
    the label `source_cited`.
    """
    out: dict[str, float | NoScore] = {}
    for metric, label in LABEL_BY_METRIC.items():
        value = getattr(labels, label)
        if metric == _FABRICATED and not labels.source_cited:
            cites_not = NoScore("no_citations", applies=False)
            out[metric] = _NOT_LABELLED if labels.source_cited is None else cites_not
        else:
            out[metric] = _NOT_LABELLED if value is None else float(value)
    return out


def labelled_passage_metrics(ks: Sequence[int]) -> list[str]:
    """Return the names of all passage metrics for these cut-offs."""
    return [name_at_cutoff(name, k) for name in PASSAGE_METRICS for k in ks]


def _values(labels: RankedLabels, name: str) -> list[float | NoScore]:
    values = [None if one is None else getattr(one, name) for one in labels]
    return [_NOT_LABELLED if value is None else float(value) for value in values]


def label_grades(labels: RankedLabels) -> list[float | NoScore]:
    """Grade each passage: 2 for sufficient evidence, 1 if it is only on the topic, else 0.

    A grade needs both labels, or evidence that is sufficient.
    """
    out: list[float | NoScore] = []
    for one in labels:
        if one is None or one.evidence_sufficient is None:
            out.append(_NOT_LABELLED)
        elif one.evidence_sufficient:
            out.append(_SUFFICIENT)
        elif one.topically_relevant is None:
            out.append(_NOT_LABELLED)
        else:
            out.append(_TOPICAL if one.topically_relevant else 0.0)
    return out


def score_passage_labels(labels: RankedLabels, ks: Sequence[int]) -> dict[str, float | NoScore]:
    """Return every metric of `labelled_passage_metrics(ks)`.

    nDCG compares with the best order of all retrieved passages, not of the first k alone.
    """
    topical = _values(labels, "topically_relevant")
    sufficient = _values(labels, "evidence_sufficient")
    misleading = _values(labels, "misleading")
    graded = label_grades(labels)
    values: tuple[Callable[[int], float | NoScore], ...] = (
        lambda k: hit_share(topical, k),
        lambda k: any_hit(sufficient, k),
        lambda k: hit_share(sufficient, k),
        lambda k: hit_share(misleading, k),
        lambda k: reciprocal_rank_at(topical, k),
        lambda k: ndcg_at(graded, k),
    )
    return {
        name_at_cutoff(name, k): value(k)
        for name, value in zip(PASSAGE_METRICS, values, strict=True)
        for k in ks
    }


def labelled_metric_names(ks: Sequence[int]) -> list[str]:
    """Return the names of all metrics that labels can give."""
    return [*labelled_passage_metrics(ks), *LABEL_BY_METRIC]


def label_scores(
    passages: Sequence[PassageLabels | None], answer: AnswerLabels, ks: Sequence[int]
) -> dict[str, float | None]:
    """Return the metrics that the labels suffice for, None where one does not apply.

    `passages` are labels in rank order; without any there are no metrics of retrieval.
    """
    scores: dict[str, float | NoScore] = {}
    if any(one is not None and one.given for one in passages):
        scores |= score_passage_labels(passages, ks)
    scores |= score_answer_labels(answer)
    return {
        name: None if isinstance(value, NoScore) else value
        for name, value in scores.items()
        if not (isinstance(value, NoScore) and value.applies)
    }


def label_results(
    values: Iterable[tuple[str, float | None]], scorer: str, probability: float
) -> list[Score]:
    """Make results of a scorer from values of `label_scores`."""
    return [
        Score(
            metric,
            scorer,
            ScoreState.NOT_APPLICABLE if value is None else ScoreState.SCORED,
            value,
            probability=probability,
        )
        for metric, value in values
    ]
