"""Goals of the user through an aggregator, up to what people are notified of."""

from __future__ import annotations

from functools import cache

import pytest
from ragmeter.aggregate.aggregator import Aggregator
from ragmeter.app.parts import PARTS
from ragmeter.app.settings import load_settings
from ragmeter.core.score import ScoredTrace
from ragmeter.parts.views import Incident

from tests.parts.drift.staged import METRICS, START, requests


def aggregator(goal: float) -> Aggregator:
    """One that evaluates as often as drift looks, once a minute."""
    overrides = {"goals": {"answered": goal}, "alerts": {"evaluation_seconds": 60}}
    settings = load_settings(environ={}, overrides=overrides)
    return Aggregator(settings, [], [(name, "builtin") for name in METRICS], parts=PARTS)


def feed(one: Aggregator, traces: list[ScoredTrace]) -> list[Incident]:
    notified: list[Incident] = []
    for first in range(0, len(traces), 50):
        for _ in one.apply_all(traces[first : first + 50]):
            pass
        one.settle()
        notified += one.take_notifications()
    return notified


@cache
def steady(hours: float) -> list[ScoredTrace]:
    """Some 13 % of the questions are refused, always."""
    return list(requests(hours, 10, lambda hour: ("refusals", 0.1)))


def test_a_steady_level_below_its_goal_is_one_page() -> None:
    (notified,) = feed(aggregator(0.93), steady(5))
    assert (notified.severity, notified.question, notified.kind) == ("page", "answered", "refusals")
    assert notified.opened_at - START < 3 * 3600
    assert "goal 93 %" in notified.summary


def test_a_level_that_may_meet_its_goal_is_no_news() -> None:
    assert feed(aggregator(0.86), steady(5)) == []


@pytest.mark.slow
def test_a_restart_goes_on_where_it_was() -> None:
    traces = steady(4)
    whole, first = aggregator(0.93), aggregator(0.93)
    notified = feed(whole, traces)
    half = next(n for n, trace in enumerate(traces) if trace.timestamp > START + 4500) // 50 * 50
    before = feed(first, traces[:half])
    saved = first.changes()
    again = aggregator(0.93)
    counters = [(key, value) for key, value in saved.counters if value is not None]
    again.restore(saved.buckets, counters, saved.meta)
    after = feed(again, traces[half:])
    assert [one.id for one in [*before, *after]] == [one.id for one in notified]
    assert again.parts["questions"].alerts() == whole.parts["questions"].alerts()
