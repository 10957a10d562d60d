"""Accounts of what a tier and its canaries may spend: income, spend and pace.

An account counts units of one resource (requests, tokens, USD, seconds). Its balance is what has
come in less what was settled; what is drawn and not yet settled (`pending`) is subtracted by the
reader, priced as of now. Time is Unix seconds and comes from the caller.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from ragmeter.config.scoring import JudgeBudgetSettings
from ragmeter.sampling.service_demand import (
    CAPACITY_INDEX,
    RESOURCES,
    CostVector,
    blend_costs,
    parse_cost,
)

HOUR, DAY = 3600.0, 86400.0

# Least pace, as a share of the income, while a debt is paid back: it keeps every minute judged. It
# cannot overspend: at any pace below the income the debt shrinks.
PACE_FLOOR = 0.25

# Greatest pace, as a share of the income, while a credit is used up.
PACE_CEILING = 1.5

# Most credit, in seconds of income: it bounds what a minute may spend above its income to 20 %
# after a lull. A smaller one gives up income to the chance in the draws: at 9 a budget that on/off
# bursts barely use falls 2 % short instead of 1 %.
CREDIT_SECONDS = 12.0

# Or so many draws, if they cost more: with one draw a minute, seconds of income hold none.
_CREDIT_DRAWS = 8.0

# Seconds in which a debt or a credit is worked off. A shorter time makes the probability follow the
# chance in the draws (a spread of 1/sqrt(2 * draws within tau)), a longer one lets a minute
# overspend.
_TAU_SECONDS = 20.0
_TAU_DRAWS = 16.0
_TAU_MAX = 600.0

# The rest of a day counts as at least so many seconds: no rush before midnight.
_MIN_SECONDS_LEFT = 60.0

# Share of a day's even pace that is left when the day's money is gone (a lowered budget, a late
# bill): never zero, and at most 1 % of the budget.
_MIN_DAY_PACE = 0.01

# Seconds of income that canaries have at a start: a suite's first round (every 15 minutes by
# default) comes up to a minute after it. Not more, for a Kafka worker begins anew at each start.
START_SECONDS = 900.0

# Settled canaries that the cost of one is averaged over.
_CANARY_MEMORY = 32


class BudgetAccount:
    """An account with a steady income; credit beyond a limit is given up.

    `balance` is income less settled spend, in units.

    Args:
        rate: Units that come in per second, above 0.

    Raises:
        ValueError: `rate` is not positive and finite.
    """

    def __init__(self, rate: float) -> None:
        if not rate > 0 or not math.isfinite(rate):
            raise ValueError("the rate of an account must be positive and finite")
        self._rate = rate
        self.balance = 0.0

    @property
    def rate(self) -> float:
        """Units that come in per second now."""
        return self._rate

    def advance(self, now: float, seconds: float, pending: float) -> None:
        """Take in the income of the `seconds` up to `now`; `pending` units are not settled."""
        self.balance += self._rate * seconds

    def settle(self, units: float) -> None:
        """Subtract spent units."""
        self.balance -= units

    def resize(self, factor: float) -> None:
        """Multiply the income from now on; a debt is still to be paid."""
        self._rate *= factor

    def begin(self, now: float) -> None:
        """Assume that the income before `now` was spent."""

    def pace(self, pending: float, draw: float) -> float:
        """Return the units per second to spend from now on, above 0.

        This is integral control of cumulative spend: pace = rate * clamp(1 + (balance - pending) /
        (tau * rate), `PACE_FLOOR`, `PACE_CEILING`).

        Args:
            pending: Units drawn and not yet settled.
            draw: Units that one draw costs.
        """
        rate = self.rate
        free = self.balance - pending
        surplus = free - max(CREDIT_SECONDS * rate, _CREDIT_DRAWS * draw)
        if surplus > 0:
            self._give_up(surplus)
            free -= surplus
        tau = min(_TAU_MAX, max(_TAU_SECONDS, _TAU_DRAWS * draw / rate))
        return rate * min(PACE_CEILING, max(PACE_FLOOR, 1 + free / (tau * rate)))

    def _give_up(self, surplus: float) -> None:
        self.balance -= surplus

    def dump(self) -> dict[str, float]:
        """Return the state for JSON."""
        return {"balance": self.balance}

    def load(self, state: Mapping[str, float]) -> None:
        """Restore what `dump` returned."""
        self.balance = float(state["balance"])


class DailyBudgetAccount(BudgetAccount):
    """An account of a sum for each UTC day, spread evenly over what is left of the day.

    Credit that is given up goes back into the rest of the day. At midnight a debt is carried over,
    unspent income is not.

    Args:
        units: Units per day.
    """

    def __init__(self, units: float) -> None:
        super().__init__(units / DAY)
        self._units = units
        self._came = 0.0  # today's income so far
        self._now: float | None = None

    @property
    def rate(self) -> float:
        """Units that come in per second now."""
        left = DAY if self._now is None else DAY - self._now % DAY
        return max(
            (self._units - self._came) / max(left, _MIN_SECONDS_LEFT), _MIN_DAY_PACE * self._rate
        )

    def advance(self, now: float, seconds: float, pending: float) -> None:
        """Take in the income of the `seconds` up to `now`; `pending` units are not settled."""
        before = self._now
        if before is not None and now // DAY > before // DAY:
            debt = min(0.0, self._units - self._came + self.balance - pending)
            self.balance = debt + pending
            self._came = 0.0
            midnight = now // DAY * DAY
            seconds = min(seconds, now - midnight)
            self._now = midnight
        elif before is None:
            self._now = now
        income = self.rate * seconds
        self.balance += income
        self._came += income
        self._now = now

    def resize(self, factor: float) -> None:
        """Multiply the day's sum; what is left of the day is divided anew, the past is not."""
        super().resize(factor)
        self._units *= factor
        self._came *= factor

    def begin(self, now: float) -> None:
        """Assume that today's income before `now` was spent."""
        self._came = self._units * (now % DAY) / DAY
        self._now = now

    def _give_up(self, surplus: float) -> None:
        super()._give_up(surplus)
        self._came = max(0.0, self._came - surplus)

    def dump(self) -> dict[str, float]:
        """Return the state for JSON."""
        state = {"balance": self.balance, "came": self._came}
        return state if self._now is None else {**state, "now": self._now}

    def load(self, state: Mapping[str, float]) -> None:
        """Restore what `dump` returned."""
        super().load(state)
        self._came = min(float(state["came"]), self._units)
        self._now = float(state["now"]) if "now" in state else None


def open_accounts(
    budget: JudgeBudgetSettings, share: float, capacity: float | None
) -> dict[int, BudgetAccount]:
    """Open an account for each limited resource.

    Args:
        budget: The limits.
        share: Share (0..1] of each limit, the capacity included.
        capacity: Seconds of calls or of cores per second, None without a limit.

    Returns:
        Accounts by the index of their resource in `RESOURCES`.
    """
    accounts: dict[int, BudgetAccount] = {}
    if budget.requests_per_minute is not None:
        accounts[0] = BudgetAccount(share * budget.requests_per_minute / 60)
    if budget.tokens_per_minute is not None:
        accounts[1] = BudgetAccount(share * budget.tokens_per_minute / 60)
    if budget.usd_per_day is not None:
        accounts[2] = DailyBudgetAccount(share * budget.usd_per_day)
    if capacity is not None:
        accounts[CAPACITY_INDEX] = BudgetAccount(share * capacity)
    return accounts


class CanaryShare:
    """The share of a budget that canaries may spend.

    Canaries are judged at once while there is something left of their share; beyond it they are
    `unscored` for the reason `budget`. Their spend is charged to the budget like that of probes:
    the whole stays what it is, and the traffic, which alone is drawn by chance, is judged less.

    Args:
        rates: Units that come in per second by index of resource.
        cost: Cost of a canary until the first is settled.
        daily: Resources (money) whose income is retained for a day, so that a suite once a day has
            all of its share. That of others is retained for an hour: calls hold up the traffic's.
    """

    def __init__(
        self, rates: Mapping[int, float], cost: CostVector, daily: frozenset[int] = frozenset()
    ) -> None:
        self._rates = dict(rates)
        self._retention = {index: DAY if index in daily else HOUR for index in rates}
        self._balances = {index: START_SECONDS * rate for index, rate in rates.items()}
        self._cost = cost
        self._settled = 0
        self._pending = 0
        self._now: float | None = None

    def admit(self, now: float) -> bool:
        """Decide whether a canary may be judged at `now` (Unix seconds).

        If so, its expected cost is committed, and `settle` must follow.
        """
        passed = 0.0 if self._now is None else max(0.0, now - self._now)
        self._now = now
        for index, rate in self._rates.items():
            income = self._balances[index] + rate * passed
            self._balances[index] = min(rate * self._retention[index], income)
        # at most one more than the balance covers: else a share below the cost of one admits none
        if any(left <= self._pending * self._cost[i] for i, left in self._balances.items()):
            return False
        self._pending += 1
        return True

    def settle(self, cost: CostVector) -> None:
        """Subtract what an admitted canary has cost."""
        for index in self._balances:
            self._balances[index] -= cost[index]
        self._pending = max(0, self._pending - 1)
        self._settled += 1
        self._cost = blend_costs(self._cost, cost, max(1 / self._settled, 1 / _CANARY_MEMORY))

    def resize(self, factor: float, but: int) -> None:
        """Multiply the incomes and balances of all resources `but` one."""
        for index in self._rates.keys() - {but}:
            self._rates[index] *= factor
            self._balances[index] *= factor

    def dump(self) -> dict[str, Any]:
        """Return the state for JSON."""
        return {
            "now": self._now,
            "cost": list(self._cost),
            "settled": self._settled,
            "balances": {RESOURCES[index]: left for index, left in self._balances.items()},
        }

    def load(self, state: Mapping[str, Any], pending: int) -> None:
        """Restore what `dump` returned; a resource that was not limited then begins anew.

        Args:
            state: The saved state.
            pending: Admitted canaries that are not settled.
        """
        self._now = None if state["now"] is None else float(state["now"])
        self._cost = parse_cost(state["cost"])
        self._settled = int(state["settled"])
        self._pending = pending
        for index in self._balances:
            if RESOURCES[index] in state["balances"]:
                self._balances[index] = float(state["balances"][RESOURCES[index]])
