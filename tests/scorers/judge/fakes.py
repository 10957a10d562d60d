"""A judge that answers at once and by rule, with a clock of its own that counts round trips."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from ragmeter.config.scoring import JudgeSettings
from ragmeter.core.score import Score
from ragmeter.core.tiers import ScoringCost
from ragmeter.scorers.judge.tier import JudgeTier
from ragmeter.scorers.llm.questions import JudgeFailed, JudgeQuestion, JudgeVerdict
from ragmeter.trace import Trace

__all__ = ["FakeJudge", "facts", "family", "judge_trace", "reply_to", "scores_of"]

T = TypeVar("T")


def family(question: JudgeQuestion[Any]) -> str:
    """The name of the prompt, without its version."""
    return question.prompt.partition("@")[0]


def facts(count: int) -> list[str]:
    return [f"fact number {number}" for number in range(1, count + 1)]


def reply_to(question: JudgeQuestion[Any], replies: Mapping[str, Any]) -> Any:
    """What a good judge replies: `replies` by family, a value, a function of the question, or
    for labels one value for all."""
    reply = replies[family(question)]
    if callable(reply):
        reply = reply(question)
    if isinstance(reply, str):
        reply = dict.fromkeys(question.schema["properties"], reply)
    return reply


DEFAULT: dict[str, Any] = {
    "umbrela": "2",
    "citation-support": "full",
    "attempted": "answered",
    "nuggets-create": {"nuggets": facts(12)},
    "nuggets-importance": "vital",
    "nuggets-assign": "support",
    "claims": {
        "claims": [{"claim": "a claim", "support": "supported", "relevance": "relevant"}],
        "groundedness": "5",
        "correctness": "5",
    },
    "facts": {"facts": [{"fact": "a fact", "use": "used"}]},
    "context-recall": "supported",
    "claim-support": "supported",
}


@dataclass
class FakeJudge:
    """An `Asking`. Each call takes one unit of a time that is virtual: `depth` is how many units
    the longest chain of calls took. `fails` says of a question why it fails, if it does."""

    replies: Mapping[str, Any] = field(default_factory=dict)
    fails: Callable[[JudgeQuestion[Any]], str | None] = lambda question: None
    fingerprints: Mapping[str, str] = field(default_factory=dict)
    asked: list[JudgeQuestion[Any]] = field(default_factory=list)
    now: int = 0
    widest: int = 0
    _waiting: list[asyncio.Future[None]] = field(default_factory=list)

    @property
    def depth(self) -> int:
        return self.now

    def count(self, name: str) -> int:
        return sum(family(question) == name for question in self.asked)

    async def _unit(self) -> None:
        """Wait until everyone who can ask has asked; then all get their answers at once."""
        loop = asyncio.get_running_loop()
        mine: asyncio.Future[None] = loop.create_future()
        self._waiting.append(mine)
        if len(self._waiting) == 1:
            for _ in range(50):  # as many steps as any code takes between two calls
                await asyncio.sleep(0)
            self.now += 1
            waiting, self._waiting = self._waiting, []
            self.widest = max(self.widest, len(waiting))
            for one in waiting:
                one.set_result(None)
        await mine

    async def ask(self, question: JudgeQuestion[T], cost: ScoringCost) -> JudgeVerdict[T]:
        self.asked.append(question)
        cost.requests += 1
        await self._unit()
        reason = self.fails(question)
        if reason is not None:
            raise JudgeFailed(reason)
        name = family(question)
        reply = reply_to(question, {**DEFAULT, **self.replies})
        return JudgeVerdict(question.read(reply), self.fingerprints.get(name, "f" * 12))


def judge_trace(
    trace: Trace, judge: FakeJudge | None = None, **settings: Any
) -> tuple[dict[str, Score], FakeJudge, ScoringCost]:
    """The scores by metric, the judge, and the cost."""
    judge = judge or FakeJudge()
    tier = JudgeTier(judge, JudgeSettings.model_validate(settings))
    cost = ScoringCost()
    scores = asyncio.run(tier.score(trace, cost))
    assert [(score.metric, score.scorer) for score in scores] == list(tier.pairs)
    return {score.metric: score for score in scores}, judge, cost


def scores_of(scores: Mapping[str, Score]) -> dict[str, float | str | None]:
    """Each metric's value, or the reason in its place."""
    return {
        name: score.value if score.reason is None else score.reason
        for name, score in scores.items()
    }
