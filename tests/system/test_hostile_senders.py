"""Storms of refused bodies and senders that stall, against a real process."""

from __future__ import annotations

import time

import pytest

from tests.system.hostile_senders import BLOCKERS, BODIES, block, storm, target

pytestmark = pytest.mark.slow

LIMIT_MB = 500.0  # at the peak, of the 512 of the chart
SETTLED_MB = 60.0  # more than before, once the storm is over
HONEST_SECONDS = 0.25


@pytest.mark.parametrize(
    "name", ["otlp json, empty objects", "otlp protobuf, empty spans", "native, strings"]
)
def test_refused_bodies_leave_nothing_and_hold_nobody_up(name: str) -> None:
    body = BODIES[name]()
    with target() as agent:
        with agent.honest().sending():
            time.sleep(2)
        fresh = agent.rss
        honest = agent.honest()
        with agent.watched(), honest.sending():
            outcomes = storm(agent.url, body)
        time.sleep(3)
        assert outcomes == {"413": 16}
        assert agent.peak < LIMIT_MB
        assert agent.rss < fresh + SETTLED_MB
        assert set(honest.outcomes) == {"200"}
        assert honest.p99() < HONEST_SECONDS, str(honest)


def test_the_most_that_is_taken_stays_under_the_limit_of_the_chart() -> None:
    body = BODIES["otlp json, as many as may be"]()
    with target() as agent:
        with agent.watched():
            outcomes = storm(agent.url, body, count=6)
        assert set(outcomes) == {"200"}
        assert agent.peak < 512


@pytest.mark.parametrize("name", BLOCKERS)
def test_nobody_is_locked_out(name: str) -> None:
    with target() as agent:
        senders = block(agent, name, 30)
        assert [set(one.outcomes) for one in senders] == [{"200"}, {"200"}]
