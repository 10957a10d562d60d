"""The judge and the local model as the settings describe them, put together."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from functools import partial
from typing import Any

from agent.budget.controller import BudgetController
from agent.budget.tiers import judge_controller, model_controller
from agent.config import ConfigError, Judge, Settings
from agent.counters import Gauge
from agent.judge import prompts
from agent.judge.attempt import Attempt
from agent.judge.cache import CachedJudge, MemoryVerdicts, VerdictStore, says_nothing
from agent.judge.client import JudgeClient
from agent.judge.counting import count_attempt, count_verdict
from agent.judge.fingerprint import Served
from agent.judge.probes import ProbeRunner, load_probes, probe_settings
from agent.judge.second import SecondOpinion, second_settings
from agent.judge.tier import JudgeTier
from agent.slow_tiers import Extras, SlowTiers, Spending
from agent.store.verdicts import SqliteVerdicts
from agent.tiers import Cost, Pair, Tier, TierScorer
from agent.trace import Score, Trace

__all__ = ["MAIN", "Instruments", "slow_tiers"]

log = logging.getLogger("ragmeter.judge")

MAIN, SECOND = "judge", "second"

PROBED = ("attempted", "citation-support", "umbrela", "umbrela-batch")
"""Prompts of what probes are judged by. Others may come and go without a new baseline."""

PROBE_LOOK_SECONDS = 5.0
"""Between two looks at whether live traffic is there and probes are due."""


class Instruments:
    """What is configured of judge and model: `scorers` by tier, one event loop's worth.

    `saved` is what `state` gave before a restart, `verdicts` the memory of the judge. `observe`
    sees every attempt, `count` how each question was answered (`CachedJudge`). `watched`: part of
    what is judged is judged again, and `probes` can watch the judge. Loading a model may take
    seconds and raise `agent.models.errors.ModelError`; a broken file of probes `ConfigError`.
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
        self._clients: list[tuple[JudgeClient, Judge]] = []
        self._saved = saved or {}
        self._observe = observe
        judge = settings.judge
        if judge.base_url is not None:
            client = self._client(MAIN, judge)
            if verdicts is None:
                verdicts = MemoryVerdicts(judge.cache.entries, judge.cache.days)
            full = settings.privacy.content == "full"
            keeps = (lambda question: True) if full else says_nothing
            asking = CachedJudge(client, verdicts, count=count, keeps=keeps)
            tier: TierScorer = JudgeTier(asking, judge)
            if watched:
                tier = self._second(tier, client)
                self.probes = self._prober(client)
            self.scorers["judge"] = _Closing(tier, client, self._close)
        if settings.hhem.path is not None:
            from agent.models.hhem import Hhem  # late: it needs the extra
            from agent.models.hhem_tier import HhemTier

            model = Hhem(settings.hhem.path, settings.hhem.int8)
            self.scorers["model"] = HhemTier(model, settings.hhem)

    def _client(self, name: str, judge: Judge) -> JudgeClient:
        client = JudgeClient(
            judge,
            name=name,
            state=self._saved.get(name),
            observe=self._observe,
            on_change=partial(self._changed, name),
        )
        self._clients.append((client, judge))
        return client

    def _changed(self, name: str, old: Served, new: Served) -> None:
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
            client = self._client(SECOND, settings)
        # past the memory: a judge that is read to from its own notes agrees with itself
        again = JudgeTier(client, settings)
        return SecondOpinion(first, again, judge.second.share, self._settings.sampling.salt)

    def _prober(self, client: JudgeClient) -> ProbeRunner | None:
        settings = probe_settings(self._settings.judge)
        if settings is None:
            return None
        asked = [prompt.hash for prompt in _prompts() if prompt.name in PROBED]
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

    def gauges(self) -> list[Gauge]:
        """Whether each judge is up, its calls in flight and how many may be."""
        found: list[Gauge] = []
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


def _prompts() -> list[prompts.Prompt]:
    return [prompts.load(*name) for name in prompts.names()]


class _Closing:
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
    def pairs(self) -> Sequence[Pair]:
        return self._tier.pairs

    @property
    def paused(self) -> bool:
        return self._first.is_down

    @property
    def trying(self) -> bool:
        return self._first.takes_trial

    async def score(self, trace: Trace, cost: Cost) -> list[Score]:
        return await self._tier.score(trace, cost)

    async def __aenter__(self) -> _Closing:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._close()


def slow_tiers(settings: Settings, saved: Mapping[str, Any]) -> SlowTiers:
    """The slow tiers of the embedded agent: verdicts in the state file, which is open already;
    budget, capacity and probes for live traffic."""
    spending = Spending()
    judge = settings.judge
    close = contextlib.ExitStack()
    verdicts = None
    if judge.base_url is not None:
        verdicts = SqliteVerdicts(settings.state.path, judge.cache.entries, judge.cache.days)
        close.callback(verdicts.close)
    found = Instruments(
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
        from agent.embeddings.answers import answer_embedder  # late: few want it

        embedding = answer_embedder(settings.consistency, settings.privacy)
        if embedding is not None:
            found.scorers["embedding"] = embedding
    extras = Extras(dict((saved.get("judges") or {}).get("probes") or {}))
    runner = found.probes
    return SlowTiers(
        found.scorers,
        spending=spending,
        instruments=found.labels,
        gauges=lambda: [*found.gauges(), *(embedding.gauges() if embedding else ())],
        controllers=controllers,
        jobs=[lambda: _probe(runner, extras)] if runner else [],
        extras=extras,
        state=lambda: {"judges": {**found.state(), "probes": extras.state}},
        close=close.close,
    )


async def _probe(runner: ProbeRunner, extras: Extras) -> None:
    """Judge the probes whenever they are due."""
    while True:
        if extras.live and runner.due:
            cost = Cost()
            extras.put(await runner.run(cost), cost, deepcopy(runner.dump()))
        await asyncio.sleep(PROBE_LOOK_SECONDS)
