"""A tier that hangs is tried now and then; one that answers again is asked as before."""

from __future__ import annotations

from ragmeter.scorers.llm.admission import CircuitBreaker
from ragmeter.scoring.inline_tiers import TIMEOUT_POLICY

STREAK = TIMEOUT_POLICY.streak


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def enter(breaker: CircuitBreaker) -> int:
    ticket = breaker.enter()
    assert ticket is not None
    return ticket


def timed_out(clock: Clock, times: int = STREAK) -> CircuitBreaker:
    breaker = CircuitBreaker(TIMEOUT_POLICY, clock)
    for n in range(times):
        assert breaker.failed(enter(breaker)) == (n == STREAK - 1)
    return breaker


def test_timeouts_in_a_row_open_it() -> None:
    assert not timed_out(Clock(), STREAK - 1).is_open
    breaker = timed_out(Clock(), STREAK - 1)
    breaker.succeeded(enter(breaker))
    assert not breaker.failed(enter(breaker))
    assert breaker.enter() is not None
    assert timed_out(Clock()).enter() is None


def test_it_is_tried_by_one_at_a_time_and_more_seldom() -> None:
    clock = Clock()
    breaker = timed_out(clock)
    pause = TIMEOUT_POLICY.first_pause
    for _ in range(6):
        clock.now += pause - 1
        assert breaker.enter() is None
        clock.now += 1
        trial = enter(breaker)
        assert breaker.enter() is None, "one is under way"
        clock.now += 20
        breaker.failed(trial)
        assert not breaker.lost
        pause = min(2 * pause, TIMEOUT_POLICY.longest_pause)
    clock.now += pause
    breaker.succeeded(enter(breaker))
    assert breaker.enter() is not None
    assert breaker.enter() is not None


def test_attempts_from_before_neither_delay_nor_end_the_pause() -> None:
    clock = Clock()
    early = CircuitBreaker(TIMEOUT_POLICY, clock).enter()
    breaker = timed_out(clock)
    assert early is not None
    for _ in range(100):
        clock.now += 0.1
        assert not breaker.failed(early)
    clock.now += TIMEOUT_POLICY.first_pause
    breaker.abandoned(enter(breaker))
    assert breaker.enter() is not None, "a trial without a result is made again"
