"""Build the slow tiers (judge, local model, embeddings) from the settings and account for their spending."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from copy import deepcopy
from functools import partial
from typing import Any

from ragmeter.config.loader import ConfigError
from ragmeter.config.scoring import JudgeSettings
from ragmeter.config.settings import Settings
from ragmeter.core.counters import CounterKey, GaugeSample
from ragmeter.core.score import Score, ScoredTrace
from ragmeter.core.tiers import MetricScorer, ScoringCost, Tier, TierScorer
from ragmeter.metrics.canary.scores import canary_judge_pairs, relabel_canary_scores
from ragmeter.metrics.missing_fields import hide_missing_fields, restore_missing_reasons
from ragmeter.sampling.budget_controller import BudgetController, judge_controller, model_controller
from ragmeter.scorers.judge import prompts
from ragmeter.scorers.judge.cache import (
    CachedJudge,
    MemoryVerdictStore,
    VerdictStore,
    has_closed_schema,
)
from ragmeter.scorers.judge.probes import ProbeRunner, load_probes, probe_settings
from ragmeter.scorers.judge.second_opinion import SecondOpinion, second_settings
from ragmeter.scorers.judge.tier import JudgeTier
from ragmeter.scorers.llm.billing import Attempt, count_attempt, count_verdict
from ragmeter.scorers.llm.client import JudgeClient
from ragmeter.scorers.llm.served_model import ServedModel
from ragmeter.store.verdicts import SqliteVerdictStore
from ragmeter.trace import Trace


async def score_tier(scorer: TierScorer, trace: Trace, cost: ScoringCost) -> list[Score]:
    """What `scorer` says of what is known of a trace: it is not asked about texts that are
    hidden or cut, and its gaps get the trace's own reason."""
    return restore_missing_reasons(trace, await scorer.score(hide_missing_fields(trace), cost))


async def score_live_tier(scorer: TierScorer, trace: Trace, cost: ScoringCost) -> list[Score]:
    """The same for what is counted: what is said of a canary goes by names of its own."""
    scores = await score_tier(scorer, trace, cost)
    return relabel_canary_scores(scores) if trace.canary else scores


def expected_pairs(scorer: TierScorer, trace: Trace) -> set[MetricScorer]:
    """The pairs that `ask_live` answers for."""
    return set(canary_judge_pairs(scorer.pairs) if trace.canary else scorer.pairs)


class _TierSpending:
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


class _ProbeResults:
    """Results that no trace of the queue owes (probes of the judge), on their way to the worker.

    `state` is what the last of them said of where its source stands, JSON-able. `live`: whether
    live traffic has been seen, which is when probes mean something.
    """

    def __init__(self, state: Mapping[str, Any] | None = None) -> None:
        self._found: deque[tuple[list[ScoredTrace], ScoringCost, Mapping[str, Any]]] = deque()
        self.state = state or {}
        self.live = False

    def put(self, scored: list[ScoredTrace], cost: ScoringCost, state: Mapping[str, Any]) -> None:
        """`state` must not change any more."""
        self._found.append((scored, cost, state))

    def take(self) -> Iterator[tuple[list[ScoredTrace], ScoringCost]]:
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
        spending: _TierSpending | None = None,
        instruments: Callable[[], Sequence[Mapping[str, str]]] = lambda: (),
        gauges: Callable[[], Sequence[GaugeSample]] = lambda: (),
        jobs: Sequence[Callable[[], Coroutine[Any, Any, None]]] = (),
        controllers: Mapping[Tier, BudgetController] | None = None,
        extras: _ProbeResults | None = None,
        state: Callable[[], Mapping[str, Any]] = dict,
        close: Callable[[], None] = lambda: None,
    ) -> None:
        self.scorers = dict(scorers or {})
        self.spending = spending or _TierSpending()
        self.instruments = instruments
        self.gauges = gauges
        self.jobs = tuple(jobs)
        self.controllers = dict(controllers or {})
        self.extras = extras or _ProbeResults()
        self.state = state
        self.close = close


MakeTiers = Callable[[Mapping[str, Any]], SlowTiers]
"""Makes the slow tiers from what `state` gave before a restart; the state file is open by then."""


log = logging.getLogger("ragmeter.judge")

MAIN, _SECOND = "judge", "second"

_PROBED = ("attempted", "citation-support", "umbrela", "umbrela-batch")
"""Prompts of what probes are judged by. Others may come and go without a new baseline."""

_PROBE_LOOK_SECONDS = 5.0
"""Between two looks at whether live traffic is there and probes are due."""


class ConfiguredTiers:
    """What is configured of judge and model: `scorers` by tier, one event loop's worth.

    `saved` is what `state` gave before a restart, `verdicts` the memory of the judge. `observe`
    sees every attempt, `count` how each question was answered (`CachedJudge`). `watched`: part of
    what is judged is judged again, and `probes` can watch the judge. Loading a model may take
    seconds and raise `ragmeter.scorers.hhem.model.ModelError`; a broken file of probes `ConfigError`.
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
    ) -> None:
        self.scorers: dict[Tier, TierScorer] = {}
        self.probes: ProbeRunner | None = None
        self._settings = settings
        self._clients: list[tuple[JudgeClient, JudgeSettings]] = []
        self._saved = saved or {}
        self._observe = observe
        judge = settings.judge
        if judge.base_url is not None:
            client = self._client(MAIN, judge)
            if verdicts is None:
                verdicts = MemoryVerdictStore(judge.cache.entries, judge.cache.days)
            full = settings.privacy.content == "full"
            keeps = (lambda question: True) if full else has_closed_schema
            asking = CachedJudge(client, verdicts, count=count, keeps=keeps)
            tier: TierScorer = JudgeTier(asking, judge)
            if watched:
                tier = self._second(tier, client)
                self.probes = self._prober(client)
            self.scorers["judge"] = _ClosingTier(tier, client, self._close)
        if settings.hhem.path is not None:
            from ragmeter.scorers.hhem.model import HhemModel  # late: it needs the extra
            from ragmeter.scorers.hhem.tier import HhemTier

            model = HhemModel(settings.hhem.path, settings.hhem.int8)
            self.scorers["model"] = HhemTier(model, settings.hhem)

    def _client(self, name: str, judge: JudgeSettings) -> JudgeClient:
        client = JudgeClient(
            judge,
            name=name,
            state=self._saved.get(name),
            observe=self._observe,
            on_change=partial(self._changed, name),
        )
        self._clients.append((client, judge))
        return client

    def _changed(self, name: str, old: ServedModel, new: ServedModel) -> None:
        log.warning(
            "%s is served by %s %s now, by %s %s before: a new series begins",
            *(name, new.model, new.system_fingerprint, old.model, old.system_fingerprint),
        )

    def _second(self, first: TierScorer, client: JudgeClient) -> TierScorer:
        judge = self._settings.judge
        settings = second_settings(judge)
        if settings is None:
            return first
        if settings != judge.model_copy(update={"metrics": settings.metrics}):
            client = self._client(_SECOND, settings)
        # past the memory: a judge that is read to from its own notes agrees with itself
        again = JudgeTier(client, settings)
        return SecondOpinion(first, again, judge.second.share, self._settings.sampling.salt)

    def _prober(self, client: JudgeClient) -> ProbeRunner | None:
        settings = probe_settings(self._settings.judge)
        if settings is None:
            return None
        asked = [prompt.hash for prompt in _prompts() if prompt.name in _PROBED]
        parts = ("model", "temperature", "seed", "structured", "passages_per_call")
        instrument = {name: getattr(settings, name) for name in parts}
        # the endpoint is the address without user and password: this goes to the state file
        instrument |= {"endpoint": client.endpoint, "prompts": asked}
        try:
            probes = load_probes(settings.probes.file)
        except (OSError, ValueError) as error:
            raise ConfigError(f"judge.probes.file: {error}") from None
        runner = ProbeRunner(
            JudgeTier(client, settings),
            probes,
            hours=settings.probes.hours,
            instrument=json.dumps(instrument),
            clock=time.time,
        )
        with contextlib.suppress(ValueError, KeyError, TypeError):  # else they are due now
            runner.load(self._saved["probes"])
        return runner

    async def _close(self) -> None:
        for client, _ in self._clients:
            await client.aclose()

    def state(self) -> dict[str, Any]:
        """JSON-able: what is worth knowing after a restart."""
        return {client.name: client.state() for client, _ in self._clients}

    def gauges(self) -> list[GaugeSample]:
        """Whether each judge is up, its calls in flight and how many may be."""
        found: list[GaugeSample] = []
        for client, _ in self._clients:
            judge = (("judge", client.name),)
            found.append(("ragmeter_judge_up", judge, float(not client.is_down)))
            found.append(("ragmeter_judge_in_flight", judge, float(client.in_flight)))
            found.append(("ragmeter_judge_in_flight_limit", judge, float(client.limit)))
        return found

    def labels(self) -> list[dict[str, str]]:
        """Of each judge and prompt: who is asked, who answers (`Epochs`), the fingerprint."""
        return [
            {
                "judge": client.name,
                "model": judge.model or "",
                "served": client.served.model,
                "system_fingerprint": client.served.system_fingerprint,
                "prompt": prompt.title,
                "prompt_hash": prompt.hash,
                "fingerprint": client.fingerprint(prompt.hash) or "",
            }
            for client, judge in self._clients
            for prompt in _prompts()
            if client.served is not None
        ]


def _prompts() -> list[prompts.PromptTemplate]:
    return [prompts.load_prompt(*name) for name in prompts.list_prompts()]


class _ClosingTier:
    """A tier with what must be closed after its last trace; `Pausing` while the first judge is
    down. That the second is down holds up nothing."""

    def __init__(self, tier: TierScorer, first: JudgeClient, close: Callable[[], Any]) -> None:
        self._tier = tier
        self._first = first
        self._close = close

    @property
    def tier(self) -> Tier:
        return self._tier.tier

    @property
    def pairs(self) -> Sequence[MetricScorer]:
        return self._tier.pairs

    @property
    def paused(self) -> bool:
        return self._first.is_down

    @property
    def trying(self) -> bool:
        return self._first.takes_trial

    async def score(self, trace: Trace, cost: ScoringCost) -> list[Score]:
        return await self._tier.score(trace, cost)

    async def __aenter__(self) -> _ClosingTier:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._close()


def build_slow_tiers(settings: Settings, saved: Mapping[str, Any]) -> SlowTiers:
    """The slow tiers of the embedded agent: verdicts in the state file, which is open already;
    budget, capacity and probes for live traffic."""
    spending = _TierSpending()
    judge = settings.judge
    close = contextlib.ExitStack()
    verdicts = None
    if judge.base_url is not None:
        verdicts = SqliteVerdictStore(settings.state.path, judge.cache.entries, judge.cache.days)
        close.callback(verdicts.close)
    found = ConfiguredTiers(
        settings,
        verdicts=verdicts,
        saved=saved.get("judges"),
        observe=partial(count_attempt, spending.add),
        count=partial(count_verdict, spending.add, MAIN),
        watched=True,
    )
    controllers: dict[Tier, BudgetController] = {}
    if "judge" in found.scorers:
        controllers["judge"] = judge_controller(judge)
    if "model" in found.scorers:
        controllers["model"] = model_controller(settings.hhem)
    embedding = None
    if settings.consistency.embeddings.base_url is not None:
        from ragmeter.scoring.answer_embedding import build_answer_embedder  # late: few want it

        embedding = build_answer_embedder(settings.consistency, settings.privacy)
        if embedding is not None:
            found.scorers["embedding"] = embedding
    extras = _ProbeResults(dict((saved.get("judges") or {}).get("probes") or {}))
    runner = found.probes
    return SlowTiers(
        found.scorers,
        spending=spending,
        instruments=found.labels,
        gauges=lambda: [*found.gauges(), *(embedding.gauges() if embedding else ())],
        controllers=controllers,
        jobs=[lambda: _run_probes(runner, extras)] if runner else [],
        extras=extras,
        state=lambda: {"judges": {**found.state(), "probes": extras.state}},
        close=close.close,
    )


async def _run_probes(runner: ProbeRunner, extras: _ProbeResults) -> None:
    """Judge the probes whenever they are due."""
    while True:
        if extras.live and runner.due:
            cost = ScoringCost()
            extras.put(await runner.run(cost), cost, deepcopy(runner.dump()))
        await asyncio.sleep(_PROBE_LOOK_SECONDS)
