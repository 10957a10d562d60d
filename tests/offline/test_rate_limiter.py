from __future__ import annotations

from ragmeter.offline.replay import RateLimiter
from tests.offline.hand import Hand


def test_traces_come_at_the_rate() -> None:
    hand = Hand()
    pace = RateLimiter(4, hand, hand.sleep)
    found = []
    for _ in range(5):
        pace.wait()
        found.append(hand.now)
        hand.now += 0.1  # sending takes its time, which is part of the pause
    assert found == [0, 0.25, 0.5, 0.75, 1]


def test_a_short_delay_is_made_up_for_and_a_long_one_is_not() -> None:
    hand = Hand()
    pace = RateLimiter(10, hand, hand.sleep)
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
    pace = RateLimiter(None, hand, hand.sleep)
    for _ in range(1000):
        pace.wait()
    assert hand.slept == []
