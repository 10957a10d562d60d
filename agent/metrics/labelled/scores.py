"""What labels of one trace amount to: a value of every metric that they suffice for.

Who has said nothing of a metric owes it no value: what is measured is measured on labelled traces
only, so a label that is missing is no result, neither `unscored` nor anything else.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from agent.feedback.labels import AnswerLabels, PassageLabels
from agent.metrics.labelled.answers import LABEL_OF, answer_scores
from agent.metrics.labelled.passages import names, passage_scores
from agent.metrics.results import Gap
from agent.trace import Score, State

__all__ = ["label_scores", "metric_names", "results"]


def metric_names(ks: Sequence[int]) -> list[str]:
    """Of everything that labels can give."""
    return [*names(ks), *LABEL_OF]


def label_scores(
    passages: Sequence[PassageLabels | None], answer: AnswerLabels, ks: Sequence[int]
) -> dict[str, float | None]:
    """By metric its value, None where it does not apply; what the labels leave open is not there.

    `passages` are in rank order. Where none of them has a label, nothing is said of retrieval.
    """
    found: dict[str, float | Gap] = {}
    if any(one is not None and one.given for one in passages):
        found |= passage_scores(passages, ks)
    found |= answer_scores(answer)
    return {
        name: None if isinstance(value, Gap) else value
        for name, value in found.items()
        if not (isinstance(value, Gap) and value.applies)
    }


def results(
    values: Iterable[tuple[str, float | None]], scorer: str, probability: float
) -> list[Score]:
    """What `label_scores` gave as the results of a scorer."""
    return [
        Score(
            metric,
            scorer,
            State.NOT_APPLICABLE if value is None else State.SCORED,
            value,
            probability=probability,
        )
        for metric, value in values
    ]
