"""What the default alerting notifies people of in staged faults, through an aggregator."""

from __future__ import annotations

import pytest
from ragmeter.aggregate.aggregator import Aggregator
from ragmeter.app.parts import PARTS
from ragmeter.app.settings import load_settings
from ragmeter.parts.views import Incident

from tests.parts.drift.staged import METRICS, START, requests

MORE = 6.0  # hour from which on .20 more fail


def aggregator(**least: float) -> Aggregator:
    settings = load_settings(environ={}, overrides={"drift": {"least_change": least}})
    return Aggregator(settings, [], [(name, "builtin") for name in METRICS], parts=PARTS)


def notified(
    one: Aggregator, hours: float, kind: str, shares: dict[float, float], seed: int
) -> list[Incident]:
    """The messages of so many hours; `shares` are those of bad requests by the hour they begin."""

    def fault(hour: float) -> tuple[str, float]:
        return kind, next((shares[at] for at in sorted(shares, reverse=True) if hour >= at), 0.0)

    found: list[Incident] = []
    batch = []
    for trace in requests(hours, 10, fault, seed=seed):
        batch.append(trace)
        if trace.timestamp - batch[0].timestamp > 60:
            for _ in one.apply_all(batch):
                pass
            one.settle()
            found += one.take_notifications()
            batch = []
    return found


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, pytest.param(3, marks=pytest.mark.slow)])
def test_a_level_that_moves_on_is_told_within_twice_the_time_of_a_fresh_one(seed: int) -> None:
    (fresh,) = notified(aggregator(), MORE + 0.5, "errors", {MORE: 0.2}, seed)
    first, *more = notified(aggregator(), MORE + 0.5, "errors", {3: 0.03, MORE: 0.23}, seed)
    assert (first.severity, first.state) == ("warning", "open")
    assert first.updated_at < START + MORE * 3600, "it stood"
    (worse,) = more
    assert (worse.severity, worse.state, worse.id) == ("page", "open", first.id)
    begun = START + MORE * 3600
    assert worse.updated_at - begun <= 2 * (fresh.updated_at - begun)


@pytest.mark.slow
def test_a_shift_that_is_too_small_to_matter_is_told_to_nobody() -> None:
    """By a setting for each question: of refusals .03 unless it says otherwise."""

    def of_answered(**least: float) -> list[str]:
        messages = notified(aggregator(**least), 5.5, "refusals", {4: 0.2}, 1)
        return [one.title for one in messages if one.question == "answered"]

    assert of_answered()
    assert of_answered(answered=0.4) == []
