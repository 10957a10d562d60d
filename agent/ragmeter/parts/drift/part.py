"""The part `drift`: the schedule, the link to alerts and the saved state of the drift monitor.

The monitor reads at whole minutes of event time, so batches and restarts change nothing. The state
of a service takes some 300 kB, so it is saved in rows: every commit writes the small head and the
open score buckets of the last seconds; detectors are written after they have read a bucket, once a
minute.
"""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from ragmeter.alerts.alert import MAX_ALERTS, Alert
from ragmeter.core.counters import Counters, GaugeSample
from ragmeter.core.durations import parse_window
from ragmeter.core.score import JUDGE_SCORER
from ragmeter.metrics.judge_agreement import PROBE_SERVICE
from ragmeter.metrics.nuggets import AUTONUGGETIZER
from ragmeter.metrics.ranking import UMBRELA
from ragmeter.metrics.registry import metric_specs
from ragmeter.parts.contract import Event, Part, PartContext, ScoredBatch
from ragmeter.parts.drift.alarms import AlarmKey
from ragmeter.parts.drift.alerts import DriftAlerts
from ragmeter.parts.drift.baseline import DAY, HOUR, MINUTE
from ragmeter.parts.drift.monitor import STATE_VERSION, DriftMonitor, DriftSettings, MonitorHead
from ragmeter.parts.drift.saved import LastTime
from ragmeter.parts.drift.score_histograms import ScoreRow
from ragmeter.parts.drift.series import milestones_for
from ragmeter.parts.drift.series_monitors import SavedMonitor
from ragmeter.parts.drift.settings import DriftDetectionSettings, DriftPartSettings
from ragmeter.parts.drift.watched_series import WatchedSeries
from ragmeter.parts.views import BaselineKeeper, Explainer
from ragmeter.windows.bucket_width import bucket_seconds
from ragmeter.windows.windows import Windows

# After so long without a trace everything was read: a night without traffic costs no readings.
_SILENCE = HOUR + 10 * MINUTE

# The metric of the alerts on probes that the monitor is informed of.
_PROBE_METRIC = "judge_probe_change"

# The scorers that ask the judge which the probes test.
_JUDGE_SCORERS = (JUDGE_SCORER, UMBRELA, AUTONUGGETIZER)

# How the names of the rows of the state begin: with their version.
_ROW = f"{STATE_VERSION}/"
_HEAD_ROW = f"{_ROW}head"


@dataclass(frozen=True, slots=True)
class DriftHead:
    """What is saved of no one service.

    Args:
        next: The next reading.
        heard: The time of the latest trace.
        probe_alerts: The ids of the alerts that fire on the probes.
        monitor: The monitor besides its detectors.
        alerts: Alerts by the key of their alarm.
    """

    next: float | None
    heard: LastTime
    probe_alerts: list[str]
    monitor: MonitorHead
    alerts: list[tuple[AlarmKey, Alert]]


@dataclass(frozen=True, slots=True)
class ServiceDetectors:
    """The detectors of a service."""

    monitors: Sequence[SavedMonitor]


@dataclass(frozen=True, slots=True)
class OpenScores:
    """Score buckets of a service that no detector has read."""

    scores: list[ScoreRow]


DriftState = DriftHead | ServiceDetectors | OpenScores
"""A row of the state."""


class DriftPart(Part[DriftState], BaselineKeeper):
    """The drift monitor of all services: it watches windows and turns alarms into alerts.

    It is disabled by the settings, or if no window has buckets of a minute.
    """

    name = "drift"
    package = __package__
    settings = DriftPartSettings
    state: ClassVar[Any] = DriftState

    def __init__(
        self,
        settings: DriftDetectionSettings,
        windows: Windows,
        alerts: DriftAlerts,
        counters: Counters,
        share: float = 1.0,
    ) -> None:
        grain = min(bucket_seconds(parse_window(name)) for name in windows.names)
        self.enabled = settings.enabled and MINUTE % grain == 0
        self.monitor = DriftMonitor(
            DriftSettings(
                seconds_per_alarm=settings.false_alarm_days * DAY / share,
                share=share,
                milestones=milestones_for(settings.baseline_days),
                finest=10 if 10 % grain == 0 else MINUTE,
            ),
            metric_specs(),
        )
        self._windows = windows
        self._source = WatchedSeries(windows)
        self._alerts = alerts
        self._counters = counters
        self._next: float | None = None  # the next reading
        self._latest_trace = -math.inf
        self._probe_alerts: list[str] = []  # ids of the alerts that fire on the probes
        self._additions = -1  # `windows.additions` at the last reading
        self._changed = False  # whether detectors have read since the last rows
        self._head_changed = False
        self._rows: set[str] = set()  # names of the saved rows of services
        self._gone: set[str] = set()  # of those, the ones to delete

    @classmethod
    def build(cls, context: PartContext) -> Self:
        """Build the part, which watches nothing yet."""
        return cls(
            settings=context.section(DriftPartSettings).drift,
            windows=context.windows,
            alerts=DriftAlerts(MAX_ALERTS, lambda: context.find(Explainer)),
            counters=context.counters,
            share=context.share,
        )

    def observe(self, run: ScoredBatch, now: float | None) -> None:
        """Count the traces that arrived."""
        if not self.enabled or not run.arrivals:
            return
        traces = [arrival.trace for arrival in run.arrivals]
        if self._next is None:
            self._skip(traces[0].timestamp)
        self._latest_trace = max(self._latest_trace, *[one.timestamp for one in traces])
        self._head_changed = True
        self.monitor.observe(traces)

    def advance(self, now: float) -> Sequence[Event]:
        """Read every whole minute up to event time `now` and return moved alerts."""
        moved: list[Alert] = []
        for at in self._due(now):
            self._windows.advance(at)
            additions, self._additions = self._additions, self._windows.additions
            alarms = self.monitor.advance(
                at, self._source, self._latest_trace, additions != self._additions
            )
            self._changed = self._head_changed = True
            moved += self._alerts.apply_alarms(alarms, self.monitor.active(), self._windows, at)
        for alert in moved:
            if alert.state == "firing" and alert.drift is not None:
                stage = alert.labels.get("stage", alert.metric)
                key = _labels(alert.service, stage, alert.scorer, alert.drift["kind"])
                self._counters.inc("ragmeter_drift_alarms_total", key)
        return moved

    def next_due(self) -> float:
        """Return the event time of the next reading if no trace comes, infinity if all was read."""
        if not self.enabled or self._next is None or self._next > self._latest_trace + _SILENCE:
            return math.inf
        return self._next

    def _due(self, until: float) -> Iterator[float]:
        while self.enabled and self._next is not None and self._next <= until:
            at = self._next
            if at > self._latest_trace + _SILENCE:
                self._skip(until)
                return
            self._next += MINUTE
            yield at

    def _skip(self, to: float) -> None:
        """Continue with the first whole minute after `to`: event time begins or jumps."""
        if self._next is None or self._next <= to:
            self._next = float(math.floor(to / MINUTE) * MINUTE + MINUTE)
            self._head_changed = True

    def hear(self, moved: Sequence[Event], at: float) -> Sequence[Event]:
        """Hold back the drift alerts of the judge's scores while rules fire on its probes."""
        was_drifting = bool(self._probe_alerts)
        for alert in moved:
            if alert.service == PROBE_SERVICE and alert.metric == _PROBE_METRIC:
                self._probe_alerts = [name for name in self._probe_alerts if name != alert.id]
                if alert.state == "firing":
                    self._probe_alerts.append(alert.id)
                self._head_changed = True
        if not self.enabled or bool(self._probe_alerts) == was_drifting:
            return []
        alarms = self.monitor.apply_probes(_JUDGE_SCORERS, not was_drifting, at)
        return self._alerts.apply_alarms(alarms, self.monitor.active(), self._windows, at)

    def baselines(self) -> list[dict[str, Any]]:
        """Return the baseline of each series."""
        return self.monitor.baselines()

    def promote(
        self, service: str | None, at: float | None
    ) -> tuple[dict[str, Any], list[Alert]] | None:
        """Make the present, event time `at`, the baseline of one service, or of all if None.

        Returns:
            By service how many series have the baseline at once, how many learn it, and its
            version; and the alerts that ended. None if the service is not watched.
        """
        watched = self.monitor.services()
        if service is not None and service not in watched:
            return None
        done: dict[str, Any] = {}
        moved: list[Alert] = []
        for name in watched if service is None else [service]:
            if at is None:
                raise RuntimeError("a watched service has had a trace")
            ready = self.monitor.promote(name, at)
            rows = [row for row in self.monitor.baselines() if row["service"] == name]
            done[name] = {
                "promoted": ready,
                "learning": len(rows) - ready,
                "version": max((row["version"] for row in rows), default=0),
            }
        if done and at is not None:
            self._changed = self._head_changed = True
            moved = self._alerts.apply_alarms([], self.monitor.active(), self._windows, at)
        return {"at": at, "services": done}, moved

    def retain(self, services: Collection[str]) -> None:
        """Forget every other service."""
        self.monitor.retain_services(services)
        gone = {name for name in self._rows if _service_of(name) not in services}
        self._rows -= gone
        self._gone |= gone
        self._head_changed = True

    def alerts(self) -> Sequence[Alert]:
        """Return the alerts of alarms that are held."""
        return self._alerts.alerts()

    @property
    def refused_alerts(self) -> int:
        """How many alarms found no room as alerts."""
        return self._alerts.overflow

    def samples(self) -> Iterable[GaugeSample]:
        """Return how near each detector is to its alarm, and how many series were refused."""
        # A judged score whose alert is `RagJudgeChanged` has its kind, by which Prometheus' rules
        # tell the two apart.
        judge_changes = self._alerts.judge_changes()
        ratios: dict[tuple[tuple[str, str], ...], float] = {}
        for service, metric, scorer, kind, ratio in self.monitor.ratios():
            judge = (service, metric, scorer, kind) in judge_changes
            labels = _labels(service, metric, scorer, "judge" if judge else kind)
            ratios[labels] = max(ratio, ratios.get(labels, 0.0))
        return [
            *(("ragmeter_drift_statistic", labels, ratio) for labels, ratio in ratios.items()),
            ("ragmeter_drift_series_refused", (), float(self.monitor.refused)),
        ]

    @classmethod
    def reads(cls, row: str) -> bool:
        """Return whether a row is of this version: baselines of another are learned anew."""
        return row.startswith(_ROW)

    def changes(self) -> Mapping[str, DriftState | None]:
        """Return what changed: open scores at every commit, detectors after they have read."""
        rows: dict[str, DriftState | None] = {}
        for service, slot, scores in self.monitor.drain_scores():
            rows[_row_name(service, slot)] = OpenScores(scores)
        if self._changed:
            self._changed = False
            for service, monitors in self.monitor.monitors().items():
                rows[_row_name(service)] = ServiceDetectors(monitors)
        self._rows |= rows.keys()
        rows = {**dict.fromkeys(self._gone), **rows}
        self._gone.clear()
        if self._head_changed:
            self._head_changed = False
            rows[_HEAD_ROW] = DriftHead(
                next=self._next,
                heard=self._latest_trace,
                probe_alerts=self._probe_alerts,
                monitor=self.monitor.head(),
                alerts=self._alerts.dump(),
            )
        return rows

    def restore(self, rows: Mapping[str, DriftState]) -> None:
        """Load what was saved, unless nothing is to be watched any more."""
        head = rows.get(_HEAD_ROW)
        if not self.enabled or not isinstance(head, DriftHead):
            return
        self._rows = set(rows) - {_HEAD_ROW}
        self._next = head.next
        self._latest_trace = head.heard
        self._probe_alerts = head.probe_alerts
        self._alerts.load(head.alerts)
        detectors = [row for row in rows.values() if isinstance(row, ServiceDetectors)]
        scores = [row for row in rows.values() if isinstance(row, OpenScores)]
        self.monitor.restore(
            head.monitor,
            [monitor for row in detectors for monitor in row.monitors],
            [score for row in scores for score in row.scores],
        )


def _row_name(*key: str | int) -> str:
    """Return the name of a row: the detectors of a service, or a slot of its open scores."""
    return _ROW + json.dumps(key)


def _service_of(row: str) -> str:
    service: str = json.loads(row.removeprefix(_ROW))[0]
    return service


def _labels(service: str, metric: str, scorer: str, kind: str) -> tuple[tuple[str, str], ...]:
    pairs = (("service", service), ("metric", metric), ("scorer", scorer), ("kind", kind))
    return tuple(pair for pair in pairs if pair[1])
