"""The judge and the local model as the settings describe them, put together."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from agent.budget import BudgetController, judge_controller, model_controller
from agent.config import Settings
from agent.judge import prompts
from agent.judge.attempt import Attempt
from agent.judge.cache import CachedJudge, MemoryVerdicts, VerdictStore
from agent.judge.client import JudgeClient
from agent.judge.tier import JudgeTier
from agent.slow_tiers import SlowTiers, Spending
from agent.store.verdicts import SqliteVerdicts
from agent.tiers import Cost, Pair, Tier, TierScorer
from agent.trace import Score, Trace

__all__ = ["Instruments", "slow_tiers"]

MAIN = "judge"


class Instruments:
    """What is configured of judge and model: `scorers` by tier, one event loop's worth.

    `saved` is what `state` gave before a restart, `verdicts` the memory of the judge. Loading a
    model may take seconds and raise `agent.models.errors.ModelError`.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        verdicts: VerdictStore | None = None,
        saved: Mapping[str, Any] | None = None,
        observe: Callable[[Attempt], None] = lambda attempt: None,
    ) -> None:
        self.scorers: dict[Tier, TierScorer] = {}
        self._settings = settings
        self._client: JudgeClient | None = None
        judge = settings.judge
        if judge.base_url is not None:
            self._client = JudgeClient(
                judge, name=MAIN, state=(saved or {}).get(MAIN), observe=observe
            )
            memory = verdicts or MemoryVerdicts(judge.cache.entries, judge.cache.days)
            tier = JudgeTier(CachedJudge(self._client, memory), judge)
            self.scorers["judge"] = _Closing(tier, self._client.aclose)
        if settings.hhem.path is not None:
            from agent.models.hhem import Hhem  # late: it needs the extra
            from agent.models.hhem_tier import HhemTier

            model = Hhem(settings.hhem.path, settings.hhem.int8)
            self.scorers["model"] = HhemTier(model, settings.hhem)

    def state(self) -> dict[str, Any]:
        """JSON-able: what is worth knowing after a restart."""
        return {} if self._client is None else {MAIN: self._client.state()}

    def labels(self) -> list[dict[str, str]]:
        """Of each prompt: who is asked it, who served last, and the fingerprint of a verdict."""
        client = self._client
        if client is None or client.served is None:
            return []
        return [
            {
                "judge": MAIN,
                "model": self._settings.judge.model or "",
                "served": client.served.model,
                "system_fingerprint": client.served.system_fingerprint,
                "prompt": prompt.title,
                "prompt_hash": prompt.hash,
                "fingerprint": client.fingerprint(prompt.hash) or "",
            }
            for prompt in (prompts.load(*name) for name in prompts.names())
        ]


class _Closing:
    """A tier with what must be closed after its last trace."""

    def __init__(self, tier: TierScorer, close: Callable[[], Any]) -> None:
        self._tier = tier
        self._close = close

    @property
    def tier(self) -> Tier:
        return self._tier.tier

    @property
    def pairs(self) -> Sequence[Pair]:
        return self._tier.pairs

    async def score(self, trace: Trace, cost: Cost) -> list[Score]:
        return await self._tier.score(trace, cost)

    async def __aenter__(self) -> _Closing:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._close()


def slow_tiers(settings: Settings, saved: Mapping[str, Any], *, paced: bool = True) -> SlowTiers:
    """The slow tiers of the embedded agent: verdicts in the state file, which is open already,
    spend within the budget.

    `paced`: what the judge and the model can work off lowers the sampled share, too. Not so in a
    replay, which waits for them: its draws depend on the traces alone.
    """
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
        observe=lambda attempt: _count(spending, attempt),
    )
    controllers: dict[Tier, BudgetController] = {}
    if "judge" in found.scorers:
        controllers["judge"] = judge_controller(judge, paced=paced)
    if "model" in found.scorers and paced:
        controllers["model"] = model_controller(settings.hhem)
    return SlowTiers(
        found.scorers,
        spending=spending,
        instruments=found.labels,
        controllers=controllers,
        state=lambda: {"judges": found.state()},
        close=close.close,
    )


def _count(spending: Spending, attempt: Attempt) -> None:
    judge = ("judge", attempt.judge)
    spending.add("ragmeter_judge_requests_total", (judge, ("outcome", attempt.outcome)))
    for direction, tokens in (("input", attempt.input_tokens), ("output", attempt.output_tokens)):
        if tokens:
            labels = (judge, ("direction", direction))
            spending.add("ragmeter_judge_tokens_total", labels, tokens)
    if attempt.usd:
        spending.add("ragmeter_judge_cost_usd_total", (judge,), attempt.usd)
