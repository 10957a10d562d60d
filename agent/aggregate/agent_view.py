"""The read-only view of the running agent that exporters depend on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Protocol

from ragmeter.aggregate.consistency import _AnswerComparison
from ragmeter.aggregate.indexes import IndexVersion
from ragmeter.alerts.alert import Alert
from ragmeter.core.counters import Counters, GaugeSample
from ragmeter.windows.windows import Windows


@dataclass(frozen=True, slots=True)
class AgentHealth:
    """`problems` says in words why the agent is not ready; empty when it is.

    Seconds are None where nobody knows: nothing was processed yet, or what waits is on Kafka.
    """

    problems: tuple[str, ...] = ()
    queue_depth: int = 0
    oldest_unprocessed_seconds: float | None = None
    processing_lag_seconds: float | None = None
    pending: Mapping[str, int] = field(default_factory=dict)
    """Traces that wait for a slow tier, by tier."""

    @property
    def ready(self) -> bool:
        return not self.problems


class AgentView(Protocol):
    """Hold `lock()` while reading `windows`, `counters` or `alerts`: another thread writes them."""

    @property
    def windows(self) -> Windows: ...

    @property
    def counters(self) -> Counters: ...

    @property
    def segments(self) -> Sequence[str]:
        """Configured segment tags, for example `["model"]`."""

    @property
    def waiting(self) -> Mapping[tuple[str, str], int]:
        """Results that slow tiers still owe, by (metric, scorer)."""

    def instruments(self) -> Sequence[Mapping[str, str]]:
        """What each judge is, as labels: name, model as served, prompts, fingerprint."""

    def gauges(self) -> Sequence[GaugeSample]:
        """How the slow tiers are: (name, label pairs, value)."""

    def indexes(self) -> Sequence[IndexVersion]:
        """What indexing jobs have said, by service and index, the latest version first. Hold
        `lock()`; what is returned must not change afterwards."""

    def consistency(self, service: str, window: str) -> _AnswerComparison:
        """How much answers to one question differ. Hold `lock()`."""

    def lock(self) -> AbstractContextManager[Any]: ...

    def alerts(self) -> Sequence[Alert]:
        """Every alert that is pending or firing, and those resolved lately."""

    def evidence(self, service: str, trace_id: str) -> dict[str, Any] | None:
        """The kept trace (native JSON under `trace`, its scores under `results`), or None."""

    def health(self) -> AgentHealth: ...
