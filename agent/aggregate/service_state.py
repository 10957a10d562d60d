"""The state of services as one object: traces, labels and time in, a log of its changes out.

Pure. Each `StateCommit` holds all that changed since the one before; what a restart needs is in
those that were committed. The embedded agent commits them to SQLite (`ragmeter.store.sqlite`), a
Kafka worker to a changelog (`ragmeter.kafka.state.rows`).

    state = ServiceState(...); state.restore(saved, ...)
    state.count(scored) ...; log.commit(state.changes(...))
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from ragmeter.aggregate.aggregator import (
    SAVE_IDLE_SECONDS,
    Aggregator,
    AppliedTrace,
    restore_aggregator,
    take_changes,
)
from ragmeter.aggregate.evidence import Results, quote_unsupported
from ragmeter.aggregate.feedback_join import FeedbackJoin
from ragmeter.alerts.alert import Alert
from ragmeter.alerts.rules import AlertRule
from ragmeter.config.settings import Settings
from ragmeter.core.clocks import Clocks, EventClock
from ragmeter.core.counters import CounterKey, GaugeSample
from ragmeter.core.score import ScoredTrace
from ragmeter.core.tiers import MetricScorer
from ragmeter.store.rows import OutboxItem, StateCommit
from ragmeter.windows.state import BucketRow

MakeNotifications = Callable[[Alert, float], Sequence[OutboxItem]]
"""Makes the notifications of an alert that is announced, or its end, at a Unix time."""


class ServiceState:
    """Windows, drift, alerts and feedback of services, and the event time they have reached.

    Args:
        settings: The settings of the agent.
        rules: The alert rules to evaluate.
        expected: The (metric, scorer) pairs that each trace has a result for.
        feedback: Joins labels to traces, with a store of its own.
        clocks: The clocks of the process.
        notify: Makes the notifications of alerts.
        share: How many such states share the services.

    Attributes:
        transitions: Alerts that moved since the last `changes`.
        time: The event time that was reached.
    """

    def __init__(
        self,
        settings: Settings,
        rules: Sequence[AlertRule],
        expected: Sequence[MetricScorer],
        feedback: FeedbackJoin,
        clocks: Clocks,
        notify: MakeNotifications = lambda alert, now: (),
        share: int = 1,
    ) -> None:
        # no state knows the services of the others: each has an equal share of false alarms
        self.aggregator = Aggregator(settings, rules, expected, 1 / share)
        self.feedback = feedback
        self.time = EventClock()
        self.transitions: list[Alert] = []
        self.clocks = clocks
        self._saved_at = clocks.monotonic()
        self._content = settings.privacy.content
        self._notify = notify
        self._notifications: Sequence[Alert] = ()

    def restore(
        self,
        buckets: Sequence[BucketRow],
        counters: Iterable[tuple[CounterKey, float]],
        meta: Mapping[str, Any],
    ) -> None:
        """Load what was committed, in a new object; the feedback is in its store.

        Raises:
            ValueError, KeyError, TypeError, AssertionError: The rows make no sense.
        """
        restore_aggregator(self.aggregator, buckets, counters, meta)
        self.feedback.restore()
        down = self.clocks.wall() - meta.get("wall_time", 0.0)
        self.time.restore(self.aggregator.windows.now, down, self.clocks.monotonic())

    def count(
        self, scored: ScoredTrace, pending: Sequence[MetricScorer] = (), turn: int = 0
    ) -> AppliedTrace:
        """Count a trace, as `Aggregator.apply`."""
        applied = self.aggregator.apply(scored, pending, turn)
        self.transitions += applied.alerts
        return applied

    def count_all(self, traces: Sequence[ScoredTrace]) -> Iterator[list[AppliedTrace]]:
        """Count traces, as `Aggregator.apply_all`."""
        for applied in self.aggregator.apply_all(traces):
            self.transitions += applied[0].alerts
            yield applied

    def settle(self) -> None:
        """Bring counters and clock up to date with what was counted, once for many traces."""
        self.aggregator.settle()
        self.time.observe(self.aggregator.windows.now, self.clocks.monotonic())

    def promote(self, service: str | None) -> dict[str, Any] | None:
        """Make new drift baselines, as `Aggregator.promote`; None where there are none."""
        promoted = self.aggregator.promote(service)
        if promoted is None:
            return None
        document, alerts = promoted
        self.transitions += alerts
        return document

    def gauges(self) -> list[GaugeSample]:
        """Return the gauges of aggregator and feedback."""
        return [*self.aggregator.gauges(), *self.feedback.gauges()]

    @property
    def due(self) -> bool:
        """Whether to commit although nothing was counted: an alert has moved, or only time."""
        idle = self.clocks.monotonic() - self._saved_at
        return bool(self.transitions) or idle >= SAVE_IDLE_SECONDS

    def changes(self, upto: int = 0, *, whole: bool = True) -> StateCommit:
        """Return all that changed since the last call but evidence, feedback and notifications.

        It counts as saved: if it is not committed, give this object up and restore a new one.
        `whole` is that of `Windows.drain`.
        """
        self._saved_at, self._committed_at = self.clocks.monotonic(), self.clocks.wall()
        step = take_changes(self.aggregator, whole)
        self.transitions = []
        self._notifications = self.aggregator.engine.take_notifications()
        step.upto = upto
        step.meta |= {"wall_time": self._committed_at, "content": self._content}
        return step

    def notifications(self, evidence: Callable[[str, str], Results]) -> list[OutboxItem]:
        """Return the notifications that belong to the last `changes`.

        `evidence` returns the stored scores of a trace, of a service and a trace id.
        """
        for alert in self._notifications:
            quote_unsupported(alert, evidence)
        at = self._committed_at
        return [item for alert in self._notifications for item in self._notify(alert, at)]
