"""Backtest: find which alerts would have fired for scored traces, and when.

It feeds the same `Aggregator` as the running agent and follows event time only, so the same
traces in the same order with the same rules give the same alerts, live or here. `EstimateTracks`
samples the estimates behind the rules for the timeline. The length of a file is unknown until its
end, so the sampling grid doubles whenever there are too many points, which bounds memory.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from ragmeter.aggregate.aggregator import Aggregator
from ragmeter.alerts.alert import Alert
from ragmeter.alerts.conditions import ConditionValue, read_condition
from ragmeter.alerts.rules import AlertRule
from ragmeter.config.settings import Settings
from ragmeter.core.clocks import parse_window
from ragmeter.core.dedupe import DedupeIds
from ragmeter.offline.scored_lines import ScoredLine, bound_strata, split_slow_results
from ragmeter.parts.collection import PartKinds
from ragmeter.windows.series import Estimate
from ragmeter.windows.windows import Windows

# The plot is 760 pixels wide: at least one point every other pixel, at most about one a pixel.
MAX_POINTS = 400

MAX_TRACKS = 2_000  # of 25 kB each at most

# Remembered alerts; one that flaps takes a place each time it fires. Later ones are only counted.
MAX_ALERTS = 10_000

SETTLE = 1024  # traces between two clearings of what the agent would have committed

_TrackKey = tuple[str, str, str]  # (rule, service, segment), as in alerts

# (time, value, lower, upper); NaN where there is no estimate
EstimatePoint = tuple[float, float, float, float]


def find_rule(rules: Sequence[AlertRule], alert: Alert) -> AlertRule | None:
    """Return the rule that raised an alert, or None if a detector raised it."""
    return next((rule for rule in rules if rule.name == alert.rule), None)


def _has_single_estimate(rule: AlertRule) -> bool:
    """Return False for rules on results without a value, which watch many series."""
    return rule.absence or rule.metric is not None or rule.latency is not None


class EstimateTracks:
    """Estimates behind the rules, sampled on a grid over event time.

    Args:
        step: Finest grid in seconds; it doubles when there are too many points.
    """

    def __init__(self, rules: Sequence[AlertRule], step: float) -> None:
        self._rules = rules
        self._step = step
        self._every = 1  # grid in steps
        self._next: int | None = None
        self._taken = 0
        self._points: dict[_TrackKey, array[float]] = {}
        # (metric, scorer, window) of alerts without a rule that has a single estimate
        self._watched: dict[_TrackKey, tuple[str, str, str]] = {}

    def due_times(self, until: float) -> Iterator[float]:
        """Yield the grid times up to `until` that were not yielded yet."""
        if self._next is not None:
            while self._next * self._step <= until:
                at, self._next = self._next, self._next + self._every
                yield at * self._step

    def skip_to(self, until: float) -> None:
        """Continue after `until` and drop the grid times before it."""
        at = (math.floor(until / self._step) // self._every + 1) * self._every
        if self._next is None or at > self._next:
            self._next = at

    def follow_alert(self, alert: Alert) -> None:
        """Sample the estimate of an alert from now on, unless its rule is sampled already."""
        key = (alert.rule, alert.service, alert.segment)
        rule = find_rule(self._rules, alert)
        if (rule is None or not _has_single_estimate(rule)) and len(self._watched) < MAX_TRACKS:
            self._watched[key] = (alert.metric, alert.scorer, alert.window)

    def sample(self, windows: Windows, now: float) -> None:
        """Sample every rule at `now`."""
        services = windows.services()
        names = set(windows.names)
        for service in services:
            segments: list[str] | None = None
            for rule in self._rules:
                if (
                    not _has_single_estimate(rule)
                    or rule.window not in names
                    or not rule.covers(service)
                ):
                    continue
                wanted = [""]
                if rule.segment is not None:
                    if segments is None:
                        segments = windows.segments(service)
                    wanted = [name for name in segments if name.startswith(f"{rule.segment}=")]
                for segment in wanted:
                    key = (rule.name, service, segment)
                    self._put(key, now, read_condition(rule, windows, service, segment))
        for key, (metric, scorer, window) in self._watched.items():
            if window in names:
                self._put(key, now, windows.estimate(*key[1:], metric, scorer, window))
        self._taken += 1
        if self._taken >= 2 * MAX_POINTS:
            self._thin()

    def points(self, key: _TrackKey) -> list[EstimatePoint]:
        """Return the sampled points of one alert, oldest first."""
        flat = self._points.get(key, array("d"))
        return [(flat[i], flat[i + 1], flat[i + 2], flat[i + 3]) for i in range(0, len(flat), 4)]

    def _put(self, key: _TrackKey, now: float, value: ConditionValue | Estimate | None) -> None:
        track = self._points.get(key)
        if track is None:
            if value is None or len(self._points) >= MAX_TRACKS:
                return
            track = self._points[key] = array("d")
        numbers = (value.value, value.lower, value.upper) if value else (None, None, None)
        track.append(now)
        track.extend(math.nan if number is None else number for number in numbers)

    def _thin(self) -> None:
        """Double the grid and drop the points that are not on it."""
        self._every *= 2
        for key, track in self._points.items():
            thinned = array("d")
            for i in range(0, len(track), 4):
                if round(track[i] / self._step) % self._every == 0:
                    thinned.extend(track[i : i + 4])
            self._points[key] = thinned
        times = {track[i] for track in self._points.values() for i in range(0, len(track), 4)}
        self._taken = len(times)
        if self._next is not None:
            self._next += -self._next % self._every


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
        tracks: Samples the estimates behind the rules; None samples nothing.
        parts: The features that raise alerts of their own.
    """

    def __init__(
        self,
        settings: Settings,
        rules: Sequence[AlertRule],
        tracks: EstimateTracks | None = None,
        parts: PartKinds = (),
    ) -> None:
        self.counts = BacktestCounts()
        self.first: float | None = None  # event time of the earliest trace that was not late
        self._aggregator = Aggregator(settings, rules, (), parts=parts)
        self._ids = DedupeIds(settings.limits.dedupe_hours * 3600)
        self._tracks = tracks
        # behind the longest window every estimate is gone: there is nothing more to sample
        self._sampled = (
            max(map(parse_window, settings.windows)) + settings.alerts.evaluation_seconds
        )
        self._alerts: dict[tuple[str, float, bool], Alert] = {}
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
        self._sample_until(scored.timestamp)
        late = self.windows.too_late(scored.timestamp)
        bound_strata(scored.results, self._strata)
        scored, rest = split_slow_results(scored)
        pending = [(score.metric, score.scorer) for score in rest.results] if rest else []
        self._note(self._aggregator.apply(scored, pending).alerts)
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
        if self._tracks is not None and self.windows.now is not None:
            self._tracks.sample(self.windows, self.windows.now)
        for alert in self._aggregator.engine.alerts():
            if alert.state == "pending":
                self._alerts[alert.id, alert.since, False] = alert
            elif alert.state == "firing" and (fired := self._find_fired(alert)):
                fired.worst = alert.worst

    def _settle(self) -> None:
        self._aggregator.settle()
        self.windows.take_new_worst()

    def _sample_until(self, timestamp: float) -> None:
        tracks = self._tracks
        now = self.windows.now
        if tracks is None:
            return
        if now is not None:
            # evaluated at the same steps with or without: only where time stops between is new
            for at in tracks.due_times(min(timestamp, now + self._sampled)):
                self._note(self._aggregator.advance(at))
                tracks.sample(self.windows, at)
        if now is None or timestamp > now:
            tracks.skip_to(timestamp)

    def _find_fired(self, alert: Alert) -> Alert | None:
        return (
            None if alert.fired_at is None else self._alerts.get((alert.id, alert.fired_at, True))
        )

    def _note(self, moved: Iterable[Alert]) -> None:
        for alert in moved:
            fired = self._find_fired(alert)
            if fired is not None:
                fired.state, fired.reason = alert.state, alert.reason
                fired.resolved_at, fired.worst = alert.resolved_at, alert.worst
            elif alert.state != "firing" or alert.fired_at is None:
                continue  # the end of an alert that was left out
            elif len(self._alerts) >= MAX_ALERTS:
                self.counts.alerts_left_out += 1
            else:
                self._alerts[alert.id, alert.fired_at, True] = alert
                if self._tracks is not None:
                    self._tracks.follow_alert(alert)
