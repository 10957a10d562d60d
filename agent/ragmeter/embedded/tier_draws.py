"""Draws of the slow tiers in the embedded agent, from the draw to the result.

A draw is durable from the commit that counts the cheap scores of its trace to the commit that
counts the results of the tier.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from typing import Any

from ragmeter.config.settings import Settings
from ragmeter.core.counters import GaugeSample
from ragmeter.core.score import ScoredTrace
from ragmeter.core.tiers import TIERS, MetricScorer, ScoringCost, Tier
from ragmeter.embedded.tier_worker import FinishedDraw, TierWorker
from ragmeter.metrics.canary.specs import is_canary_scorer
from ragmeter.metrics.judge_agreement import PROBE_SERVICE
from ragmeter.sampling.control import SamplingControl
from ragmeter.sampling.sampler import overload_scale
from ragmeter.scorers.llm.billing import count_canary
from ragmeter.scoring.scorer import CheapScores
from ragmeter.scoring.slow_tiers import SlowTiers, TierSampling, tier_places
from ragmeter.scoring.threads import SamplingTerms
from ragmeter.store.rows import QueuedTrace, TierDraw
from ragmeter.store.sqlite import SqliteStore

log = logging.getLogger(__name__)

_BUILTIN_LABELS = (("tier", "builtin"), ("service", ""))  # the same for all services


def is_canary_draw(pairs: Sequence[MetricScorer]) -> bool:
    """Return whether these are the pairs of a canary's draw."""
    return any(is_canary_scorer(scorer) for _, scorer in pairs)


class TierDraws(TierSampling):
    """Draws for the slow tiers, their budgets, and the thread that scores them.

    It belongs to the worker's thread, but `pending`, `full` and `resample` are safe from any.

    Args:
        clock: Unix time.
        on_finished: Called from another thread when `thread.take` has something.
    """

    def __init__(
        self,
        settings: Settings,
        store: SqliteStore,
        tiers: SlowTiers,
        *,
        clock: Callable[[], float],
        on_finished: Callable[[], None],
    ) -> None:
        super().__init__(settings, tiers.scorers, tiers.controllers, clock, tiers.replays)
        self._store = store
        self.tiers = tiers
        self._limit = settings.limits.drawn
        self._queue = settings.limits.queue
        self.live = False
        self._pending: Counter[Tier] = Counter()
        self.thread = TierWorker(
            store,
            tiers.scorers,
            tier_places(settings),
            on_finished=on_finished,
            jobs=tiers.jobs,
            live=lambda: self.live,
        )

    @property
    def live(self) -> bool:
        """Whether live traffic has been seen.

        A replay waits for its judge and spends what its rates say; live traffic is paced by budget
        and capacity, and watched by probes.
        """
        return self._sampler.paced

    @live.setter
    def live(self, value: bool) -> None:
        self._sampler.paced = self.tiers.probes.live = value

    def sampling_terms(self, depth: int, control: SamplingControl) -> SamplingTerms:
        """Return the terms of the built-in tier for the next traces of the queue.

        Args:
            depth: How many traces are in the queue.
            control: The last control record.
        """
        settings = self.terms.settings
        old = self.terms
        scale = overload_scale(depth / self._queue) if self.live else 1.0
        rates = [settings.builtin, *(rates.builtin for rates in settings.services.values())]
        # where every trace is drawn, no stratum matters: the threads need no record
        if scale * min(rates) >= 1:
            control = SamplingControl()
        new = SamplingTerms(settings, control, scale)
        if new != old:
            self.terms = new
        return self.terms

    def apply_terms(self, terms: SamplingTerms) -> None:
        """Draw the built-in tier by the terms under which the next traces were taken."""
        self._sampler.builtin_scale = terms.scale

    @property
    def pending(self) -> dict[str, int]:
        """The number of traces that wait for each tier."""
        return {str(tier): number for tier, number in dict(self._pending).items()}

    @property
    def full(self) -> bool:
        """Whether some tier has as many pending draws as `limits.drawn` allows."""
        return any(number >= self._limit for number in self._pending.values())

    def take_probe_results(self) -> list[ScoredTrace]:
        """Return the results of probes since the last call; their cost is charged to the judge."""
        taken = []
        for scored, cost in self.tiers.probes.take():
            taken += scored
            self.charge(PROBE_SERVICE, cost)
        return taken

    def gauges(self, label: Callable[[str], str]) -> list[GaugeSample]:
        """Return the gauges of the tiers; `label` gives the bounded name of a service."""
        builtin = ("ragmeter_sampling_scale", _BUILTIN_LABELS, self.terms.scale)
        return [builtin, *self.scale_gauges(label), *self.tiers.judges.gauges()]

    def restore(self, meta: Mapping[str, Any]) -> Counter[MetricScorer]:
        """Start from what the store holds; return the number of pending results by pair."""
        pending: Counter[Tier] = Counter()
        results: Counter[MetricScorer] = Counter()
        services: dict[Tier, Counter[str]] = {tier: Counter() for tier in TIERS}
        canaries: Counter[Tier] = Counter()
        for row in self._store.waiting():
            pending[row.tier] += row.number
            if is_canary_draw(row.pairs):
                canaries[row.tier] += row.number
            else:
                services[row.tier][row.service] += row.number
            results.update(dict.fromkeys(row.pairs, row.number))
        self._pending = pending  # in one step: other threads read it
        for tier, controller in self.tiers.controllers.items():
            saved = meta.get("budgets", {}).get(tier)
            try:
                if saved is not None:
                    # whole or not at all
                    deepcopy(controller).load(saved, services[tier], canaries[tier])
                    controller.load(saved, services[tier], canaries[tier])
            except (ValueError, KeyError, TypeError, AttributeError) as error:
                log.warning("the saved budget of the %s tier is ignored: %r", tier, error)
        return results

    def make_rows(
        self, queued: QueuedTrace, cheap: CheapScores, *, late: bool
    ) -> tuple[CheapScores, list[TierDraw]]:
        """Return the trace and the rows to commit for the tiers that drew it.

        If it is too `late` for every window, or live traffic has filled the table, its results are
        shed instead.
        """
        rows = []
        for tier, terms in cheap.draws.items():
            pairs = self.scorer.pending_pairs(cheap, tier)
            service = cheap.trace.service
            if late or (self.live and self._pending[tier] >= self._limit):
                cheap = self.scorer.shed(cheap, tier)
                self.record_cost(tier, service, ScoringCost(), cheap.trace.canary)
                continue
            self._pending[tier] += 1
            values = {metric: cheap.cheap[metric] for metric, _ in pairs if metric in cheap.cheap}
            rows.append(
                TierDraw(
                    tier=tier,
                    service=service,
                    timestamp=queued.timestamp,
                    probability=terms.probability,
                    pairs=pairs,
                    body=queued.body,
                    stratum=terms.stratum,
                    cheap=values,
                )
            )
        return cheap, rows

    def record_cost(self, tier: Tier, service: str, cost: ScoringCost, canary: bool) -> None:
        """Record the cost of a draw that is done.

        Call it before `state` is taken for the commit that removes the draw from the table: a kill
        in between would forget the cost.
        """
        if canary:
            count_canary(self.tiers.spending.add, cost)
        if self.live:  # a replay costs live traffic nothing
            self.settle(tier, service, cost, canary=canary)
        elif tier in self.tiers.replays:
            self.tiers.replays[tier].settle(cost)

    def state(self) -> dict[str, Any]:
        """Return what `restore` and the tiers need after a restart, JSON-able."""
        controllers = self.tiers.controllers
        budgets = {tier: controller.dump() for tier, controller in controllers.items()}
        return {**self.tiers.state(), "budgets": budgets}

    def committed(self, draws: Sequence[TierDraw], finished: Sequence[FinishedDraw]) -> None:
        """Take note that `draws` are in the table now and `finished` were removed from it."""
        for done in finished:
            self._pending[done.row.draw.tier] -= 1
        if self.live:
            for tier, controller in self.tiers.controllers.items():
                controller.backlog(self._pending[tier], self._limit)
            self._overloads.report()
        if draws:
            self.thread.wake()
