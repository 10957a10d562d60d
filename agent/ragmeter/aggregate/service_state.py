"""The state of services as one object: traces, documents and time in, a log of its changes out.

Pure. Each `StateCommit` holds all that changed since the one before; what a restart needs is in
those that were committed. The embedded agent commits them to SQLite (`ragmeter.store.sqlite`), a
Kafka worker to a changelog (`ragmeter.kafka.state.rows`).

    state = ServiceState(...); state.restore(saved, ...)
    for run in state.count_all(traces): ...
    log.commit(state.changes(...)); state.committed()
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from ragmeter.aggregate.aggregator import Aggregator, AppliedRun
from ragmeter.aggregate.counting import Arriving
from ragmeter.aggregate.evidence import (
    EvidenceKey,
    Results,
    count_questions,
    quote_server,
    quote_unsupported,
    scores_in_evidence,
)
from ragmeter.alerts.alert import Alert
from ragmeter.alerts.rules import AlertRule
from ragmeter.config.scoring import SamplingSettings
from ragmeter.config.settings import Settings
from ragmeter.core.clocks import Clocks, EventClock
from ragmeter.core.counters import GaugeSample
from ragmeter.core.score import ScoredTrace
from ragmeter.core.tiers import MetricScorer
from ragmeter.parts.collection import PartKinds
from ragmeter.parts.contract import Part
from ragmeter.parts.views import Announcer, BaselineKeeper, Incident, OpenIncidents
from ragmeter.store.rows import OutboxItem, SavedState, StateCommit

IDLE_SECONDS = 1.0  # how often event time moves on while nothing arrives
SAVE_IDLE_SECONDS = 60.0  # how often event time is written down when nothing else changed

MakeNotifications = Callable[[Incident, float], Sequence[OutboxItem]]
"""Makes the notifications of an incident that people are told of, at a Unix time."""


class Outbox:
    """Notifications that wait for delivery, at least once: removals go with the next commit.

    The time of the next attempt is not saved: after a restart all that waits is due. Nothing is due
    before the commit it came with is durable (`settle`): a lost step is repeated, perhaps at
    another event time, and the receiver would be told of two firings.
    """

    def __init__(self, items: Iterable[OutboxItem] = ()) -> None:
        self._items = {item.id: item for item in items}
        self._due: dict[str, float] = {}
        self._unsettled: set[str] = set()
        # since the last `drain`
        self._added: list[OutboxItem] = []
        self._delivered: list[str] = []

    def add(self, items: Iterable[OutboxItem]) -> None:
        """Add items; one with a known id is the same again."""
        for item in items:
            if item.id not in self._items:
                self._items[item.id] = item
                self._unsettled.add(item.id)
                self._added.append(item)

    def settle(self) -> None:
        """Release the items that were added: they are durable."""
        self._unsettled.clear()

    def due(self, now: float, limit: int) -> list[OutboxItem]:
        """Return items to send, oldest first, and none before an older one of its key."""
        first: dict[str, OutboxItem] = {}
        for item in self._items.values():
            first.setdefault(item.key, item)
        return [
            one
            for one in first.values()
            if one.id not in self._unsettled and self._due.get(one.id, 0.0) <= now
        ][:limit]

    def done(self, item_id: str) -> None:
        """Remove a delivered item."""
        if self._items.pop(item_id, None) is not None:
            self._due.pop(item_id, None)
            self._delivered.append(item_id)

    def retry(self, item_id: str, at: float) -> None:
        """Postpone an item to a time in Unix seconds."""
        item = self._items.get(item_id)
        if item is not None:
            self._items[item_id] = replace(item, attempts=item.attempts + 1)
            self._due[item_id] = at

    @property
    def changed(self) -> bool:
        """Whether anything was added or delivered since the last `drain`."""
        return bool(self._added or self._delivered)

    def drain(self) -> tuple[list[OutboxItem], list[str]]:
        """Return what was added, and the ids of what was delivered, since the last call."""
        added, self._added = self._added, []
        delivered, self._delivered = self._delivered, []
        return added, delivered


class ServiceState:
    """Windows, drift, alerts and features of services, and the event time they reached.

    Args:
        settings: The settings of the agent.
        rules: The alert rules to evaluate.
        expected: The (metric, scorer) pairs that each trace has a result for.
        clocks: The clocks of the process.
        notify: Makes the notifications of incidents.
        share: How many such states share the services.
        parts: The features of a service.
        stored_scores: Returns the stored scores of a trace, of a bounded service and a trace id.

    Attributes:
        transitions: Alerts that moved since the last `changes`.
        time: The event time that was reached.
        outbox: Notifications that wait for delivery.
    """

    def __init__(
        self,
        settings: Settings,
        rules: Sequence[AlertRule],
        expected: Sequence[MetricScorer],
        clocks: Clocks,
        notify: MakeNotifications = lambda alert, now: (),
        share: int = 1,
        parts: PartKinds = (),
        stored_scores: Callable[[str, str], Results] = lambda service, trace_id: (),
    ) -> None:
        # no state knows the services of the others: each expects an equal share
        self.aggregator = Aggregator(
            settings=settings,
            rules=rules,
            expected=expected,
            share=1 / share,
            parts=parts,
            stored_scores=stored_scores,
        )
        self.time = EventClock()
        self.transitions: list[Alert] = []
        self.outbox = Outbox()
        self.clocks = clocks
        self._saved_at = clocks.monotonic()
        self._content = settings.privacy.content
        self._notify = notify
        self._announced: Sequence[Incident] = ()

    def restore(self, saved: SavedState) -> None:
        """Load what was committed, in a new object; evidence is in its store.

        Raises:
            ValueError, KeyError, TypeError: The rows make no sense.
        """
        self.aggregator.restore(saved.buckets, saved.counters, saved.meta)
        down = self.clocks.wall() - saved.meta.get("wall_time", 0.0)
        self.time.restore(self.aggregator.windows.now, down, self.clocks.monotonic())
        self.outbox = Outbox(saved.outbox)

    def count_all(
        self,
        traces: Sequence[ScoredTrace],
        turn: int = 0,
        ready: Callable[[int, bool], Arriving] | None = None,
    ) -> Iterator[AppliedRun]:
        """Count traces, as `Aggregator.apply_all`."""
        for run in self.aggregator.apply_all(traces, turn, ready):
            self.transitions += run.alerts
            yield run

    def finish(self, scored: ScoredTrace) -> ScoredTrace:
        """Count results of a slow tier, as `Aggregator.finish`."""
        return self.aggregator.finish(scored)

    def resample(self, settings: SamplingSettings) -> None:
        """Follow other rates from the next trace on."""
        self.aggregator.settle()
        self.aggregator.parts.resample(settings)

    def take_new_evidence(self) -> set[EvidenceKey]:
        """Return the traces whose texts are to be kept since the last call."""
        return self.aggregator.windows.take_new_worst() | self.aggregator.parts.take_kept()

    def evidence_keys(self) -> set[EvidenceKey]:
        """Return the traces whose texts are to be kept."""
        return _shown_traces(self.aggregator) | self.aggregator.parts.kept_traces()

    def settle(self) -> None:
        """Bring counters and clock up to date with what was counted, once for many traces."""
        self.aggregator.settle()
        self.time.observe(self.aggregator.windows.now, self.clocks.monotonic())

    def has_part(self, place: Part[Any]) -> bool:
        """Return whether a part is one of this state."""
        return self.aggregator.parts[place.name] is place

    def promote(self, service: str | None) -> dict[str, Any] | None:
        """Make new baselines, as `BaselineKeeper.promote`; None where there are none."""
        now = self.aggregator.windows.now
        promoted = self.aggregator.view(BaselineKeeper).promote(service, now)
        if promoted is None:
            return None
        document, alerts = promoted
        self.transitions += alerts
        if now is not None:
            self.aggregator.announce(now)
        return document

    def gauges(self) -> list[GaugeSample]:
        """Return the gauges of the aggregator and its parts."""
        return self.aggregator.gauges()

    @property
    def due(self) -> bool:
        """Whether to commit although nothing was counted: an alert has moved, or only time."""
        idle = self.clocks.monotonic() - self._saved_at
        return bool(self.transitions) or idle >= SAVE_IDLE_SECONDS

    def changes(self, upto: int = 0, *, whole: bool = True) -> StateCommit:
        """Return all that changed since the last call but evidence and outbox.

        It counts as saved: if it is not committed, give this object up and restore a new one.
        `whole` is that of `Windows.drain`.
        """
        self._saved_at = self.clocks.monotonic()
        self._committed_at = self.clocks.wall()
        step = self.aggregator.changes(whole)
        self.transitions = []
        self._announced = self.aggregator.take_notifications()
        step.upto = upto
        step.meta |= {"wall_time": self._committed_at, "content": self._content}
        return step

    def add_notifications(
        self, step: StateCommit, evidence: Callable[[str, str], bytes | None]
    ) -> None:
        """Add to the last `changes` the notifications that belong to them, and deliveries.

        `evidence` returns what is stored of a trace, of a service and a trace id.
        """
        at = self._committed_at
        told = [self._with_texts(incident, evidence) for incident in self._announced]
        self.outbox.add(item for incident in told for item in self._notify(incident, at))
        step.outbox, step.delivered = self.outbox.drain()

    def _with_texts(
        self, incident: Incident, evidence: Callable[[str, str], bytes | None]
    ) -> Incident:
        """Return an incident with what the texts of its worst traces say."""
        if incident.ended_at is not None:
            return incident
        announcer = self.aggregator.parts.find(Announcer)
        bodies = (evidence(incident.service, name) for name in announcer.worst_traces(incident))
        if questions := count_questions(bodies):
            incident = announcer.name_questions(incident, questions)

        def read(service: str, name: str) -> list[dict[str, Any]]:
            return scores_in_evidence(evidence(service, name))

        return quote_server(quote_unsupported(incident, read), read)

    def committed(self) -> None:
        """Release what waits until the last `changes` are durable."""
        self.outbox.settle()


def _shown_traces(aggregator: Aggregator) -> set[EvidenceKey]:
    """Return the traces that the page, an alert or an incident may show."""
    windows = aggregator.windows
    shown = {
        (service, trace_id)
        for service in windows.services()
        for trace_id in windows.worst_ids(service)
    }
    alerts, incidents = aggregator.parts.alerts(), aggregator.parts.find(OpenIncidents).incidents()
    shown |= {(alert.service, name) for alert in alerts for name in alert.worst}
    return shown | {(incident.service, name) for incident in incidents for name in incident.worst}
