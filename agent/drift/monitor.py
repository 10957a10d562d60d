"""The drift monitor: every series of every service against its baseline, in event time.

It is asked to `advance` and reads what has closed since; how often it is asked changes nothing.
The operator's allowance of false alarms is per service: a service's detectors share it equally.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ragmeter.core.metric_specs import MetricSpec, find_spec
from ragmeter.core.score import ScoredTrace
from ragmeter.drift.alarms import HOLD_SECONDS, Alarm, AlarmKind, JudgedAlarms, with_state
from ragmeter.drift.baseline import DAY, HOUR, MINUTE
from ragmeter.drift.detectors import detector_threshold
from ragmeter.drift.judge_drift import QUIET_SECONDS
from ragmeter.drift.moments import BucketSource
from ragmeter.drift.score_histograms import ScoreHistograms
from ragmeter.drift.series import MILESTONES
from ragmeter.drift.trackers import (
    JudgedTracker,
    MeanTracker,
    SharesTracker,
    Tracker,
    TrackerEvent,
    find_segment_of_alarm,
    load_tracker,
)

_RETENTION = HOUR
"""How far back fine buckets can still be read: after a longer silence the rest is skipped."""


@dataclass(frozen=True, slots=True)
class DriftSettings:
    """`seconds_per_alarm` is the allowance: one false alarm per service in that time, over all its
    series together. `promote_every` is the schedule of new baselines, None for never."""

    seconds_per_alarm: float = 30 * DAY
    lateness: float = 60.0
    judged_lateness: float = 120.0
    milestones: tuple[tuple[float, int], ...] = MILESTONES
    promote_every: float | None = None
    cheap_scorer: str = "builtin"
    quiet: float = QUIET_SECONDS
    hold: float = HOLD_SECONDS
    max_series: int = 5000
    finest: int = 10
    """The narrowest bucket that the source has, 10 or 60 seconds."""


class DriftMonitor:
    """Feed it closed buckets (`advance`) and the traces themselves for distributions (`observe`).

    `specs` say which way of a metric is bad. Series beyond `max_series` are not watched; `refused`
    is how many there were at the last look.
    """

    def __init__(self, settings: DriftSettings, specs: Mapping[str, MetricSpec]) -> None:
        self.settings = settings
        self.refused = 0
        self._specs = specs
        self._scores = ScoreHistograms(specs)
        self._trackers: dict[tuple[str, str, str, str], Tracker] = {}
        self._verdicts = JudgedAlarms(settings.hold, settings.quiet)
        self._alarms: dict[tuple[str, str, str, str], Alarm] = {}
        self._discover = -math.inf
        self._streams: dict[str, int] = {}

    def observe(self, traces: Iterable[ScoredTrace]) -> None:
        """Count the scores of traces; before `advance` reaches past their lateness."""
        self._scores.add(traces)

    def advance(self, now: float, source: BucketSource) -> list[Alarm]:
        """Read what has closed by event time `now`. Alarms that fire, are held or clear, in order
        of time. The source must still have the buckets: call it at least once a minute."""
        out: list[Alarm] = []
        if now >= self._discover:
            self._discover_series(now, source)
            self._discover = now - now % MINUTE + MINUTE
        trackers = [self._trackers[key] for key in sorted(self._trackers)]
        while trackers:
            due = min([t.next + t.wait for t in trackers])
            if due > now:
                break
            if due < now - _RETENTION:
                self._skip(now)
                continue
            for tracker in trackers:
                if tracker.next + tracker.wait <= due:
                    sharing, streams = self._streams.get(tracker.service, 1), tracker.streams
                    h = detector_threshold(self.settings.seconds_per_alarm, 1.0, sharing)
                    for event in tracker.read(source, self._scores, h):
                        out += self._event(tracker, event, source)
                    if tracker.streams != streams:
                        self._count()
            out += self._record(self._verdicts.release(due, self._cheap_alarm))
            self._scheduled(due)
        for service in {tracker.service for tracker in trackers}:
            self._scores.forget(service, now - self.settings.lateness - 2 * MINUTE)
        return out

    def _skip(self, now: float) -> None:
        for tracker in self._trackers.values():
            if tracker.next + tracker.wait < now - _RETENTION:
                tracker.next = now - _RETENTION - (now - _RETENTION) % HOUR + HOUR

    def _discover_series(self, now: float, source: BucketSource) -> None:
        """Begin to watch what has turned up, from the last whole bucket on."""
        self.refused = 0
        cheap = self.settings.cheap_scorer
        for service in sorted(source.services()):
            for metric, scorer in source.series(service):
                spec = find_spec(self._specs, metric)
                if scorer != cheap:
                    self._begin(JudgedTracker(service, metric, scorer, 0.0, spec), now)
                    continue
                self._begin(MeanTracker(service, metric, scorer, 0.0, spec), now)
                if spec and spec.kind == "mean" and spec.high is not None:
                    self._begin(SharesTracker(service, metric, scorer, 0.0), now)
            for stage in source.stages(service):
                self._begin(SharesTracker(service, stage, "", 0.0), now)
        self._count()

    def _count(self) -> None:
        self._streams = {}
        for key, tracker in self._trackers.items():
            self._streams[key[0]] = self._streams.get(key[0], 0) + tracker.streams

    def _begin(self, tracker: Tracker, now: float) -> None:
        key = (tracker.service, tracker.metric, tracker.scorer, type(tracker).__name__)
        if key in self._trackers:
            return
        if len(self._trackers) >= self.settings.max_series:
            self.refused += 1
            return
        self._set_up(tracker)
        # what has not closed yet, on the grid of its width
        tracker.next = now - now % tracker.width - tracker.width
        self._trackers[key] = tracker

    def _set_up(self, tracker: Tracker) -> None:
        tracker.milestones = self.settings.milestones
        tracker.finest = self.settings.finest
        judged = isinstance(tracker, JudgedTracker)
        late = self.settings.judged_lateness if judged else self.settings.lateness
        tracker.set_pace(tracker.width, late)

    def _event(self, tracker: Tracker, event: TrackerEvent, source: BucketSource) -> list[Alarm]:
        key = tracker.service, tracker.metric, tracker.scorer
        judged = isinstance(tracker, JudgedTracker)
        if event.found is None:
            if judged:
                if event.kind == "judge":
                    self._verdicts.on_judge_cleared(key, event.at)
                else:
                    self._verdicts.on_quality_cleared(key)
            last = self._alarms.pop((*key, event.kind), None)
            return [with_state(last, "cleared", "", event.at)] if last else []
        alarm = self._alarm(tracker, event, source)
        if not judged:
            return self._record([alarm])
        cheap = self._cheap_alarm(tracker.service, tracker.metric)
        if event.kind == "judge":
            return self._record(self._verdicts.on_judge_alarm(alarm, cheap))
        return self._record(
            [self._verdicts.on_quality_alarm(alarm, cheap, "judge" in tracker.series)]
        )

    def _record(self, alarms: Sequence[Alarm]) -> list[Alarm]:
        for alarm in alarms:
            self._alarms[alarm.key] = alarm
        return list(alarms)

    def _alarm(self, tracker: Tracker, event: TrackerEvent, source: BucketSource) -> Alarm:
        found = event.found
        assert found is not None
        change, baseline = found.change, found.baseline
        shift = found.direction * change.shift
        weighted = isinstance(tracker, JudgedTracker)
        samples = change.n * tracker.spread(event.kind) if weighted else change.n  # type: ignore[attr-defined]
        hours = (baseline.end - baseline.start) / HOUR
        edge, cell = None, 0
        if isinstance(tracker, SharesTracker):
            cell = tracker.edges[found.edge]
            edge = tracker.edge_value(self._scores, cell)
        move = find_segment_of_alarm(source, tracker, event.kind, change.since, event.at, cell)
        after = found.level + shift
        return Alarm(
            *(tracker.service, tracker.metric, tracker.scorer, event.kind, "firing"),
            at=event.at,
            since=change.since,
            since_earliest=change.earliest,
            since_latest=change.latest,
            before=found.level,
            after=after,
            after_lower=after - 1.96 * change.error,
            after_upper=after + 1.96 * change.error,
            statistic=found.statistic,
            threshold=event.threshold,
            effective_samples=samples,
            baseline_version=baseline.version,
            baseline_hours=hours,
            provisional=hours < 24 * 0.98,
            edge=edge,
            segment=move.segment if move and move.distinct else None,
            segment_words=move.describe() if move else "",
        )

    def _cheap_alarm(self, service: str, metric: str) -> float | None:
        """When the cheap score of a metric was last alarmed: infinity while it is, None where it
        is not watched."""
        last: float | None = None
        for name in ("MeanTracker", "SharesTracker"):
            tracker = self._trackers.get((service, metric, self.settings.cheap_scorer, name))
            for series in tracker.series.values() if tracker else ():
                if series.watching:
                    own = math.inf if series.active else series.last_alarm
                    last = own if last is None else max(last, own)
        return last

    def _scheduled(self, now: float) -> None:
        every = self.settings.promote_every
        for tracker in self._trackers.values() if every else ():
            for series in tracker.series.values():
                if series.due(now, every or math.inf):
                    series.promote(now)

    def promote(self, service: str, now: float) -> int:
        """On command (a deploy, an acknowledged alarm): what is normal now becomes the baseline of
        every series of the service, at once where six hours of it are known, else as soon as they
        are (until then the series is silent). Alarms end. Returns how many have one at once."""
        ready = 0
        for key, tracker in self._trackers.items():
            if key[0] == service:
                ready += sum(series.promote(now) for series in tracker.series.values())
        self._verdicts.forget(service)
        self._count()
        self._alarms = {key: a for key, a in self._alarms.items() if key[0] != service}
        return ready

    def apply_probes(self, judges: Collection[str], drifting: bool, at: float) -> list[Alarm]:
        """The stored probes say from `at` on that these judges have changed, or no longer: holds
        back, or lets go, the alarms of what they score. What that moved."""
        return self._record(self._verdicts.on_probes(judges, drifting, at, self._cheap_alarm))

    def active(self) -> list[Alarm]:
        """Alarms that are out or held."""
        return [self._alarms[key] for key in sorted(self._alarms)]

    def services(self) -> list[str]:
        """What is watched."""
        return sorted({key[0] for key in self._trackers})

    def baselines(self) -> list[dict[str, Any]]:
        """A row a series: what it is, and what it is compared with (`Series.describe`)."""
        out = []
        for key in sorted(self._trackers):
            for kind, series in self._trackers[key].series.items():
                names = zip(("service", "metric", "scorer"), key, strict=False)
                out.append({**dict(names), "kind": kind, **series.describe()})
        return out

    def statistics(self, service: str) -> list[tuple[str, str, AlarmKind, float, float, int]]:
        """(metric, scorer, kind, statistic, threshold, baseline version) of what is watched."""
        out = []
        for key in sorted(self._trackers):
            tracker = self._trackers[key]
            h = detector_threshold(
                self.settings.seconds_per_alarm, tracker.width, self._streams.get(service, 1)
            )
            for kind, series in tracker.series.items() if key[0] == service else ():
                if series.stream is not None:
                    statistic = series.stream.esr.statistic
                    out.append((tracker.metric, tracker.scorer, kind, statistic, h, series.version))
        return out

    def ratios(self) -> list[tuple[str, str, str, AlarmKind, float]]:
        """(service, metric, scorer, kind, statistic / threshold) of what is watched. A detector
        begins anew with its alarm: while that stands, its ratio is 1 at least."""
        out = []
        for key in sorted(self._trackers):
            tracker = self._trackers[key]
            sharing = self._streams.get(tracker.service, 1)
            h = detector_threshold(self.settings.seconds_per_alarm, tracker.width, sharing)
            for kind, series in tracker.series.items():
                if series.stream is not None:
                    alarm = self._alarms.get((*key[:3], kind))
                    least = 1.0 if alarm is not None and alarm.state == "firing" else 0.0
                    out.append((*key[:3], kind, max(least, series.stream.esr.statistic / h)))
        return out

    def retain_services(self, services: Iterable[str]) -> None:
        """Forget every other service: nobody has heard of it for the longest window."""
        kept = set(services)
        if all(key[0] in kept for key in self._trackers):
            return
        self._trackers = {key: t for key, t in self._trackers.items() if key[0] in kept}
        for service in {key[0] for key in self._alarms} - kept:
            self._verdicts.forget(service)
        self._alarms = {key: a for key, a in self._alarms.items() if key[0] in kept}
        self._count()

    def dump_services(self) -> dict[str, list[Any]]:
        """The trackers' part of `dump`, by service; `dump_head` is the small rest."""
        out: dict[str, list[Any]] = {}
        for key in sorted(self._trackers):
            out.setdefault(key[0], []).append(self._trackers[key].dump())
        return out

    def dump_head(self) -> dict[str, Any]:
        """What `dump` has besides trackers and scores."""
        return {
            "version": 1,
            "verdicts": self._verdicts.dump(),
            "alarms": [alarm.to_dict() for alarm in self._alarms.values()],
            "refused": self.refused,
            "discover": None if self._discover == -math.inf else self._discover,
        }

    def drain_scores(self) -> list[tuple[str, int, Any]]:
        """(service, slot, content) of the score buckets that were added to since the last call:
        for `load`'s `scores`. There are as many slots as buckets may be open."""
        return self._scores.drain()

    def dump(self) -> dict[str, Any]:
        """All state, for JSON: a monitor that loads it goes on bit for bit."""
        return {
            **self.dump_head(),
            "trackers": [self._trackers[key].dump() for key in sorted(self._trackers)],
            "scores": self._scores.dump(),
        }

    def load(self, state: Mapping[str, Any]) -> None:
        """Back to the state of `dump`. ValueError on another version."""
        if state.get("version") != 1:
            raise ValueError(f"drift state of version {state.get('version')!r}; this reads 1")
        self._trackers = {}
        for item in state["trackers"]:
            tracker = load_tracker(item)
            self._set_up(tracker)
            key = (tracker.service, tracker.metric, tracker.scorer, type(tracker).__name__)
            self._trackers[key] = tracker
        self._scores.load(state["scores"])
        self._verdicts.load(state["verdicts"])
        alarms = [Alarm(**item) for item in state["alarms"]]
        self._alarms = {alarm.key: alarm for alarm in alarms}
        self.refused = state["refused"]
        self._discover = -math.inf if state["discover"] is None else state["discover"]
        self._count()
