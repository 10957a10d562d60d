"""The services of the partitions that a worker owns, for the exporters and the admin endpoints.

A service lives in one partition, so its windows are looked up there. Counters with equal labels
are summed over the partitions, with the worker's own, which begin anew with the process.
"""

from __future__ import annotations

import asyncio
import json
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, cast

from ragmeter.aggregate.agent_view import AgentHealth
from ragmeter.aggregate.consistency import AnswerComparison
from ragmeter.aggregate.indexes import IndexVersion
from ragmeter.alerts.alert import Alert
from ragmeter.core.counters import CounterKey, Counters, GaugeSample, add_counts
from ragmeter.core.dedupe import dedupe_gauges
from ragmeter.embedded.commands import COMMAND_PATIENCE, UnknownService
from ragmeter.embedded.intake import StateUnavailable
from ragmeter.kafka.processors.aggregate import AggregateProcessor
from ragmeter.kafka.processors.otlp import AssembleProcessor
from ragmeter.kafka.state.assembly import AssemblyState
from ragmeter.kafka.state.partition import PartitionState
from ragmeter.store.rows import OutboxItem
from ragmeter.windows.windows import Windows

_POLL_SECONDS = 0.05  # between two looks whether a promotion is durable

# methods of `Windows` whose first argument is a service; the last three are of breakdowns
_BY_SERVICE = {
    *("segments", "series", "stages", "count_traces", "estimate", "unscored", "quantiles"),
    *("states", "history", "newest_trace", "worst", "cell", "sums_before", "series_history"),
}


class _OwnedWindows:
    """`Windows` of all partitions; `empty` answers for a service that none of them has."""

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
        return max((one.now for one in self._all() if one.now is not None), default=None)

    def current_scorer(self, metric: str, scorer: str) -> str:
        current = (windows.current_scorer(metric, scorer) for windows in self._all())
        return next((name for name in current if name != scorer), scorer)

    def __getattr__(self, name: str) -> Any:
        if name not in _BY_SERVICE:
            raise AttributeError(name)

        def call(service: str, *args: Any, **options: Any) -> Any:
            own = (windows for windows in self._all() if service in windows.services())
            return getattr(next(own, self._empty), name)(service, *args, **options)

        return call


class _OwnedCounters(Counters):
    """Counters of the process and all partitions; `inc` counts for the process."""

    def __init__(self, view: WorkerView) -> None:
        super().__init__()
        self._view = view

    def items(self) -> Iterator[tuple[CounterKey, float]]:
        total: dict[CounterKey, float] = defaultdict(float, super().items())
        counters = [state.aggregator.counters for state in self._view.partition_states()]
        counters += [state.counters for state in self._view.assembly_states()]
        for key, value in (item for one in counters for item in one.items()):
            total[key] = add_counts(key[0], total[key], value)
        yield from total.items()

    def get(self, name: str, labels: tuple[tuple[str, str], ...] = ()) -> float:
        return dict(self.items()).get((name, labels), 0)

    def update_exemplars(self) -> None:
        self.exemplars = {
            key: value
            for state in self._view.partition_states()
            for key, value in state.aggregator.counters.exemplars.items()
        }


class _OwnedOutbox:
    """The outboxes of all partitions; `ragmeter.kafka.state.rows` says what they guarantee."""

    def __init__(self, view: WorkerView) -> None:
        self._view = view

    def due(self, now: float, limit: int) -> Sequence[OutboxItem]:
        with self._view.lock():
            items = [
                item
                for state in self._view.partition_states()
                for item in state.outbox.due(now, limit)
            ]
        return sorted(items, key=lambda item: item.created)[:limit]

    def done(self, item_id: str) -> None:
        with self._view.lock():
            for state in self._view.partition_states():
                state.outbox.done(item_id)

    def retry(self, item_id: str, at: float, error: str) -> None:
        with self._view.lock():
            for state in self._view.partition_states():
                state.outbox.retry(item_id, at)


class WorkerView:
    """The `ragmeter.aggregate.agent_view` of a worker.

    `aggregate` and `assemble` are set when the app is made; they share a lock. Hold it for
    everything but `evidence`, `outbox` and `health`. `empty` are windows without content, `dedupe`
    is `kafka.dedupe_hours` in seconds.
    """

    def __init__(
        self,
        segments: Sequence[str],
        empty: Windows,
        *,
        dedupe: float,
        problems: Callable[[], Sequence[str]],
        labels: Callable[[], Sequence[Mapping[str, str]]] = lambda: (),
        gauges: Callable[[], Sequence[GaugeSample]] = lambda: (),
    ) -> None:
        self.segments = tuple(segments)
        self.aggregate: AggregateProcessor | None = None
        self.assemble: AssembleProcessor | None = None
        self.outbox = _OwnedOutbox(self)
        self._dedupe = dedupe
        self._problems = problems
        self._labels = labels
        self._gauges = gauges
        self._counters = _OwnedCounters(self)
        self._windows = _OwnedWindows(self.partition_states, empty)

    def partition_states(self) -> list[PartitionState]:
        """Return the states of the scores topic."""
        return [owner.state for owner in self.aggregate.owners.values()] if self.aggregate else []

    def assembly_states(self) -> list[AssemblyState]:
        """Return the states of the spans topic."""
        return [owner.state for owner in self.assemble.owners.values()] if self.assemble else []

    @property
    def windows(self) -> Windows:
        """The windows of all partitions."""
        return cast(Windows, self._windows)

    @property
    def counters(self) -> Counters:
        """The counters of the process and all partitions."""
        self._counters.update_exemplars()
        return self._counters

    @property
    def process(self) -> Counters:
        """Counters to increment for this process alone."""
        return self._counters

    @property
    def waiting(self) -> Mapping[tuple[str, str], int]:
        """Nothing waits for slow tiers: they score inline."""
        return {}

    def instruments(self) -> Sequence[Mapping[str, str]]:
        """Return the labels of the configured tiers."""
        return self._labels()

    def gauges(self) -> Sequence[GaugeSample]:
        """Return gauges, summed over the partitions."""
        gauges = [gauge for state in self.partition_states() for gauge in state.gauges()]
        gauges += [gauge for state in self.assembly_states() for gauge in state.gauges()]
        total: dict[CounterKey, float] = defaultdict(float)
        for name, labels, value in gauges:
            total[name, labels] += value
        known: dict[str, float] = {}
        for state in self.partition_states():
            for service in state.aggregator.windows.services():
                known[service] = min(known.get(service, self._dedupe), state.dedupe_window)
        dedupe = dedupe_gauges(known, self._dedupe)
        return [*((*key, value) for key, value in total.items()), *dedupe, *self._gauges()]

    def indexes(self) -> Sequence[IndexVersion]:
        """Return the index versions of all services."""
        states = self.partition_states()
        return [version for state in states for version in state.aggregator.indexing.versions()]

    def unnamed_services(self) -> Sequence[str]:
        """Return services that are counted as `__other__`."""
        states = self.partition_states()
        return [name for state in states for name in state.aggregator.unnamed_services()]

    def consistency(self, service: str, window: str) -> AnswerComparison:
        """Return the answer comparison of a service."""
        for state in self.partition_states():
            if service in state.aggregator.consistency.services():
                return state.aggregator.consistency.compared(service, window)
        return AnswerComparison(0, 0, {})

    def lock(self) -> AbstractContextManager[Any]:
        """Return the lock of all states."""
        assert self.aggregate is not None
        return self.aggregate.lock

    def alerts(self) -> list[Alert]:
        """Return the alerts of all partitions."""
        states = self.partition_states()
        return [alert for state in states for alert in state.aggregator.engine.alerts()]

    def evidence(self, service: str, trace_id: str) -> dict[str, Any] | None:
        """Return what is known of a worst trace."""
        with self.lock():
            for state in self.partition_states():
                body = state.evidence.get((service, trace_id))
                if body is not None:
                    document: dict[str, Any] = json.loads(body)
                    return document
        return None

    def health(self) -> AgentHealth:
        """Return why the worker is not ready, and how many records wait."""
        waiting = sum(one.waiting for one in (self.aggregate, self.assemble) if one)
        return AgentHealth(problems=tuple(self._problems()), queue_depth=waiting)


class WorkerBaselines:
    """The drift baselines of a worker, for `ragmeter.embedded.endpoints.operator`.

    Make it in the loop of the processor; its methods are called in threads. `processor` is set
    when the app is made.
    """

    def __init__(self) -> None:
        self.processor: AggregateProcessor | None = None
        self._loop = asyncio.get_running_loop()

    def baselines(self) -> list[dict[str, Any]]:
        """Return the baselines of the services that this worker counts."""
        processor = self.processor
        if processor is None:
            return []
        with processor.lock:
            return [
                row
                for _, owner in sorted(processor.owners.items())
                for row in owner.state.aggregator.drift.baselines()
            ]

    def promote(self, service: str | None) -> dict[str, Any]:
        """Make new baselines of a service, or of all here.

        Raises `UnknownService`, or `StateUnavailable` if they cannot be made durable now.
        """
        return asyncio.run_coroutine_threadsafe(self._promote(service), self._loop).result()

    async def _promote(self, service: str | None) -> dict[str, Any]:
        processor = self.processor
        if processor is None or not processor.owners:
            raise StateUnavailable("this worker owns no services now")
        with processor.lock:
            promoted = {
                owner.state: document
                for owner in processor.owners.values()
                if (document := owner.state.promote(service))
            }
        if not promoted:
            here = ", ".join(sorted({row["service"] for row in self.baselines()})) or "none"
            raise UnknownService(
                f"no service {service!r} is watched for drift here, but {here}:"
                " ask the other workers"
            )
        try:
            async with asyncio.timeout(COMMAND_PATIENCE):
                while any(state.promoting for state in promoted):
                    if not promoted.keys() <= {owner.state for owner in processor.owners.values()}:
                        raise StateUnavailable("the group rebalances: ask again")
                    await asyncio.sleep(_POLL_SECONDS)
        except TimeoutError:
            raise StateUnavailable("applied, but Kafka does not take it yet") from None
        documents = list(promoted.values())
        services = {
            name: row for document in documents for name, row in document["services"].items()
        }
        times = [document["at"] for document in documents if document["at"] is not None]
        return {"at": max(times, default=None), "services": services}
