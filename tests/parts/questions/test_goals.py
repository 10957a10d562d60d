"""Goals of the user that are missed beyond doubt, as alerts."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from ragmeter.alerts.alert import Alert
from ragmeter.parts.questions.goals import WatchedGoal, follow_goal, misses, withdraw
from ragmeter.parts.views import Answer, Level
from ragmeter.windows.estimators import wilson_interval

MINUTE = 60.0


def level(value: float, half: float = 0.03, window: str = "24h") -> Level:
    return Level(
        value=value,
        lower=value - half,
        upper=value + half,
        window=window,
        samples=400,
        worth=300.0,
        source="labels",
    )


def grounded(value: float, **changes: object) -> Answer:
    answer = Answer(
        question="grounded",
        meaning="answers that their passages support",
        unit="share",
        better="higher",
        level=level(value),
        goal=0.85,
        scores=(("grounding", "people"),),
    )
    return replace(answer, **changes)  # type: ignore[arg-type]


def play(answers: list[Answer]) -> tuple[WatchedGoal, list[tuple[int, Alert]]]:
    """One look each five minutes; what moved, with its minute."""
    watched = WatchedGoal()
    moved = []
    for number, answer in enumerate(answers):
        at = 5 * MINUTE * number
        moved += [(5 * number, alert) for alert in follow_goal(watched, answer, "bot", at)]
    return watched, moved


def test_only_the_end_of_the_interval_that_is_nearer_to_the_goal_misses_it() -> None:
    assert misses("higher", level(0.80), 0.85)
    assert not misses("higher", level(0.83), 0.85)
    assert misses("lower", level(0.20), 0.15)
    assert not misses("lower", level(0.17), 0.15)
    assert not misses("higher", None, 0.85)
    assert not misses("higher", level(0.2), None)


def test_a_goal_that_stays_missed_is_told_once_and_ends_when_it_stays_met() -> None:
    _, moved = play([*[grounded(0.90)] * 3, *[grounded(0.78)] * 20, *[grounded(0.86)] * 6])
    assert [(minute, alert.state) for minute, alert in moved] == [(30, "firing"), (130, "resolved")]
    alert = moved[0][1]
    assert (alert.rule, alert.severity, alert.question) == ("RagGoalMissed", "critical", "grounded")
    assert (alert.value, alert.upper, alert.threshold) == (0.78, 0.81, 0.85)
    assert alert.summary == "bot: grounded is 0.78 (0.75 to 0.81) over 24h, and its goal is 0.85"


def test_it_begins_where_it_is_sure_and_lasts_while_it_is_likely() -> None:
    """An error of .015: 3 of them below the goal are no news, 4 are, and then 2.5 are no end."""
    likely, sure = grounded(0.805), grounded(0.79)
    assert play([likely] * 50)[1] == []
    _, moved = play([*[sure] * 4, *[grounded(0.8125)] * 50])
    assert [alert.state for _, alert in moved] == ["firing"]


LEVELS = {"an hour at 10 a minute": (0.95, 600, "1h"), "a day at 3 a minute": (0.9, 180, "24h")}


@pytest.mark.parametrize("name", LEVELS)
def test_a_goal_that_is_exactly_met_pages_at_most_once_in_90_days(name: str) -> None:
    """Looked at every five minutes, for twice as long."""
    share, hourly, window = LEVELS[name]
    rng = np.random.default_rng(41)
    looks = 180 * 288
    bins = 12 if window == "1h" else 288
    counted = np.concatenate(([0], rng.binomial(hourly // 12, share, looks + bins).cumsum()))
    number = bins * (hourly // 12)
    watched = WatchedGoal()
    kind, answer = level(share, window=window), grounded(share, goal=share)
    pages = 0
    for look, good in enumerate(((counted[bins:] - counted[:-bins]) / number).tolist()):
        lower, upper = wilson_interval(good, number)
        now = replace(kind, value=good, lower=lower, upper=upper)
        moved = follow_goal(watched, replace(answer, level=now), "bot", 300.0 * look)
        pages += sum(alert.state == "firing" for alert in moved)
    assert pages <= 2


def test_a_look_or_two_below_the_goal_is_no_news() -> None:
    assert play([grounded(0.90), grounded(0.78), grounded(0.78), grounded(0.90)] * 5)[1] == []


def test_a_level_of_minutes_counts_for_nothing() -> None:
    short = grounded(0.5, level=level(0.5, window="5m"))
    assert play([short] * 20)[1] == []
    hour = replace(short, levels={"5m": level(0.5, window="5m"), "1h": level(0.7, window="1h")})
    ((_, alert),) = play([hour] * 20)[1]
    assert (alert.value, alert.window) == (0.7, "1h")


def test_without_a_level_it_is_not_known_to_be_over() -> None:
    watched, moved = play([*[grounded(0.7)] * 5, *[grounded(0.7, level=None)] * 10])
    assert [alert.state for _, alert in moved] == ["firing"]
    assert watched.alert is not None
    assert watched.alert.no_data


def test_of_works_the_share_that_fails_is_told() -> None:
    works = grounded(0.9, question="works", goal=0.99)
    ((_, alert),) = play([works] * 5)[1]
    assert alert.metric == "error"
    assert [round(one or 0.0, 3) for one in (alert.value, alert.lower, alert.upper)] == [
        0.1,
        0.07,
        0.13,
    ]
    assert (alert.op, round(alert.threshold, 3)) == (">", 0.01)


def test_of_fast_it_is_the_total_time() -> None:
    slow = level(12.0, half=1.0, window="1h")
    fast = grounded(0, question="fast", unit="seconds", better="lower", goal=10.0, level=slow)
    ((_, alert),) = play([fast] * 5)[1]
    assert (alert.metric, alert.labels["stage"], alert.op) == ("latency", "total", ">")


def test_a_goal_that_is_taken_back_ends_its_alert() -> None:
    watched, _ = play([grounded(0.7)] * 5)
    (alert,) = withdraw(watched, 3_000.0)
    assert (alert.state, alert.reason) == ("resolved", "the goal is no longer set")
    assert withdraw(watched, 3_000.0) == ()
