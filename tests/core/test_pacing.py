from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

from hypothesis import given
from hypothesis import strategies as st
from ragmeter.core.pacing import Pace
from ragmeter.core.retries import MAX_RETRY_AFTER, backoff_seconds, parse_retry_after

from tests.offline.hand import Hand
from tests.tables import each_row

NOW = datetime(2026, 11, 22, 10, 0, tzinfo=UTC)


def test_backoff_grows_to_a_ceiling_with_full_jitter() -> None:
    rng = random.Random(0)
    for attempt, most in ((0, 0.5), (1, 1.0), (2, 2.0), (10, 20.0), (500, 20.0)):
        pauses = [backoff_seconds(attempt, rng) for _ in range(2000)]
        assert 0 <= min(pauses) < 0.02 * most
        assert 0.98 * most < max(pauses) <= most


@each_row(
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
        ({"retry-after": "7.5s"}, 7.5),
        ({"retry-after": "20 seconds"}, 20.0),
        ({"retry-after": "1m30s"}, MAX_RETRY_AFTER),
        ({"retry-after": "620ms"}, 0.62),
        ({"retry-after": "00:00:20"}, 20.0),
        ({"retry-after": "5 apples"}, None),
        ({"retry-after": "2026-11-22T10:00:30Z"}, 30.0),
        ({"retry-after": f"{NOW.timestamp() + 30:.0f}"}, 30.0),
        ({"retry-after": f"{(NOW.timestamp() + 30) * 1000:.0f}"}, 30.0),
        (
            {
                "date": format_datetime(NOW + timedelta(hours=1), usegmt=True),
                "retry-after": format_datetime(NOW + timedelta(hours=1, seconds=9), usegmt=True),
            },
            9.0,
        ),
        ({"date": "today", "retry-after": "Sun, 22 Nov 2026 10:00:30 GMT"}, 30.0),
        ({"date": format_datetime(NOW + timedelta(hours=1), usegmt=True), "retry-after": "7"}, 7.0),
        ({"ratelimit-reset": "12"}, 12.0),
        ({"ratelimit-reset": "12", "ratelimit-remaining": "3"}, None),
        ({"x-ratelimit-reset-requests": "8.64s", "x-ratelimit-remaining-requests": "0"}, 8.64),
        ({"x-ratelimit-reset-tokens": "6m0s", "x-ratelimit-remaining-tokens": "149984"}, None),
    ],
)
def test_retry_after_is_read_and_bounded(headers: dict[str, str], seconds: float | None) -> None:
    assert parse_retry_after(headers, NOW.timestamp()) == seconds


@given(st.text())
def test_no_header_makes_it_fail(text: str) -> None:
    seconds = parse_retry_after({"retry-after": text}, NOW.timestamp())
    assert seconds is None or 0 <= seconds <= MAX_RETRY_AFTER


def test_actions_come_at_the_rate() -> None:
    hand = Hand()
    pace = Pace(4, hand, hand.sleep, 1.0)
    found = []
    for _ in range(5):
        pace.wait()
        found.append(hand.now)
        hand.now += 0.1  # sending takes its time, which is part of the pause
    assert found == [0, 0.25, 0.5, 0.75, 1]


def test_a_short_delay_is_made_up_for_and_a_long_one_is_not() -> None:
    hand = Hand()
    pace = Pace(10, hand, hand.sleep, 1.0)
    pace.wait()
    hand.now = 0.5
    for _ in range(6):
        pace.wait()
    assert round(hand.now, 6) == 0.6  # as if nothing had been
    hand.now = 100.0
    for _ in range(21):
        pace.wait()
    assert round(hand.now, 6) == 101.0  # a second's worth at once, and no burst of a thousand


def test_without_a_rate_nothing_waits() -> None:
    hand = Hand()
    pace = Pace(None, hand, hand.sleep, 1.0)
    for _ in range(1000):
        pace.wait()
    assert hand.slept == []


def test_a_hold_keeps_every_action_back() -> None:
    hand = Hand()
    pace = Pace(10, hand, hand.sleep)
    assert pace.delay() == 0
    pace.begin()
    pace.hold(3)
    pace.hold(1)
    assert pace.delay() == 3
    pace.wait()
    assert hand.now == 3
    assert round(pace.delay(), 6) == 0.1


def test_backoff_without_a_source_of_jitter_doubles_to_its_ceiling() -> None:
    assert [backoff_seconds(n, None, 1.0, 5.0) for n in range(5)] == [1, 2, 4, 5, 5]
    half = [backoff_seconds(2, random.Random(n), 1.0, 5.0, jitter=0.5) for n in range(99)]
    assert 2 <= min(half) < 2.2
    assert 3.8 < max(half) <= 4
