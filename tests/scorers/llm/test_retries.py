from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragmeter.scorers.llm.exchange import (
    MAX_RETRY_AFTER,
    RetryBudget,
    backoff_seconds,
    parse_retry_after,
)

NOW = datetime(2026, 11, 22, 10, 0, tzinfo=UTC)


def test_backoff_grows_to_a_ceiling_with_full_jitter() -> None:
    rng = random.Random(0)
    for attempt, most in ((0, 0.5), (1, 1.0), (2, 2.0), (10, 20.0), (500, 20.0)):
        pauses = [backoff_seconds(attempt, rng) for _ in range(2000)]
        assert 0 <= min(pauses) < 0.02 * most
        assert 0.98 * most < max(pauses) <= most


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"retry-after": "7"}, 7.0),
        ({"retry-after": " 0.5 "}, 0.5),
        ({"retry-after": "0"}, 0.0),
        ({"retry-after": "-5"}, 0.0),
        ({"retry-after": "86400"}, MAX_RETRY_AFTER),
        ({"retry-after": "inf"}, MAX_RETRY_AFTER),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "soon"}, None),
        ({"retry-after": ""}, None),
        ({"retry-after": format_datetime(NOW + timedelta(seconds=30), usegmt=True)}, 30.0),
        ({"retry-after": format_datetime(NOW - timedelta(seconds=30), usegmt=True)}, 0.0),
        ({"retry-after": format_datetime(NOW + timedelta(days=3), usegmt=True)}, MAX_RETRY_AFTER),
        ({"retry-after": "Sun, 22 Nov 2026 10:00:30 -0000"}, 30.0),
        ({"retry-after-ms": "250", "retry-after": "1"}, 0.25),
        ({"retry-after-ms": "what", "retry-after": "1"}, 1.0),
    ],
)
def test_retry_after_is_read_and_bounded(headers: dict[str, str], seconds: float | None) -> None:
    assert parse_retry_after(headers, NOW.timestamp()) == seconds


@given(st.text())
def test_no_header_makes_it_fail(text: str) -> None:
    seconds = parse_retry_after({"retry-after": text}, NOW.timestamp())
    assert seconds is None or 0 <= seconds <= MAX_RETRY_AFTER


def test_the_floor_lets_a_client_with_few_calls_retry() -> None:
    budget = RetryBudget(share=0.1, floor=3)
    assert [budget.allows(0.0) for _ in range(4)] == [True, True, True, False]


def test_the_share_is_of_the_calls() -> None:
    budget = RetryBudget(share=0.1, floor=0)
    for _ in range(100):
        budget.call(0.0)
    assert sum(budget.allows(1.0) for _ in range(50)) == 10


def test_calls_and_retries_are_forgotten_after_two_minutes() -> None:
    budget = RetryBudget(share=0.1, floor=1)
    for _ in range(100):
        budget.call(0.0)
    assert sum(budget.allows(0.0) for _ in range(50)) == 11
    assert not budget.allows(100.0)
    assert budget.allows(200.0)
    assert not budget.allows(200.0)


@given(st.lists(st.tuples(st.floats(0, 20), st.booleans()), max_size=300))
def test_never_more_than_share_and_floor_in_any_two_minutes(
    steps: list[tuple[float, bool]],
) -> None:
    budget = RetryBudget(share=0.1, floor=2)
    now = 0.0
    calls: list[float] = []
    extras: list[float] = []
    for pause, is_call in steps:
        now += pause
        if is_call:
            budget.call(now)
            calls.append(now)
        elif budget.allows(now):
            extras.append(now)
            # a bucket is 5 seconds wide: a window is between 115 and 120 long
            recent = [at for at in extras if at > now - 115]
            assert len(recent) <= 0.1 * len([at for at in calls if at > now - 120]) + 2
