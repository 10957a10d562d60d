"""Time lines of events against objectives, driven through budgets and engine as the agent does."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterable, Iterator, Sequence

from ragmeter.alerts.alert import Alert
from ragmeter.alerts.engine import AlertEngine
from ragmeter.alerts.error_budgets import ErrorBudgets, Objective
from ragmeter.alerts.rules import AlertRule, load_rules
from ragmeter.core.arithmetic import WEIGHT_ONE
from ragmeter.windows.state import BucketRow

from tests.alerts.fakes import FakeWindows

START = 1_760_054_400  # a whole multiple of 3 days: bucket edges are easy to see
MINUTE, HOUR, DAY = 60, 3600, 86400

BURN_RULES = [rule for rule in load_rules() if rule.burn is not None]

Event = tuple[float, bool]
"""(time, bad)"""


def availability(target: float = 0.99, lag: int = 0) -> Objective:
    return Objective("availability", target, lag)


def steady(start: float, end: float, rate: float, every: int = 0) -> Iterator[Event]:
    """`rate` events a second at even distances; every `every`-th is bad (0: none)."""
    number = round((end - start) * rate)
    for i in range(number):
        yield start + (i + 0.5) / rate, bool(every) and i % every == every - 1


def poisson(
    rng: random.Random, start: float, end: float, rate: float, share: Callable[[float], float]
) -> Iterator[Event]:
    """Events at random times, bad with the probability that `share` gives for the time."""
    at = start + rng.expovariate(rate)
    while at < end:
        yield at, rng.random() < share(at)
        at += rng.expovariate(rate)


class Saved:
    """A store: rows by key, as the state file holds them."""

    def __init__(self) -> None:
        self.rows: dict[tuple[str, str, int, int], bytes] = {}

    def write(self, rows: Iterable[BucketRow]) -> None:
        for service, segment, width, start, data in rows:
            if data is None:
                self.rows.pop((service, segment, width, start), None)
            else:
                self.rows[service, segment, width, start] = data

    def read(self) -> list[BucketRow]:
        return [(*key, data) for key, data in self.rows.items()]


def drive(
    events: Iterable[Event],
    until: float,
    objective: Objective | None = None,
    *,
    rules: Sequence[AlertRule] = tuple(BURN_RULES),
    step: float = 15,
    restart_at: Sequence[float] = (),
    weight: int = WEIGHT_ONE,
    arrival: Callable[[float], float] = lambda at: at,
) -> list[Alert]:
    """All transitions of one service. Events arrive in the order of `arrival(time)`; the rules are
    evaluated at steps of event time before the first event beyond them, as `Aggregator` does."""
    objective = objective or availability()
    budgets, windows, announced = ErrorBudgets([objective]), FakeWindows(), list[Alert]()
    windows.counts[("bot", "5m")] = 1
    engine = AlertEngine(rules, budgets=budgets)
    saved, restarts, now = Saved(), sorted(restart_at, reverse=True), None
    due: float | None = None

    def evaluate(upto: float) -> None:
        nonlocal due, budgets, engine
        while due is not None and due <= upto:
            budgets.advance(due)
            announced.extend(engine.evaluate(windows, due))
            if restarts and due >= restarts[-1]:
                restarts.pop()
                saved.write(budgets.drain())
                budgets = ErrorBudgets([objective])
                budgets.load(saved.read(), due)
                state = json.loads(json.dumps(engine.dump()))
                engine = AlertEngine(rules, budgets=budgets)
                engine.load(state)
            due += step

    for at, bad in sorted(events, key=lambda event: (arrival(event[0]), event[0])):
        now = at if now is None else max(now, at)
        if due is None:
            due = at // step * step + step
        evaluate(now)
        budgets.advance(now)
        budgets.add("bot", objective.name, at, weight, bad)
    evaluate(until)
    return announced


def of(announced: Sequence[Alert], rule: str) -> list[tuple[str, float]]:
    """(state, minutes after START) of one rule's transitions."""
    return [
        (alert.state, (alert.updated_at - START) / MINUTE)
        for alert in announced
        if alert.rule == rule
    ]


FAST, SLOW, TICKET = (
    "RagErrorBudgetBurnFast",
    "RagErrorBudgetBurnSlow",
    "RagErrorBudgetBurnTicket",
)
