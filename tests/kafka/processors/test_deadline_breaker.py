"""A tier that hangs is tried now and then; one that answers again is asked as before."""

from __future__ import annotations

from ragmeter.kafka.processors.slow_tiers import (
    FIRST_PAUSE,
    LONGEST_PAUSE,
    MAX_TIMEOUTS,
    DeadlineBreaker,
)


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def blown(clock: Clock, late: int = MAX_TIMEOUTS) -> DeadlineBreaker:
    fuse = DeadlineBreaker(clock)
    for n in range(late):
        assert fuse.allows()
        assert fuse.timed_out() == (n == MAX_TIMEOUTS - 1)
    return fuse


def test_some_that_are_late_in_a_row_blow_it() -> None:
    assert not blown(Clock(), MAX_TIMEOUTS - 1).is_open
    fuse = blown(Clock(), MAX_TIMEOUTS - 1)
    fuse.succeeded()
    assert not fuse.timed_out()
    assert fuse.allows()
    assert not blown(Clock()).allows()


def test_it_is_tried_by_one_at_a_time_and_more_seldom() -> None:
    clock = Clock()
    fuse = blown(clock)
    pause = FIRST_PAUSE
    for _ in range(6):
        clock.now += pause - 1
        assert not fuse.allows()
        clock.now += 1
        assert fuse.allows()
        assert not fuse.allows(), "one is under way"
        clock.now += 20
        assert not fuse.timed_out(), "that is known"
        pause = min(2 * pause, LONGEST_PAUSE)
    clock.now += pause
    assert fuse.allows()
    fuse.succeeded()
    assert fuse.allows()
    assert fuse.allows()


def test_what_was_under_way_neither_delays_nor_ends_the_pause() -> None:
    clock = Clock()
    fuse = blown(clock)
    for _ in range(100):
        clock.now += 0.1
        assert not fuse.timed_out()
    clock.now += FIRST_PAUSE
    assert fuse.allows()
    fuse.abandoned()
    assert fuse.allows(), "a try that nobody waited for is tried again"
