"""A goal of the user that is missed beyond doubt, as an alert; pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ragmeter.alerts.alert import Alert, alert_id, clean_text, format_number
from ragmeter.core.durations import parse_whole_seconds
from ragmeter.parts.views import Answer, Level
from ragmeter.windows.estimators import Z_95

GOAL_RULE = "RagGoalMissed"

LOOK_SECONDS = 300  # of event time between two looks

# A single look may be chance. It begins, and ends, with what stands for so long.
LASTING = 900.0
# Standard errors beyond the goal at which it begins. A level that is looked at every five minutes
# leaves its 95 % interval many times in 90 days. Where it is exactly the goal, it is beyond 3.5 for
# so long at most about once (docs/alerts.md).
_SURE = 3.5
# A shorter level is noise: of a steady 1 % of errors some five minutes always miss 99 %.
_LEAST_WINDOW = 3_600.0

_METRICS = {
    "works": ("error", "builtin"),
    "fast": ("latency", ""),
    "cost": ("cost_usd", "builtin"),
}
"""The metric and scorer of the alert where the number rests on every request."""


@dataclass(slots=True)
class WatchedGoal:
    """What is saved of the goal of a question.

    Args:
        changed_since: Since when it is missed while no alert fires, or met while one does.
        alert: The alert that fires, or was the last one to end.
    """

    changed_since: float | None = None
    alert: Alert | None = None

    @property
    def firing(self) -> bool:
        """Whether its alert fires."""
        return self.alert is not None and self.alert.state == "firing"


def misses(
    better: str, level: Level | None, goal: float | None, standard_errors: float = Z_95
) -> bool:
    """Return whether a goal is missed beyond doubt: by the end of the interval nearer to it."""
    if level is None or goal is None:
        return False
    stretch = standard_errors / Z_95
    if better == "lower":
        return level.value - stretch * (level.value - level.lower) > goal
    return level.upper is not None and level.value + stretch * (level.upper - level.value) < goal


def follow_goal(watched: WatchedGoal, answer: Answer, service: str, now: float) -> Sequence[Alert]:
    """Follow the goal of a question at event time `now`, and return the alert if it moved."""
    level = _level_of(answer)
    if level is None or answer.goal is None:
        watched.changed_since = None
        if watched.alert is not None and watched.firing:
            watched.alert.no_data = True
        return ()
    # it begins where it is sure, and lasts while it is likely
    missed = misses(answer.better, level, answer.goal, Z_95 if watched.firing else _SURE)
    if watched.alert is not None and watched.firing:
        _describe(watched.alert, answer, level, now)
    if missed == watched.firing:
        watched.changed_since = None
        return ()
    if watched.changed_since is None:
        watched.changed_since = now
    if now - watched.changed_since < LASTING:
        return ()
    since, watched.changed_since = watched.changed_since, None
    if watched.alert is not None and watched.firing:
        watched.alert.resolve("", now)
        watched.alert.summary = clean_text(f"Resolved: {watched.alert.summary}", 1_000)
    else:
        watched.alert = _begin(answer, service, since, now)
        _describe(watched.alert, answer, level, now)
    return (watched.alert.copy(),)


def withdraw(watched: WatchedGoal, now: float) -> Sequence[Alert]:
    """End the alert of a goal that is no more."""
    if watched.alert is None or not watched.firing:
        return ()
    watched.alert.resolve("the goal is no longer set", now)
    return (watched.alert.copy(),)


def _level_of(answer: Answer) -> Level | None:
    """Return the level that is shown, over an hour at least."""
    levels = [answer.level] if answer.level is not None else []
    levels += answer.levels.values()
    long = [one for one in levels if parse_whole_seconds(one.window) >= _LEAST_WINDOW]
    return min(long, key=lambda one: parse_whole_seconds(one.window), default=None)


def _begin(answer: Answer, service: str, since: float, now: float) -> Alert:
    metric, scorer = _METRICS.get(answer.question) or answer.scores[0]
    return Alert(
        id=alert_id(GOAL_RULE, service, answer.question),
        rule=GOAL_RULE,
        severity="critical",
        state="firing",
        service=service,
        segment="",
        metric=metric,
        scorer=scorer,
        window="",
        threshold=0.0,
        since=since,
        fired_at=now,
        updated_at=now,
        statistic="goal",
        question=answer.question,
        labels={"stage": "total", "quantile": "0.95"} if metric == "latency" else {},
    )


def _describe(alert: Alert, answer: Answer, level: Level, now: float) -> None:
    """Set what an alert says of the level; of `works` it tells the share that fails."""
    goal = answer.goal
    value = level.value
    lower, upper = level.lower, level.upper
    alert.op = ">" if answer.better == "lower" else "<"
    if goal is not None and upper is not None and answer.question == "works":
        goal = 1 - goal
        value = 1 - value
        lower, upper = 1 - upper, 1 - lower
        alert.op = ">"
    alert.threshold = goal or 0.0
    alert.value = value
    alert.lower = lower
    alert.upper = upper
    alert.window = level.window
    alert.updated_at = now
    alert.no_data = False
    alert.samples = level.samples
    alert.effective_samples = level.worth
    bounds = "" if upper is None else f" ({format_number(lower)} to {format_number(upper)})"
    alert.summary = clean_text(
        f"{alert.service}: {alert.question} is {format_number(value)}{bounds} over {level.window}, "
        f"and its goal is {format_number(alert.threshold)}",
        1_000,
    )
