"""What a signal says of a service: which number is bad, and between which times it became so.

A signal is an alert: of a detector, which estimates the onset, or of a rule, which is true only
some time after it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ragmeter.alerts.alert import Alert
from ragmeter.core.durations import parse_duration
from ragmeter.metrics.canary.specs import is_canary_scorer
from ragmeter.parts.incidents.numbers import NUMBERS, NumberKey
from ragmeter.parts.views import IncidentKind

SAME_CAUSE = 600.0  # seconds between the onsets of two signals of one cause

_LEAST_DELAY = 900.0  # seconds that a rule may be late, however short its window

# Reasons of an end that say nothing of the number: nobody looks at it any more.
_WITHDRAWN = ("no longer", "now watches", "no data")

# What is wrong where a goal is missed, by question.
_GOAL_KINDS: Mapping[str, IncidentKind] = {
    "works": "failures",
    "fast": "slow",
    "answered": "refusals",
    "grounded": "ungrounded",
    "retrieved": "wrong_passages",
    "cited": "citations",
    "complete": "incomplete",
    "cost": "cost",
}

Family = str
"""What may be one cause: what users see, our own measuring, the absence of traffic, a rule."""


class Onset(NamedTuple):
    """An estimated time with the interval that it lies in."""

    at: float
    lower: float
    upper: float

    def near(self, other: Onset) -> bool:
        """Return whether both may be of one cause."""
        gap = max(self.lower, other.lower) - min(self.upper, other.upper)
        return gap <= 0 or abs(self.at - other.at) <= SAME_CAUSE


class IncidentSignal(NamedTuple):
    """An alert, and what it means for people.

    Args:
        alert: The alert.
        kind: What is wrong.
        question: The question that it tells of; empty if none.
        number: The number that the windows have of it; None: only the signal has one.
        onset: When it began.
    """

    alert: Alert
    kind: IncidentKind
    question: str
    number: NumberKey | None
    onset: Onset

    @property
    def key(self) -> str:
        """Names this firing of the alert."""
        return f"{self.alert.id}@{self.alert.fired_at or 0.0:.3f}"

    @property
    def family(self) -> Family:
        """What may be one cause with it."""
        if self.kind in ("measuring", "no_traffic", "canaries"):
            return self.kind
        return f"rule {self.alert.rule}" if self.kind == "rule" else "users"

    @property
    def of_goal(self) -> bool:
        """Whether it says that a goal of the user is missed."""
        return is_of_goal(self.alert)

    @property
    def withdrawn(self) -> bool:
        """Whether it ended for a reason that says nothing of the number."""
        alert = self.alert
        return alert.state == "resolved" and any(word in alert.reason for word in _WITHDRAWN)


def read_signal(alert: Alert) -> IncidentSignal:
    """Return what an alert that fires, or has fired, means."""
    kind, question, number = _meaning(alert)
    return IncidentSignal(
        alert=alert, kind=kind, question=question, number=number, onset=_onset(alert)
    )


def is_of_goal(alert: Alert) -> bool:
    """Return whether an alert says that a goal of the user is missed."""
    return alert.statistic == "goal"


def without_known_goals(signals: Sequence[IncidentSignal]) -> list[IncidentSignal]:
    """Return the signals without goals on questions of which another signal tells as well."""
    told = {one.question for one in signals if not one.of_goal}
    return [one for one in signals if not one.of_goal or one.question not in told]


def _meaning(alert: Alert) -> tuple[IncidentKind, str, NumberKey | None]:
    if is_of_goal(alert):
        return _GOAL_KINDS[alert.question], alert.question, None
    if alert.metric == "traces":
        return "no_traffic", "", None
    measured = alert.unscored is not None or alert.metric.startswith("judge_")
    if measured or (alert.drift is not None and alert.drift.get("kind") == "judge"):
        return "measuring", "", None
    if alert.metric == "canary_failed" or is_canary_scorer(alert.scorer):
        return "canaries", "", None
    spec = NUMBERS.get(alert.metric)
    if spec is None:
        return "rule", "", None
    scorer = alert.scorer
    if alert.metric == "latency":
        # a rule has its stage as a label; only the total is what users wait for
        stage = alert.labels.get("stage") or scorer or "total"
        return spec.kind, spec.question, NumberKey("latency", stage)
    return spec.kind, spec.question, NumberKey(alert.metric, scorer)


def _onset(alert: Alert) -> Onset:
    told = alert.drift or {}
    earliest, latest = told.get("since_earliest"), told.get("since_latest")
    if isinstance(earliest, int | float) and isinstance(latest, int | float):
        return Onset(alert.since, min(earliest, alert.since), max(latest, alert.since))
    if alert.drift is not None or not alert.window:
        return Onset(alert.since, alert.since, alert.since)
    # a rule is true when its window holds enough that is bad: it began before
    length = _LEAST_DELAY
    if not is_of_goal(alert):  # a goal may be missed long after what its level is about began
        length = max(parse_duration(alert.window), length)
    return Onset(alert.since, alert.since - length, alert.since)
