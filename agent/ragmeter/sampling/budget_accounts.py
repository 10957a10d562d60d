"""Token buckets of what a tier and its canaries may spend.

A bucket counts units of one resource (requests, tokens, USD, seconds). Its balance is what has come
in less what was settled; what is drawn and not yet settled (`pending`) is subtracted by the reader,
priced as of now. Time is Unix seconds and comes from the caller.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

from ragmeter.config.scoring import JudgeBudgetSettings
from ragmeter.sampling.service_demand import (
    CAPACITY_INDEX,
    RESOURCES,
    USD_INDEX,
    CostVector,
    ServiceDemand,
)

HOUR = 3600.0
DAY = 86400.0

# Seconds of income that a budget's bucket holds: no hour spends more than a quarter above its own.
BUDGET_DEPTH = 900.0

# Seconds of income in a budget's bucket at a start, so that the first traces are judged. A Kafka
# worker begins anew at each start: restarts four minutes apart would double its spend.
_BUDGET_START = 225.0

# Seconds of capacity that a bucket holds, which is how long the last trace drawn may wait. A Kafka
# worker gives a trace 20 s for the wait and the calls.
_CAPACITY_DEPTH = 15.0

# Or so many draws, if they cost more: a burst of ten is judged whole although the first guess of
# what it costs is too high, and a small budget is not cut into parts of a draw.
_DEPTH_DRAWS = 12.0

# The fill of a bucket at which the steady pace is the income. Nearly full: quiet traffic leaves
# room for a burst, and income is lost only where chance takes the fill above 1.
_STEADY_FILL = 0.9

# Exponent of the fill below that. At 0 probabilities are alike until the bucket is empty, at 1 they
# fall with it; in simulated bursts of minutes exponents from 1/4 to 1/2 gave equal widths.
_FILL_EXPONENT = 0.5

# A burst takes at most what is left at so many times the rate that empties the bucket in its depth:
# the probability falls by half in 80 s. A single trace of a service with few is never a burst, for
# it counts as a tenth of a trace a second, and 12 draws in 900 s times 8 are more than that.
_BURST_SHARE = 8.0

# Least pace, as a share of the income, while a debt is paid back: it keeps every minute judged. It
# cannot overspend: at any pace below the income the debt shrinks.
PACE_FLOOR = 0.25

# The rest of a day counts as at least so many seconds: no rush before midnight.
_MIN_SECONDS_LEFT = 60.0

# Share of a day's even pace that is left when the day's money is gone (a lowered budget, a late
# bill): never zero, and at most 1 % of the budget.
_MIN_DAY_PACE = 0.01

# Seconds of income that canaries have at a start: a suite's first round (every 15 minutes by
# default) comes up to a minute after it. Not more, for a Kafka worker begins anew at each start.
START_SECONDS = 900.0


class SpendingPace(NamedTuple):
    """Units per second to spend, above 0.

    `steady` is for the load of the last hour, `burst` the most for the load of the last seconds.
    """

    steady: float
    burst: float


class TokenBucket:
    """A bucket with an even income; what comes in while it is full is lost.

    `balance` is income less settled spend in units; below 0 it is a debt.

    Args:
        rate: Units that come in per second, above 0.
        depth: Seconds of income that it holds.
        start: Seconds of income that it holds at first.

    Raises:
        ValueError: `rate` is not positive and finite.
    """

    def __init__(self, rate: float, depth: float, start: float) -> None:
        if not rate > 0 or not math.isfinite(rate):
            raise ValueError("the rate of an account must be positive and finite")
        self._rate = rate
        self._depth = depth
        self.balance = start * rate

    @property
    def rate(self) -> float:
        """Units that come in per second now."""
        return self._rate

    def advance(self, now: float, seconds: float, pending: float = 0.0, draw: float = 0.0) -> None:
        """Take in the income of the `seconds` up to `now`.

        Args:
            now: Unix seconds.
            seconds: Seconds since the last call.
            pending: Units drawn and not yet settled.
            draw: Units that one draw costs.
        """
        self.balance += self._receive(now, seconds)
        surplus = self.balance - pending - self.capacity(draw)
        if surplus > 0:
            self._lose(surplus)

    def _receive(self, now: float, seconds: float) -> float:
        """Return the income of the `seconds` up to `now`."""
        return self.rate * seconds

    def capacity(self, draw: float = 0.0) -> float:
        """Return the units that it holds, if one draw costs `draw`."""
        return max(self._depth * max(self._rate, self.rate), _DEPTH_DRAWS * draw)

    def settle(self, units: float) -> None:
        """Subtract spent units."""
        self.balance -= units

    def resize(self, factor: float) -> None:
        """Multiply the income and what the bucket holds; a debt is still to be paid."""
        self._rate *= factor
        if self.balance > 0:
            self.balance *= factor

    def pace(self, pending: float, draw: float) -> SpendingPace:
        """Return the units per second to spend from now on.

        The steady pace grows with the fill of the bucket, which so becomes constant where spend and
        income are equal: integral control of cumulative spend.

        Args:
            pending: Units drawn and not yet settled.
            draw: Units that one draw costs.
        """
        rate = self.rate
        capacity = self.capacity(draw)
        fill = max(0.0, self.balance - pending) / capacity
        if fill < _STEADY_FILL:
            steady = (fill / _STEADY_FILL) ** _FILL_EXPONENT
        else:
            steady = (1 - _STEADY_FILL) / max(1e-3, 1 - fill)
        burst = _BURST_SHARE * fill * capacity / self._depth
        return SpendingPace(rate * max(PACE_FLOOR, steady), max(PACE_FLOOR * rate, burst))

    def _lose(self, surplus: float) -> None:
        self.balance -= surplus

    def dump(self) -> dict[str, float]:
        """Return the state for JSON."""
        return {"balance": self.balance}

    def load(self, state: Mapping[str, float]) -> None:
        """Restore what `dump` returned."""
        self.balance = float(state["balance"])


class DailyTokenBucket(TokenBucket):
    """A bucket of a sum for each UTC day, which comes in evenly over what is left of the day.

    What is lost goes back into the rest of the day. At midnight the bucket is carried over, and
    what has not come in is not. Before the first `advance` of unknown state the day's spend was
    even: otherwise each restart would have all of the day's money once more.

    Args:
        units: Units per day.
        depth: Seconds of income that it holds.
        start: Seconds of income that it holds at first.
    """

    def __init__(self, units: float, depth: float, start: float) -> None:
        super().__init__(units / DAY, depth, start)
        self._came = 0.0  # today's income so far
        self._now: float | None = None

    @property
    def rate(self) -> float:
        """Units that come in per second now."""
        left = DAY if self._now is None else DAY - self._now % DAY
        return max(
            (self._rate * DAY - self._came) / max(left, _MIN_SECONDS_LEFT),
            _MIN_DAY_PACE * self._rate,
        )

    def _receive(self, now: float, seconds: float) -> float:
        if self._now is None:
            self._came = self._rate * (now % DAY)
            self._now = now
        elif now // DAY > self._now // DAY:
            self._came = 0.0
            self._now = now // DAY * DAY
            seconds = min(seconds, now - self._now)
        income = self.rate * seconds
        self._came += income
        self._now = now
        return income

    def resize(self, factor: float) -> None:
        """Multiply the day's sum; what is left of the day is divided anew, the past is not."""
        super().resize(factor)
        self._came *= factor

    def _lose(self, surplus: float) -> None:
        super()._lose(surplus)
        self._came = max(0.0, self._came - surplus)

    def dump(self) -> dict[str, float]:
        """Return the state for JSON."""
        state = {"balance": self.balance, "came": self._came}
        return state if self._now is None else {**state, "now": self._now}

    def load(self, state: Mapping[str, float]) -> None:
        """Restore what `dump` returned."""
        super().load(state)
        self._came = min(float(state["came"]), self._rate * DAY)
        self._now = float(state["now"]) if "now" in state else None


def open_accounts(
    budget: JudgeBudgetSettings, share: float, capacity: float | None, cost: CostVector
) -> dict[int, TokenBucket]:
    """Open an account for each limited resource.

    Args:
        budget: The limits.
        share: Share (0..1] of each limit, the capacity included.
        capacity: Seconds of calls or of cores per second, None without a limit.
        cost: Cost of a trace until the first is settled.

    Returns:
        Accounts by the index of their resource in `RESOURCES`.
    """
    size = (BUDGET_DEPTH, _BUDGET_START)
    accounts: dict[int, TokenBucket] = {}
    if budget.requests_per_minute is not None:
        accounts[0] = TokenBucket(share * budget.requests_per_minute / 60, *size)
    if budget.tokens_per_minute is not None:
        accounts[1] = TokenBucket(share * budget.tokens_per_minute / 60, *size)
    if budget.usd_per_day is not None:
        accounts[USD_INDEX] = DailyTokenBucket(share * budget.usd_per_day, *size)
    if capacity is not None:
        rate = share * capacity
        start = max(_CAPACITY_DEPTH, _DEPTH_DRAWS * cost[CAPACITY_INDEX] / rate)
        accounts[CAPACITY_INDEX] = TokenBucket(rate, _CAPACITY_DEPTH, start)
    return accounts


class CanaryShare:
    """The share of a budget that canaries may spend.

    Canaries are judged at once while there is something left of their share; beyond it they are
    `unscored` for the reason `budget`. Their spend is charged to the budget like that of probes:
    the whole stays what it is, and the traffic, which alone is drawn by chance, is judged less.

    A share of money is retained for a day, so that a suite once a day has all of it. That of others
    is retained for an hour: calls hold up the traffic's.

    Args:
        rates: Units that come in per second by index of resource.
        cost: Cost of a canary until the first is settled.

    Attributes:
        accounts: Bucket by index of resource.
    """

    def __init__(self, rates: Mapping[int, float], cost: CostVector) -> None:
        self.accounts = {
            index: TokenBucket(rate, DAY if index == USD_INDEX else HOUR, START_SECONDS)
            for index, rate in rates.items()
        }
        self._demand = ServiceDemand(0.0, cost)
        self._now: float | None = None

    def admit(self, now: float) -> bool:
        """Decide whether a canary may be judged at `now` (Unix seconds).

        If so, its expected cost is committed, and `settle` must follow.
        """
        passed = 0.0 if self._now is None else max(0.0, now - self._now)
        self._now = now
        for account in self.accounts.values():
            account.advance(now, passed)
        # at most one more than the balance covers: else a share below the cost of one admits none
        demand = self._demand
        if any(a.balance <= demand.pending * demand.cost[i] for i, a in self.accounts.items()):
            return False
        demand.pending += 1
        return True

    def settle(self, cost: CostVector) -> None:
        """Subtract what an admitted canary has cost."""
        for index, account in self.accounts.items():
            account.settle(cost[index])
        self._demand.settle(cost)

    def dump(self) -> dict[str, Any]:
        """Return the state for JSON."""
        return {
            "now": self._now,
            "cost": list(self._demand.cost),
            "settled": self._demand.settled,
            "balances": {RESOURCES[index]: a.balance for index, a in self.accounts.items()},
        }

    def load(self, state: Mapping[str, Any], pending: int) -> None:
        """Restore what `dump` returned; a resource that was not limited then begins anew.

        Args:
            state: The saved state.
            pending: Admitted canaries that are not settled.
        """
        self._now = None if state["now"] is None else float(state["now"])
        self._demand = ServiceDemand.restore_cost(state)
        self._demand.pending = int(pending)
        for index, account in self.accounts.items():
            if RESOURCES[index] in state["balances"]:
                account.balance = float(state["balances"][RESOURCES[index]])
