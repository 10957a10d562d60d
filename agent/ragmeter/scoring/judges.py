"""The judges that the settings configure: the judge, its second opinion and its probes."""

from __future__ import annotations

import contextlib
import json
import logging
import time
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from functools import partial
from itertools import product
from typing import Any

from ragmeter.config.scoring import JudgeSettings
from ragmeter.config.settings import Settings
from ragmeter.core.counters import GaugeSample
from ragmeter.core.judging import MAIN_JUDGE, JudgeInstrument
from ragmeter.core.tiers import MetricScorer, ScoringCost, Tier, TierScorer
from ragmeter.sampling.sampler import SALT
from ragmeter.scorers.judge import cache, prompts
from ragmeter.scorers.judge.probes import (
    PROBE_HOURS,
    ProbeRunner,
    load_probes,
    probe_settings,
)
from ragmeter.scorers.judge.second_opinion import SECOND, SecondOpinion, second_settings
from ragmeter.scorers.judge.tier import JudgeTier
from ragmeter.scorers.llm.billing import Attempt
from ragmeter.scorers.llm.client import JudgeClient
from ragmeter.scorers.llm.served_model import ServedModel
from ragmeter.trace import Trace

log = logging.getLogger(__name__)

# Prompts that probes use: a change of one starts a new baseline. Others may come and go.
_PROBE_PROMPTS = ("attempted", "citation-support", "umbrela")


class ConfiguredJudges:
    """The judge of the settings, its second opinion and its probes, for one event loop.

    Args:
        settings: The settings of the agent.
        verdicts: Remembers verdicts; None remembers them in memory.
        saved: What `state` returned before a restart.
        observe: Called with each attempt.
        count: Called with the source of each verdict (see `CachedJudge`).
        watched: Whether the traces are live traffic: probes watch the judge, and canaries are not
            judged twice.

    Attributes:
        tier: Scores traces.
        probes: Runs the probes, if there are any.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        verdicts: cache.VerdictStore | None,
        saved: Mapping[str, Any] | None,
        observe: Callable[[Attempt], None],
        count: Callable[[str], None],
        watched: bool,
    ) -> None:
        self._settings = settings
        self._clients: list[tuple[JudgeClient, JudgeSettings]] = []
        self._judges: list[JudgeTier] = []
        self._titles = {prompt.hash: prompt.title for prompt in _prompts()}
        self._saved = saved or {}
        self._observe = observe
        judge = settings.judge
        client = self._add_client(MAIN_JUDGE, judge)
        if verdicts is None:
            verdicts = cache.MemoryVerdictStore(judge.cache.entries)
        full = settings.privacy.content == "full"
        keeps = (lambda question: True) if full else cache.has_closed_schema
        first = JudgeTier(cache.CachedJudge(client, verdicts, count=count, keeps=keeps), judge)
        self._judges.append(first)
        tier = self._add_second_opinion(first, client, canaries=not watched)
        self.probes = self._build_probe_runner(client) if watched else None
        self.tier: TierScorer = _ClosingTier(tier, client, self, first.measure)

    def _add_client(self, name: str, judge: JudgeSettings) -> JudgeClient:
        client = JudgeClient(
            judge,
            name=name,
            state=self._saved.get(name),
            observe=self._observe,
            on_change=partial(_log_served_model, name),
        )
        self._clients.append((client, judge))
        return client

    def _add_second_opinion(
        self, first: JudgeTier, client: JudgeClient, *, canaries: bool
    ) -> TierScorer:
        judge = self._settings.judge
        settings = second_settings(judge)
        if settings is None:
            return first
        if settings != judge.model_copy(update={"metrics": settings.metrics}):
            client = self._add_client(SECOND, settings)
        # without the cache: a judge that is given its own verdicts agrees with itself
        again = JudgeTier(client, settings)
        self._judges.append(again)
        return SecondOpinion(first, again, judge.second.share, SALT, canaries=canaries)

    def _build_probe_runner(self, client: JudgeClient) -> ProbeRunner | None:
        settings = probe_settings(self._settings.judge)
        if settings is None:
            return None
        names = ("model", "temperature", "structured")
        instrument = {name: getattr(settings, name) for name in names}
        # the endpoint is the address without user and password: this goes to the state file
        instrument |= {
            "endpoint": client.endpoint,
            "prompts": [prompt.hash for prompt in _prompts() if prompt.name in _PROBE_PROMPTS],
        }
        runner = ProbeRunner(
            JudgeTier(client, settings),
            load_probes(),
            hours=PROBE_HOURS,
            instrument=json.dumps(instrument),
            clock=time.time,
        )
        with contextlib.suppress(ValueError, KeyError, TypeError):  # else they are due now
            runner.load(self._saved["probes"])
        return runner

    def instruments(self, fingerprints: Iterable[str]) -> list[JudgeInstrument]:
        """Return the judges behind these fingerprints of scores, as served and asked."""
        found: dict[str, JudgeInstrument] = {}
        for fingerprint in sorted(set(fingerprints)):
            verdicts = {v for tier in self._judges for v in tier.verdict_fingerprints(fingerprint)}
            for verdict, (client, _) in product(sorted(verdicts), self._clients):
                for instrument, prompt in client.instruments(verdict):
                    names = found.setdefault(instrument.key, instrument).fingerprints
                    names[fingerprint] = sorted({*names.get(fingerprint, ()), self._titles[prompt]})
        return list(found.values())

    async def close(self) -> None:
        """Close the clients of the judges."""
        for client, _ in self._clients:
            await client.aclose()

    def state(self) -> dict[str, Any]:
        """Return what the judges need after a restart, JSON-able."""
        return {client.name: client.state() for client, _ in self._clients}

    def gauges(self) -> list[GaugeSample]:
        """Return whether the servers are up, and each judge's calls in flight and their limit."""
        samples: list[GaugeSample] = []
        for client, _ in self._clients:
            judge = (("judge", client.name),)
            samples.append(("ragmeter_judge_up", judge, float(not client.is_down)))
            samples.append(("ragmeter_judge_in_flight", judge, float(client.in_flight)))
            samples.append(("ragmeter_judge_in_flight_limit", judge, float(client.limit)))
        return samples

    def labels(self) -> list[dict[str, str]]:
        """Return for each judge and prompt the models, the prompt and the fingerprint."""
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


class _ClosingTier:
    """A judge tier that closes its clients after the last trace.

    It is paused while its first judge is down; the second one pauses nothing.
    """

    def __init__(
        self,
        tier: TierScorer,
        first: JudgeClient,
        judges: ConfiguredJudges,
        measure: Callable[[Trace, ScoringCost], Coroutine[Any, Any, Trace]],
    ) -> None:
        self.tier: Tier = tier.tier
        self.pairs: Sequence[MetricScorer] = tier.pairs
        self.score = tier.score
        self.measure = measure
        self._first = first
        self._judges = judges
        self.instruments = judges.instruments

    @property
    def paused(self) -> bool:
        return self._first.is_down

    @property
    def trying(self) -> bool:
        return self._first.takes_trial

    def capacity_share(self) -> float:
        """Return the share of the first judge's slots that it is thought to take."""
        return self._first.capacity_share

    async def __aenter__(self) -> _ClosingTier:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._judges.close()


def _prompts() -> list[prompts.PromptTemplate]:
    return [prompts.load_prompt(*name) for name in prompts.list_prompts()]


def _log_served_model(judge: str, old: ServedModel, new: ServedModel) -> None:
    log.warning(
        "%s is served by %s %s now, by %s %s before: a new series begins",
        judge,
        new.model,
        new.system_fingerprint,
        old.model,
        old.system_fingerprint,
    )
