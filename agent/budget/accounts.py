"""Accounts of what a tier may spend: how much has come in, how much has gone, how fast to go on.

An account speaks in units of one resource (requests, tokens, USD, seconds). Its balance is what
has come in less what was settled; what is drawn and not yet settled (`pending`) is taken off by
the reader, priced as of now. The pace it allows is the incoming rate, corrected by the balance:

    pace = rate * clamp(1 + (balance - pending) / (tau * rate), FLOOR, CEILING)

which is integral control of cumulative spend. Pure: time comes in as Unix seconds.
"""

from __future__ import annotations

import math

from agent.budget.costs import CAPACITY
from agent.config import Budget

__all__ = ["CEILING", "FLOOR", "Account", "DayAccount", "open_accounts"]

FLOOR = 0.25
"""Least pace, as a part of the incoming rate, while a debt is paid back: it is what keeps every
minute judged. It cannot overspend: at any pace below the rate the debt shrinks."""

CEILING = 1.5
"""Greatest pace, while a credit is used up."""

CREDIT_SECONDS = 12.0
"""Credit kept, in seconds of income: it bounds what a minute may spend above its income to 20 %
after a lull. A smaller one gives up income to the chance in the draws: at 9 a budget that on/off
bursts barely use falls 2 % short instead of 1 %."""

CREDIT_DRAWS = 8.0
"""Or so many draws, if they cost more: with one draw a minute, seconds of income hold none."""

TAU_SECONDS = 20.0
"""Time in which a debt or a credit is worked off. Shorter makes the probability follow the chance
in the draws (a spread of 1/sqrt(2 * draws within tau)), longer lets a minute overspend."""

TAU_DRAWS = 16.0
TAU_MOST = 600.0

DAY = 86400.0
LAST = 60.0
"""What is left of a day counts as at least so many seconds: no rush before midnight."""

LEAST = 0.01
"""Part of the even pace of a day that is left when the day's money is gone (a budget that was
lowered, a bill that came late): never zero, and at most 1 % of the budget."""


class Account:
    """Income of `rate` units a second; credit beyond the limit is given up."""

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
        """Take in the income of the `seconds` up to `now`; `pending` is what is not settled."""
        self.balance += self._rate * seconds

    def settle(self, units: float) -> None:
        self.balance -= units

    def resize(self, factor: float) -> None:
        """So many times the income from now on. What was spent too much is still to be paid."""
        self._rate *= factor

    def begin(self, now: float) -> None:
        """What came in before `now` was spent elsewhere."""

    def pace(self, pending: float, draw: float) -> float:
        """Units a second to spend from now on, above 0; `draw` is what one draw costs."""
        rate = self.rate
        free = self.balance - pending
        surplus = free - max(CREDIT_SECONDS * rate, CREDIT_DRAWS * draw)
        if surplus > 0:
            self._give_up(surplus)
            free -= surplus
        tau = min(TAU_MOST, max(TAU_SECONDS, TAU_DRAWS * draw / rate))
        return rate * min(CEILING, max(FLOOR, 1 + free / (tau * rate)))

    def _give_up(self, surplus: float) -> None:
        self.balance -= surplus

    def dump(self) -> dict[str, float]:
        return {"balance": self.balance}

    def load(self, state: dict[str, float]) -> None:
        self.balance = float(state["balance"])


class DayAccount(Account):
    """`units` for each UTC day, spread evenly over what is left of the day.

    Credit that is given up goes back into the rest of the day. At midnight a debt is carried over,
    what was not spent is not.
    """

    def __init__(self, units: float) -> None:
        super().__init__(units / DAY)
        self._units = units
        self._came = 0.0
        self._now: float | None = None

    @property
    def rate(self) -> float:
        left = DAY if self._now is None else DAY - self._now % DAY
        return max((self._units - self._came) / max(left, LAST), LEAST * self._rate)

    def advance(self, now: float, seconds: float, pending: float) -> None:
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
        # what is left of the day is divided anew, and not what was
        super().resize(factor)
        self._units *= factor
        self._came *= factor

    def begin(self, now: float) -> None:
        self._came = self._units * (now % DAY) / DAY
        self._now = now

    def _give_up(self, surplus: float) -> None:
        self.balance -= surplus
        self._came = max(0.0, self._came - surplus)

    def dump(self) -> dict[str, float]:
        state = {"balance": self.balance, "came": self._came}
        return state if self._now is None else {**state, "now": self._now}

    def load(self, state: dict[str, float]) -> None:
        super().load(state)
        self._came = min(float(state["came"]), self._units)
        self._now = float(state["now"]) if "now" in state else None


def open_accounts(budget: Budget, share: float, capacity: float | None) -> dict[int, Account]:
    """Accounts for `share` of a budget, by the place of their resource (`costs.RESOURCES`), for
    those that are limited. `capacity`: seconds of calls or of cores a second."""
    accounts: dict[int, Account] = {}
    if budget.requests_per_minute is not None:
        accounts[0] = Account(share * budget.requests_per_minute / 60)
    if budget.tokens_per_minute is not None:
        accounts[1] = Account(share * budget.tokens_per_minute / 60)
    if budget.usd_per_day is not None:
        accounts[2] = DayAccount(share * budget.usd_per_day)
    if capacity is not None:
        accounts[CAPACITY] = Account(share * capacity)
    return accounts
