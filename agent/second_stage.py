"""The traces that a slow tier has drawn: from the draw to the result, for the worker to count.

A drawn trace is durable from the commit that counts its cheap metrics to the commit that counts
what the tier has found. Not safe to use from several threads but for `owed`.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from typing import Any

from agent.config import Sampling, Settings
from agent.control import Control
from agent.counters import CounterKey, Gauge
from agent.judge.counting import count_canary
from agent.metrics.canary.judged import is_of_canaries
from agent.metrics.judges import PROBES
from agent.models.workers import ADMITTED
from agent.pulse import Pulse
from agent.sampling import Sampler
from agent.score import Scored, Scorer
from agent.slow_tiers import SlowTiers
from agent.store.rows import Draw, Queued
from agent.store.sqlite import SqliteStore
from agent.strata import Strata
from agent.tier_worker import Finished, TierWorker
from agent.tiers import TIERS, Cost, Pair, Tier
from agent.trace import ScoredTrace

__all__ = ["SecondStage", "of_canaries"]

log = logging.getLogger("ragmeter")


def of_canaries(pairs: Sequence[Pair]) -> bool:
    """Whether these were promised for a canary."""
    return any(is_of_canaries(scorer) for _, scorer in pairs)


class SecondStage:
    """Draws for the slow tiers, runs them, and keeps their budgets.

    `finished` is called, from another thread, when `take` has something. `clock` is Unix time.
    """

    def __init__(
        self,
        settings: Settings,
        store: SqliteStore,
        tiers: SlowTiers,
        *,
        clock: Callable[[], float],
        finished: Callable[[], None],
    ) -> None:
        self._store = store
        self._tiers = tiers
        self._clock = clock
        self._most = settings.limits.drawn
        self._sampler = Sampler(settings.sampling, tiers.controllers, clock)
        self._strata = Strata(settings.sampling, settings.segments)
        self.live = False
        self.scorer = Scorer(
            settings.builtin_scorers,
            sampler=self._sampler,
            # a tier that owes no results draws none of the traces
            tiers={name: tier.pairs for name, tier in tiers.scorers.items() if tier.pairs},
            strata=self._strata,
            ks=settings.judge.k,
            judge_canaries=settings.judge.budget.canaries > 0,
        )
        self._owed: Counter[Tier] = Counter()
        # all, always: a tier that is no longer configured still owes an answer to what it had
        # drawn, and the table is not read before `restore`, which may find it broken
        in_flight: dict[Tier, int] = {
            "judge": settings.judge.concurrency,
            "model": ADMITTED,  # the shortest of so many goes first
            "embedding": settings.consistency.embeddings.concurrency,
        }
        self._worker = TierWorker(
            store,
            tiers.scorers,
            in_flight,
            finished=finished,
            also=tiers.jobs,
            live=lambda: self.live,
        )

    @property
    def live(self) -> bool:
        """Whether live traffic has been seen. A replay waits for its judge and spends what its
        rates say; live traffic is paced by budget and capacity, and watched by probes."""
        return self._sampler.paced

    @live.setter
    def live(self, value: bool) -> None:
        self._sampler.paced = self._tiers.extras.live = value

    def learn(self, control: Control) -> None:
        """What the next traces are drawn by."""
        self._strata.learn(control)

    def resample(self, settings: Sampling) -> None:
        """Other rates, strata or salt, from the next trace on. Any thread may call."""
        self._sampler.update(settings)
        self._strata.update(settings)

    @property
    def owed(self) -> dict[str, int]:
        """How many traces wait for each tier."""
        return {str(tier): number for tier, number in dict(self._owed).items()}

    @property
    def full(self) -> bool:
        return any(number >= self._most for number in self._owed.values())

    @property
    def fatal(self) -> str | None:
        """Why the slow tiers have ended."""
        return self._worker.fatal

    @property
    def pulse(self) -> Pulse:
        """Of the thread that scores."""
        return self._worker.pulse

    def start(self) -> None:
        self._worker.start()

    def stop(self, timeout: float) -> None:
        """Begin no further trace; those under way have `timeout` seconds."""
        self._worker.stop(timeout)

    def close(self) -> None:
        self._tiers.close()

    def take(self) -> list[Finished]:
        """What was scored since the last call; each is given once."""
        return self._worker.take()

    def extras(self) -> list[ScoredTrace]:
        """Results that no trace owes: of probes. What they cost is charged to the judge."""
        found = []
        for scored, cost in self._tiers.extras.take():
            found += scored
            controller = self._tiers.controllers.get("judge")
            if controller is not None:
                controller.charge(PROBES, cost, self._clock())
        return found

    def instruments(self) -> Sequence[Mapping[str, str]]:
        return self._tiers.instruments()

    def gauges(self, label: Callable[[str], str]) -> list[Gauge]:
        """How the tiers are, and the scale of the sampling rates by tier and service; `label`
        gives the bounded name of a service, the lowest scale of those that share one counts."""
        scales: dict[tuple[tuple[str, str], ...], float] = {}
        for tier, controller in self._tiers.controllers.items():
            for service, scale in controller.scales().items():
                labels = (("tier", tier), ("service", label(service)))
                scales[labels] = min(scale, scales.get(labels, scale))
        found: list[Gauge] = [("ragmeter_sampling_scale", *item) for item in scales.items()]
        return [*found, *self._tiers.gauges()]

    def restore(self, meta: Mapping[str, Any]) -> Counter[Pair]:
        """Begin with what the store holds; the results that are owed, by pair."""
        owed: Counter[Tier] = Counter()
        results: Counter[Pair] = Counter()
        pending: dict[Tier, Counter[str]] = {tier: Counter() for tier in TIERS}
        canaries: Counter[Tier] = Counter()
        for row in self._store.waiting():
            owed[row.tier] += row.number
            if of_canaries(row.pairs):
                canaries[row.tier] += row.number
            else:
                pending[row.tier][row.service] += row.number
            results.update(dict.fromkeys(row.pairs, row.number))
        self._owed = owed  # in one step: other threads read it
        for tier, controller in self._tiers.controllers.items():
            saved = meta.get("budgets", {}).get(tier)
            try:
                if saved is not None:
                    # whole or not at all
                    deepcopy(controller).load(saved, pending[tier], canaries[tier])
                    controller.load(saved, pending[tier], canaries[tier])
            except (ValueError, KeyError, TypeError, AttributeError) as error:
                log.warning("the budget of the %s tier starts anew: %r", tier, error)
        return results

    def draws(self, queued: Queued, found: Scored, *, late: bool) -> list[Draw]:
        """The rows of a trace for the tiers that have drawn it, before they are committed.

        Where the trace is too late for every window, or live traffic has filled the table, its
        results are known at once and nothing is asked: `found` gets them.
        """
        draws = []
        for tier, probability in list(found.drawn.items()):
            pairs = self.scorer.promised(found, tier)
            if late or (self.live and self._owed[tier] >= self._most):
                self.scorer.shed(found, tier)
                self.settle(tier, found.trace.service, Cost(), found.trace.canary)
            else:
                self._owed[tier] += 1
                draws.append(
                    Draw(
                        tier,
                        found.trace.service,
                        queued.timestamp,
                        probability,
                        pairs,
                        queued.body,
                        found.strata[tier],
                        {
                            metric: found.cheap[metric]
                            for metric, _ in pairs
                            if metric in found.cheap
                        },
                    )
                )
        return draws

    def embed(self, queued: Queued, service: str) -> Draw | None:
        """The row of a trace whose answer is to be embedded, before it is committed; None where
        live traffic has filled the table."""
        if self.live and self._owed["embedding"] >= self._most:
            return None
        self._owed["embedding"] += 1
        return Draw("embedding", service, queued.timestamp, 1.0, (), queued.body)

    @property
    def embeds(self) -> bool:
        """Whether answers are to be embedded."""
        return "embedding" in self._tiers.scorers

    def settle(self, tier: Tier, service: str, cost: Cost, canary: bool) -> None:
        """A drawn trace is done. Before `state` is taken for the commit that takes it off the
        table: later, a kill in between would forget what it cost."""
        controller = self._tiers.controllers.get(tier)
        if canary:
            count_canary(self._tiers.spending.add, cost)
        if controller is None or not self.live:  # what a replay costs is no debt of live traffic
            return
        settle = controller.settle_canary if canary else controller.settle
        settle(service, cost, self._clock())

    def spent(self) -> Mapping[CounterKey, float]:
        """What calls have cost since the last time this was asked, by counter."""
        return self._tiers.spending.take()

    def state(self) -> dict[str, Any]:
        """JSON-able: what `restore` and the tiers want to find after a restart."""
        controllers = self._tiers.controllers
        budgets = {tier: controller.dump() for tier, controller in controllers.items()}
        return {**self._tiers.state(), "budgets": budgets}

    def committed(self, drawn: Sequence[Draw], finished: Sequence[Finished]) -> None:
        """These rows are in the table now, and those are off it."""
        for one in finished:
            self._owed[one.drawn.draw.tier] -= 1
        if self.live:
            for tier, controller in self._tiers.controllers.items():
                controller.backlog(self._owed[tier], self._most)
        if drawn:
            self._worker.wake()
