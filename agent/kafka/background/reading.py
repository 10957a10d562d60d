"""What the exporters read of a worker: the services of the partitions that it owns.

A service lives in one partition, so its windows are found there. Counters with equal labels are
summed over the partitions, and with the worker's own, which begin anew with the process.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, cast

from agent.alerts import Alert
from agent.consistency.memory import Compared
from agent.counters import CounterKey, Counters, Gauge
from agent.indexing.indexes import Version
from agent.kafka.stages.aggregate_stage import AggregateStage
from agent.kafka.stages.assemble_stage import AssembleStage
from agent.kafka.state.assembly_state import AssemblyState
from agent.kafka.state.partition_state import PartitionState
from agent.reading import Health
from agent.store.rows import OutboxItem
from agent.windows import Windows

__all__ = ["OwnedReading"]

_BY_SERVICE = {"segments", "series", "stages", "seen", "estimate"}
_BY_SERVICE |= {"unscored", "quantiles", "states", "history", "worst"}
_BY_SERVICE |= {"cell", "before", "known"}  # of breakdowns


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

    def named(self, metric: str, scorer: str) -> str:
        for windows in self._all():
            found = windows.named(metric, scorer)
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
    """The outboxes of the partitions as one; `agent.kafka.state.outbox` says what they promise."""

    def __init__(self, reading: OwnedReading) -> None:
        self._reading = reading

    def due(self, now: float, limit: int) -> Sequence[OutboxItem]:
        with self._reading.lock():
            found = [
                item for state in self._reading.states() for item in state.outbox.due(now, limit)
            ]
        return sorted(found, key=lambda item: item.created)[:limit]

    def done(self, item_id: str) -> None:
        with self._reading.lock():
            for state in self._reading.states():
                state.outbox.done(item_id)

    def retry(self, item_id: str, at: float, error: str) -> None:
        with self._reading.lock():
            for state in self._reading.states():
                state.outbox.retry(item_id, at)


class OwnedReading:
    """`agent.reading.Reading` of a worker; `empty` are windows without content."""

    def __init__(
        self,
        segments: Sequence[str],
        empty: Windows,
        *,
        problems: Callable[[], Sequence[str]],
        labels: Callable[[], Sequence[Mapping[str, str]]] = lambda: (),
        gauges: Callable[[], Sequence[Gauge]] = lambda: (),
    ) -> None:
        self.segments = tuple(segments)
        self.stage: AggregateStage | None = None
        """Set when the app is made."""
        self.assemble: AssembleStage | None = None
        """As well, where there is one; its lock is the other's."""
        self.outbox = _OwnedOutbox(self)
        self._problems = problems
        self._labels = labels
        self._gauges = gauges
        self._counters = _OwnedCounters(self.states, self.opened)
        self._windows = _OwnedWindows(self.states, empty)

    def states(self) -> list[PartitionState]:
        """Hold the lock."""
        return [owner.state for owner in self.stage.owners.values()] if self.stage else []

    def opened(self) -> list[AssemblyState]:
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

    def gauges(self) -> Sequence[Gauge]:
        total: Counter[tuple[str, tuple[tuple[str, str], ...]]] = Counter()
        found = [gauge for state in self.states() for gauge in state.gauges()]
        found += [gauge for state in self.opened() for gauge in state.gauges()]
        for name, labels, value in found:
            total[name, labels] += value  # type: ignore[assignment]
        return [*((*key, float(value)) for key, value in total.items()), *self._gauges()]

    def indexes(self) -> Sequence[Version]:
        return [one for state in self.states() for one in state.aggregator.indexing.versions()]

    def consistency(self, service: str, window: str) -> Compared:
        for state in self.states():
            if service in state.aggregator.consistency.services():
                return state.aggregator.consistency.compared(service, window)
        return Compared(0, 0, {})

    def lock(self) -> AbstractContextManager[Any]:
        assert self.stage is not None
        return self.stage.lock

    def alerts(self) -> list[Alert]:
        return [alert for state in self.states() for alert in state.aggregator.engine.alerts()]

    def evidence(self, service: str, trace_id: str) -> dict[str, Any] | None:
        with self.lock():
            for state in self.states():
                body = state.evidence((service, trace_id))
                if body is not None:
                    found: dict[str, Any] = json.loads(body)
                    return found
        return None

    def health(self) -> Health:
        waiting = sum(stage.waiting for stage in (self.stage, self.assemble) if stage)
        return Health(problems=tuple(self._problems()), queue_depth=waiting)
