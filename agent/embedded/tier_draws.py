"""Follow drawn traces from the draw to the result: slow-tier draws, their budgets, and answers to be embedded.

The traces that a slow tier has drawn: from the draw to the result, for the worker to count.

A drawn trace is durable from the commit that counts its cheap metrics to the commit that counts
what the tier has found. Not safe to use from several threads but for `owed`.

Answers of the running agent on their way to be compared: their words with the scores, what is
embedded of them later, by a slow tier.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from functools import partial
from typing import Any

from ragmeter.aggregate.aggregator import Aggregator
from ragmeter.aggregate.wordings import WordingBuilder
from ragmeter.config.scoring import SamplingSettings
from ragmeter.config.settings import Settings
from ragmeter.core.counters import CounterKey, GaugeSample
from ragmeter.core.process import Heartbeat
from ragmeter.core.score import HashedWording, ScoredTrace
from ragmeter.core.tiers import TIERS, MetricScorer, ScoringCost, Tier
from ragmeter.embedded.tier_worker import FinishedDraw, TierWorker
from ragmeter.metrics.canary.scores import is_canary_scorer
from ragmeter.metrics.judge_agreement import PROBE_SERVICE
from ragmeter.sampling.control import SamplingControl
from ragmeter.sampling.sampler import Sampler, StratumClassifier
from ragmeter.scorers.hhem.workers import MAX_ADMITTED_TRACES
from ragmeter.scorers.llm.billing import count_canary
from ragmeter.scoring.scorer import CheapScores, Scorer
from ragmeter.scoring.slow_tiers import SlowTiers
from ragmeter.store.rows import QueuedTrace, TierDraw
from ragmeter.store.sqlite import SqliteStore
from ragmeter.trace import Trace

log = logging.getLogger("ragmeter")


def is_canary_draw(pairs: Sequence[MetricScorer]) -> bool:
    """Whether these were promised for a canary."""
    return any(is_canary_scorer(scorer) for _, scorer in pairs)


class TierDraws:
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
        self._strata = StratumClassifier(settings.sampling, settings.segments)
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
            "model": MAX_ADMITTED_TRACES,  # the shortest of so many goes first
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

    def learn(self, control: SamplingControl) -> None:
        """What the next traces are drawn by."""
        self._strata.apply_control(control)

    def resample(self, settings: SamplingSettings) -> None:
        """Other rates, strata or salt, from the next trace on. Any thread may call."""
        self._sampler.update(settings)
        self._strata.update(settings)

    @property
    def pending(self) -> dict[str, int]:
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
    def pulse(self) -> Heartbeat:
        """Of the thread that scores."""
        return self._worker.pulse

    def start(self) -> None:
        self._worker.start()

    def stop(self, timeout: float) -> None:
        """Begin no further trace; those under way have `timeout` seconds."""
        self._worker.stop(timeout)

    def close(self) -> None:
        self._tiers.close()

    def take(self) -> list[FinishedDraw]:
        """What was scored since the last call; each is given once."""
        return self._worker.take()

    def extras(self) -> list[ScoredTrace]:
        """Results that no trace owes: of probes. What they cost is charged to the judge."""
        found = []
        for scored, cost in self._tiers.extras.take():
            found += scored
            controller = self._tiers.controllers.get("judge")
            if controller is not None:
                controller.charge(PROBE_SERVICE, cost, self._clock())
        return found

    def instruments(self) -> Sequence[Mapping[str, str]]:
        return self._tiers.instruments()

    def gauges(self, label: Callable[[str], str]) -> list[GaugeSample]:
        """How the tiers are, and the scale of the sampling rates by tier and service; `label`
        gives the bounded name of a service, the lowest scale of those that share one counts."""
        scales: dict[tuple[tuple[str, str], ...], float] = {}
        for tier, controller in self._tiers.controllers.items():
            for service, scale in controller.scales().items():
                labels = (("tier", tier), ("service", label(service)))
                scales[labels] = min(scale, scales.get(labels, scale))
        found: list[GaugeSample] = [("ragmeter_sampling_scale", *item) for item in scales.items()]
        return [*found, *self._tiers.gauges()]

    def restore(self, meta: Mapping[str, Any]) -> Counter[MetricScorer]:
        """Begin with what the store holds; the results that are owed, by pair."""
        owed: Counter[Tier] = Counter()
        results: Counter[MetricScorer] = Counter()
        pending: dict[Tier, Counter[str]] = {tier: Counter() for tier in TIERS}
        canaries: Counter[Tier] = Counter()
        for row in self._store.waiting():
            owed[row.tier] += row.number
            if is_canary_draw(row.pairs):
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

    def draws(self, queued: QueuedTrace, found: CheapScores, *, late: bool) -> list[TierDraw]:
        """The rows of a trace for the tiers that have drawn it, before they are committed.

        Where the trace is too late for every window, or live traffic has filled the table, its
        results are known at once and nothing is asked: `found` gets them.
        """
        draws = []
        for tier, probability in list(found.drawn.items()):
            pairs = self.scorer.pending_pairs(found, tier)
            if late or (self.live and self._owed[tier] >= self._most):
                self.scorer.shed(found, tier)
                self.settle(tier, found.trace.service, ScoringCost(), found.trace.canary)
            else:
                self._owed[tier] += 1
                draws.append(
                    TierDraw(
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

    def embed(self, queued: QueuedTrace, service: str) -> TierDraw | None:
        """The row of a trace whose answer is to be embedded, before it is committed; None where
        live traffic has filled the table."""
        if self.live and self._owed["embedding"] >= self._most:
            return None
        self._owed["embedding"] += 1
        return TierDraw("embedding", service, queued.timestamp, 1.0, (), queued.body)

    @property
    def embeds(self) -> bool:
        """Whether answers are to be embedded."""
        return "embedding" in self._tiers.scorers

    def settle(self, tier: Tier, service: str, cost: ScoringCost, canary: bool) -> None:
        """A drawn trace is done. Before `state` is taken for the commit that takes it off the
        table: later, a kill in between would forget what it cost."""
        controller = self._tiers.controllers.get(tier)
        if canary:
            count_canary(self._tiers.spending.add, cost)
        if controller is None or not self.live:  # what a replay costs is no debt of live traffic
            return
        settle = controller.settle_canary if canary else controller.settle
        settle(service, cost, self._clock())

    def take_spending(self) -> Mapping[CounterKey, float]:
        """What calls have cost since the last time this was asked, by counter."""
        return self._tiers.spending.take()

    def state(self) -> dict[str, Any]:
        """JSON-able: what `restore` and the tiers want to find after a restart."""
        controllers = self._tiers.controllers
        budgets = {tier: controller.dump() for tier, controller in controllers.items()}
        return {**self._tiers.state(), "budgets": budgets}

    def committed(self, drawn: Sequence[TierDraw], finished: Sequence[FinishedDraw]) -> None:
        """These rows are in the table now, and those are off it."""
        for one in finished:
            self._owed[one.drawn.draw.tier] -= 1
        if self.live:
            for tier, controller in self._tiers.controllers.items():
                controller.backlog(self._owed[tier], self._most)
        if drawn:
            self._worker.wake()


class AnswerComparing:
    """Raises ValueError where the key of the hashes cannot be read."""

    def __init__(self, settings: Settings, slow: TierDraws) -> None:
        self._wordings = WordingBuilder(settings.consistency, settings.privacy)
        self._slow = slow

    def wording(self, trace: Trace, aggregator: Aggregator) -> HashedWording | str:
        """Of the answer, or why there is none: see `Wordings.of`."""
        return self._wordings.of(trace, partial(self._remembers, aggregator, trace.service))

    @staticmethod
    def _remembers(aggregator: Aggregator, service: str, query: str) -> bool:
        return aggregator.consistency.wants(aggregator.label(service), query)

    def draws(
        self, queued: QueuedTrace, scored: ScoredTrace, aggregator: Aggregator
    ) -> list[TierDraw]:
        """The row of a trace that was applied just now, whose answer is remembered and is to be
        embedded."""
        wording = scored.wording
        if isinstance(wording, str) or not self._slow.embeds:
            return []
        draw = self._slow.embed(queued, scored.service)
        if draw is None:
            aggregator.embedded(scored.service, wording, scored.timestamp, "", "shed")
            return []
        return [draw]

    def embedded(self, one: FinishedDraw, aggregator: Aggregator) -> None:
        """Count what came of a row that `draws` has given."""
        draw, trace = one.drawn.draw, one.trace
        said: HashedWording | str = "" if trace is None else self._wordings.of(trace)
        context = "" if trace is None else self._wordings.context(trace)
        aggregator.embedded(draw.service, said, draw.timestamp, context, one.vectors)
