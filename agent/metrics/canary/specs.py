"""Names of canary scorers, and the specs of metrics with them.

A suite asks the same few questions again and again, so its scores must not move the means of
traffic. A judge therefore scores canaries under a name of its own, `canary/judge` beside `judge`.
No feedback can have such a name, because names of feedback hold no slash.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from ragmeter.core.feedback import ANNOTATION
from ragmeter.core.metric_specs import MetricSpec
from ragmeter.core.score import JUDGE_SCORER, REFERENCE_SCORER, Score
from ragmeter.metrics.claims_and_nuggets import AUTONUGGETIZER
from ragmeter.metrics.judge_agreement import AGREEMENT_METRICS
from ragmeter.metrics.ranking import UMBRELA

_CANARY_PREFIX = "canary/"
_JUDGE_SCORERS = (UMBRELA, JUDGE_SCORER, AUTONUGGETIZER, ANNOTATION)


def canary_scorer(scorer: str) -> str:
    """Return the name under which `scorer` scores canaries."""
    return _CANARY_PREFIX + scorer


def is_canary_scorer(scorer: str) -> bool:
    """Return whether the scores of this scorer are about canaries."""
    return scorer == REFERENCE_SCORER or scorer.startswith(_CANARY_PREFIX)


def canary_judge_pairs(pairs: Iterable[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    """Return the (metric, scorer) pairs that a judge scores on canaries, with their new scorers."""
    return tuple(
        (metric, canary_scorer(scorer))
        for metric, scorer in pairs
        if scorer in _JUDGE_SCORERS and metric not in AGREEMENT_METRICS
    )


def relabel_canary_scores(scores: Iterable[Score]) -> list[Score]:
    """Return copies of a judge's scores of a canary under the scorers' canary names."""
    return [replace(score, scorer=canary_scorer(score.scorer)) for score in scores]


def add_canary_scorers(spec: MetricSpec) -> MetricSpec:
    """Return `spec` with the canary names of the judges among its scorers."""
    if spec.name in AGREEMENT_METRICS:  # measured on traffic and on probes
        return spec
    more = tuple(canary_scorer(scorer) for scorer in spec.scorers if scorer in _JUDGE_SCORERS)
    return replace(spec, scorers=(*spec.scorers, *more)) if more else spec
