"""Scale the sampling rate of a tier so that spend follows its budget.

A worker draws each arriving trace with probability pi = rate * scale * upstream probability; this
module finds the scale. The income of a budget, shared fairly over services, over what their loads
of the last hour would cost gives a probability that bursts do not change; token buckets pay for
the bursts, correct the scale by what was spent, and bound it while they run low.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from ragmeter.config.scoring import JudgeBudgetSettings, JudgeSettings
from ragmeter.core.label_bounds import OTHER_LABEL
from ragmeter.core.tiers import ScoringCost
from ragmeter.sampling.budget_accounts import (
    CanaryShare,
    SpendingPace,
    TokenBucket,
    open_accounts,
)
from ragmeter.sampling.service_demand import (
    CAPACITY_INDEX,
    JUDGE_PRIOR,
    MODEL_PRIOR,
    RESOURCES,
    CostVector,
    ServiceDemand,
    cost_vector,
    divide_fairly,
)

# All possible scales: 321 values from 1 to 2**-20 in ratios of 2**(1/16). Windows group scores by
# distinct probability, so these must be few; the balance makes up for rounding down.
_STEPS_PER_OCTAVE = 16
_OCTAVES = 20
SCALE_GRID = tuple(
    2.0 ** (-step / _STEPS_PER_OCTAVE) for step in range(_STEPS_PER_OCTAVE * _OCTAVES + 1)
)

# Seconds between two updates of the scales, or the share of a bucket that is drawn between them.
_TICK = 0.5
_DRAWN_SHARE = 1 / 64

# Services beyond `MAX_SERVICES` are counted together: names come from outside.
MAX_SERVICES = 256
REST_SERVICES = OTHER_LABEL

# Share of the queue that may fill before the scale falls, by the square of what is left of the
# rest: half full it is 0.44, and the queue is full only once nothing is drawn any more.
_QUEUE_ROOM = 0.25

# Part of its usual scale below which a service is not drawn at all while a queue or the slots are
# overloaded: its traces are shed, which the estimate counts as missing. A burst of a hundred traces
# is often without any draw then, and each draw would weigh more than 32 usual ones. Drawn down to
# 2**-20 instead, the weights of a run of 20 s summed up to 153 of 455 traces (tests.chaos).
_LEAST_PART = 1 / 32

# Share of the slots or cores that is planned for: at 1.0 the queue before them never empties.
_UTILISATION = 0.9

# Seconds for which `overload` stays after its end, so that bursts do not toggle it.
_OVERLOAD_SECONDS = 300.0

_Accounts = dict[int, TokenBucket]  # by index of resource


class BudgetController:
    """The scale of one tier's sampling rates. Without any limit it is always 1.

    Weights of 1/pi stay unbiased although pi follows the spend. The pi of a trace is a function of
    the traces (arrivals, its own stratum) and of earlier draws and their costs, never of its own
    draw, which is a hash. So E[taken / pi | the past, all traces] = 1, (taken / pi - 1) are
    martingale differences with covariances 0, and variance estimators for independent draws hold.
    No later trace, cost or verdict may ever enter a pi that is already given out.

    There is never a pause: the pace stays above `PACE_FLOOR` of the income. With m = PACE_FLOOR *
    income per minute / cost of a trace, a minute without a draw has probability exp(-m).

    `settle`, `charge` and `scales` may be called from any thread; everything else belongs to the
    thread that draws. Times are Unix seconds of one clock.

    Args:
        budget: The limits in money and calls.
        capacity: Seconds of calls or of cores that can be worked off per second, None: unlimited.
        prior: Cost of a trace until the first is settled.
        capacity_share: Returns the share (0, 1] of the capacity that is there now.

    Attributes:
        overload: What besides a budget lowers a scale, or did in the last minutes; mostly "".
    """

    def __init__(
        self,
        budget: JudgeBudgetSettings,
        *,
        capacity: float | None = None,
        prior: ScoringCost = JUDGE_PRIOR,
        capacity_share: Callable[[], float] = lambda: 1.0,
    ) -> None:
        cost = cost_vector(prior)
        self._average = ServiceDemand(0.0, cost)  # of all services, for its cost alone
        self._accounts: _Accounts = open_accounts(budget, 1.0, capacity, cost)
        # The share of a service is one of the budget, and of the capacity too: a slot is spent.
        self._service_accounts: dict[str, _Accounts] = {
            name: open_accounts(budget, share, capacity, cost)
            for name, share in budget.shares.items()
            if share < 1
        }
        # Money comes evenly over the day: the hour of a suite is its owner's choice.
        rates = {index: budget.canaries * account.rate for index, account in self._accounts.items()}
        self._canaries = CanaryShare(rates if budget.canaries else {}, cost)
        self._services: dict[str, ServiceDemand] = {}
        self._inbox: deque[tuple[str, CostVector, bool]] = deque()  # (service, cost, drawn)
        self._updated: float | None = None
        self._last = self._due = -math.inf
        self._draws = 0  # since the last update
        self._stride = 0.0  # draws after which the scales are updated
        self._room = 1.0  # scale that the queue allows
        self._share = 1.0

        def share() -> float:
            return capacity_share()

        # a function, since a copy of a controller would copy the owner of a method
        self._capacity_share = share
        self._capacity_now = 1.0
        self.overload = ""
        self._overloaded = -math.inf

    def offer(self, service: str, now: float, rate: float = 1.0) -> float:
        """Take in an arriving trace; return the scale for its draw, 0..1; at 0 it is to be shed.

        `rate` is the sampling rate that the scale multiplies: the configured one times the ratio of
        the trace's stratum. Above 1 it counts only as far as the scale lets it.
        """
        demand = self._services.get(service)
        if demand is None:
            demand = self._find(service, now)
        demand.count_arrival(rate)
        if now >= self._due or now < self._last:
            self._update(now)
        return demand.scale

    def reserve(self, service: str, now: float) -> None:
        """Commit the expected cost of the trace offered last, which was drawn."""
        demand = self._services.get(service) or self._find(service, now)
        demand.pending += 1
        self._draws += 1
        if self._draws > self._stride:
            self._due = now

    def settle(self, service: str, cost: ScoringCost, now: float) -> None:
        """Take in what a drawn trace has cost, maybe nothing, once it is done."""
        self._inbox.append((service, cost_vector(cost), True))

    def charge(self, service: str, cost: ScoringCost, now: float) -> None:
        """Take in spend without a draw, such as that of probes."""
        self._inbox.append((service, cost_vector(cost), False))

    def admit_canary(self, now: float) -> bool:
        """Decide whether a canary may be judged; if so, `settle_canary` must follow."""
        return self._canaries.admit(now)

    def settle_canary(self, service: str, cost: ScoringCost, now: float) -> None:
        """Charge an admitted canary to the canaries' share and to the whole budget."""
        self._canaries.settle(cost_vector(cost))
        self.charge(service, cost, now)

    def backlog(self, waiting: int, bound: int) -> None:
        """Take in that `waiting` drawn traces are in the queue, which holds `bound` at most."""
        left = max(0.0, 1 - waiting / bound)
        self._room = min(1.0, left / (1 - _QUEUE_ROOM)) ** 2

    def set_share(self, share: float) -> None:
        """Set this controller's share (0, 1] of a budget that several controllers divide.

        The capacity is not divided: slots and cores are our own.
        """
        self._resize(share / self._share, capacity=False)
        self._share = share
        self._due = -math.inf

    def _resize(self, factor: float, *, capacity: bool) -> None:
        """Multiply the income of the capacity, or of all other resources."""
        own = self._service_accounts.values()
        for accounts in (self._accounts, self._canaries.accounts, *own):
            for index, account in accounts.items():
                if (index == CAPACITY_INDEX) == capacity:
                    account.resize(factor)

    @property
    def pending(self) -> dict[str, int]:
        """Traces drawn and not yet settled, by service."""
        self._take_in()
        return {name: demand.pending for name, demand in self._services.items() if demand.pending}

    def scales(self) -> dict[str, float]:
        """Return the scale in force by service."""
        services = self._services.copy()  # in one step: the thread that draws adds new ones
        return {name: demand.scale for name, demand in services.items()}

    def balances(self) -> dict[str, tuple[float, float]]:
        """Return (units per second of income, balance) by limited resource.

        A balance is in units, below 0 a debt; what is under way is subtracted.
        """
        self._take_in()
        return {
            RESOURCES[index]: (account.rate, account.balance - self._pending_units(index))
            for index, account in self._accounts.items()
        }

    def _find(self, service: str, now: float) -> ServiceDemand:
        if service not in self._services and len(self._services) >= MAX_SERVICES:
            for name, demand in list(self._services.items()):
                if demand.gone:
                    del self._services[name]
            if len(self._services) >= MAX_SERVICES:
                service = REST_SERVICES
        if service not in self._services:
            self._services[service] = ServiceDemand(now, self._average.cost)
            self._due = -math.inf
        return self._services[service]

    def _pending_units(self, index: int) -> float:
        return sum([d.pending * d.cost[index] for d in self._services.values()])

    def _take_in(self) -> None:
        """Settle what has come in. What is still under way is priced at the new cost."""
        while self._inbox:
            name, cost, drawn = self._inbox.popleft()
            for accounts in (self._accounts, self._service_accounts.get(name, {})):
                for index, account in accounts.items():
                    account.settle(cost[index])
            if drawn:
                self._average.settle(cost)
                demand = self._services.get(name) or self._services.get(REST_SERVICES)
                if demand is not None:
                    demand.settle(cost)

    def _update(self, now: float) -> None:
        self._take_in()
        share = self._capacity_share()
        if share != self._capacity_now:
            self._resize(share / self._capacity_now, capacity=True)
            self._capacity_now = share
        demands = list(self._services.items())
        if now < self._last or self._last == -math.inf:  # the clock was set back, or a restart
            for _, demand in demands:
                demand.resume(now)
        passed = 0.0 if self._updated is None else max(0.0, now - self._updated)
        self._updated = self._last = now
        self._due = now + _TICK
        self._draws = 0
        self._stride = math.inf
        for _, demand in demands:
            demand.update(now)
        usual = scales = [1.0] * len(demands)
        overload = "too many drawn traces wait for it" if self._room < 1 else ""
        for index, account in self._accounts.items():
            before = scales
            # the capacity is the last: its bursts, and no budget's, are an overload
            usual, scales = self._scale_down(
                index=index, account=account, now=now, passed=passed, scales=scales
            )
            if index == CAPACITY_INDEX and scales != before:
                overload = (
                    overload
                    or "it can work off no more (judge.concurrency, hhem.workers, models.cpu_share)"
                )
        if overload:
            self.overload = self.overload or overload
            self._overloaded = now
        elif not 0 <= now - self._overloaded < _OVERLOAD_SECONDS:
            self.overload = ""
        if CAPACITY_INDEX not in self._accounts:
            usual = scales
        for (_, demand), scale, least in zip(demands, scales, usual, strict=True):
            scale *= self._room
            if scale < _LEAST_PART * least:
                demand.scale = 0.0
                continue
            step = math.ceil(-_STEPS_PER_OCTAVE * math.log2(scale) - 1e-9)
            demand.scale = SCALE_GRID[min(max(step, 0), len(SCALE_GRID) - 1)]

    def _scale_down(
        self, index: int, account: TokenBucket, now: float, passed: float, scales: list[float]
    ) -> tuple[list[float], list[float]]:
        """Return the scales that one resource allows, given those of the others.

        Returns:
            The scale of each service for its load of the last hour, and for its recent load too.
        """
        demands = list(self._services.values())
        pending = self._pending_units(index)
        loads = [demand.load * demand.cost[index] for demand in demands]
        recent = [demand.recent * demand.cost[index] for demand in demands]
        total = sum([demand.load for demand in demands])
        cost = sum(loads) / total if total > 0 else self._average.cost[index]
        account.advance(now, passed, pending, cost)
        self._stride = min(
            self._stride, _DRAWN_SHARE * account.capacity(cost) / cost if cost else math.inf
        )
        pace = account.pace(pending, cost)
        own = self._own_paces(index, now, passed)
        usual = _allow(scales, loads, pace.steady, {at: own[at].steady for at in own})
        return usual, _allow(usual, recent, pace.burst, {at: own[at].burst for at in own})

    def _own_paces(self, index: int, now: float, passed: float) -> dict[int, SpendingPace]:
        """Return the pace of each service with a share of its own, by its place among all."""
        if not self._service_accounts:
            return {}
        own = {}
        for place, (name, demand) in enumerate(self._services.items()):
            if name in self._service_accounts:
                bucket = self._service_accounts[name][index]
                draw = demand.cost[index]
                bucket.advance(now, passed, demand.pending * draw, draw)
                own[place] = bucket.pace(demand.pending * draw, draw)
        return own

    def dump(self) -> dict[str, Any]:
        """Return the state for JSON: balances, the day's spend, learned costs."""
        self._take_in()
        return {
            "updated": self._updated,
            "cost": list(self._average.cost),
            "settled": self._average.settled,
            "canaries": self._canaries.dump(),
            "accounts": _dump_accounts(self._accounts),
            "own": {
                name: _dump_accounts(accounts) for name, accounts in self._service_accounts.items()
            },
            "services": {name: demand.dump() for name, demand in self._services.items()},
        }

    def load(
        self,
        state: Mapping[str, Any],
        pending: Mapping[str, int] | None = None,
        canaries: int = 0,
    ) -> None:
        """Restore what `dump` returned into a new controller, with the limits of its settings.

        Args:
            state: The saved state.
            pending: The drawn traces that the queue holds by service, if the caller knows them.
            canaries: The canaries that the queue holds besides.

        Raises:
            ValueError: The state is not one (or KeyError or TypeError).
        """
        updated = state["updated"]
        self._updated = None if updated is None else float(updated)
        self._average = ServiceDemand.restore_cost(state)
        _load_accounts(self._accounts, state["accounts"])
        for name, accounts in self._service_accounts.items():
            _load_accounts(accounts, state["own"].get(name, {}))
        self._canaries.load(state["canaries"], canaries)
        for name, saved in state["services"].items():
            self._services[name] = ServiceDemand.restore(saved, self._updated or 0.0)
        if pending is not None:
            for demand in self._services.values():
                demand.pending = 0
            for name, number in pending.items():
                self._find(name, self._updated or 0.0).pending += number


def _allow(
    scales: list[float], loads: list[float], pace: float, own: Mapping[int, float]
) -> list[float]:
    """Return scales with which services spend no more than a pace.

    Args:
        scales: The scale of each service until now.
        loads: Units per second that each spends at a scale of 1.
        pace: Units per second of all.
        own: Units per second that a service may spend at most, by its place.
    """
    wanted = [scale * units for scale, units in zip(scales, loads, strict=True)]
    asked = wanted
    if own:
        asked = [min(units, own.get(place, units)) for place, units in enumerate(wanted)]
    given = divide_fairly(pace, asked)
    return [
        scale * have / want if have < want else scale
        for scale, have, want in zip(scales, given, wanted, strict=True)
    ]


def _dump_accounts(accounts: _Accounts) -> dict[str, dict[str, float]]:
    return {RESOURCES[index]: account.dump() for index, account in accounts.items()}


def _load_accounts(accounts: _Accounts, saved: Mapping[str, Mapping[str, float]]) -> None:
    for index, account in accounts.items():
        if RESOURCES[index] in saved:
            account.load(saved[RESOURCES[index]])


def judge_controller(
    settings: JudgeSettings, capacity_share: Callable[[], float] = lambda: 1.0
) -> BudgetController:
    """Return the controller of the judge tier: its budget, and its slots as the capacity.

    `capacity_share` is the share of the slots that the judge takes.
    """
    usd = (
        JUDGE_PRIOR.input_tokens * settings.input_usd_per_million
        + JUDGE_PRIOR.output_tokens * settings.output_usd_per_million
    ) / 1e6
    capacity = _UTILISATION * settings.concurrency
    prior = replace(JUDGE_PRIOR, usd=usd)
    return BudgetController(
        settings.budget, capacity=capacity, prior=prior, capacity_share=capacity_share
    )


def model_controller(cores: float) -> BudgetController:
    """Return the controller of the model tier: the cores that it may take are the capacity."""
    capacity = _UTILISATION * cores
    return BudgetController(JudgeBudgetSettings(), capacity=capacity, prior=MODEL_PRIOR)
