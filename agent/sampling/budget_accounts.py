"""Accounts of what a tier and its canaries may spend: income, spend and pace.

Accounts of what a tier may spend: how much has come in, how much has gone, how fast to go on.

An account speaks in units of one resource (requests, tokens, USD, seconds). Its balance is what
has come in less what was settled; what is drawn and not yet settled (`pending`) is taken off by
the reader, priced as of now. The pace it allows is the incoming rate, corrected by the balance:

    pace = rate * clamp(1 + (balance - pending) / (tau * rate), FLOOR, CEILING)

which is integral control of cumulative spend. Pure: time comes in as Unix seconds.

How much of the judge's budget canaries may take. Pure.

Canaries are sent on purpose and judged at once, each of them, while there is something left of
their part; what comes beyond is `unscored` for the reason `budget`. They never wait for the pace of
the traffic, and a suite that has become too large, or a service that sends its own traffic with
references, takes no more than the part from it. What they spend is charged to the budget like that
of probes: the whole stays what it is, and the traffic is judged a little less, for it alone is
drawn by chance and so can be.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from ragmeter.config.scoring import JudgeBudgetSettings
from ragmeter.sampling.service_demand import CAPACITY_INDEX

PACE_FLOOR = 0.25
"""Least pace, as a part of the incoming rate, while a debt is paid back: it is what keeps every
minute judged. It cannot overspend: at any pace below the rate the debt shrinks."""

PACE_CEILING = 1.5
"""Greatest pace, while a credit is used up."""

CREDIT_SECONDS = 12.0
"""Credit kept, in seconds of income: it bounds what a minute may spend above its income to 20 %
after a lull. A smaller one gives up income to the chance in the draws: at 9 a budget that on/off
bursts barely use falls 2 % short instead of 1 %."""

_CREDIT_DRAWS = 8.0
"""Or so many draws, if they cost more: with one draw a minute, seconds of income hold none."""

_TAU_SECONDS = 20.0
"""Time in which a debt or a credit is worked off. Shorter makes the probability follow the chance
in the draws (a spread of 1/sqrt(2 * draws within tau)), longer lets a minute overspend."""

_TAU_DRAWS = 16.0
_TAU_MAX = 600.0

DAY = 86400.0
_MIN_SECONDS_LEFT = 60.0
"""What is left of a day counts as at least so many seconds: no rush before midnight."""

_MIN_DAY_PACE = 0.01
"""Part of the even pace of a day that is left when the day's money is gone (a budget that was
lowered, a bill that came late): never zero, and at most 1 % of the budget."""


class BudgetAccount:
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
        surplus = free - max(CREDIT_SECONDS * rate, _CREDIT_DRAWS * draw)
        if surplus > 0:
            self._give_up(surplus)
            free -= surplus
        tau = min(_TAU_MAX, max(_TAU_SECONDS, _TAU_DRAWS * draw / rate))
        return rate * min(PACE_CEILING, max(PACE_FLOOR, 1 + free / (tau * rate)))

    def _give_up(self, surplus: float) -> None:
        self.balance -= surplus

    def dump(self) -> dict[str, float]:
        return {"balance": self.balance}

    def load(self, state: dict[str, float]) -> None:
        self.balance = float(state["balance"])


class DailyBudgetAccount(BudgetAccount):
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
        return max(
            (self._units - self._came) / max(left, _MIN_SECONDS_LEFT), _MIN_DAY_PACE * self._rate
        )

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


def open_accounts(
    budget: JudgeBudgetSettings, share: float, capacity: float | None
) -> dict[int, BudgetAccount]:
    """Accounts for `share` of a budget, by the place of their resource (`costs.RESOURCES`), for
    those that are limited. `capacity`: seconds of calls or of cores a second."""
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


START_SECONDS = 900.0
"""Seconds of income to begin with: a suite's first round (every 15 minutes by default) comes up to
a minute after a start. Not more, for a worker on Kafka begins anew at each start."""

HOUR, CANARY_DAY = 3600.0, 86400.0
"""Seconds of income that are kept for later: a round comes in a burst. Of money a day's, so that a
suite once a day has all of its part; of calls an hour's, for they hold up the traffic's."""

_CANARY_MEMORY = 32
"""Settled canaries that the cost of one is averaged over."""


class CanaryShare:
    """One balance for each limited resource, by its place in a cost. `rates`: units a second that
    come in, of which those of the places in `daily` are kept for a day. `cost` is what a canary
    takes until the first is settled."""

    def __init__(
        self,
        rates: Mapping[int, float],
        cost: tuple[float, ...],
        daily: frozenset[int] = frozenset(),
    ) -> None:
        self._rates = dict(rates)
        self._keeps = {place: CANARY_DAY if place in daily else HOUR for place in rates}
        self._balances = {place: START_SECONDS * rate for place, rate in rates.items()}
        self._cost = cost
        self._settled = 0
        self._pending = 0
        self._now: float | None = None

    def admit(self, now: float) -> bool:
        """A canary has come at Unix time `now`: whether it may ask. What it is expected to cost is
        committed then, and must be settled."""
        passed = 0.0 if self._now is None else max(0.0, now - self._now)
        self._now = now
        for place, rate in self._rates.items():
            most = rate * self._keeps[place]
            self._balances[place] = min(most, self._balances[place] + rate * passed)
        # one more than there is, at most: else a part below the cost of one would admit none, ever
        if any(left <= self._pending * self._cost[p] for p, left in self._balances.items()):
            return False
        self._pending += 1
        return True

    def settle(self, cost: tuple[float, ...]) -> None:
        """A canary is done, and has taken this."""
        for place in self._balances:
            self._balances[place] -= cost[place]
        self._pending = max(0, self._pending - 1)
        self._settled += 1
        part = max(1 / self._settled, 1 / _CANARY_MEMORY)
        self._cost = tuple(a + part * (b - a) for a, b in zip(self._cost, cost, strict=True))

    def resize(self, factor: float, but: int) -> None:
        """All incomes `but` that of one place are others from now on, and what is left of them."""
        for place in self._rates.keys() - {but}:
            self._rates[place] *= factor
            self._balances[place] *= factor

    def dump(self, names: tuple[str, ...]) -> dict[str, Any]:
        """For JSON; `names` are those of the resources by place."""
        return {
            "now": self._now,
            "cost": list(self._cost),
            "settled": self._settled,
            "balances": {names[place]: left for place, left in self._balances.items()},
        }

    def load(
        self,
        state: Mapping[str, Any],
        names: tuple[str, ...],
        cost: tuple[float, ...],
        pending: int,
    ) -> None:
        """What `dump` gave, with its `cost` read. A resource that was not limited then begins."""
        self._now = None if state["now"] is None else float(state["now"])
        self._cost = cost
        self._settled = int(state["settled"])
        self._pending = pending
        for place in self._balances:
            if names[place] in state["balances"]:
                self._balances[place] = float(state["balances"][names[place]])
