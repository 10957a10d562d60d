"""Run the drift monitor on the windows of the running agent.

This module holds the schedule, the choice of series, the link to alerts and the saved state. The
monitor reads at whole minutes of event time, so batches and restarts change nothing. The state of
a service takes some 300 kB, so it is saved in parts: every commit writes the small head and the
open score buckets of the last seconds; detectors are written after they have read a bucket, once
a minute.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from ragmeter.alerts.alert import Alert
from ragmeter.alerts.drift_alerts import DriftAlerts
from ragmeter.config.reporting import DriftDetectionSettings
from ragmeter.core.clocks import bucket_seconds, parse_window
from ragmeter.core.counters import Counters, GaugeSample
from ragmeter.core.feedback import RESERVED_SCORERS
from ragmeter.core.label_bounds import ServiceSlots
from ragmeter.core.score import JUDGE_SCORER, ScoredTrace
from ragmeter.core.series import split_scorer
from ragmeter.drift.baseline import DAY, HOUR, MINUTE
from ragmeter.drift.monitor import STATE_VERSION, DriftMonitor, DriftSettings
from ragmeter.drift.series import milestones_for
from ragmeter.metrics.canary.specs import is_canary_scorer
from ragmeter.metrics.claims_and_nuggets import AUTONUGGETIZER
from ragmeter.metrics.judge_agreement import PROBE_SERVICE
from ragmeter.metrics.ranking import UMBRELA
from ragmeter.metrics.registry import metric_specs
from ragmeter.windows.intervals import is_assisted
from ragmeter.windows.windows import Windows

# After so long without a trace everything was read: a night without traffic costs no readings.
_SILENCE = HOUR + 10 * MINUTE

# The metric of the alerts on probes that the monitor is informed of.
_PROBE_METRIC = "judge_probe_change"

# The scorers that ask the judge which the probes test.
_JUDGE_SCORERS = (JUDGE_SCORER, UMBRELA, AUTONUGGETIZER)


class DriftDetection:
    """The drift monitor of all services: it watches windows and turns alarms into alerts.

    It is disabled by the settings, or if no window has buckets of a minute.

    Args:
        settings: Settings of drift detection.
        windows: The windows to watch.
        alerts: Where alarms become alerts.
        counters: Where they are counted.
        share: Part of the installation's allowance of false alarms that is ours.
    """

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
        promote = settings.promote_days
        self.monitor = DriftMonitor(
            DriftSettings(
                seconds_per_alarm=settings.false_alarm_days * DAY / share,
                share=share,
                promote_every=None if promote is None else promote * DAY,
                max_series=settings.max_series,
                milestones=milestones_for(settings.baseline_days),
                finest=10 if 10 % grain == 0 else MINUTE,
            ),
            metric_specs(),
        )
        self._windows = windows
        self._source = _DriftSeries(windows)
        self._alerts = alerts
        self._counters = counters
        self._next: float | None = None  # the next reading
        self._latest_trace = -math.inf
        self._slots = ServiceSlots()
        self._probe_alerts: list[str] = []  # ids of the alerts that fire on the probes
        self._additions = -1  # `windows.additions` at the last reading
        self._changed = False  # whether detectors have read since the last drain

    def observe(self, traces: Sequence[ScoredTrace]) -> None:
        """Count traces that entered the windows under their bounded names."""
        if self.enabled:
            self._latest_trace = max(self._latest_trace, *[one.timestamp for one in traces])
            self.monitor.observe(traces)

    def advance(self, until: float) -> list[Alert]:
        """Read every whole minute up to event time `until` and return moved alerts."""
        moved: list[Alert] = []
        for at in self._due(until):
            self._windows.advance(at)
            additions, self._additions = self._additions, self._windows.additions
            alarms = self.monitor.advance(
                at, self._source, self._latest_trace, additions != self._additions
            )
            self._changed = True
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
                self.skip(until)
                return
            self._next += MINUTE
            yield at

    def skip(self, to: float) -> None:
        """Continue with the first whole minute after `to`: event time begins or jumps."""
        if self._next is None or self._next <= to:
            self._next = math.floor(to / MINUTE) * MINUTE + MINUTE

    def apply_alert_changes(self, moved: Sequence[Alert], at: float) -> list[Alert]:
        """Hold back the drift alerts of the judge's scores while rules fire on its probes.

        `moved` are alerts of rules that fired or resolved at event time `at`. Returns the drift
        alerts that this moved.
        """
        was_drifting = bool(self._probe_alerts)
        for alert in moved:
            if alert.service == PROBE_SERVICE and alert.metric == _PROBE_METRIC:
                self._probe_alerts = [name for name in self._probe_alerts if name != alert.id]
                if alert.state == "firing":
                    self._probe_alerts.append(alert.id)
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
            self._changed = True
            moved = self._alerts.apply_alarms([], self.monitor.active(), self._windows, at)
        return {"at": at, "services": done}, moved

    def retain_services(self, services: Iterable[str]) -> None:
        """Forget every other service."""
        retained = set(services)
        self.monitor.retain_services(retained)
        self._slots.retain(retained)

    def gauges(self) -> list[GaugeSample]:
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

    def dump(self) -> dict[str, Any]:
        """Return the small part of the state, for every commit; `drain` has the rest."""
        return {
            "monitor": self.monitor.dump_head(),
            "next": self._next,
            "heard": None if self._latest_trace == -math.inf else self._latest_trace,
            "places": self._slots.dump(),
            "probed": self._probe_alerts,
        }

    def drain(self) -> dict[str, Any]:
        """Return the parts that changed since the last call, by name; call it before `dump`."""
        out: dict[str, Any] = {}
        for service, slot, rows in self.monitor.drain_scores():
            out[f"drift.{self._slots.slot_of(service)}.{slot}"] = rows
        if self._changed:
            self._changed = False
            for service, monitors in self.monitor.dump_services().items():
                name = f"drift.{self._slots.slot_of(service)}"
                out[name] = {"service": service, "trackers": monitors}
        return out

    def load(self, state: Mapping[str, Any]) -> None:
        """Restore what `dump` (under `drift`) and every `drain` gave.

        The state of another version is left out: baselines are learned anew.
        """
        head = state.get("drift")
        if not self.enabled or head is None:
            return
        self._next = head["next"]
        self._latest_trace = -math.inf if head["heard"] is None else head["heard"]
        self._slots.load(head["places"])
        self._probe_alerts = list(head["probed"])
        if head["monitor"]["version"] != STATE_VERSION:
            return
        saved = self._slots.saved_states(state, "drift")
        monitors = [monitor for _, detectors in saved for monitor in detectors["trackers"]]
        scores = [
            row
            for service, slot, rows in self._slots.saved_entries(state, "drift")
            for row in (rows if slot else ())
            if row[0] == service  # a slot may have had another service before
        ]
        self.monitor.load({**head["monitor"], "trackers": monitors, "scores": scores})


class _DriftSeries:
    """The windows as the monitor reads them: every series once, under the name of its scorer.

    The scores of an older version of an instrument get no new data, and assisted estimates are
    made of the same sums, so neither is watched.
    """

    def __init__(self, windows: Windows) -> None:
        self._windows = windows
        self.stages = windows.stages
        self.bucket = windows.bucket
        self.bucket_latency = windows.bucket_latency

    def services(self) -> Sequence[str]:
        # probes are no traffic, and a rule watches them
        return [name for name in self._windows.services() if name != PROBE_SERVICE]

    def series(self, service: str, segment: str = "") -> Sequence[tuple[str, str]]:
        # Each series takes a share of the false alarms that all share. The few questions of
        # canaries are no sample of anything; which traces people label when is no matter of
        # chance, and labels are corrected.
        return [
            (metric, scorer)
            for metric, scorer in self._windows.series(service, segment)
            if not is_assisted(scorer)
            and not split_scorer(scorer)[1]
            and not is_canary_scorer(scorer)
            and scorer in RESERVED_SCORERS
        ]


def _labels(service: str, metric: str, scorer: str, kind: str) -> tuple[tuple[str, str], ...]:
    pairs = (("service", service), ("metric", metric), ("scorer", scorer), ("kind", kind))
    return tuple(pair for pair in pairs if pair[1])
