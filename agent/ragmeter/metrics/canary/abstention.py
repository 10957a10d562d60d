"""Measure whether a service abstains from a question that has no answer."""

from __future__ import annotations

from ragmeter.core.score import NoScore
from ragmeter.metrics.abstention import REFUSAL_LANGUAGES
from ragmeter.metrics.language import (
    NOT_MEASURED,
    identify_answer,
)
from ragmeter.reasons import Reason
from ragmeter.trace import Reference, Trace


def abstention_accuracy(
    trace: Trace, reference: Reference, answered: float | None
) -> float | NoScore:
    """Return 1 if the service abstained from a question without an answer, else 0 (helloworld-ai).

    For other questions it is not applicable: the metric `answered` measures those. `answered` is
    the value of `ragmeter.metrics.abstention.answered_value`.
    """
    if reference.answerable is not False:
        return NoScore(Reason.ANSWERABLE, applies=False)
    if answered is None:
        return NoScore(Reason.NO_TEXT)
    if answered and trace.abstained is None and identify_answer(trace) not in REFUSAL_LANGUAGES:
        return NOT_MEASURED
    return 1.0 - answered


def unanswerable_hallucination(accuracy: float | NoScore) -> float | NoScore:
    """Return 1 if a question without an answer was answered, else 0."""
    return accuracy if isinstance(accuracy, NoScore) else 1.0 - accuracy
