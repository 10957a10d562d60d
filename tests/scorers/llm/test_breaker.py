from __future__ import annotations

import pytest
from ragmeter.scorers.llm.admission import (
    FIRST_PAUSE,
    LONGEST_PAUSE,
    MIN_ATTEMPTS,
    PATIENCE,
    BreakerPolicy,
    CircuitBreaker,
)

from tests.scorers.judge.asking import Clock


def a_breaker(clock: Clock, concurrency: int = 4) -> CircuitBreaker:
    return CircuitBreaker(BreakerPolicy.for_concurrency(concurrency), clock)


def opened(breaker: CircuitBreaker) -> CircuitBreaker:
    for _ in range(MIN_ATTEMPTS):
        ticket = breaker.enter()
        assert ticket is not None
        breaker.failed(ticket)
    assert breaker.is_open
    return breaker


def go(breaker: CircuitBreaker, results: str) -> None:
    """`+` a success, `-` a failure, `~` too many requests; stops where it is open."""
    for result in results:
        ticket = breaker.enter()
        if ticket is None:
            return
        {"+": breaker.succeeded, "-": breaker.failed, "~": breaker.rate_limited}[result](ticket)


def test_stays_closed_below_the_smallest_number() -> None:
    breaker = a_breaker(Clock())
    go(breaker, "-" * (MIN_ATTEMPTS - 1))
    assert not breaker.is_open


def test_opens_where_half_of_the_last_attempts_failed() -> None:
    breaker = a_breaker(Clock())
    go(breaker, "-++" * 30)
    assert not breaker.is_open
    go(breaker, "-+" * 30)
    assert breaker.is_open


def test_opens_within_a_few_rounds_after_a_long_time_of_success() -> None:
    breaker = a_breaker(Clock(), 16)
    go(breaker, "+" * 10_000)
    go(breaker, "-" * 31)
    assert not breaker.is_open
    go(breaker, "-")
    assert breaker.is_open


def test_too_many_requests_open_nothing_while_some_are_answered() -> None:
    breaker = a_breaker(Clock())
    go(breaker, "~~~~+" * 100)
    assert not breaker.is_open


def test_too_many_requests_and_nothing_else_open_it() -> None:
    breaker = a_breaker(Clock())
    go(breaker, "+" * 100 + "~" * 9)
    assert not breaker.is_open
    go(breaker, "~")
    assert breaker.is_open


def test_old_results_say_nothing_of_now() -> None:
    clock = Clock()
    breaker = a_breaker(clock)
    go(breaker, "-" * (MIN_ATTEMPTS - 1))
    clock.now += 601
    go(breaker, "-")
    assert not breaker.is_open


def test_open_it_refuses_until_the_pause_is_over_then_lets_one_through() -> None:
    clock = Clock()
    breaker = opened(a_breaker(clock))
    assert breaker.refuses
    assert breaker.enter() is None
    clock.now += FIRST_PAUSE
    assert not breaker.refuses
    assert breaker.enter() is not None
    assert breaker.refuses  # one trial at a time
    assert breaker.enter() is None


def test_a_trial_that_succeeds_closes_it() -> None:
    clock = Clock()
    breaker = opened(a_breaker(clock))
    clock.now += FIRST_PAUSE
    go(breaker, "+")
    assert not breaker.is_open
    go(breaker, "-" * (MIN_ATTEMPTS - 1))
    assert not breaker.is_open  # with nothing remembered of before


def test_trials_that_fail_double_the_pause_up_to_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ragmeter.scorers.llm.admission.PATIENCE", 0.0)
    clock = Clock()
    breaker = opened(a_breaker(clock))
    pause = FIRST_PAUSE
    for _ in range(6):
        clock.now += pause - 0.001
        assert breaker.refuses
        clock.now += 0.001
        go(breaker, "-")
        assert breaker.refuses
        pause = min(2 * pause, LONGEST_PAUSE)
    assert pause == LONGEST_PAUSE
    clock.now += pause
    go(breaker, "+")
    opened(breaker)
    clock.now += FIRST_PAUSE  # after a success the pause is the first one again
    assert not breaker.refuses


def test_a_trial_without_a_result_makes_room_for_the_next() -> None:
    clock = Clock()
    breaker = opened(a_breaker(clock))
    clock.now += FIRST_PAUSE
    ticket = breaker.enter()
    assert ticket is not None
    breaker.abandoned(ticket)
    assert not breaker.refuses


def test_results_of_attempts_from_before_it_opened_do_not_count() -> None:
    clock = Clock()
    breaker = a_breaker(clock)
    early = [breaker.enter() for _ in range(3)]
    opened(breaker)
    clock.now += FIRST_PAUSE
    trial = breaker.enter()
    assert trial is not None
    for ticket in early:
        assert ticket is not None
        breaker.succeeded(ticket)
        assert not breaker.failed(ticket)
        assert not breaker.failed_for_all(ticket)
        breaker.abandoned(ticket)
    assert breaker.is_open
    assert breaker.refuses  # the trial is still out
    breaker.succeeded(trial)
    assert not breaker.is_open


def test_a_hopeless_failure_opens_at_once() -> None:
    breaker = a_breaker(Clock())
    ticket = breaker.enter()
    assert ticket is not None
    assert breaker.failed_for_all(ticket)
    assert breaker.refuses
    assert breaker.lost


def test_it_is_given_up_by_the_trial_that_fails_when_patience_is_over() -> None:
    clock = Clock()
    breaker = opened(a_breaker(clock))
    begun = clock.now
    trials = []
    while not breaker.lost:
        wait = breaker.until_trial
        assert wait is not None
        clock.now += wait
        trials.append(clock.now - begun)
        assert breaker.enter() is not None
        assert breaker.until_trial is None  # the end of the trial is reported
        breaker.failed(breaker._generation)
    assert trials == [5, 15, 35, PATIENCE]  # the last one before the pause of 40 s is over
    clock.now += LONGEST_PAUSE
    go(breaker, "+")
    assert not breaker.lost
    assert not opened(breaker).lost  # another outage
