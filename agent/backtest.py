"""Scored traces through the aggregate half: what would have fired, and when. Pure.

The same `Aggregator` that the running agent feeds, by event time alone: the same traces in the
same order and the same rules give the same alerts, be it live, in a replay or here.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from agent.aggregate import Aggregator
from agent.alerts import Alert, Rule
from agent.config import Settings
from agent.labels import OTHER
from agent.scored_input import Line, apart
from agent.seen_ids import SeenIds
from agent.timeline_tracks import Tracks
from agent.trace import Score
from agent.windows import Windows
from agent.windows.periods import seconds_of

__all__ = ["Backtest", "Counts"]

MAX_ALERTS = 10_000
"""Alerts remembered, one that flaps each time it fires; what fires later is only counted."""

MAX_STRATA = 16
"""Names of strata come from a file, and each has its sums in every bucket; the agent has five."""

SETTLE = 1024  # traces between two clearings of what the agent would have committed


@dataclass(slots=True)
class Counts:
    """What became of the lines. A late trace came after every window had closed for it."""

    lines: int = 0
    bad: int = 0
    duplicates: int = 0
    traces: int = 0
    late: int = 0
    unknown_results: int = 0
    invalid_values: int = 0
    alerts_left_out: int = 0


class Backtest:
    """Feed it each trace, then `finish`, then read. `tracks` samples the estimates behind the
    rules for a picture. `counts.lines` and `counts.bad` are the caller's."""

    def __init__(
        self, settings: Settings, rules: Sequence[Rule], tracks: Tracks | None = None
    ) -> None:
        self.counts = Counts()
        self.first: float | None = None
        """Event time of the earliest trace that was not late."""
        self._aggregator = Aggregator(settings, rules, ())
        self._ids = SeenIds(settings.limits.dedupe_hours * 3600)
        self._tracks = tracks
        # behind the longest window every estimate is gone: there is nothing more to sample
        self._sampled = max(map(seconds_of, settings.windows)) + settings.alerts.evaluation_seconds
        self._alerts: dict[tuple[str, float, bool], Alert] = {}
        self._strata: set[str] = set()

    @property
    def windows(self) -> Windows:
        return self._aggregator.windows

    def alerts(self) -> list[Alert]:
        """Every alert that fired, as it was then but for its end and its worst traces, and those
        pending at the end; in the order of time."""
        return sorted(
            self._alerts.values(),
            key=lambda alert: (
                alert.since if alert.fired_at is None else alert.fired_at,
                (alert.service, alert.segment, alert.rule),
            ),
        )

    def feed(self, line: Line) -> None:
        """Count a trace as the running agent would: a known id once, and what a slow tier has
        found under the name of the instrument's version."""
        scored, counts = line.trace, self.counts
        counts.unknown_results += line.unknown
        counts.invalid_values += line.invalid
        if not self._ids.first(scored.service, scored.trace_id, scored.timestamp):
            counts.duplicates += 1
            return
        counts.traces += 1
        self._sample_until(scored.timestamp)
        late = self.windows.too_late(scored.timestamp)
        self._bound_strata(scored.results)
        rest = apart(scored)
        owed = [(score.metric, score.scorer) for score in rest.results] if rest else []
        self._note(self._aggregator.apply(scored, owed))
        if late:
            counts.late += 1
        elif rest is not None:
            self._aggregator.finish(rest)
        if not late and (self.first is None or scored.timestamp < self.first):
            self.first = scored.timestamp
        if counts.traces % SETTLE == 0:
            self._settle()

    def finish(self) -> None:
        """The file has ended: event time stays where the last trace has brought it."""
        self._settle()
        if self._tracks is not None and self.windows.now is not None:
            self._tracks.take(self.windows, self.windows.now)
        for alert in self._aggregator.engine.alerts():
            if alert.state == "pending":
                self._alerts[alert.id, alert.since, False] = alert
            elif alert.state == "firing" and (known := self._known(alert)):
                known.worst = alert.worst

    def _bound_strata(self, scores: Iterable[Score]) -> None:
        for score in scores:
            if score.stratum and score.stratum not in self._strata:
                if len(self._strata) < MAX_STRATA:
                    self._strata.add(score.stratum)
                else:
                    score.stratum = OTHER

    def _settle(self) -> None:
        self._aggregator.settle()
        self.windows.take_named()

    def _sample_until(self, timestamp: float) -> None:
        tracks, now = self._tracks, self.windows.now
        if tracks is None:
            return
        if now is not None:
            # evaluated at the same steps with or without: only where time stops between is new
            for at in tracks.due(min(timestamp, now + self._sampled)):
                self._note(self._aggregator.advance(at))
                tracks.take(self.windows, at)
        if now is None or timestamp > now:
            tracks.skip(timestamp)

    def _known(self, alert: Alert) -> Alert | None:
        return (
            None if alert.fired_at is None else self._alerts.get((alert.id, alert.fired_at, True))
        )

    def _note(self, moved: Iterable[Alert]) -> None:
        for alert in moved:
            known = self._known(alert)
            if known is not None:
                known.state, known.reason = alert.state, alert.reason
                known.resolved_at, known.worst = alert.resolved_at, alert.worst
            elif alert.state != "firing" or alert.fired_at is None:
                continue  # the end of one that found no room
            elif len(self._alerts) >= MAX_ALERTS:
                self.counts.alerts_left_out += 1
            else:
                self._alerts[alert.id, alert.fired_at, True] = alert
                if self._tracks is not None:
                    self._tracks.watch(alert)
