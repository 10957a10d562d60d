"""Scale the sampling rate of a tier so that spend follows its budget.

How much of the traffic a tier may judge now, so that spend follows the budget.

A worker draws each arriving trace with probability pi = rate * scale * upstream probability; this
module finds the scale. A drawn trace is judged later and costs what it costs: then it is settled.
Feed-forward (what comes in per second, shared fairly over services, over what the arrivals of a
service would cost) keeps the spend right while traffic changes; integral control of cumulative
spend (`ragmeter.sampling.budget_accounts`) removes what is left of the error.

Why weights of 1/pi stay unbiased although pi follows the spend: pi of a trace is a function of the
traces (what has arrived, and the stratum of its own) and of earlier draws and their costs, never of
its own draw, which is a hash that no earlier draw depends on. So E[taken / pi | the past, all
traces] = 1 for every trace, and (taken / pi - 1) are martingale differences: their covariances are
0, and the variance estimators for independent draws hold too. No later trace, cost or verdict may
ever enter a pi that is already given out.

Never a pause: the pace never falls below `accounts.FLOOR` of the income. With m = FLOOR * income
a minute / cost of a trace, at least m traces a minute are expected, and a minute has none with
probability exp(-m). The floor is one of pace and not of pi, so it cannot overspend however much
arrives: while a debt is paid back the pace is below the income.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from typing import Any

from ragmeter.config.scoring import HhemSettings, JudgeBudgetSettings, JudgeSettings
from ragmeter.core.label_bounds import OTHER_LABEL
from ragmeter.core.tiers import ScoringCost
from ragmeter.sampling.budget_accounts import BudgetAccount, CanaryShare, open_accounts
from ragmeter.sampling.service_demand import (
    CAPACITY_INDEX,
    JUDGE_PRIOR,
    MODEL_PRIOR,
    RESOURCES,
    CostVector,
    ServiceDemand,
    blend_costs,
    cost_vector,
    divide_fairly,
    parse_cost,
)

_STEPS_PER_OCTAVE, _OCTAVES = 16, 20
SCALE_GRID = tuple(
    2.0 ** (-step / _STEPS_PER_OCTAVE) for step in range(_STEPS_PER_OCTAVE * _OCTAVES + 1)
)
"""The scales there are: 321 values from 1 to 2**-20 in ratios of 2**(1/16). Windows group scores
by distinct probability, so these must be few; rounding down is made up for by the balance."""

_TICK = 0.5
"""Seconds between two looks at the rates. A draw that spends ahead brings the next look forward."""

_COST_MEMORY = 64
"""Settled traces of all services that the cost of one trace is averaged over."""

MAX_SERVICES = 256
REST_SERVICES = OTHER_LABEL
"""Where services beyond `MAX_SERVICES` are counted together: names come from outside."""

_SWEEP_SECONDS = 60.0

_QUEUE_ROOM = 0.25
"""Part of the queue that may fill before the scale falls, by the square of what is left of the
rest: at a half full it is 0.44, and the queue is full only where nothing is drawn any more."""


class BudgetController:
    """The scale of one tier's sampling rates. Without any limit it is always 1.

    `budget` are the limits in money and calls, `capacity` the seconds of calls or of cores that
    can be worked off per second, `prior` what a trace costs before the first is settled. Time is
    Unix seconds by the caller's clock, the same one for all methods. `settle`, `charge` and
    `scales` may be called from any thread; all else belongs to the thread that draws.
    """

    def __init__(
        self,
        budget: JudgeBudgetSettings,
        *,
        capacity: float | None = None,
        prior: ScoringCost = JUDGE_PRIOR,
    ) -> None:
        self._cost = cost_vector(prior)
        self._settled = 0
        self._accounts = open_accounts(budget, 1.0, capacity)
        # The share of a service is one of the budget, and of the capacity too: a slot is spent.
        self._own = {
            name: open_accounts(budget, share, capacity)
            for name, share in budget.shares.items()
            if share < 1
        }
        # with money spread evenly over the day: at what hour a suite is sent is its own affair
        # (0: nobody asks)
        own = open_accounts(budget, budget.canaries, capacity) if budget.canaries else {}
        self._canaries = CanaryShare(
            {place: account.rate for place, account in own.items()},
            self._cost,
            daily=frozenset({2}),
        )
        self._services: dict[str, ServiceDemand] = {}
        self._inbox: deque[tuple[str, CostVector, bool]] = deque()
        self._updated: float | None = None
        self._last = self._due = self._swept = -math.inf
        self._ahead = 0.0
        self._room = 1.0
        self._part = 1.0

    # What happens ------------------------------------------------------------------------------

    def offer(self, service: str, now: float, rate: float = 1.0) -> float:
        """A trace of `service` has arrived: the scale in (0, 1] that holds for its draw.

        `rate` is the sampling rate that the scale multiplies: the configured one times the ratio
        of the trace's stratum. Above 1 it only counts as far as the scale lets it.
        """
        state = self._services.get(service)
        if state is None:
            state = self._find(service, now)
        state.arrived(rate)
        if now >= self._due or now < self._last:
            self._update(now)
        return state.scale

    def reserve(self, service: str, now: float) -> None:
        """The trace offered last was drawn: what it is expected to cost is committed."""
        state = self._services.get(service) or self._find(service, now)
        state.pending += 1
        self._ahead += state.seconds
        if self._ahead > 2 * _TICK:  # spent ahead of the income: look again at once
            self._due = now

    def settle(self, service: str, cost: ScoringCost, now: float) -> None:
        """A drawn trace is done, whatever came of it; `cost` is what it took, maybe nothing."""
        self._inbox.append((service, cost_vector(cost), True))

    def charge(self, service: str, cost: ScoringCost, now: float) -> None:
        """Spend that no draw has caused: probes."""
        self._inbox.append((service, cost_vector(cost), False))

    def admit_canary(self, now: float) -> bool:
        """A canary has come: whether it may ask. If so, `settle_canary` must follow."""
        return self._canaries.admit(now)

    def settle_canary(self, service: str, cost: ScoringCost, now: float) -> None:
        """An admitted canary is done. The whole budget pays for it, out of the canaries' part."""
        self._canaries.settle(cost_vector(cost))
        self.charge(service, cost, now)

    def backlog(self, waiting: int, bound: int) -> None:
        """Of at most `bound` drawn traces that the queue takes, so many wait."""
        left = max(0.0, 1 - waiting / bound)
        self._room = max(SCALE_GRID[-1], min(1.0, left / (1 - _QUEUE_ROOM)) ** 2)

    def set_share(self, part: float) -> None:
        """This is one of several controllers, and has so much of the budget from now on, in (0, 1].
        Slots and cores are our own: of the capacity all is left."""
        factor, self._part = part / self._part, part
        for accounts in (self._accounts, *self._own.values()):
            for place, account in accounts.items():
                if place != CAPACITY_INDEX:
                    account.resize(factor)
        self._canaries.resize(factor, but=CAPACITY_INDEX)
        self._due = -math.inf

    def begin(self, now: float) -> None:
        """Before the first trace, where nobody knows what was spent today: an even pace is
        assumed. Else each restart would have all of the day's money once more."""
        for accounts in (self._accounts, *self._own.values()):
            for account in accounts.values():
                account.begin(now)

    # What to know ------------------------------------------------------------------------------

    @property
    def pending(self) -> dict[str, int]:
        """Traces drawn and not yet settled, by service."""
        self._take_in()
        return {name: state.pending for name, state in self._services.items() if state.pending}

    def scales(self) -> dict[str, float]:
        """The scale in force, by service."""
        services = self._services.copy()  # in one step: the thread that draws finds new ones
        return {name: state.scale for name, state in services.items()}

    def balances(self) -> dict[str, tuple[float, float]]:
        """By limited resource: units that come in per second, and the balance in units (below 0:
        a debt), what is under way taken off."""
        self._take_in()
        return {
            RESOURCES[place]: (account.rate, account.balance - self._pending(place))
            for place, account in self._accounts.items()
        }

    # Control -----------------------------------------------------------------------------------

    def _find(self, service: str, now: float) -> ServiceDemand:
        if service not in self._services and len(self._services) >= MAX_SERVICES:
            self._sweep(now)
            if len(self._services) >= MAX_SERVICES:
                service = REST_SERVICES
        state = self._services.get(service)
        if state is None:
            state = self._services[service] = ServiceDemand(now, self._cost)
            self._due = -math.inf
        return state

    def _sweep(self, now: float) -> None:
        """Forget services of which nothing has come for long."""
        if now < self._swept + _SWEEP_SECONDS:
            return
        self._swept = now
        for name, state in list(self._services.items()):
            if state.gone:
                del self._services[name]

    def _pending(self, place: int) -> float:
        return sum(s.pending * s.cost[place] for s in self._services.values())

    def _take_in(self) -> None:
        """Settle what has come in. What is still under way is priced at the new cost."""
        while self._inbox:
            name, cost, drawn = self._inbox.popleft()
            for place, account in self._accounts.items():
                account.settle(cost[place])
            for place, account in self._own.get(name, {}).items():
                account.settle(cost[place])
            if not drawn:
                continue
            self._settled += 1
            self._cost = blend_costs(self._cost, cost, max(1 / self._settled, 1 / _COST_MEMORY))
            state = self._services.get(name) or self._services.get(REST_SERVICES)
            if state is not None:
                state.settle(cost)

    def _update(self, now: float) -> None:
        self._take_in()
        states = list(self._services.items())
        if now < self._last or self._last == -math.inf:  # the clock was set back, or a restart
            for _, state in states:
                state.arrivals.resume(now)
        passed = 0.0 if self._updated is None else max(0.0, now - self._updated)
        self._updated = self._last = now
        self._due = now + _TICK
        self._ahead = 0.0
        for _, state in states:
            state.arrivals.update(now, _TICK)
            state.seconds = 0.0
        scales = [self._room] * len(states)
        for place, account in self._accounts.items():
            self._limit(place, account, now, passed, states, scales)
        for (_, state), scale in zip(states, scales, strict=True):
            step = math.ceil(-_STEPS_PER_OCTAVE * math.log2(min(1.0, scale)) - 1e-9)
            state.scale = SCALE_GRID[min(max(step, 0), len(SCALE_GRID) - 1)]

    def _limit(
        self,
        place: int,
        account: BudgetAccount,
        now: float,
        passed: float,
        states: list[tuple[str, ServiceDemand]],
        scales: list[float],
    ) -> None:
        """Lower `scales` to what one resource allows."""
        pending = self._pending(place)
        account.advance(now, passed, pending)
        wanted = [s.arrivals.rate * s.rate for _, s in states]
        demands = [draws * s.cost[place] for draws, (_, s) in zip(wanted, states, strict=True)]
        asked = list(demands)
        for index, (name, state) in enumerate(states):
            own = self._own.get(name)
            if own is not None:
                held = state.pending * state.cost[place]
                own[place].advance(now, passed, held)
                asked[index] = min(demands[index], own[place].pace(held, state.cost[place]))
        draws = sum(wanted)
        draw = sum(demands) / draws if draws > 0 else self._cost[place]
        given = divide_fairly(account.pace(pending, draw), asked)
        rate = account.rate
        for index, (_, state) in enumerate(states):
            if given[index] < demands[index]:
                scales[index] = min(scales[index], given[index] / demands[index] * self._room)
            state.seconds = max(state.seconds, state.cost[place] / rate)

    # State -------------------------------------------------------------------------------------

    def dump(self) -> dict[str, Any]:
        """All that must survive a restart, for JSON: balances, the day's spend, costs learned."""
        self._take_in()
        return {
            "updated": self._updated,
            "cost": list(self._cost),
            "settled": self._settled,
            "canaries": self._canaries.dump(RESOURCES),
            "accounts": {RESOURCES[p]: account.dump() for p, account in self._accounts.items()},
            "own": {
                name: {RESOURCES[p]: account.dump() for p, account in accounts.items()}
                for name, accounts in self._own.items()
            },
            "services": {name: state.dump() for name, state in self._services.items()},
        }

    def load(
        self,
        state: Mapping[str, Any],
        pending: Mapping[str, int] | None = None,
        canaries: int = 0,
    ) -> None:
        """Restore what `dump` gave, into a new controller. Limits are those of the settings now.

        `pending`: what the queue really holds, by service, if the caller knows it; `canaries`: how
        many of these it holds besides. Raises ValueError, KeyError or TypeError for what `dump` has
        not written.
        """
        updated = state["updated"]
        self._updated = None if updated is None else float(updated)
        self._cost = parse_cost(state["cost"])
        self._settled = int(state["settled"])
        for place, account in self._accounts.items():
            if RESOURCES[place] in state["accounts"]:
                account.load(state["accounts"][RESOURCES[place]])
        for name, accounts in self._own.items():
            for place, account in accounts.items():
                saved = state["own"].get(name, {}).get(RESOURCES[place])
                if saved is not None:
                    account.load(saved)
        if "canaries" in state:  # absent in states of older versions
            saved = state["canaries"]
            self._canaries.load(saved, RESOURCES, parse_cost(saved["cost"]), canaries)
        for name, saved in state["services"].items():
            self._services[name] = ServiceDemand.load(saved, self._updated or 0.0)
        if pending is not None:
            for service in self._services.values():
                service.pending = 0
            for name, number in pending.items():
                self._find(name, self._updated or 0.0).pending += number


_UTILISATION = 0.9
"""Part of the slots or cores that is planned for: at 1.0 the queue before them never empties."""


def judge_controller(settings: JudgeSettings) -> BudgetController:
    """The controller of the judge tier: its budget, and its slots as the capacity."""
    prior = JUDGE_PRIOR
    usd = (
        prior.input_tokens * settings.input_usd_per_million
        + prior.output_tokens * settings.output_usd_per_million
    ) / 1e6
    return BudgetController(
        settings.budget,
        capacity=_UTILISATION * settings.concurrency,
        prior=ScoringCost(
            prior.requests, prior.input_tokens, prior.output_tokens, usd, prior.seconds
        ),
    )


def model_controller(settings: HhemSettings) -> BudgetController:
    """The controller of the model tier: its workers are the capacity, and nothing costs money."""
    return BudgetController(
        JudgeBudgetSettings(), capacity=_UTILISATION * settings.workers, prior=MODEL_PRIOR
    )
