"""The view of the running agent that exporters depend on, over one state of services or several."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from ragmeter.aggregate.service_state import ServiceState
from ragmeter.alerts.alert import Alert
from ragmeter.core.counters import Counters, GaugeSample
from ragmeter.parts.collection import PartKinds, PartPage, part_pages
from ragmeter.parts.contract import Part
from ragmeter.parts.incident_words import is_closed
from ragmeter.parts.views import BaselineKeeper, Incident, OpenIncidents, QuestionAnswers
from ragmeter.store.rows import OutboxItem
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

    Hold `lock()` while reading `windows`, `counters`, `alerts`, `incidents` or `questions`: another
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

    @property
    def part_kinds(self) -> PartKinds:
        """The features that the agent has."""

    def part_pages(self, service: str | None = None) -> Sequence[PartPage]:
        """Return the fragments that parts show of a service, or of all. It takes the lock."""

    def questions(self, service: str) -> QuestionAnswers:
        """Return what holds the questions of a service."""

    def unnamed_services(self) -> Sequence[str]:
        """Return services that are counted as `__other__`, those with most traffic first."""

    def lock(self) -> AbstractContextManager[Any]:
        """Return the lock that the writing thread takes."""

    def alerts(self) -> Sequence[Alert]:
        """Return every alert that is pending, firing, or resolved recently: the signals."""

    def incidents(self) -> Sequence[Incident]:
        """Return what people are told of: open incidents, and those lately over."""

    def evidence(self, service: str, trace_id: str) -> dict[str, Any] | None:
        """Return a stored trace (native JSON under `trace`, scores under `results`), or None."""

    def health(self) -> AgentHealth:
        """Return the health of the agent."""


class Outboxes:
    """The outboxes of all states of a view as one; it takes the lock."""

    def __init__(self, view: ServicesView) -> None:
        self._view = view

    def due(self, now: float, limit: int) -> Sequence[OutboxItem]:
        """Return items to send, oldest first; none before an older one of its key."""
        with self._view.lock():
            boxes = [state.outbox for state in self._view.states()]
            items = [item for outbox in boxes for item in outbox.due(now, limit)]
        return sorted(items, key=lambda item: item.created)[:limit]

    def done(self, item_id: str) -> None:
        """Remove an item that was delivered."""
        with self._view.lock():
            for state in self._view.states():
                state.outbox.done(item_id)

    def retry(self, item_id: str, at: float) -> None:
        """Postpone an item until `at`, by the clock that `due` is called with."""
        with self._view.lock():
            for state in self._view.states():
                state.outbox.retry(item_id, at)


class ServicesView(ABC):
    """What an `AgentView` reads in states of services; a service lives in one of them."""

    @property
    @abstractmethod
    def part_kinds(self) -> PartKinds:
        """The features that the states have."""

    @property
    @abstractmethod
    def windows(self) -> Windows:
        """The windows of all services. Hold `lock()`."""

    @abstractmethod
    def states(self) -> Sequence[ServiceState]:
        """Return the states. Hold `lock()`."""

    @abstractmethod
    def lock(self) -> AbstractContextManager[Any]:
        """Return the lock that the writing thread takes."""

    @property
    def outbox(self) -> Outboxes:
        """The notifications that wait for delivery."""
        return Outboxes(self)

    def part_pages(self, service: str | None = None) -> Sequence[PartPage]:
        """Return the fragments that parts show of a service, or of all. It takes the lock."""
        return part_pages(self.part_kinds, self, service)

    def part_places(self, name: str) -> Sequence[Part[Any]]:
        """Return a part in each state of services. Hold `lock()`."""
        return [state.aggregator.parts[name] for state in self.states()]

    def questions(self, service: str) -> QuestionAnswers:
        """Return what holds the questions of a service. Hold `lock()`."""
        for state in self.states():
            found = state.aggregator.view(QuestionAnswers)
            if found.answers(service):
                return found
        return QuestionAnswers()

    def unnamed_services(self) -> Sequence[str]:
        """Return services that are counted as `__other__`. Hold `lock()`."""
        return [
            name for state in self.states() for name in state.aggregator.names.unnamed_services()
        ]

    def alerts(self) -> list[Alert]:
        """Return alerts that are pending or firing or resolved recently. Hold `lock()`."""
        return [alert for state in self.states() for alert in state.aggregator.parts.alerts()]

    def incidents(self) -> list[Incident]:
        """Return the incidents that are open or lately over, pages first. Hold `lock()`."""
        found = [
            incident
            for state in self.states()
            for incident in state.aggregator.parts.find(OpenIncidents).incidents()
        ]
        return sorted(
            found, key=lambda one: (is_closed(one), one.severity != "page", -one.since, one.id)
        )

    def baselines(self) -> list[dict[str, Any]]:
        """Return the baselines of the drift detectors, a row a series."""
        with self.lock():
            return [
                row
                for state in self.states()
                for row in state.aggregator.parts.find(BaselineKeeper).baselines()
            ]


class JudgeSpend(NamedTuple):
    """What was asked of the judge since the start.

    Args:
        model: The model that judges.
        verdicts: The verdicts, with those from the cache.
        cached: Those from the cache.
        usd: What they cost.
        requests: The requests of all services in that time.
    """

    model: str
    verdicts: int
    cached: int
    usd: float
    requests: int

    @property
    def usd_per_answer(self) -> float | None:
        """What judging adds to the cost of an answer; None where its price is not known."""
        return self.usd / self.requests if self.usd and self.requests else None


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
    requests = sum(
        value for (name, _), value in agent.counters.items() if name == "rag_requests_total"
    )
    return JudgeSpend(
        model=models[0],
        verdicts=asked + kept + shared,
        cached=kept + shared,
        usd=usd,
        requests=int(requests),
    )
