"""The drift monitor: every series of every service against its baseline, in event time.

It reads on `advance` what has closed since; how often that is called changes nothing. The
operator's allowance of false alarms is one for all services: each has an equal share, which its
detectors share equally.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ragmeter.core.metric_specs import MetricSpec, find_helping_spec, find_spec
from ragmeter.core.score import BUILTIN_SCORER, ScoredTrace
from ragmeter.parts.drift.alarms import Alarm, AlarmKind, JudgedAlarms, with_state
from ragmeter.parts.drift.baseline import DAY, HOUR, MINUTE
from ragmeter.parts.drift.saved import LastTime
from ragmeter.parts.drift.score_histograms import ScoreHistograms, ScoreRow
from ragmeter.parts.drift.series import MILESTONES, DriftSeries, SeriesAlarm
from ragmeter.parts.drift.series_monitors import (
    AnyMonitor,
    BucketSource,
    JudgedMonitor,
    MeanMonitor,
    MonitorEvent,
    SeriesMonitor,
    SharesMonitor,
)

# How far back fine buckets can still be read: after a longer silence the rest is skipped.
_RETENTION = HOUR

# Version 1 had detectors of bucket means; baselines learned under it begin anew.
STATE_VERSION = 1


# Series watched; those beyond it are not. It bounds memory and the work of a minute where services
# and judges multiply: 100 services with 50 series each.
MAX_SERIES = 5000


@dataclass(frozen=True, slots=True)
class DriftSettings:
    """Settings of the monitor; times are seconds.

    `seconds_per_alarm` is the allowance: one false alarm in that time, over all services and their
    series. It is a `share` of the installation's. `milestones` are those of `DriftSeries`, `finest`
    is the narrowest bucket of the source, 10 or 60 seconds.
    """

    seconds_per_alarm: float = 30 * DAY
    share: float = 1.0
    milestones: tuple[tuple[float, int], ...] = MILESTONES
    max_series: int = MAX_SERIES
    finest: int = 10


@dataclass(frozen=True, slots=True)
class MonitorHead:
    """What the monitor keeps besides the monitors of series and their scores."""

    judged: JudgedAlarms
    alarms: list[Alarm]
    refused: int
    next_discovery: LastTime


_MonitorKey = tuple[str, str, str, str]  # (service, metric, scorer, name of the class)


class DriftMonitor:
    """Watches series for drift, fed with closed buckets (`advance`) and traces (`observe`).

    Series beyond `settings.max_series` are not watched; `refused` is how many there were at the
    last discovery.

    Args:
        specs: Metric specs by base name; they say which way of a metric is bad.
    """

    def __init__(self, settings: DriftSettings, specs: Mapping[str, MetricSpec]) -> None:
        self.settings = settings
        self.refused = 0
        self._specs = specs
        self._scores = ScoreHistograms(specs)
        self._monitors: dict[_MonitorKey, AnyMonitor] = {}
        self._judged_alarms = JudgedAlarms()
        self._alarms: dict[tuple[str, str, str, str], Alarm] = {}
        self._next_discovery = -math.inf
        self._discovered = 0  # monitors after the last discovery
        self._streams: dict[str, int] = {}  # detectors by service
        self._sharing = 1  # services that share the allowance

    def observe(self, traces: Iterable[ScoredTrace]) -> None:
        """Count the scores of traces; call it before `advance` reaches past their lateness."""
        self._scores.add(traces)

    def advance(
        self,
        now: float,
        source: BucketSource,
        latest: float = math.inf,
        new_results: bool = True,
    ) -> list[Alarm]:
        """Read what has closed by event time `now` (Unix seconds).

        The source must still have the buckets, so call this at least once a minute.

        Args:
            now: Event time.
            source: The buckets.
            latest: The time of the latest trace: later buckets are empty, and not read.
            new_results: Whether any came since the last call, so that there may be new series.

        Returns:
            Alarms that fire, are held or clear, in order of time.
        """
        alarms: list[Alarm] = []
        if now >= self._next_discovery:
            if new_results or len(self._monitors) < self._discovered:
                self._discover_series(now, source)
                self._discovered = len(self._monitors)
            self._next_discovery = now - now % MINUTE + MINUTE
        monitors = [self._monitors[key] for key in sorted(self._monitors)]
        while monitors:
            due = min([t.next_start + t.wait for t in monitors])
            if due > now:
                break
            if due < now - _RETENTION:
                self._skip(now)
                continue
            for monitor in monitors:
                if monitor.next_start + monitor.wait <= due:
                    if monitor.next_start > latest:
                        monitor.next_start += monitor.width
                        continue
                    streams = monitor.streams
                    for event in monitor.read(
                        source, self._scores, self._threshold(monitor.service)
                    ):
                        alarms += self._handle_event(monitor, event)
                    if monitor.streams != streams:
                        self._count_streams()
            alarms += self._record(self._judged_alarms.release(due, self._cheap_alarm))
        for service in {monitor.service for monitor in monitors}:
            self._scores.forget(service, now - SeriesMonitor.lateness - 2 * MINUTE)
        return alarms

    def _threshold(self, service: str) -> float:
        """Return the threshold of a service's detectors: the seconds to a false alarm of one."""
        detectors = max(1, self._streams.get(service, 0))
        return self.settings.seconds_per_alarm * self._sharing * detectors

    def _skip(self, now: float) -> None:
        for monitor in self._monitors.values():
            if monitor.next_start + monitor.wait < now - _RETENTION:
                monitor.next_start = now - _RETENTION - (now - _RETENTION) % HOUR + HOUR

    def _discover_series(self, now: float, source: BucketSource) -> None:
        """Begin to watch new series, from the last whole bucket on."""
        self.refused = 0
        for service in sorted(source.services()):
            for metric, scorer in source.series(service):
                spec = find_spec(self._specs, metric)
                if scorer != BUILTIN_SCORER:
                    self._begin(JudgedMonitor, now, service, metric, scorer, spec)
                    continue
                self._begin(MeanMonitor, now, service, metric, scorer, spec)
                if spec and spec.kind == "mean" and spec.high is not None:
                    self._begin(SharesMonitor, now, service, metric, scorer)
            for stage in source.stages(service):
                self._begin(SharesMonitor, now, service, stage, "")
        self._count_streams()

    def _count_streams(self) -> None:
        self._streams = {}
        for key, monitor in self._monitors.items():
            self._streams[key[0]] = self._streams.get(key[0], 0) + monitor.streams
        self._sharing = max(1, sum(map(bool, self._streams.values())))

    def _begin(self, kind: type[AnyMonitor], now: float, *labels: Any) -> None:
        key = _key(kind, *labels[:3])
        if key in self._monitors:
            return
        if len(self._monitors) >= self.settings.max_series:
            self.refused += 1
            return
        self._set_up(monitor := kind.begin(*labels))
        # the bucket that has not closed yet, on the grid of its width
        monitor.next_start = now - now % monitor.width - monitor.width
        self._monitors[key] = monitor

    def _set_up(self, monitor: SeriesMonitor) -> None:
        settings = self.settings
        monitor.milestones = settings.milestones
        monitor.finest = settings.finest
        monitor.set_pace(monitor.width)

    def _handle_event(self, monitor: SeriesMonitor, event: MonitorEvent) -> list[Alarm]:
        key = monitor.service, monitor.metric, monitor.scorer
        if event.alarm is None:
            if monitor.judged and event.kind == "judge":
                self._judged_alarms.on_judge_cleared(key, event.at)
            elif monitor.judged:
                self._judged_alarms.on_quality_cleared(key)
            last = self._alarms.pop((*key, event.kind), None)
            return [with_state(last, "cleared", "", event.at)] if last else []
        alarm = self._make_alarm(monitor, event, event.alarm)
        if not monitor.judged:
            return self._record([alarm])
        cheap = self._cheap_alarm(monitor.service, monitor.metric)
        if event.kind == "judge":
            return self._record(self._judged_alarms.on_judge_alarm(alarm, cheap))
        has_residual = "judge" in monitor.series
        return self._record([self._judged_alarms.on_quality_alarm(alarm, cheap, has_residual)])

    def _record(self, alarms: Sequence[Alarm]) -> list[Alarm]:
        for alarm in alarms:
            self._alarms[alarm.key] = alarm
        return list(alarms)

    def _make_alarm(self, monitor: SeriesMonitor, event: MonitorEvent, alarm: SeriesAlarm) -> Alarm:
        change = alarm.change
        baseline = alarm.baseline
        edge = None
        if isinstance(monitor, SharesMonitor):
            edge = monitor.edge_value(self._scores, monitor.edges[alarm.edge])
        spec = monitor.series[event.kind].spec
        level = alarm.estimate_level(spec.low, spec.high)
        return Alarm(
            service=monitor.service,
            metric=monitor.metric,
            scorer=monitor.scorer,
            kind=event.kind,
            state="firing",
            at=event.at,
            since=change.since,
            since_earliest=change.earliest,
            since_latest=change.latest,
            since_at_least=change.open,
            before=alarm.level,
            after=level.value,
            after_lower=level.lower,
            after_upper=level.upper,
            statistic=alarm.statistic,
            threshold=event.threshold,
            # all detectors of the installation together, since a page may come from any of them
            expected_days=(
                alarm.statistic
                / event.threshold
                * self.settings.seconds_per_alarm
                * self.settings.share
                / DAY
            ),
            effective_samples=alarm.n,
            baseline_version=baseline.version,
            baseline_hours=(baseline.end - baseline.start) / HOUR,
            provisional=alarm.provisional,
            edge=edge,
        )

    def _cheap_alarm(self, service: str, metric: str) -> float | None:
        """Return when the cheap score that goes with a metric last alarmed.

        That is infinity while the alarm stands, None if the score is not watched.
        """
        helping = find_helping_spec(self._specs, metric)
        cheap = helping.name if helping else metric
        last: float | None = None
        for name in ("MeanMonitor", "SharesMonitor"):
            monitor = self._monitors.get((service, cheap, BUILTIN_SCORER, name))
            for series in monitor.series.values() if monitor else ():
                if series.monitored:
                    own = math.inf if series.active else series.last_alarm
                    last = own if last is None else max(last, own)
        return last

    def promote(self, service: str, now: float) -> int:
        """Make the present state the baseline of every series of a service, and end its alarms.

        Returns:
            The number of series with a new baseline at once; the others are silent until six hours
            are known.
        """
        ready = 0
        for key, monitor in self._monitors.items():
            if key[0] == service:
                ready += sum(series.promote(now) for series in monitor.series.values())
        self._judged_alarms.forget(service)
        self._count_streams()
        self._alarms = {key: a for key, a in self._alarms.items() if key[0] != service}
        return ready

    def apply_probes(self, judges: Collection[str], drifting: bool, at: float) -> list[Alarm]:
        """Hold the alarms of the `judges`' scores while stored probes are judged otherwise.

        Returns:
            The alarms that this changed.
        """
        return self._record(self._judged_alarms.on_probes(judges, drifting, at, self._cheap_alarm))

    def active(self) -> list[Alarm]:
        """Return the alarms that fire or are held, sorted by key."""
        return [self._alarms[key] for key in sorted(self._alarms)]

    def services(self) -> list[str]:
        """Return the watched services, sorted."""
        return sorted({key[0] for key in self._monitors})

    def _all_series(self) -> Iterator[tuple[SeriesMonitor, AlarmKind, DriftSeries]]:
        for key in sorted(self._monitors):
            for kind, series in self._monitors[key].series.items():
                yield self._monitors[key], kind, series

    def baselines(self) -> list[dict[str, Any]]:
        """Return a row per series: its labels, kind and baseline (`DriftSeries.describe`).

        `false_alarm_days` are the days in which its service has at most one false alarm.
        """
        days = self.settings.seconds_per_alarm / DAY * self._sharing
        return [
            {
                "service": monitor.service,
                "metric": monitor.metric,
                "scorer": monitor.scorer,
                "kind": kind,
                "false_alarm_days": days,
                **series.describe(),
            }
            for monitor, kind, series in self._all_series()
        ]

    def ratios(self) -> list[tuple[str, str, str, AlarmKind, float]]:
        """Return (service, metric, scorer, kind, statistic / threshold) of each detector.

        A detector begins anew with its alarm: while that stands, its ratio is at least 1.
        """
        rows = []
        for monitor, kind, series in self._all_series():
            if series.stream is not None:
                key = monitor.service, monitor.metric, monitor.scorer, kind
                alarm = self._alarms.get(key)
                least = 1.0 if alarm is not None and alarm.state == "firing" else 0.0
                ratio = series.stream.esr.statistic / self._threshold(monitor.service)
                rows.append((*key, max(least, ratio)))
        return rows

    def retain_services(self, services: Iterable[str]) -> None:
        """Forget every other service."""
        retained = set(services)
        if all(key[0] in retained for key in self._monitors):
            return
        self._monitors = {key: t for key, t in self._monitors.items() if key[0] in retained}
        for service in {key[0] for key in self._alarms} - retained:
            self._judged_alarms.forget(service)
        self._alarms = {key: a for key, a in self._alarms.items() if key[0] in retained}
        self._count_streams()

    def head(self) -> MonitorHead:
        """Return the small state besides monitors and scores."""
        return MonitorHead(
            judged=self._judged_alarms,
            alarms=list(self._alarms.values()),
            refused=self.refused,
            next_discovery=self._next_discovery,
        )

    def monitors(self) -> dict[str, list[AnyMonitor]]:
        """Return the monitors by service."""
        monitors: dict[str, list[AnyMonitor]] = {}
        for key in sorted(self._monitors):
            monitors.setdefault(key[0], []).append(self._monitors[key])
        return monitors

    def drain_scores(self) -> list[tuple[str, int, list[ScoreRow]]]:
        """Return (service, slot, rows for `restore`) of score buckets that changed since."""
        return self._scores.drain()

    def scores(self) -> list[ScoreRow]:
        """Return the rows of all open score buckets."""
        return self._scores.dump()

    def restore(
        self, head: MonitorHead, monitors: Iterable[AnyMonitor], scores: Iterable[ScoreRow]
    ) -> None:
        """Take over a saved state, to continue bit for bit."""
        for monitor in monitors:
            self._set_up(monitor)
            key = _key(type(monitor), monitor.service, monitor.metric, monitor.scorer)
            self._monitors[key] = monitor
        self._scores.load(scores)
        self._judged_alarms = head.judged
        self._alarms = {alarm.key: alarm for alarm in head.alarms}
        self.refused = head.refused
        self._next_discovery = head.next_discovery
        self._count_streams()


def _key(kind: type[SeriesMonitor], service: str, metric: str, scorer: str) -> _MonitorKey:
    return service, metric, scorer, kind.__name__
