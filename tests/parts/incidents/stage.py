"""A service whose minutes a test writes by hand, and the incidents that its alerts make."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from pydantic import TypeAdapter
from ragmeter.alerts.alert import Alert
from ragmeter.core.score import Score, ScoredTrace, ScoreState
from ragmeter.parts.incidents.lifecycle import IncidentBook, IncidentRow
from ragmeter.parts.incidents.passage_sets import PassageSets
from ragmeter.parts.views import Incident
from ragmeter.windows.windows import Windows

from tests.exporters.alerts import make

BEGIN = 1_779_926_400.0
MINUTE = 60.0
ROWS: TypeAdapter[dict[str, IncidentRow]] = TypeAdapter(dict[str, IncidentRow])


def is_counted(number: int, share: float) -> bool:
    """Whether the request of this number is one of an evenly spread share."""
    return math.floor(number * share) != math.floor((number - 1) * share)


class Stage:
    """Ten requests a minute of `bot`; the book is asked every minute. `restarts`: a new one."""

    def __init__(self, *, restarts: bool = False) -> None:
        self.windows = Windows()
        self.sets = PassageSets()
        self.book = IncidentBook(self.windows, self.sets)
        self.alerts: dict[str, Alert] = {}
        self.minute = 0
        self.restarts = restarts
        self.messages: list[tuple[int, Incident]] = []
        self._number = 0

    @property
    def now(self) -> float:
        return BEGIN + self.minute * MINUTE

    def run(
        self,
        minutes: int,
        refused: float = 0.05,
        errors: float = 0.0,
        requests: int = 10,
        tags: Mapping[str, str] | None = None,
    ) -> None:
        """Let minutes pass with shares of refusals and errors, spread evenly."""
        for _ in range(minutes):
            self.ask(requests, refused=refused, errors=errors, tags=tags)
            self.minute += 1
            self.look()

    def ask(
        self,
        requests: int,
        *,
        refused: float = 0.05,
        errors: float = 0.0,
        tags: Mapping[str, str] | None = None,
        scores: Mapping[str, float] | None = None,
    ) -> None:
        """Add requests to the present minute; all have the same `scores`."""
        for place in range(requests):
            self._number += 1
            trace = self._trace(place * MINUTE / requests, refused, errors, scores or {})
            self.windows.add(
                trace, "bot", [f"{tag}={value}" for tag, value in (tags or {}).items()]
            )

    def _trace(
        self, offset: float, refused: float, errors: float, scores: Mapping[str, float]
    ) -> ScoredTrace:
        number = self._number
        values = {
            "error": float(is_counted(number, errors)),
            "timeout": 0.0,
            "answered": float(not is_counted(number, refused)),
            **scores,
        }
        results = [
            Score(metric=metric, scorer="builtin", state=ScoreState.SCORED, value=value)
            for metric, value in values.items()
        ]
        return ScoredTrace(
            trace_id=f"t{number}",
            service="bot",
            timestamp=self.now + offset,
            status="ok",
            results=results,
        )

    def skip(self, minutes: int) -> None:
        """Let minutes pass without a request and without a look before their end."""
        self.minute += minutes
        self.look()

    def look(self) -> None:
        """Ask the book at the present minute."""
        self.windows.advance(self.now)
        if self.restarts:
            rows = ROWS.validate_json(ROWS.dump_json(dict(self.book.rows())))
            self.book = IncidentBook(self.windows, self.sets)
            self.book.restore(rows)
        alerts = [alert.copy() for alert in self.alerts.values()]
        self.messages += [(self.minute, one) for one in self.book.update(alerts, self.now)]

    def fire(self, **changes: Any) -> None:
        """An alert fires now; by default the rule on refusals."""
        fields: dict[str, Any] = {
            "rule": "AnsweredLow",
            "metric": "answered",
            "since": self.now - MINUTE,
            "fired_at": self.now,
            "updated_at": self.now,
            "value": 0.6,
            "baseline": 0.95,
            **changes,
        }
        alert = make(**fields)
        self.alerts[alert.rule] = alert

    def fire_drift(self, since: float, earliest: float, latest: float, **changes: Any) -> None:
        """An alert of drift fires now, with the interval of its onset."""
        drift = {"kind": "mean", "since_earliest": earliest, "since_latest": latest}
        self.fire(rule="RagDrift", since=since, statistic="drift", drift=drift, **changes)

    def resolve(self, rule: str = "AnsweredLow", reason: str = "") -> None:
        self.alerts[rule].resolve(reason, self.now)

    def notified(self) -> list[tuple[int, str, str, str]]:
        """The messages: minute, severity, state, kind."""
        return [(minute, one.severity, one.state, one.kind) for minute, one in self.messages]

    def states(self) -> list[str]:
        return [one.state for one in self.book.incidents()]
