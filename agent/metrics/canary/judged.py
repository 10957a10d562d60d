"""What a judge says of canaries, under names of its own.

The same prompts, and still no score of the traffic: a suite asks the same few questions again and
again, and whoever changes it moves a mean. So the scorer's name says whose population it is:
`canary/judge` beside `judge`. No feedback can have such a name, for theirs hold no slash.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from agent.feedback.labels import ANNOTATION
from agent.metrics import judges
from agent.metrics.canary.scores import pairs as reference_pairs
from agent.metrics.nuggets import AUTONUGGETIZER
from agent.metrics.ranking import UMBRELA
from agent.metrics.results import JUDGE, REFERENCE
from agent.metrics.spec import MetricSpec
from agent.trace import Score

__all__ = ["apart", "asked_of", "expected_of", "is_of_canaries", "told_apart", "with_canaries"]

APART = "canary/"
JUDGES = (UMBRELA, JUDGE, AUTONUGGETIZER, ANNOTATION)
OF_JUDGES = frozenset(spec.name for spec in judges.SPECS)
"""How judges agree is found out on traffic and on probes."""


def apart(scorer: str) -> str:
    """The name under which `scorer` speaks of canaries."""
    return APART + scorer


def is_of_canaries(scorer: str) -> bool:
    """Whether what this scorer says is about canaries."""
    return scorer == REFERENCE or scorer.startswith(APART)


def asked_of(pairs: Iterable[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    """Of all (metric, scorer) pairs those that a judge is asked for of a canary, renamed."""
    return tuple(
        (metric, apart(scorer))
        for metric, scorer in pairs
        if scorer in JUDGES and metric not in OF_JUDGES
    )


def expected_of(
    ks: Sequence[int], pairs: Iterable[tuple[str, str]], judged: bool
) -> tuple[tuple[str, str], ...]:
    """The (metric, scorer) pairs that each canary gets exactly one result for, in their order,
    where traffic has `pairs`. `judged`: canaries may ask the judge."""
    return (*reference_pairs(ks), *(asked_of(pairs) if judged else ()))


def told_apart(scores: Iterable[Score]) -> list[Score]:
    """What a judge has found of a canary, renamed."""
    return [replace(score, scorer=apart(score.scorer)) for score in scores]


def with_canaries(spec: MetricSpec) -> MetricSpec:
    """`spec` with the names under which judges measure it on canaries."""
    if spec.name in OF_JUDGES:
        return spec
    more = tuple(apart(scorer) for scorer in spec.scorers if scorer in JUDGES)
    return replace(spec, scorers=(*spec.scorers, *more)) if more else spec
