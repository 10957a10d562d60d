"""The tiers that score a sample of the traces, as one thing that the worker owns."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from typing import Any

from agent.budget.controller import BudgetController
from agent.counters import CounterKey, Gauge
from agent.tiers import Cost, Tier, TierScorer
from agent.trace import ScoredTrace

__all__ = ["SlowTiers", "Spending"]


class Spending:
    """Counts of calls, tokens and money, added in the tiers' thread and taken by the worker, which
    makes them durable. Safe to use from several threads."""

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._counts: dict[CounterKey, float] = {}

    def add(self, name: str, labels: tuple[tuple[str, str], ...], by: float = 1) -> None:
        with self._mutex:
            self._counts[name, labels] = self._counts.get((name, labels), 0.0) + by

    def take(self) -> dict[CounterKey, float]:
        """What was added since the last call."""
        with self._mutex:
            found, self._counts = self._counts, {}
        return found


class Extras:
    """Results that no trace of the queue owes (probes of the judge), on their way to the worker.

    `state` is what the last of them said of where its source stands, JSON-able. `live`: whether
    live traffic has been seen, which is when probes mean something.
    """

    def __init__(self, state: Mapping[str, Any] | None = None) -> None:
        self._found: deque[tuple[list[ScoredTrace], Cost, Mapping[str, Any]]] = deque()
        self.state = state or {}
        self.live = False

    def put(self, scored: list[ScoredTrace], cost: Cost, state: Mapping[str, Any]) -> None:
        """`state` must not change any more."""
        self._found.append((scored, cost, state))

    def take(self) -> Iterator[tuple[list[ScoredTrace], Cost]]:
        """What came since the last time; `state` follows."""
        while self._found:
            scored, cost, self.state = self._found.popleft()
            yield scored, cost


class SlowTiers:
    """`scorers` by tier, and what belongs to them.

    `spending` is what their calls add to. `instruments` gives the labels of each judge as it is
    served now, `gauges` how they are. `jobs` run beside the scoring in the same event loop;
    `extras` bring results of their own. `controllers` keep the spend of a tier within its budget.
    `state` gives what the scorers want to find again after a restart, JSON-able by name. `close`
    is called after the last trace.
    """

    def __init__(
        self,
        scorers: Mapping[Tier, TierScorer] | None = None,
        *,
        spending: Spending | None = None,
        instruments: Callable[[], Sequence[Mapping[str, str]]] = lambda: (),
        gauges: Callable[[], Sequence[Gauge]] = lambda: (),
        jobs: Sequence[Callable[[], Coroutine[Any, Any, None]]] = (),
        controllers: Mapping[Tier, BudgetController] | None = None,
        extras: Extras | None = None,
        state: Callable[[], Mapping[str, Any]] = dict,
        close: Callable[[], None] = lambda: None,
    ) -> None:
        self.scorers = dict(scorers or {})
        self.spending = spending or Spending()
        self.instruments = instruments
        self.gauges = gauges
        self.jobs = tuple(jobs)
        self.controllers = dict(controllers or {})
        self.extras = extras or Extras()
        self.state = state
        self.close = close


MakeTiers = Callable[[Mapping[str, Any]], SlowTiers]
"""Makes the slow tiers from what `state` gave before a restart; the state file is open by then."""
