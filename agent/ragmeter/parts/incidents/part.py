"""The part `incidents`."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, ClassVar, Self

from ragmeter.alerts.alert import KEEP_RESOLVED, Alert
from ragmeter.parts.contract import Event, Part, PartContext
from ragmeter.parts.incidents.engine import AlertEngine, IncidentState
from ragmeter.parts.incidents.from_alerts import incident_of
from ragmeter.parts.views import Announcer, Explainer, Incident, OpenIncidents
from ragmeter.windows.windows import Windows


class IncidentsPart(Part[IncidentState], Announcer, OpenIncidents):
    """Holds the alerts of rules over the windows, and makes incidents of all alerts."""

    name = "incidents"
    package = __package__
    state: ClassVar[Any] = IncidentState

    def __init__(self, engine: AlertEngine, windows: Windows) -> None:
        self.engine = engine
        self._windows = windows
        self._saved: Mapping[str, IncidentState] = {}
        self._over: dict[str, Incident] = {}  # lately, by id

    @classmethod
    def build(cls, context: PartContext) -> Self:
        """Build the part, which holds no alert yet."""
        engine = AlertEngine(
            context.rules,
            runbooks=context.settings.alerts.runbook_base,
            explain=lambda windows, series: context.find(Explainer).explain_worse(windows, series),
        )
        return cls(engine, context.windows)

    def evaluate(self, now: float, changed: Mapping[str, Collection[str]]) -> Sequence[Event]:
        """Evaluate the rules at event time `now`."""
        return self.engine.evaluate(self._windows, now, changed)

    def next_due(self) -> float:
        """Return when time alone next moves an alert or its notification."""
        return self.engine.next_due()

    def alerts(self) -> Sequence[Alert]:
        """Return copies of the alerts of rules: pending, firing and lately resolved."""
        return self.engine.alerts()

    @property
    def refused_alerts(self) -> int:
        """How many true conditions found no room in the last evaluation."""
        return self.engine.overflow

    def complete(self, alerts: Iterable[Alert]) -> None:
        """Add to alerts what they are folded under, and a link to their runbook."""
        self.engine.complete(alerts)

    def announce(self, alerts: Sequence[Alert], now: float) -> Sequence[Incident]:
        """Return the incidents that people are to be told of at event time `now`."""
        told = [incident_of(alert) for alert in self.engine.announce(alerts, now)]
        for incident in told:
            if incident.over:
                self._over[incident.id] = incident
            else:
                self._over.pop(incident.id, None)
        for name, incident in list(self._over.items()):
            if now - incident.updated_at >= KEEP_RESOLVED:
                del self._over[name]
        return told

    def incidents(self, service: str | None = None) -> Sequence[Incident]:
        """Return the incidents of a service, or of all, that are open or lately over."""
        standing = [incident_of(alert, folded) for alert, folded in self.engine.announced()]
        return [
            incident
            for incident in (*standing, *self._over.values())
            if service in (None, incident.service)
        ]

    def changes(self) -> Mapping[str, IncidentState | None]:
        """Return the rows of alerts that changed."""
        before = self._saved
        rows = self._saved = self.engine.rows()
        changed: dict[str, IncidentState | None] = dict.fromkeys(before.keys() - rows.keys())
        return changed | {name: row for name, row in rows.items() if before.get(name) != row}

    def restore(self, rows: Mapping[str, IncidentState]) -> None:
        """Load the alerts."""
        self.engine.restore(rows)
        self._saved = self.engine.rows()
