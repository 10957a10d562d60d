"""Build the slow tiers (judge, local model) and account for their spending."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from ragmeter.config.scoring import HhemSettings, SamplingSettings
from ragmeter.config.settings import Settings
from ragmeter.core.counters import CounterKey, GaugeSample
from ragmeter.core.judging import MAIN_JUDGE
from ragmeter.core.score import Score, ScoredTrace
from ragmeter.core.tiers import LimitedScorer, MetricScorer, ScoringCost, Tier, TierScorer
from ragmeter.metrics.canary.specs import canary_judge_pairs, relabel_canary_scores
from ragmeter.metrics.costs import list_prices
from ragmeter.metrics.missing_fields import restore_missing_reasons, visible_trace
from ragmeter.sampling.budget_controller import BudgetController, judge_controller, model_controller
from ragmeter.sampling.control import SamplingControl
from ragmeter.sampling.sampler import ReplayBudget, Sampler, StratumClassifier
from ragmeter.scorers.hhem.workers import MAX_ADMITTED_TRACES, NICENESS, CpuWorkers
from ragmeter.scorers.llm.billing import Attempt, count_attempt, count_verdict
from ragmeter.scoring.scorer import Scorer
from ragmeter.scoring.threads import SamplingTerms
from ragmeter.trace import Trace

if TYPE_CHECKING:  # most agents have no judge, whose clients are an eighth of their start
    from ragmeter.scorers.judge.cache import VerdictStore
    from ragmeter.scorers.judge.probes import ProbeRunner
    from ragmeter.scoring.judges import ConfiguredJudges

log = logging.getLogger(__name__)

_PROBE_CHECK_SECONDS = 5.0  # between two checks whether traffic is live and probes are due


async def score_tier(scorer: TierScorer, trace: Trace, cost: ScoringCost) -> list[Score]:
    """Score a trace by a tier that does not see hidden or truncated fields.

    Scores that need such a field carry the trace's reason for its absence.
    """
    return restore_missing_reasons(trace, await scorer.score(visible_trace(trace), cost))


async def score_live_tier(scorer: TierScorer, trace: Trace, cost: ScoringCost) -> list[Score]:
    """Score a trace of live traffic by a tier; scores of a canary get the names of canaries."""
    scores = await score_tier(scorer, trace, cost)
    return relabel_canary_scores(trace, scores) if trace.canary else scores


def answered_pairs(scorer: TierScorer, trace: Trace) -> set[MetricScorer]:
    """Return the pairs that `score_live_tier` may return for a trace."""
    return set(canary_judge_pairs(scorer.pairs) if trace.canary else scorer.pairs)


def build_controllers(
    settings: Settings, scorers: Mapping[Tier, TierScorer]
) -> dict[Tier, BudgetController]:
    """Build the controllers that keep the spending of these tiers within their budgets."""
    controllers: dict[Tier, BudgetController] = {}
    if "judge" in scorers:
        judge = scorers["judge"]
        share = judge.capacity_share if isinstance(judge, LimitedScorer) else lambda: 1.0
        controllers["judge"] = judge_controller(settings.judge, share)
    if "model" in scorers:
        controllers["model"] = model_controller(
            settings.models.cpu_share if settings.hhem.path is None else settings.hhem.workers
        )
    return controllers


class OverloadLog:
    """Logs that a tier draws less than configured without a budget to blame, once each time."""

    def __init__(self, controllers: Mapping[Tier, BudgetController]) -> None:
        self._controllers = controllers
        self._logged: dict[Tier, str] = {}

    def report(self) -> None:
        """Log what has changed since the last call."""
        for tier, controller in self._controllers.items():
            reason = controller.overload
            if reason == self._logged.get(tier, ""):
                continue
            self._logged[tier] = reason
            if reason:
                scale = min(controller.scales().values(), default=1.0)
                log.warning("the %s tier draws at %.2g of its rates: %s", tier, scale, reason)
            else:
                log.info("the %s tier draws at its rates again", tier)


def tier_places(settings: Settings) -> dict[Tier, int]:
    """Return how many traces each tier scores at a time.

    All tiers, always: one that is no longer configured may have pending draws.
    """
    return {
        "judge": settings.judge.concurrency,
        "model": MAX_ADMITTED_TRACES,  # the shortest of so many goes first
    }


class TierSampling:
    """Which traces the slow tiers draw, as the settings and the tiers' controllers have it.

    `terms` are those of the built-in tier, `strata` classifies traces, `scorer` draws.
    """

    def __init__(
        self,
        settings: Settings,
        scorers: Mapping[Tier, TierScorer],
        controllers: Mapping[Tier, BudgetController],
        clock: Callable[[], float],
        replays: Mapping[Tier, ReplayBudget] | None = None,
    ) -> None:
        self.terms = SamplingTerms(settings.sampling)
        self.strata = StratumClassifier(settings.segments)
        self._clock = clock
        self._controllers = controllers
        self._sampler = Sampler(settings.sampling, controllers, clock, replays)
        self._overloads = OverloadLog(controllers)
        self.scorer = Scorer(
            settings.builtin_scorers,
            sampler=self._sampler,
            tiers={tier: scorer.pairs for tier, scorer in scorers.items()},
            strata=self.strata,
            ks=settings.judge.k,
            judge_canaries=settings.judge.budget.canaries > 0,
            people=settings.sampling.draws_people,
        )
        self.scorer.prices = list_prices().with_own(settings.costs.as_rows())

    def resample(self, settings: SamplingSettings) -> None:
        """Draw by other rates from the next trace on."""
        self._sampler.update(settings)
        self.terms = replace(self.terms, settings=settings)

    def apply_control(self, control: SamplingControl) -> None:
        """Draw by other knowledge of services, versions and segments."""
        self.strata.apply_control(control)

    def scale_gauges(self, label: Callable[[str], str]) -> list[GaugeSample]:
        """Return the scale of the sampling rates by tier and service.

        `label` bounds the names of services; of services that share one, the lowest scale counts.
        """
        scales: dict[tuple[tuple[str, str], ...], float] = {}
        for tier, controller in self._controllers.items():
            for service, scale in controller.scales().items():
                labels = (("tier", tier), ("service", label(service)))
                scales[labels] = min(scale, scales.get(labels, scale))
        return [("ragmeter_sampling_scale", *item) for item in scales.items()]

    def settle(self, tier: Tier, service: str, cost: ScoringCost, *, canary: bool) -> None:
        """Take the cost of a draw that is done off the budget of its tier."""
        controller = self._controllers.get(tier)
        if controller is not None:
            settle = controller.settle_canary if canary else controller.settle
            settle(service, cost, self._clock())

    def charge(self, service: str, cost: ScoringCost) -> None:
        """Charge the judge's budget with requests beside the traces."""
        controller = self._controllers.get("judge")
        if controller is not None:
            controller.charge(service, cost, self._clock())


class TierSpending:
    """Counts of calls, tokens and money of the slow tiers; safe from any thread."""

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._counts: dict[CounterKey, float] = {}

    def add(self, name: str, labels: tuple[tuple[str, str], ...], by: float = 1) -> None:
        """Add to a counter."""
        with self._mutex:
            self._counts[name, labels] = self._counts.get((name, labels), 0.0) + by

    def take(self) -> dict[CounterKey, float]:
        """Return the counts since the last call; the caller makes them durable."""
        with self._mutex:
            counts, self._counts = self._counts, {}
        return counts


class ProbeResults:
    """Results of judge probes on their way to the worker.

    Attributes:
        state: The state after the results that were taken, JSON-able.
        live: Whether live traffic has been seen; probes run only then.
    """

    def __init__(self, state: Mapping[str, Any] | None = None) -> None:
        self._results: deque[tuple[list[ScoredTrace], ScoringCost, Mapping[str, Any]]] = deque()
        self.state = state or {}
        self.live = False

    def take(self) -> Iterator[tuple[list[ScoredTrace], ScoringCost]]:
        """Yield the results since the last call with their cost; `state` follows."""
        while self._results:
            scored, cost, self.state = self._results.popleft()
            yield scored, cost

    async def run(self, runner: ProbeRunner) -> None:
        """Judge the probes whenever they are due, until cancelled."""
        while True:
            if self.live and runner.due:
                cost = ScoringCost()
                scored = await runner.run(cost)
                self._results.append((scored, cost, deepcopy(runner.dump())))
            await asyncio.sleep(_PROBE_CHECK_SECONDS)


class NoJudges:
    """Takes the place of `ConfiguredJudges` where no judge is configured."""

    probes: ProbeRunner | None = None

    def state(self) -> dict[str, Any]:
        """Return what the judges need after a restart."""
        return {}

    def gauges(self) -> list[GaugeSample]:
        """Return whether the servers of the judges are up."""
        return []

    def labels(self) -> list[dict[str, str]]:
        """Return the labels of each judge and prompt."""
        return []


@dataclass(frozen=True, slots=True)
class SlowTiers:
    """The slow tiers of an agent and what belongs to them.

    Args:
        controllers: Keep the spending of a tier within its budget.
        replays: Keep the draws of a tier in a replay within its share.
        jobs: Run beside the scoring in the same event loop.
        close: Called after the last trace.
    """

    scorers: Mapping[Tier, TierScorer] = field(default_factory=dict)
    controllers: Mapping[Tier, BudgetController] = field(default_factory=dict)
    replays: Mapping[Tier, ReplayBudget] = field(default_factory=dict)
    spending: TierSpending = field(default_factory=TierSpending)
    probes: ProbeResults = field(default_factory=ProbeResults)
    jobs: Sequence[Callable[[], Coroutine[Any, Any, None]]] = ()
    judges: ConfiguredJudges | NoJudges = field(default_factory=NoJudges)
    close: Callable[[], None] = lambda: None

    def state(self) -> dict[str, Any]:
        """Return what the tiers need after a restart, JSON-able by name."""
        return {"judges": {**self.judges.state(), "probes": self.probes.state}}


# Builds the slow tiers from the saved state of an earlier run; the state file is open by then.
MakeTiers = Callable[[Mapping[str, Any]], SlowTiers]


class ConfiguredTiers:
    """The judge and the local model of the settings, for one event loop.

    Loading a model may take seconds.

    Args:
        verdicts: Remembers verdicts of the judge; in memory by default.
        saved: What `judges.state` returned before a restart.
        count: Called with the source of each verdict (see `CachedJudge`).
        watched: Whether the traces are live traffic: probes watch the judge, canaries are not
            judged twice, and the rates of sampling hold, so that a rate of 0 loads no model.
        background: Whether the local model lets whatever else runs on the machine go first.

    Attributes:
        scorers: The tiers that are configured.
        judges: The judge, its second opinion and its probes.

    Raises:
        ragmeter.scorers.hhem.model.ModelError: The model cannot be loaded.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        verdicts: VerdictStore | None = None,
        saved: Mapping[str, Any] | None = None,
        observe: Callable[[Attempt], None] = lambda attempt: None,
        count: Callable[[str], None] = lambda source: None,
        watched: bool = False,
        background: bool = False,
    ) -> None:
        self.scorers: dict[Tier, TierScorer] = {}
        self.judges: ConfiguredJudges | NoJudges = NoJudges()
        if settings.judge.base_url is not None:
            from ragmeter.scoring.judges import ConfiguredJudges

            judges = self.judges = ConfiguredJudges(
                settings,
                verdicts=verdicts,
                saved=saved,
                observe=observe,
                count=count,
                watched=watched,
            )
            self.scorers["judge"] = judges.tier
        if watched and not settings.sampling.model:
            log.info("the local model is off: sampling.model is 0")
        elif model := build_model_tier(settings, NICENESS if background else 0):
            self.scorers["model"] = model


def build_model_tier(settings: Settings, niceness: int = 0) -> TierScorer | None:
    """Build the tier of the one local model that the settings name, by default the embedded one.

    `niceness` is added to that of the process for the threads of the model.
    """
    models = settings.models
    if settings.hhem.path is None and not models.cpu_share:
        return None
    from ragmeter.scorers.hhem.model import HhemModel  # late: they need an extra
    from ragmeter.scorers.hhem.tier import HhemTier
    from ragmeter.scorers.mini.model import (
        BUNDLED_FOLDER,
        TokenModel,
        load_model,
        missing_package,
    )
    from ragmeter.scorers.mini.tier import TokenTier

    if settings.hhem.path is not None:
        hhem = HhemModel(settings.hhem.path, settings.hhem.int8)
        workers = CpuWorkers(settings.hhem.workers, niceness=niceness)
        return HhemTier(hhem, settings.hhem, workers=workers)
    if models.path is None and (package := missing_package()):
        log.warning(
            "grounding by the embedded model is off: the package %s is missing"
            " (pip install '.[model]' in a clone of ragmeter)",
            package,
        )
        return None
    model = load_model(models.path or BUNDLED_FOLDER)
    if models.path is not None:
        model.open()  # the embedded one is opened at its first trace
    # one, so that no model takes more than a core
    workers = CpuWorkers(1, niceness=niceness, share=models.cpu_share)
    if isinstance(model, TokenModel):
        return TokenTier(model, workers)
    name = model.manifest.name
    window = model.manifest.window
    return HhemTier(model, HhemSettings(), scorer=name, budget=window, workers=workers)


def build_slow_tiers(
    settings: Settings, saved: Mapping[str, Any], *, live: bool = True
) -> SlowTiers:
    """Build the slow tiers of the embedded agent; `saved` is their state before a restart.

    Where traces are not `live`, someone waits for the local model, and it has the priority of the
    process. The state file is open already; it keeps the verdicts of the judge.
    """
    spending = TierSpending()
    judge = settings.judge
    close = contextlib.ExitStack()
    verdicts = None
    if judge.base_url is not None:
        from ragmeter.scorers.judge.cache import VERDICT_DAYS, SqliteVerdictStore

        verdicts = SqliteVerdictStore(settings.state.path, judge.cache.entries, VERDICT_DAYS)
        close.callback(verdicts.close)
    tiers = ConfiguredTiers(
        settings,
        verdicts=verdicts,
        saved=saved.get("judges"),
        observe=partial(count_attempt, spending.add),
        count=partial(count_verdict, spending.add, MAIN_JUDGE),
        watched=True,
        background=live,
    )
    replays: dict[Tier, ReplayBudget] = {}
    if "model" in tiers.scorers and settings.hhem.path is None:  # HHEM takes what its rates ask for
        replays["model"] = ReplayBudget(settings.models.cpu_share, time.process_time)
    probes = ProbeResults(dict((saved.get("judges") or {}).get("probes") or {}))
    runner = tiers.judges.probes
    return SlowTiers(
        scorers=tiers.scorers,
        controllers=build_controllers(settings, tiers.scorers),
        replays=replays,
        spending=spending,
        probes=probes,
        jobs=[lambda: probes.run(runner)] if runner else [],
        judges=tiers.judges,
        close=close.close,
    )
