from __future__ import annotations

import pytest
from ragmeter.sampling.budget_accounts import (
    BUDGET_DEPTH,
    DAY,
    PACE_FLOOR,
    DailyTokenBucket,
    TokenBucket,
)


def bucket(seconds: float, rate: float = 10.0) -> TokenBucket:
    """A bucket that holds so many seconds of its income."""
    return TokenBucket(rate, BUDGET_DEPTH, seconds)


def test_nearly_full_the_steady_pace_is_the_income() -> None:
    assert bucket(0.9 * BUDGET_DEPTH).pace(0.0, 1.0).steady == pytest.approx(10.0)
    assert bucket(0.99 * BUDGET_DEPTH).pace(0.0, 1.0).steady > 50.0
    assert 5.0 < bucket(0.45 * BUDGET_DEPTH).pace(0.0, 1.0).steady < 10.0


def test_a_burst_may_take_an_eighth_of_what_is_left_in_an_eighth_of_the_time() -> None:
    full = bucket(BUDGET_DEPTH)
    assert full.pace(0.0, 1.0).burst == pytest.approx(80.0)
    full.settle(0.75 * full.balance)
    assert full.pace(0.0, 1.0).burst == pytest.approx(20.0)


def test_a_debt_slows_and_never_stops() -> None:
    account = bucket(0.0)
    account.settle(1e9)
    assert account.pace(0.0, 1.0) == (PACE_FLOOR * 10, PACE_FLOOR * 10)


def test_what_is_under_way_counts_as_spent() -> None:
    account = bucket(600.0)
    assert account.pace(3000.0, 1.0) < account.pace(0.0, 1.0)


def test_what_comes_in_while_it_is_full_is_lost() -> None:
    account = bucket(0.0)
    account.advance(3600.0, 3600.0)
    assert account.balance == pytest.approx(10 * BUDGET_DEPTH)


def test_a_small_budget_holds_some_draws_all_the_same() -> None:
    account = bucket(0.0, rate=0.001)
    account.advance(DAY, DAY, 0.0, 5.0)
    assert account.balance == pytest.approx(60.0)


def test_a_debt_is_not_divided_with_the_budget() -> None:
    account = bucket(100.0)
    account.resize(0.25)
    assert (account.rate, account.balance) == (2.5, 250.0)
    account.settle(300.0)
    account.resize(0.5)
    assert account.balance == -50.0


def test_a_rate_must_be_positive() -> None:
    with pytest.raises(ValueError, match="positive"):
        bucket(0.0, rate=0.0)


def day_account(units: float, now: float) -> DailyTokenBucket:
    account = DailyTokenBucket(units, BUDGET_DEPTH, 0.0)
    account.advance(now, 0.0, 0.0)
    return account


def test_a_day_is_paced_over_what_is_left_of_it() -> None:
    assert day_account(100.0, 0.0).rate == pytest.approx(100 / DAY)
    assert day_account(100.0, DAY / 2).rate == pytest.approx(100 / DAY)  # taken to be spent evenly


def test_what_a_quiet_morning_leaves_is_for_the_rest_of_the_day() -> None:
    account = day_account(100.0, 0.0)
    for minute in range(1, 721):
        account.advance(minute * 60.0, 60.0)
    assert account.rate == pytest.approx(200 / DAY, rel=0.03)  # the bucket holds the rest


def live_through(account: DailyTokenBucket, begin: float, end: float) -> None:
    """Spend what comes in from `begin` to `end`, every minute."""
    now = begin
    while now < end:
        now += 60.0
        account.advance(now, 60.0)
        account.settle(account.balance)


def test_when_the_money_is_gone_the_pace_is_small_and_not_zero() -> None:
    account = day_account(100.0, 0.0)
    live_through(account, 0.0, DAY / 2)
    account.settle(100.0)
    assert account.pace(0.0, 0.01).burst == pytest.approx(PACE_FLOOR * account.rate)
    account.advance(DAY - 1, DAY / 2 - 1)
    assert account.pace(0.0, 0.01).burst > 0


def test_at_midnight_the_bucket_is_carried_over_and_what_did_not_come_in_is_not() -> None:
    account = day_account(100.0, 0.0)
    live_through(account, 0.0, DAY - 60)
    account.settle(20.0)
    account.advance(DAY + 1, 61.0)
    assert account.balance == pytest.approx(-20.0, abs=0.1)
    account = day_account(100.0, 0.0)
    for minute in range(1, 1442):  # nothing is spent all day
        account.advance(60.0 * minute, 60.0)
    assert account.balance == pytest.approx(100 * BUDGET_DEPTH / DAY)
    assert account.rate == pytest.approx(100 / DAY, rel=0.01)


def test_the_day_survives_a_restart() -> None:
    account = day_account(100.0, 1000.0)
    account.advance(2000.0, 1000.0)
    account.settle(0.7)
    again = DailyTokenBucket(100.0, BUDGET_DEPTH, 0.0)
    again.load(account.dump())
    assert (again.rate, again.balance) == (account.rate, account.balance)


def test_a_budget_that_was_lowered_leaves_little_and_not_nothing() -> None:
    account = day_account(100.0, 0.0)
    live_through(account, 0.0, DAY / 2)
    lowered = DailyTokenBucket(10.0, BUDGET_DEPTH, 0.0)
    lowered.load(account.dump())
    assert 0 < lowered.rate < 0.02 * 10 / DAY
