"""Present the services of the partitions that a worker owns to the exporters and the admin endpoints.

What the exporters read of a worker: the services of the partitions that it owns.

A service lives in one partition, so its windows are found there. Counters with equal labels are
summed over the partitions, and with the worker's own, which begin anew with the process.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, cast

from ragmeter.aggregate.agent_view import AgentHealth
from ragmeter.aggregate.consistency import AnswerComparison
from ragmeter.aggregate.indexes import IndexVersion
from ragmeter.alerts.alert import Alert
from ragmeter.core.counters import CounterKey, Counters, GaugeSample
from ragmeter.embedded.commands import COMMAND_PATIENCE, UnknownService
from ragmeter.embedded.intake import StateUnavailable
from ragmeter.kafka.processors.aggregate import AggregateOwner, AggregateProcessor
from ragmeter.kafka.processors.otlp import AssembleProcessor
from ragmeter.kafka.state.assembly import AssemblyState
from ragmeter.kafka.state.partition import PartitionState
from ragmeter.store.rows import OutboxItem
from ragmeter.windows.windows import Windows

_BY_SERVICE = {"segments", "series", "stages", "count_traces", "estimate"}
_BY_SERVICE |= {"unscored", "quantiles", "states", "history", "worst"}
_BY_SERVICE |= {"cell", "sums_before", "series_history"}  # of breakdowns


class _OwnedWindows:
    """`Windows` by service. `empty` answers for a service that nobody here has."""

    def __init__(self, states: Callable[[], list[PartitionState]], empty: Windows) -> None:
        self._states = states
        self._empty = empty
        self.names = empty.names
        self.min_samples = empty.min_samples

    def _all(self) -> Iterator[Windows]:
        return (state.aggregator.windows for state in self._states())

    def services(self) -> list[str]:
        return sorted({name for windows in self._all() for name in windows.services()})

    @property
    def now(self) -> float | None:
        """The newest event time: partitions without traffic stand still."""
        return max((found.now for found in self._all() if found.now is not None), default=None)

    def current_scorer(self, metric: str, scorer: str) -> str:
        for windows in self._all():
            found = windows.current_scorer(metric, scorer)
            if found != scorer:
                return found
        return scorer

    def __getattr__(self, name: str) -> Any:
        if name not in _BY_SERVICE:
            raise AttributeError(name)

        def ask(service: str, *args: Any, **options: Any) -> Any:
            own = (windows for windows in self._all() if service in windows.services())
            return getattr(next(own, self._empty), name)(service, *args, **options)

        return ask


class _OwnedCounters(Counters):
    """`inc` counts for the process; reading adds what the partitions hold."""

    def __init__(
        self,
        states: Callable[[], list[PartitionState]],
        opened: Callable[[], list[AssemblyState]],
    ) -> None:
        super().__init__()
        self._states = states
        self._opened = opened

    def items(self) -> Iterator[tuple[CounterKey, float]]:
        total: Counter[CounterKey] = Counter()
        for key, value in super().items():
            total[key] += value  # type: ignore[assignment]
        kept = [state.aggregator.counters for state in self._states()]
        for counters in (*kept, *(state.counters for state in self._opened())):
            for key, value in counters.items():
                total[key] += value  # type: ignore[assignment]
        yield from total.items()

    def get(self, name: str, labels: tuple[tuple[str, str], ...] = ()) -> float:
        return dict(self.items()).get((name, labels), 0)

    def show_exemplars(self) -> None:
        self.exemplars = {
            key: value
            for state in self._states()
            for key, value in state.aggregator.counters.exemplars.items()
        }


class _OwnedOutbox:
    """The outboxes of the partitions as one; `ragmeter.kafka.state.rows` says what they promise."""

    def __init__(self, reading: WorkerView) -> None:
        self._reading = reading

    def due(self, now: float, limit: int) -> Sequence[OutboxItem]:
        with self._reading.lock():
            found = [
                item
                for state in self._reading.partition_states()
                for item in state.outbox.due(now, limit)
            ]
        return sorted(found, key=lambda item: item.created)[:limit]

    def done(self, item_id: str) -> None:
        with self._reading.lock():
            for state in self._reading.partition_states():
                state.outbox.done(item_id)

    def retry(self, item_id: str, at: float, error: str) -> None:
        with self._reading.lock():
            for state in self._reading.partition_states():
                state.outbox.retry(item_id, at)


class WorkerView:
    """`ragmeter.aggregate.agent_view.Reading` of a worker; `empty` are windows without content."""

    def __init__(
        self,
        segments: Sequence[str],
        empty: Windows,
        *,
        problems: Callable[[], Sequence[str]],
        labels: Callable[[], Sequence[Mapping[str, str]]] = lambda: (),
        gauges: Callable[[], Sequence[GaugeSample]] = lambda: (),
    ) -> None:
        self.segments = tuple(segments)
        self.stage: AggregateProcessor | None = None
        """Set when the app is made."""
        self.assemble: AssembleProcessor | None = None
        """As well, where there is one; its lock is the other's."""
        self.outbox = _OwnedOutbox(self)
        self._problems = problems
        self._labels = labels
        self._gauges = gauges
        self._counters = _OwnedCounters(self.partition_states, self.assembly_states)
        self._windows = _OwnedWindows(self.partition_states, empty)

    def partition_states(self) -> list[PartitionState]:
        """Hold the lock."""
        return [owner.state for owner in self.stage.owners.values()] if self.stage else []

    def assembly_states(self) -> list[AssemblyState]:
        """Open traces that came as OTLP. Hold the lock."""
        return [owner.state for owner in self.assemble.owners.values()] if self.assemble else []

    @property
    def windows(self) -> Windows:
        return cast(Windows, self._windows)

    @property
    def counters(self) -> Counters:
        self._counters.show_exemplars()
        return self._counters

    @property
    def process(self) -> Counters:
        """What `inc` counts for this process alone."""
        return self._counters

    @property
    def waiting(self) -> Mapping[tuple[str, str], int]:
        return {}

    def instruments(self) -> Sequence[Mapping[str, str]]:
        return self._labels()

    def gauges(self) -> Sequence[GaugeSample]:
        total: Counter[tuple[str, tuple[tuple[str, str], ...]]] = Counter()
        found = [gauge for state in self.partition_states() for gauge in state.gauges()]
        found += [gauge for state in self.assembly_states() for gauge in state.gauges()]
        for name, labels, value in found:
            total[name, labels] += value  # type: ignore[assignment]
        return [*((*key, float(value)) for key, value in total.items()), *self._gauges()]

    def indexes(self) -> Sequence[IndexVersion]:
        return [
            one for state in self.partition_states() for one in state.aggregator.indexing.versions()
        ]

    def consistency(self, service: str, window: str) -> AnswerComparison:
        for state in self.partition_states():
            if service in state.aggregator.consistency.services():
                return state.aggregator.consistency.compared(service, window)
        return AnswerComparison(0, 0, {})

    def lock(self) -> AbstractContextManager[Any]:
        assert self.stage is not None
        return self.stage.lock

    def alerts(self) -> list[Alert]:
        return [
            alert for state in self.partition_states() for alert in state.aggregator.engine.alerts()
        ]

    def evidence(self, service: str, trace_id: str) -> dict[str, Any] | None:
        with self.lock():
            for state in self.partition_states():
                body = state.evidence((service, trace_id))
                if body is not None:
                    found: dict[str, Any] = json.loads(body)
                    return found
        return None

    def health(self) -> AgentHealth:
        waiting = sum(stage.waiting for stage in (self.stage, self.assemble) if stage)
        return AgentHealth(problems=tuple(self._problems()), queue_depth=waiting)


class WorkerBaselines:
    """`ragmeter.embedded.endpoints.operator.Baselines` of a worker; its methods are called in threads. To be
    made in the loop of the stage."""

    def __init__(self) -> None:
        self.stage: AggregateProcessor | None = None
        """Set when the app is made."""
        self._loop = asyncio.get_running_loop()

    def baselines(self) -> list[dict[str, Any]]:
        stage = self.stage
        if stage is None:
            return []
        with stage.lock:
            return [
                row
                for _, owner in sorted(stage.owners.items())
                for row in owner.state.aggregator.drift.baselines()
            ]

    def promote(self, service: str | None) -> dict[str, Any]:
        """Of a service that this worker counts, or of all of those. Raises `UnknownService` and
        `Unavailable`."""
        return asyncio.run_coroutine_threadsafe(self._promote(service), self._loop).result()

    async def _promote(self, service: str | None) -> dict[str, Any]:
        stage = self.stage
        if stage is None or not stage.owners:
            raise StateUnavailable("this worker owns no services now")
        orders = [
            found
            for owner in stage.owners.values()
            if isinstance(owner, AggregateOwner) and (found := owner.promote(service))
        ]
        if not orders:
            raise UnknownService(f"no service {service!r} is watched for drift {self._here()}")
        try:
            async with asyncio.timeout(COMMAND_PATIENCE):
                await asyncio.gather(*(durable for _, durable in orders))
        except TimeoutError:
            raise StateUnavailable("applied, but Kafka does not take it yet") from None
        services = {name: done for found, _ in orders for name, done in found["services"].items()}
        times = [found["at"] for found, _ in orders if found["at"] is not None]
        return {"at": max(times, default=None), "services": services}

    def _here(self) -> str:
        names = sorted({row["service"] for row in self.baselines()})
        return f"here, but {', '.join(names) or 'none'}: ask the other workers"
