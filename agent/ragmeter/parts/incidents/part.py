"""The part `incidents`."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from copy import deepcopy
from typing import Any, ClassVar, Self

from ragmeter.alerts.alert import Alert
from ragmeter.parts.contract import Event, Part, PartContext, ScoredBatch
from ragmeter.parts.incidents.engine import AlertEngine, RuleState
from ragmeter.parts.incidents.lifecycle import IncidentBook, IncidentRow
from ragmeter.parts.incidents.numbers import DependenceWithin, take_all_as_independent
from ragmeter.parts.incidents.passage_sets import PassageSetCounts, PassageSets
from ragmeter.parts.views import Announcer, Explainer, Incident, OpenIncidents, RequestHistory
from ragmeter.windows.windows import Windows

IncidentsState = RuleState | IncidentRow | PassageSetCounts
"""A row of the state: of the rules, an incident, or the sets of passages of five minutes."""

# What the names of rows begin with; those of rules have their own.
_INCIDENT, _SETS = "incident/", "sets/"

_EXPIRY = 300  # seconds of event time between two looks for what is too old


class IncidentsPart(Part[IncidentsState], Announcer, OpenIncidents):
    """Holds the alerts of rules over the windows, and the incidents that all alerts make."""

    name = "incidents"
    package = __package__
    state: ClassVar[Any] = IncidentsState

    def __init__(
        self,
        engine: AlertEngine,
        windows: Windows,
        dependence: DependenceWithin = take_all_as_independent,
    ) -> None:
        self.engine = engine
        self._windows = windows
        self._sets = PassageSets()
        self._book = IncidentBook(windows, self._sets, dependence)
        self._saved: Mapping[str, RuleState | IncidentRow] = {}
        self._expired_at = 0.0

    @classmethod
    def build(cls, context: PartContext) -> Self:
        """Build the part, which holds no alert yet."""
        engine = AlertEngine(
            context.rules,
            runbooks=context.settings.alerts.runbook_base,
            explain=lambda windows, series: context.find(Explainer).explain_worse(windows, series),
            dependence=lambda *asked: context.find(RequestHistory).dependence(*asked),
        )
        return cls(
            engine,
            context.windows,
            lambda *asked: context.find(RequestHistory).dependence_within(*asked),
        )

    def observe(self, run: ScoredBatch, now: float | None) -> None:
        """Count the sets of passages of requests."""
        self._sets.add(arrival.trace for arrival in run.arrivals)

    def advance(self, now: float) -> Sequence[Event]:
        """Drop sets of passages that are too old."""
        if now // _EXPIRY != self._expired_at // _EXPIRY:
            self._expired_at = now
            self._sets.expire(now)
        return ()

    def evaluate(self, now: float, changed: Mapping[str, Collection[str]]) -> Sequence[Event]:
        """Evaluate the rules at event time `now`."""
        return self.engine.evaluate(self._windows, now, changed)

    def next_due(self) -> float:
        """Return when time alone next moves an alert or an incident."""
        return min(self.engine.next_due(), self._book.next_due())

    def alerts(self) -> Sequence[Alert]:
        """Return copies of the alerts of rules: pending, firing and lately resolved."""
        return self.engine.alerts()

    @property
    def refused_alerts(self) -> int:
        """How many true conditions found no room in the last evaluation."""
        return self.engine.overflow

    def complete(self, alerts: Iterable[Alert]) -> None:
        """Add to alerts a link to their runbook."""
        self.engine.complete(alerts)

    def announce(self, alerts: Sequence[Alert], now: float) -> Sequence[Incident]:
        """Return the incidents that people are to be told of at event time `now`."""
        return self._book.update(alerts, now)

    def incidents(self, service: str | None = None) -> Sequence[Incident]:
        """Return open incidents and those lately over."""
        return self._book.incidents(service)

    def worst_traces(self, incident: Incident) -> Sequence[str]:
        """Return the ids of the traces whose questions are an incident's worst ones."""
        return self._book.worst_traces(incident)

    def name_questions(self, incident: Incident, questions: Sequence[tuple[str, int]]) -> Incident:
        """Return an incident with its worst questions, and remember them."""
        return self._book.name_questions(incident, questions)

    def retain(self, services: Collection[str]) -> None:
        """Forget every other service."""
        self._sets.retain(services)
        self._book.retain(frozenset(services))

    def changes(self) -> Mapping[str, IncidentsState | None]:
        """Return the rows that changed."""
        before = self._saved
        rows = self._saved = self._rows()
        changed: dict[str, IncidentsState | None] = dict.fromkeys(before.keys() - rows.keys())
        changed |= {name: row for name, row in rows.items() if before.get(name) != row}
        return changed | {f"{_SETS}{name}": row for name, row in self._sets.changes().items()}

    def _rows(self) -> dict[str, RuleState | IncidentRow]:
        incidents = {f"{_INCIDENT}{name}": deepcopy(row) for name, row in self._book.rows().items()}
        return {**self.engine.rows(), **incidents}

    def restore(self, rows: Mapping[str, IncidentsState]) -> None:
        """Load the alerts, the incidents and the sets of passages."""
        rules: dict[str, RuleState] = {}
        incidents: dict[str, IncidentRow] = {}
        sets: dict[str, PassageSetCounts] = {}
        for name, row in rows.items():
            if isinstance(row, IncidentRow):
                incidents[name.removeprefix(_INCIDENT)] = row
            elif isinstance(row, PassageSetCounts):
                sets[name.removeprefix(_SETS)] = row
            else:
                rules[name] = row
        self.engine.restore(rules)
        self._book.restore(incidents)
        self._sets.restore(sets)
        self._saved = self._rows()
