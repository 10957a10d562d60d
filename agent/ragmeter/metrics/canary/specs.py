"""Names of canary scorers, and the specs of metrics with them.

A suite asks the same few questions again and again, so its scores must not move the means of
traffic. A judge therefore scores canaries under a name of its own, `canary/judge` beside `judge`.
No feedback can have such a name, because names of feedback hold no slash.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace

from ragmeter.core.feedback import ANNOTATION
from ragmeter.core.metric_specs import MetricSpec
from ragmeter.core.score import BUILTIN_SCORER, JUDGE_SCORER, REFERENCE_SCORER, Score, ScoreState
from ragmeter.metrics.judge_agreement import AGREEMENT_METRICS
from ragmeter.metrics.nuggets import AUTONUGGETIZER
from ragmeter.metrics.ranking import UMBRELA
from ragmeter.reasons import Reason
from ragmeter.trace import Trace

_CANARY_PREFIX = "canary/"
_JUDGE_SCORERS = (UMBRELA, JUDGE_SCORER, AUTONUGGETIZER, ANNOTATION)

_ATTEMPT = ("answered", JUDGE_SCORER)
# What follows from the judge's label of the attempt, for a question that can't be answered.
_ABSTENTION = ("abstention_accuracy", "unanswerable_hallucination")
# The results that phrase rules give where no judge has labelled the attempt.
_BY_RULES = {("answered", BUILTIN_SCORER), *((metric, REFERENCE_SCORER) for metric in _ABSTENTION)}
JUDGED = Reason.JUDGED  # the reason of such a result where a judge has


def canary_scorer(scorer: str) -> str:
    """Return the name under which `scorer` scores canaries."""
    return _CANARY_PREFIX + scorer


def is_canary_scorer(scorer: str) -> bool:
    """Return whether the scores of this scorer are about canaries."""
    return scorer == REFERENCE_SCORER or scorer.startswith(_CANARY_PREFIX)


def canary_judge_pairs(pairs: Iterable[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    """Return the (metric, scorer) pairs that a judge scores on canaries, with their new scorers."""
    judged = [
        (metric, scorer)
        for metric, scorer in pairs
        if scorer in _JUDGE_SCORERS and metric not in AGREEMENT_METRICS
    ]
    relabelled = tuple((metric, canary_scorer(scorer)) for metric, scorer in judged)
    return relabelled + abstention_pairs(judged)


def abstention_pairs(pairs: Collection[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    """Return the (metric, scorer) pairs of `judged_abstention` for a judge of these pairs."""
    return tuple((name, canary_scorer(JUDGE_SCORER)) for name in _ABSTENTION if _ATTEMPT in pairs)


def relabel_canary_scores(trace: Trace, scores: Iterable[Score]) -> list[Score]:
    """Return a judge's scores of a canary under their canary names, with those of abstention."""
    scores = list(scores)
    relabelled = [replace(score, scorer=canary_scorer(score.scorer)) for score in scores]
    return relabelled + judged_abstention(trace, scores)


def judged_abstention(trace: Trace, scores: Iterable[Score]) -> list[Score]:
    """Return the abstention metrics of a canary by the judge that was asked about the attempt.

    They have the state of its score `answered`: one trace never has not answered and hallucinated
    an answer.
    """
    attempt = next((one for one in scores if (one.metric, one.scorer) == _ATTEMPT), None)
    if attempt is None:
        return []
    accuracy = replace(attempt, metric=_ABSTENTION[0], scorer=canary_scorer(JUDGE_SCORER))
    if trace.reference is None or trace.reference.answerable is not False:
        accuracy.state = ScoreState.NOT_APPLICABLE
        accuracy.value = None
        accuracy.reason = Reason.ANSWERABLE if trace.reference else Reason.NO_REFERENCE
        accuracy.detail = accuracy.fingerprint = None
    elif attempt.value is not None:
        accuracy.value = 1.0 - attempt.value
    hallucinated = None if accuracy.value is None else 1.0 - accuracy.value
    return [accuracy, replace(accuracy, metric=_ABSTENTION[1], value=hallucinated)]


def leave_to_judge(scores: Iterable[Score]) -> list[Score]:
    """Return the scores of a canary without those that its judge gives."""
    return [
        replace(one, state=ScoreState.NOT_APPLICABLE, value=None, reason=JUDGED, detail=None)
        if (one.metric, one.scorer) in _BY_RULES and one.state is not ScoreState.NOT_APPLICABLE
        else one
        for one in scores
    ]


def add_canary_scorers(spec: MetricSpec) -> MetricSpec:
    """Return `spec` with the canary names of the judges among its scorers."""
    if spec.name in AGREEMENT_METRICS:  # measured on traffic and on probes
        return spec
    more = tuple(canary_scorer(scorer) for scorer in spec.scorers if scorer in _JUDGE_SCORERS)
    return replace(spec, scorers=(*spec.scorers, *more)) if more else spec
