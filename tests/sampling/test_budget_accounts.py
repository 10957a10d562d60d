from __future__ import annotations

import pytest

from ragmeter.sampling.budget_accounts import (
    CREDIT_SECONDS,
    DAY,
    PACE_CEILING,
    PACE_FLOOR,
    BudgetAccount,
    DailyBudgetAccount,
)


def test_on_balance_the_pace_is_the_income() -> None:
    account = BudgetAccount(10.0)
    assert account.pace(0.0, 1.0) == 10.0


def test_a_debt_slows_and_never_stops() -> None:
    account = BudgetAccount(10.0)
    account.settle(50.0)
    assert PACE_FLOOR * 10 < account.pace(0.0, 1.0) < 10.0
    account.settle(1e9)
    assert account.pace(0.0, 1.0) == PACE_FLOOR * 10


def test_what_is_under_way_counts_as_spent() -> None:
    account = BudgetAccount(10.0)
    assert account.pace(50.0, 1.0) < 10.0


def test_credit_is_bounded() -> None:
    account = BudgetAccount(10.0)
    account.advance(3600.0, 3600.0, 0.0)
    assert 10.0 < account.pace(0.0, 1.0) <= PACE_CEILING * 10
    assert account.balance == pytest.approx(CREDIT_SECONDS * 10)


def test_a_rate_must_be_positive() -> None:
    with pytest.raises(ValueError, match="positive"):
        BudgetAccount(0.0)


def day_account(units: float, now: float) -> DailyBudgetAccount:
    account = DailyBudgetAccount(units)
    account.advance(now, 0.0, 0.0)
    return account


def test_a_day_is_paced_over_what_is_left_of_it() -> None:
    assert day_account(100.0, 0.0).rate == pytest.approx(100 / DAY)
    assert day_account(100.0, DAY / 2).rate == pytest.approx(200 / DAY)


def test_what_a_quiet_morning_leaves_is_for_the_rest_of_the_day() -> None:
    account = day_account(100.0, 0.0)
    for minute in range(1, 721):
        account.advance(minute * 60.0, 60.0, 0.0)
        account.pace(0.0, 1e-6)
    assert account.rate == pytest.approx(200 / DAY, rel=0.01)


def test_when_the_money_is_gone_the_pace_is_small_and_not_zero() -> None:
    account = day_account(100.0, 0.0)
    account.advance(DAY / 2, DAY / 2, 0.0)
    account.settle(150.0)
    assert 0 < account.pace(0.0, 0.01) <= PACE_FLOOR * account.rate * (1 + 1e-9)
    account.advance(DAY - 1, DAY / 2 - 1, 0.0)
    assert account.pace(0.0, 0.01) > 0


def test_at_midnight_a_debt_is_carried_over_and_what_was_not_spent_is_not() -> None:
    account = day_account(100.0, 0.0)
    account.advance(DAY - 60, DAY - 60, 0.0)
    account.settle(120.0)
    account.advance(DAY + 1, 61.0, 0.0)
    assert account.balance == pytest.approx(-20.0, abs=0.01)
    account = day_account(100.0, 0.0)
    account.advance(DAY - 60, DAY - 60, 0.0)
    account.settle(20.0)
    account.advance(DAY + 1, 61.0, 5.0)
    assert account.balance - 5.0 == pytest.approx(0.0, abs=0.01)


def test_the_day_survives_a_restart() -> None:
    account = day_account(100.0, 1000.0)
    account.advance(2000.0, 1000.0, 0.0)
    account.settle(0.7)
    again = DailyBudgetAccount(100.0)
    again.load(account.dump())
    assert (again.rate, again.balance) == (account.rate, account.balance)


def test_a_budget_that_was_lowered_leaves_little_and_not_nothing() -> None:
    account = day_account(100.0, 0.0)
    account.advance(DAY / 2, DAY / 2, 0.0)
    lowered = DailyBudgetAccount(10.0)
    lowered.load(account.dump())
    assert 0 < lowered.rate < 0.02 * 10 / DAY
