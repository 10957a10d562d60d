"""Backtest: find which alerts would have fired for scored traces, and when.

It feeds the same `Aggregator` as the running agent and follows event time only, so the same
traces in the same order with the same rules give the same alerts, live or here.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ragmeter.aggregate.aggregator import Aggregator
from ragmeter.alerts.alert import Alert
from ragmeter.alerts.rules import AlertRule
from ragmeter.config.settings import Settings
from ragmeter.core.dedupe import DedupeIds
from ragmeter.offline.scored_lines import ScoredLine, bound_strata, split_slow_results
from ragmeter.parts.collection import PartKinds
from ragmeter.parts.views import Incident, OpenIncidents
from ragmeter.windows.windows import Windows

# Remembered alerts; one that flaps takes a place each time it fires. Later ones are only counted.
MAX_ALERTS = 10_000

SETTLE = 1024  # traces between two clearings of what the agent would have committed


@dataclass(slots=True)
class BacktestCounts:
    """Counts of lines and traces; a late trace came after every window had closed for it."""

    lines: int = 0
    bad: int = 0
    duplicates: int = 0
    traces: int = 0
    late: int = 0
    unknown_results: int = 0
    invalid_values: int = 0
    alerts_left_out: int = 0


class Backtest:
    """One run over scored traces: `feed` each trace, call `finish`, then read the results.

    The caller maintains `counts.lines` and `counts.bad`.

    Args:
        parts: The features that raise alerts of their own.
    """

    def __init__(
        self,
        settings: Settings,
        rules: Sequence[AlertRule],
        parts: PartKinds = (),
    ) -> None:
        self.counts = BacktestCounts()
        self.first: float | None = None  # event time of the earliest trace that was not late
        self._aggregator = Aggregator(settings, rules, (), parts=parts)
        self._ids = DedupeIds(settings.limits.dedupe_hours * 3600)
        self._alerts: dict[tuple[str, float, bool], Alert] = {}
        self._incidents: dict[str, Incident] = {}
        self._strata: set[str] = set()

    @property
    def windows(self) -> Windows:
        """The aggregated windows."""
        return self._aggregator.windows

    def alerts(self) -> list[Alert]:
        """Return the alerts that fired and those pending at the end, in the order of time.

        A fired alert is as it was when it fired, with its later end and worst traces.
        """
        return sorted(
            self._alerts.values(),
            key=lambda alert: (
                alert.since if alert.fired_at is None else alert.fired_at,
                (alert.service, alert.segment, alert.rule),
            ),
        )

    def incidents(self) -> list[Incident]:
        """Return the incidents that people would have been told of, by their onset."""
        return sorted(self._incidents.values(), key=lambda one: (one.since, one.service, one.id))

    def feed(self, line: ScoredLine) -> None:
        """Count a trace as the running agent would, each id once."""
        scored = line.trace
        counts = self.counts
        counts.unknown_results += line.unknown
        counts.invalid_values += line.invalid
        if not self._ids.add(scored.service, scored.trace_id, scored.timestamp):
            counts.duplicates += 1
            return
        counts.traces += 1
        late = self.windows.too_late(scored.timestamp)
        bound_strata(scored.results, self._strata)
        scored, rest = split_slow_results(scored)
        pending = [(score.metric, score.scorer) for score in rest.results] if rest else []
        moved = self._aggregator.apply(scored, pending).alerts
        self._note(moved)
        if moved:
            self._note_incidents()
        if late:
            counts.late += 1
        elif rest is not None:
            self._aggregator.finish(rest)
        if not late and (self.first is None or scored.timestamp < self.first):
            self.first = scored.timestamp
        if counts.traces % SETTLE == 0:
            self._settle()

    def finish(self) -> None:
        """Finish after the last trace; event time stays where that trace has brought it."""
        self._settle()
        for alert in self._aggregator.parts.alerts():
            if alert.state == "pending":
                self._alerts[alert.id, alert.since, False] = alert
            elif alert.state == "firing" and (fired := self._find_fired(alert)):
                fired.worst = alert.worst

    def _settle(self) -> None:
        self._aggregator.settle()
        self._aggregator.parts.forget_changes()
        self.windows.take_new_worst()
        self._note_incidents()

    def _note_incidents(self) -> None:
        for incident in self._aggregator.parts.find(OpenIncidents).incidents():
            if incident.id in self._incidents or len(self._incidents) < MAX_ALERTS:
                self._incidents[incident.id] = incident

    def _find_fired(self, alert: Alert) -> Alert | None:
        return (
            None if alert.fired_at is None else self._alerts.get((alert.id, alert.fired_at, True))
        )

    def _note(self, moved: Iterable[Alert]) -> None:
        for alert in moved:
            fired = self._find_fired(alert)
            if fired is not None:
                fired.state = alert.state
                fired.reason = alert.reason
                fired.resolved_at = alert.resolved_at
                fired.worst = alert.worst
            elif alert.state != "firing" or alert.fired_at is None:
                continue  # the end of an alert that was left out
            elif len(self._alerts) >= MAX_ALERTS:
                self.counts.alerts_left_out += 1
            else:
                self._alerts[alert.id, alert.fired_at, True] = alert
