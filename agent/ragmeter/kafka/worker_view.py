"""The services of the partitions that a worker owns, for exporters and operators.

A service lives in one partition, so its windows are looked up there. Counters with equal labels
are summed over the partitions, with the worker's own, which begin anew with the process.
"""

from __future__ import annotations

import json
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence, Set
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, cast

from ragmeter.aggregate.agent_view import AgentHealth, ServicesView
from ragmeter.aggregate.commands import COMMAND_PATIENCE, UnknownService
from ragmeter.config.settings import Settings
from ragmeter.core.counters import CounterKey, Counters, GaugeSample, JoinedCounters
from ragmeter.core.dedupe import dedupe_gauges
from ragmeter.core.errors import StateUnavailable
from ragmeter.kafka.state.assembly import AssemblyState
from ragmeter.kafka.state.partition import PartitionState
from ragmeter.kafka.state_group import StateGroup
from ragmeter.parts.collection import PartKinds
from ragmeter.parts.contract import Document, Part
from ragmeter.windows.windows import JoinedWindows, Windows

_POLL_SECONDS = 0.05  # between two looks whether a command is durable
_NO_SERVICES = "this worker does not count the service now: ask the others"


@dataclass(frozen=True)
class ProcessReadings:
    """What the view reads of the process of a worker, beside its states.

    Args:
        problems: Why it is not ready.
        waiting: Traces on Kafka that it has not read.
        judges: Labels of each judge.
        gauges: Its gauges.
    """

    problems: Callable[[], Sequence[str]]
    waiting: Callable[[], int] = lambda: 0
    judges: Callable[[], Sequence[Mapping[str, str]]] = lambda: ()
    gauges: Callable[[], Sequence[GaugeSample]] = lambda: ()


class WorkerView(ServicesView):
    """The `ragmeter.aggregate.agent_view` of a worker.

    Hold the lock for everything but `evidence`, `outbox` and `health`. `empty` are windows without
    content, `process` the counters of the process.
    """

    def __init__(
        self,
        settings: Settings,
        group: StateGroup,
        empty: Windows,
        process: Counters,
        readings: ProcessReadings,
        parts: PartKinds = (),
    ) -> None:
        self._part_kinds = parts
        self.segments = tuple(settings.segments)
        self._group = group
        self._dedupe = settings.limits.dedupe_hours * 3600
        self._readings = readings
        self._counters = JoinedCounters(
            lambda: [
                process,
                *(state.aggregator.counters for state in self.states()),
                *(state.counters for state in self.assembly_states()),
            ]
        )
        self._windows = JoinedWindows(
            lambda: [state.aggregator.windows for state in self.states()], empty
        )

    @property
    def part_kinds(self) -> PartKinds:
        """The features of a service."""
        return self._part_kinds

    def states(self) -> list[PartitionState]:
        """Return the states of the scores topic."""
        return list(self._group.states(PartitionState).values())

    def assembly_states(self) -> list[AssemblyState]:
        """Return the states of the spans topic."""
        return list(self._group.states(AssemblyState).values())

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
    def waiting(self) -> Mapping[tuple[str, str], int]:
        """Nothing waits for slow tiers: they score inline."""
        return {}

    def instruments(self) -> Sequence[Mapping[str, str]]:
        """Return the labels of the configured tiers."""
        return self._readings.judges()

    def gauges(self) -> Sequence[GaugeSample]:
        """Return gauges, summed over the partitions."""
        gauges = [gauge for state in self.states() for gauge in state.gauges()]
        gauges += [gauge for state in self.assembly_states() for gauge in state.gauges()]
        total: dict[CounterKey, float] = defaultdict(float)
        for name, labels, value in gauges:
            total[name, labels] += value
        known: dict[str, float] = {}
        for state in self.states():
            for service in state.aggregator.windows.services():
                known[service] = min(known.get(service, self._dedupe), state.dedupe_window)
        dedupe = dedupe_gauges(known, self._dedupe)
        return [*((*key, value) for key, value in total.items()), *dedupe, *self._readings.gauges()]

    def lock(self) -> AbstractContextManager[Any]:
        """Return the lock of all states."""
        return self._group.lock

    def evidence(self, service: str, trace_id: str) -> dict[str, Any] | None:
        """Return what is known of a worst trace."""
        with self.lock():
            bodies = [state.evidence.get((service, trace_id)) for state in self.states()]
        return next((json.loads(body) for body in bodies if body is not None), None)

    def health(self) -> AgentHealth:
        """Return why the worker is not ready, and how many messages with traces wait."""
        return AgentHealth(
            problems=tuple(self._readings.problems()), queue_depth=self._readings.waiting()
        )

    def promote(self, service: str | None) -> dict[str, Any]:
        """Make new drift baselines of a service, or of all here; call it in a thread.

        Raises `UnknownService`, or `StateUnavailable` if they cannot be made durable now.
        """
        if not self.states():
            raise StateUnavailable(_NO_SERVICES)
        with self.lock():
            promoted = {
                state: document
                for state in self.states()
                if (document := state.promote(service)) is not None
            }
        if not promoted:
            here = ", ".join(sorted({row["service"] for row in self.baselines()})) or "none"
            raise UnknownService(
                f"no service {service!r} is watched for drift here, but {here}:"
                " ask the other workers"
            )
        self._await_commit(promoted.keys())
        documents = list(promoted.values())
        services = {
            name: row for document in documents for name, row in document["services"].items()
        }
        times = [document["at"] for document in documents if document["at"] is not None]
        return {"at": max(times, default=None), "services": services}

    def receive_at(self, place: Part[Any], documents: Sequence[Document], source: str) -> list[str]:
        """Have a part of a partition here count documents; call it in a thread.

        Raises:
            StateUnavailable: They cannot be made durable now.
        """
        with self.lock():
            found = [state for state in self.states() if state.has_part(place)]
            if not found:
                raise StateUnavailable(_NO_SERVICES)
            outcomes = found[0].receive(place.name, documents, source)
        self._await_commit(set(found))
        return outcomes

    def _await_commit(self, states: Set[PartitionState]) -> None:
        give_up_at = time.monotonic() + COMMAND_PATIENCE
        while any(state.unsaved_commands for state in states):
            if not states <= set(self.states()):
                raise StateUnavailable("the group rebalances: ask again")
            if time.monotonic() > give_up_at:
                raise StateUnavailable(
                    "applied, but lost if this worker ends before Kafka takes it"
                )
            time.sleep(_POLL_SECONDS)
