"""Metrics that follow from labels of people or of an annotation judge.

An answer metric is a share of answers, so the value of one trace is 0 or 1: its label. A passage
metric follows from the labels t (topically relevant), s (evidence sufficient) and m (misleading) of
the passage at each rank, as in pragmata's metrics taxonomy. Only labelled traces are measured: a
label that is missing gives no result, not even `unscored`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from ragmeter.core.feedback import CANNOT_TELL, PEOPLE, AnswerLabels, PassageLabels, Verdict
from ragmeter.core.metric_specs import name_at_cutoff
from ragmeter.core.score import BUILTIN_SCORER, NoScore, Score, ScoreState
from ragmeter.core.tiers import MetricScorer
from ragmeter.metrics.ranking import any_hit, hit_share, ndcg_at, reciprocal_rank_at
from ragmeter.reasons import Reason

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

# The metric that each label of a whole trace is the share of.
VERDICT_METRICS = {
    "grounded": "grounding",
    "answered": "answered",
    "relevant": "context_relevancy",
}
# What the draw of `ragmeter label` gives.
PEOPLE_PAIRS: tuple[MetricScorer, ...] = tuple((name, PEOPLE) for name in VERDICT_METRICS.values())
# The stratum of all traces that people may be asked about.
PEOPLE_STRATUM = "people"

# The metric by which traces are sorted before a draw, and that a local model scores.
SORTED_BY = "grounding"

# The value of a metric that labels give: None if it does not apply, a text says why it is missing.
LabelValue = float | str | None

_FABRICATED = "citation_fabricated"  # a share of the answers that cite only
_NOT_LABELLED = NoScore(Reason.NOT_LABELLED)
# Grades of nDCG; the gains 2^grade - 1 are 3 and 1.
_SUFFICIENT = 2.0
_TOPICAL = 1.0

# The labels of each passage in rank order; None for a passage without labels.
RankedLabels = Sequence[PassageLabels | None]

PASSAGE_METRICS = (
    "topical_precision_at_k",
    "sufficiency_hit_at_k",
    "sufficiency_rate_at_k",
    "misleading_context_rate_at_k",
    "reciprocal_rank_at_k",
    "ndcg_at_k",
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
            cites_not = NoScore(Reason.NO_CITATIONS, applies=False)
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


def labelled_metric_names(ks: Sequence[int], *, verdicts: bool = True) -> list[str]:
    """Return the names of all metrics that labels can give, with those of whole traces or not."""
    whole = VERDICT_METRICS.values() if verdicts else ()
    return [*labelled_passage_metrics(ks), *LABEL_BY_METRIC, *whole]


def verdict_values(verdict: Verdict) -> dict[str, LabelValue]:
    """Return the metrics that the labels of a whole trace give.

    An answer that does not attempt the question and has no label `grounded` claims nothing:
    grounding does not apply.
    """
    values: dict[str, LabelValue] = {
        VERDICT_METRICS[label]: CANNOT_TELL if value == CANNOT_TELL else float(value)
        for label, value in verdict.given.items()
    }
    if verdict.answered is False and verdict.grounded is None:
        values["grounding"] = None
    return values


def label_scores(
    passages: Sequence[PassageLabels | None],
    answer: AnswerLabels,
    ks: Sequence[int],
    verdict: Verdict | None = None,
) -> dict[str, LabelValue]:
    """Return the metrics that the labels suffice for.

    `passages` are labels in rank order; without any there are no metrics of retrieval.
    """
    scores: dict[str, float | NoScore] = {}
    if any(one is not None and one.given for one in passages):
        scores |= score_passage_labels(passages, ks)
    scores |= score_answer_labels(answer)
    values: dict[str, LabelValue] = {
        name: None if isinstance(value, NoScore) else value
        for name, value in scores.items()
        if not (isinstance(value, NoScore) and value.applies)
    }
    return values if verdict is None else values | verdict_values(verdict)


def find_model_score(results: Iterable[Score]) -> Score | None:
    """Return a local model's result for the grounding of a trace, whatever its state."""
    for score in results:
        if score.metric == SORTED_BY and score.scorer not in (BUILTIN_SCORER, PEOPLE):
            return score
    return None


def unlabelled_results(
    metrics: Collection[str], cheap: Mapping[str, float], stratum: str = PEOPLE_STRATUM
) -> list[Score]:
    """Make the results of a trace without people's labels, of those that they could give."""
    return [
        Score(*pair, ScoreState.SAMPLED_OUT, stratum=stratum, cheap=cheap.get(pair[0]))
        for pair in PEOPLE_PAIRS
        if pair[0] in metrics
    ]


def label_results(
    values: Iterable[tuple[str, LabelValue]],
    scorer: str,
    probability: float,
    cheap: Mapping[str, float] | None = None,
    stratum: str = PEOPLE_STRATUM,
) -> list[Score]:
    """Make results of a scorer from values of `label_scores`.

    Args:
        values: The values by metric.
        scorer: Who labelled.
        probability: Inclusion probability of the trace.
        cheap: For labels of a drawn trace the scores that help, by metric of `PEOPLE_PAIRS`.
        stratum: The stratum of those metrics.
    """
    results = []
    for metric, value in values:
        score = Score(metric, scorer, ScoreState.NOT_APPLICABLE, probability=probability)
        if isinstance(value, str):
            score.state = ScoreState.UNSCORED
            score.reason = value
        elif value is not None:
            score.state = ScoreState.SCORED
            score.value = value
        if cheap is not None and (metric, PEOPLE) in PEOPLE_PAIRS:
            score.stratum = stratum
            score.cheap = cheap.get(metric)
        results.append(score)
    return results
