"""The two homes of the state machine behind one interface: the embedded agent with its state file,
and what a Kafka worker does with a partition, without brokers."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

from ragmeter.aggregate.aggregator import Aggregator
from ragmeter.aggregate.outputs import AgentOutputs
from ragmeter.alerts.rules import AlertRule
from ragmeter.app.parts import PARTS
from ragmeter.app.settings import load_settings
from ragmeter.config.settings import Settings
from ragmeter.core.counters import Counters
from ragmeter.core.feedback import Feedback
from ragmeter.core.score import ScoredTrace
from ragmeter.embedded.agent import EmbeddedAgent
from ragmeter.ingest.native import decode_trace
from ragmeter.kafka.scores_topic import decode_scores_message
from ragmeter.kafka.state.partition import PartitionState
from ragmeter.kafka.worker_view import ProcessReadings, WorkerView
from ragmeter.parts.collection import document_kinds
from ragmeter.parts.labels.documents import LabelDocument
from ragmeter.scoring.slow_tiers import build_slow_tiers
from ragmeter.store.rows import OutboxItem
from ragmeter.trace import Trace
from ragmeter_exporters.prometheus import PrometheusExporter

from tests.kafka.messages import Processing, message
from tests.kafka.state.partition import Owned, apply, commit, notify
from tests.samples import samples
from tests.traces import START
from tests.waiting import PATIENCE, until

__all__ = ["BACKENDS", "Backend", "settings_of"]


class Backend(Protocol):
    """`view` is an `AgentView`. All that is fed is counted and durable on return. `results` are
    those that were handed on for export."""

    view: Any
    results: list[tuple[Trace, ScoredTrace]]

    def feed(self, lines: Sequence[bytes]) -> None: ...

    def label(self, feedback: Sequence[Feedback]) -> None: ...

    def add_label(self, feedback: Feedback) -> None: ...

    def promote(self, service: str | None) -> Any: ...

    def sent(self) -> list[OutboxItem]: ...

    def metrics(self) -> dict[str, float]: ...

    def restart(self, settings: Settings | None = None) -> None: ...

    def stop(self) -> None: ...


def settings_of(folder: Path, **tree: Any) -> Settings:
    state = {"path": str(folder / "s")}
    return load_settings(environ={}, overrides={"state": state, "kafka": {"partitions": 1}, **tree})


class Embedded:
    def __init__(self, settings: Settings, rules: Sequence[AlertRule] = ()) -> None:
        self._rules = rules
        self.results: list[tuple[Trace, ScoredTrace]] = []
        self._start(settings)

    def _start(self, settings: Settings) -> None:
        self._settings = settings
        self.view: Any = EmbeddedAgent(
            settings,
            self._rules,
            live=False,
            tiers=lambda saved: build_slow_tiers(settings, saved),
            outputs=AgentOutputs(notify, on_results=self.results.extend),
            parts=PARTS,
        )
        self.view.start()

    def feed(self, lines: Sequence[bytes]) -> None:
        items = [(decode_trace(line, 2**20), at) for at, line in enumerate(lines)]
        self.view.accept(items, "test", written=set())
        self.view.wait_idle()

    def label(self, feedback: Sequence[Feedback]) -> None:
        documents = [LabelDocument.of(one) for one in feedback]
        self.view.receive("labels", documents, "test", live=False)

    def add_label(self, feedback: Feedback) -> None:
        (place,) = self.view.part_places("labels")
        self.view.receive_at(place, [LabelDocument.of(feedback)], "page")

    def promote(self, service: str | None) -> Any:
        return self.view.promote(service)

    def sent(self) -> list[OutboxItem]:
        return list(self.view.outbox.due(START + 10**6, 100))

    def metrics(self) -> dict[str, float]:
        return samples(PrometheusExporter(self.view).render().decode())

    def restart(self, settings: Settings | None = None) -> None:
        self.stop()
        self._start(settings or self._settings)

    def stop(self) -> None:
        self.view.stop(5)


class Partition:
    def __init__(self, settings: Settings, rules: Sequence[AlertRule] = ()) -> None:
        self._rules = rules
        self.results: list[tuple[Trace, ScoredTrace]] = []
        self._rows: dict[bytes, bytes] = {}
        self._offset = 0
        self._start(settings)

    def _start(self, settings: Settings) -> None:
        outputs = AgentOutputs(on_results=self.results.extend)
        self._processing = Processing(settings, outputs=outputs)
        pairs = self._processing.pairs()
        self.state = PartitionState(
            settings,
            self._rules,
            pairs,
            dedupe=settings.limits.dedupe_hours * 3600,
            clock=lambda: START,
            monotonic=lambda: 0.0,
            notify=notify,
            parts=PARTS,
        )
        self.state.load(dict(self._rows))
        empty = Aggregator(settings, self._rules, []).windows
        group: Any = Owned({0: self.state})
        readings = ProcessReadings(list)
        self.view: Any = WorkerView(settings, group, empty, Counters(), readings, PARTS)

    def _take(self, values: Sequence[bytes], feedback: bool = False) -> None:
        messages = [message(value, self._offset + at) for at, value in enumerate(values)]
        self._offset += len(values)
        kinds = document_kinds(PARTS, self._processing.settings)
        for one in self._processing.take(*messages, feedback=feedback):
            apply(self.state, [decode_scores_message(one.value or b"", kinds)])
        self._commit()

    def _commit(self) -> None:
        commit(self.state, self._rows)
        self.state.committed()

    def feed(self, lines: Sequence[bytes]) -> None:
        self._take(lines)

    def label(self, feedback: Sequence[Feedback]) -> None:
        self._take([one.model_dump_json(exclude_unset=True).encode() for one in feedback], True)

    def add_label(self, feedback: Feedback) -> None:
        (place,) = self.view.part_places("labels")
        documents = [LabelDocument.of(feedback)]
        adding = threading.Thread(target=self.view.receive_at, args=(place, documents, "page"))
        adding.start()
        until(lambda: self.state.unsaved_commands)
        assert adding.is_alive(), "it is not durable yet"
        self._commit()
        adding.join(PATIENCE)

    def promote(self, service: str | None) -> Any:
        document = self.state.promote(service)
        self._commit()
        return document

    def sent(self) -> list[OutboxItem]:
        return list(self.view.outbox.due(START + 10**6, 100))

    def metrics(self) -> dict[str, float]:
        return samples(PrometheusExporter(self.view).render().decode())

    def restart(self, settings: Settings | None = None) -> None:
        if self.state.changed:  # as a worker that drains
            self._commit()
        self._start(settings or self._processing.settings)

    def stop(self) -> None: ...


BACKENDS: list[Callable[..., Backend]] = [Embedded, Partition]
