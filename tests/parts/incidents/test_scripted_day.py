"""What people are notified of on the scripted day: when, since which change, and its end."""

from __future__ import annotations

from functools import cache

import pytest

from tests.parts.incidents.scripted_day import (
    EXPECTED,
    HOUR,
    SERVICES,
    Expected,
    Message,
    false_ones,
    match,
    play,
)

pytestmark = pytest.mark.slow

IN_CI = ("calm-bot", "help-desk", "policy-bot", "shop-bot", "travel-bot")
"""Nothing, failures, a prompt that refuses, a segment, and what is over after half an hour; the
other services of the day are in `make acceptance`."""

MOST_MESSAGES = 4  # of one incident: it opens, gets worse, and is over


@cache
def day(service: str) -> list[Message]:
    stages = SERVICES[service]
    last = max((stage.end for stage in stages), default=20.0)
    return play([service], (0.0, min(24.0, last + 1.0)))


def marks(service: str) -> tuple[pytest.MarkDecorator, ...]:
    return () if service in IN_CI else (pytest.mark.long,)


@pytest.mark.parametrize(
    "expected",
    [
        pytest.param(one, id=f"{one.service} {one.begin:g}", marks=marks(one.service))
        for one in EXPECTED
    ],
)
def test_each_incident_is_told_as_it_should_be(expected: Expected) -> None:
    outcome = match(expected, day(expected.service))
    notified, page, over = outcome.minutes
    latest = outcome.latest
    assert notified is not None
    assert latest is not None
    assert 0 <= notified <= expected.tell
    if expected.severity == "page":
        assert page is not None
    else:
        assert page is None
    assert latest.kind in expected.kinds
    assert expected.title in latest.title
    if expected.change:
        assert latest.change is not None
        assert f"{latest.change.tag}={latest.change.value}" == expected.change
        assert abs(latest.change.at - latest.since) <= 600
    if expected.segment:
        assert latest.segment == expected.segment
    assert len(latest.summary) <= 140
    assert over is not None
    assert 0 <= over <= expected.over, "never before the fault has ended"


@pytest.mark.parametrize("service", [pytest.param(name, marks=marks(name)) for name in SERVICES])
def test_nothing_is_told_that_has_no_cause(service: str) -> None:
    messages = day(service)
    assert [message.incident.title for message in false_ones(messages)] == []
    number = len([one for one in EXPECTED if one.service == service])
    assert len(messages) <= MOST_MESSAGES * number


@pytest.mark.long
def test_four_causes_at_once_are_at_most_six_messages_in_an_hour() -> None:
    """Those of the review, which were fifteen."""
    at_one = [one.service for one in EXPECTED if one.begin == 13.0]
    assert len(at_one) == 4
    notified = [
        one for service in at_one for one in day(service) if 13 * HOUR <= one.at < 14 * HOUR
    ]
    assert {one.incident.service for one in notified} == set(at_one)
    assert len(notified) <= 6, [one.incident.title for one in notified]
