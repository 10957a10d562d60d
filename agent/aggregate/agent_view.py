"""The read-only view of the running agent that exporters depend on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from ragmeter.aggregate.consistency import AnswerComparison
from ragmeter.aggregate.indexes import IndexVersion
from ragmeter.alerts.alert import Alert
from ragmeter.core.counters import Counters, GaugeSample
from ragmeter.windows.windows import Windows


@dataclass(frozen=True, slots=True)
class AgentHealth:
    """The health of the agent.

    Seconds are None if they are unknown: nothing was processed yet, or the backlog is on Kafka.

    Args:
        problems: Descriptions of why the agent is not ready; empty when it is.
        pending: Traces that wait for a slow tier, by tier.
    """

    problems: tuple[str, ...] = ()
    queue_depth: int = 0
    oldest_unprocessed_seconds: float | None = None
    processing_lag_seconds: float | None = None
    pending: Mapping[str, int] = field(default_factory=dict)

    @property
    def ready(self) -> bool:
        """Whether the agent has no problems."""
        return not self.problems


class AgentView(Protocol):
    """The running agent as exporters read it.

    Hold `lock()` while reading `windows`, `counters`, `alerts`, `indexes` or `consistency`: another
    thread writes them.
    """

    @property
    def windows(self) -> Windows:
        """The windows of all services."""

    @property
    def counters(self) -> Counters:
        """The counters of the agent."""

    @property
    def segments(self) -> Sequence[str]:
        """The configured segment tags, for example `["model"]`."""

    @property
    def waiting(self) -> Mapping[tuple[str, str], int]:
        """How many results of slow tiers are pending, by (metric, scorer)."""

    def instruments(self) -> Sequence[Mapping[str, str]]:
        """Return labels of each judge: name, model as served, prompts, fingerprint."""

    def gauges(self) -> Sequence[GaugeSample]:
        """Return the gauges of the slow tiers: (name, label pairs, value)."""

    def indexes(self) -> Sequence[IndexVersion]:
        """Return copies of the indexes by service and name, the latest version first."""

    def unnamed_services(self) -> Sequence[str]:
        """Return services that are counted as `__other__`, those with most traffic first."""

    def consistency(self, service: str, window: str) -> AnswerComparison:
        """Return how much answers to one question agree."""

    def lock(self) -> AbstractContextManager[Any]:
        """Return the lock that the writing thread takes."""

    def alerts(self) -> Sequence[Alert]:
        """Return every alert that is pending, firing, or lately resolved."""

    def evidence(self, service: str, trace_id: str) -> dict[str, Any] | None:
        """Return a stored trace (native JSON under `trace`, scores under `results`), or None."""

    def health(self) -> AgentHealth:
        """Return the health of the agent."""


class JudgeSpend(NamedTuple):
    """What was asked of the judge since the start: verdicts, those from the cache, and the cost."""

    model: str
    verdicts: int
    cached: int
    usd: float


def judge_spend(agent: AgentView) -> JudgeSpend | None:
    """Return what was asked of the judge, None without one. Hold `lock()`."""
    models = [one.get("model", "") for one in agent.instruments() if one.get("judge") == "judge"]
    if not models:
        return None
    get = agent.counters.get
    asked, kept, shared = (
        int(get("ragmeter_judge_verdicts_total", (("judge", "judge"), ("source", source))))
        for source in ("asked", "kept", "shared")
    )
    usd = get("ragmeter_judge_cost_usd_total", (("judge", "judge"),))
    return JudgeSpend(models[0], asked + kept + shared, kept + shared, usd)
