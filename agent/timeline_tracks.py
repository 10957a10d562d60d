"""The estimates behind the rules over event time, sampled for a picture. Pure.

How long a file is shows only at its end, so sampling starts at the finest grid and the grid
doubles whenever there are too many points: memory is bounded, and the same file always gives the
same points.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterator, Sequence

from agent.alerts import Alert, Rule
from agent.alerts.conditions import Reading, read
from agent.windows import Estimate, Windows

__all__ = ["Point", "Tracks", "rule_of"]

POINTS = 400
"""A picture's plot is 760 pixels wide: at least a point every other pixel, at most two a pixel."""

MAX_TRACKS = 2_000  # of 25 kB each at most

Key = tuple[str, str, str]
"""(rule, service, segment), as alerts have it."""

Point = tuple[float, float, float, float]
"""(time, value, lower, upper); not a number where that is not known."""


def rule_of(rules: Sequence[Rule], alert: Alert) -> Rule | None:
    """The rule that raised an alert; None for what is no rule (a detector)."""
    return next((rule for rule in rules if rule.name == alert.rule), None)


def _readable(rule: Rule) -> bool:
    """Whether a rule watches one number of one window; a burn rate has several."""
    return rule.absence or rule.metric is not None or rule.latency is not None


class Tracks:
    """`step` is the finest grid in seconds."""

    def __init__(self, rules: Sequence[Rule], step: float) -> None:
        self._rules = rules
        self._step = step
        self._every = 1  # grid in steps
        self._next: int | None = None
        self._taken = 0
        self._points: dict[Key, array[float]] = {}
        self._watched: dict[Key, tuple[str, str, str]] = {}
        """(metric, scorer, window) of alerts that no rule raised."""

    def due(self, until: float) -> Iterator[float]:
        """Times on the grid up to `until` that were not given yet."""
        if self._next is not None:
            while self._next * self._step <= until:
                at, self._next = self._next, self._next + self._every
                yield at * self._step

    def skip(self, until: float) -> None:
        """Go on behind `until`: what lies between is not asked for any more."""
        at = (math.floor(until / self._step) // self._every + 1) * self._every
        if self._next is None or at > self._next:
            self._next = at

    def watch(self, alert: Alert) -> None:
        """Follow what an alert is about, from now on, where no rule does."""
        key = (alert.rule, alert.service, alert.segment)
        rule = rule_of(self._rules, alert)
        if (rule is None or not _readable(rule)) and len(self._watched) < MAX_TRACKS:
            self._watched[key] = (alert.metric, alert.scorer, alert.window)

    def take(self, windows: Windows, now: float) -> None:
        """Sample every rule at `now`."""
        services, names = windows.services(), set(windows.names)
        for service in services:
            segments: list[str] | None = None
            for rule in self._rules:
                if not _readable(rule) or rule.window not in names or not rule.covers(service):
                    continue
                wanted = [""]
                if rule.segment is not None:
                    if segments is None:
                        segments = windows.segments(service)
                    wanted = [name for name in segments if name.startswith(f"{rule.segment}=")]
                for segment in wanted:
                    found = read(rule, windows, service, segment)
                    key = (rule.name, service, segment)
                    self._put(key, now, found)
        for key, (metric, scorer, window) in self._watched.items():
            if window in names:
                self._put(key, now, windows.estimate(*key[1:], metric, scorer, window))
        self._taken += 1
        if self._taken >= 2 * POINTS:
            self._thin()

    def points(self, key: Key) -> list[Point]:
        """What was sampled, oldest first."""
        flat = self._points.get(key, array("d"))
        return [(flat[i], flat[i + 1], flat[i + 2], flat[i + 3]) for i in range(0, len(flat), 4)]

    def _put(self, key: Key, now: float, found: Reading | Estimate | None) -> None:
        track = self._points.get(key)
        if track is None:
            if found is None or len(self._points) >= MAX_TRACKS:
                return
            track = self._points[key] = array("d")
        numbers = (found.value, found.lower, found.upper) if found else (None, None, None)
        track.append(now)
        track.extend(math.nan if number is None else number for number in numbers)

    def _thin(self) -> None:
        """Twice the grid; drop the points that are not on it."""
        self._every *= 2
        for key, track in self._points.items():
            kept = array("d")
            for i in range(0, len(track), 4):
                if round(track[i] / self._step) % self._every == 0:
                    kept.extend(track[i : i + 4])
            self._points[key] = kept
        times = {track[i] for track in self._points.values() for i in range(0, len(track), 4)}
        self._taken = len(times)
        if self._next is not None:
            self._next += -self._next % self._every
