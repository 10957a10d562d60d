"""Run the drift monitor on the windows of the running agent: schedule, series, alerts, saved state.

It looks at whole minutes of event time, so batches and restarts change nothing. State is kept in
parts, for a service has some 300 kB of it: what every commit writes is the small head and the open
score buckets of the last seconds; detectors are written when they have read a bucket, once a
minute.
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
from ragmeter.drift.monitor import DriftMonitor, DriftSettings
from ragmeter.drift.series import milestones_for
from ragmeter.metrics.canary.scores import is_canary_scorer
from ragmeter.metrics.claims_and_nuggets import AUTONUGGETIZER
from ragmeter.metrics.judge_agreement import PROBE_SERVICE
from ragmeter.metrics.ranking import UMBRELA
from ragmeter.metrics.registry import METRICS
from ragmeter.windows.intervals import is_assisted
from ragmeter.windows.log_histogram import LogHistogram
from ragmeter.windows.sums import ScoreSums
from ragmeter.windows.windows import Windows

_SILENCE = HOUR + 10 * MINUTE
"""After so long without a trace all has been read; a night without traffic costs no looks."""

_PROBED = "judge_probe_change"
"""What an alert of it says of the judge is told to the monitor."""

_JUDGES = (JUDGE_SCORER, UMBRELA, AUTONUGGETIZER)
"""The scorers behind which the judge of the probes is."""


class _DriftSeries:
    """The windows as the monitor reads them: every series once, under the name of its scorer. What
    an older version of an instrument has scored gets no new data; the estimates with help are made
    of the same sums."""

    def __init__(self, windows: Windows) -> None:
        self._windows = windows

    def services(self) -> Sequence[str]:
        # probes are no traffic, and a rule watches them
        return [name for name in self._windows.services() if name != PROBE_SERVICE]

    def segments(self, service: str) -> Sequence[str]:
        return self._windows.segments(service)

    def series(self, service: str, segment: str = "") -> Sequence[tuple[str, str]]:
        """Not those of canaries: the same few questions again and again are no sample of anything,
        and each series takes its part of the false alarms that all share. Not those of people's
        labels either: what is labelled when is no matter of chance, and words are taken back."""
        return [
            (metric, scorer)
            for metric, scorer in self._windows.series(service, segment)
            if not is_assisted(scorer)
            and not split_scorer(scorer)[1]
            and not is_canary_scorer(scorer)
            and scorer in RESERVED_SCORERS
        ]

    def stages(self, service: str, segment: str = "") -> Sequence[str]:
        return self._windows.stages(service, segment)

    def bucket(
        self, service: str, segment: str, metric: str, scorer: str, width: int, start: float
    ) -> ScoreSums | None:
        return self._windows.bucket(service, segment, metric, scorer, width, start)

    def bucket_latency(
        self, service: str, segment: str, stage: str, width: int, start: float
    ) -> LogHistogram | None:
        return self._windows.bucket_latency(service, segment, stage, width, start)


class DriftDetection:
    """Watches `windows`; alerts go to `alerts`, their number to `counters`.

    `enabled` is False where it is switched off and where no window has buckets of a minute.
    """

    def __init__(
        self,
        settings: DriftDetectionSettings,
        windows: Windows,
        alerts: DriftAlerts,
        counters: Counters,
    ) -> None:
        grain = min(bucket_seconds(parse_window(name)) for name in windows.names)
        self.enabled = settings.enabled and MINUTE % grain == 0
        promote = settings.promote_days
        self.monitor = DriftMonitor(
            DriftSettings(
                seconds_per_alarm=settings.false_alarm_days * DAY,
                promote_every=None if promote is None else promote * DAY,
                max_series=settings.max_series,
                milestones=milestones_for(settings.baseline_days),
                finest=10 if 10 % grain == 0 else MINUTE,
            ),
            METRICS,
        )
        self._windows = windows
        self._source = _DriftSeries(windows)
        self._alerts = alerts
        self._counters = counters
        self._next: float | None = None
        self._heard = -math.inf  # the latest trace
        self._places = ServiceSlots()
        self._probed: list[str] = []  # alerts that fire on the probes
        self._moved = False  # whether detectors have read since the last drain

    def observe(self, scored: ScoredTrace) -> None:
        """Count a trace that has a place in the windows, under its bounded name."""
        if self.enabled:
            self._heard = max(self._heard, scored.timestamp)
            self.monitor.observe((scored,))

    def advance(self, until: float) -> list[Alert]:
        """Look at every whole minute up to event time `until`; what fired or resolved."""
        moved: list[Alert] = []
        for at in self._due(until):
            self._windows.advance(at)
            said = self.monitor.advance(at, self._source)
            self._moved = True
            moved += self._alerts.apply_alarms(said, self.monitor.active(), self._windows, at)
        for alert in moved:
            if alert.state == "firing" and alert.drift is not None:
                stage = alert.labels.get("stage", alert.metric)
                key = _labels(alert.service, stage, alert.scorer, alert.drift["kind"])
                self._counters.inc("ragmeter_drift_alarms_total", key)
        return moved

    def apply_alert_changes(self, moved: Sequence[Alert], at: float) -> list[Alert]:
        """What rules fired or resolved at event time `at`: alerts on the probes hold back the drift
        alerts of the judge's scores. The alerts that this moved."""
        was = bool(self._probed)
        for alert in moved:
            if alert.service == PROBE_SERVICE and alert.metric == _PROBED:
                self._probed = [name for name in self._probed if name != alert.id]
                if alert.state == "firing":
                    self._probed.append(alert.id)
        if not self.enabled or bool(self._probed) == was:
            return []
        said = self.monitor.apply_probes(_JUDGES, not was, at)
        return self._alerts.apply_alarms(said, self.monitor.active(), self._windows, at)

    def _due(self, until: float) -> Iterator[float]:
        while self.enabled and self._next is not None and self._next <= until:
            at = self._next
            if at > self._heard + _SILENCE:
                self.skip(until)
                return
            self._next += MINUTE
            yield at

    def skip(self, to: float) -> None:
        """Event time begins or jumps: look next at the first whole minute after it."""
        if self._next is None or self._next <= to:
            self._next = math.floor(to / MINUTE) * MINUTE + MINUTE

    def baselines(self) -> list[dict[str, Any]]:
        """What each series is compared with."""
        return self.monitor.baselines()

    def promote(
        self, service: str | None, at: float | None
    ) -> tuple[dict[str, Any], list[Alert]] | None:
        """A new baseline of one service or of all at event time `at`: how many series have it at
        once, how many learn it, and the versions; and the alerts that this ended. None where the
        service is not watched."""
        watched = self.monitor.services()
        if service is not None and service not in watched:
            return None
        done: dict[str, Any] = {}
        moved: list[Alert] = []
        for name in watched if service is None else [service]:
            assert at is not None  # what is watched has had a trace
            ready = self.monitor.promote(name, at)
            rows = [row for row in self.monitor.baselines() if row["service"] == name]
            done[name] = {
                "promoted": ready,
                "learning": len(rows) - ready,
                "version": max((row["version"] for row in rows), default=0),
            }
        if done and at is not None:
            self._moved = True
            moved = self._alerts.apply_alarms([], self.monitor.active(), self._windows, at)
        return {"at": at, "services": done}, moved

    def keep(self, services: Iterable[str]) -> None:
        """Forget every other service."""
        kept = set(services)
        self.monitor.retain_services(kept)
        self._places.retain(kept)

    def gauges(self) -> list[GaugeSample]:
        """How near each detector is to its alarm, and what there was no room for."""
        found: list[GaugeSample] = [
            ("ragmeter_drift_statistic", _labels(service, metric, scorer, kind), ratio)
            for service, metric, scorer, kind, ratio in self.monitor.ratios()
        ]
        return [*found, ("ragmeter_drift_series_refused", (), float(self.monitor.refused))]

    def dump(self) -> dict[str, Any]:
        """The small part, for every commit; `drain` has the rest."""
        return {
            "monitor": self.monitor.dump_head(),
            "next": self._next,
            "heard": None if self._heard == -math.inf else self._heard,
            "places": self._places.dump(),
            "probed": self._probed,
        }

    def drain(self) -> dict[str, Any]:
        """By name, the parts that changed since the last call. Before `dump`: it gives places."""
        out: dict[str, Any] = {}
        for service, slot, rows in self.monitor.drain_scores():
            out[f"drift.{self._places.slot_of(service)}.{slot}"] = rows
        if self._moved:
            self._moved = False
            for service, trackers in self.monitor.dump_services().items():
                part = {"service": service, "trackers": trackers}
                out[f"drift.{self._places.slot_of(service)}"] = part
        return out

    def load(self, state: Mapping[str, Any]) -> None:
        """Back from all that `dump` (under `drift`) and every `drain` gave. What another version
        has written is left out: baselines are learned anew."""
        head = state.get("drift")
        if not self.enabled or head is None or head["monitor"]["version"] != 1:
            return
        self._next = head["next"]
        self._heard = -math.inf if head["heard"] is None else head["heard"]
        self._places.load(head["places"])
        self._probed = list(head.get("probed", []))
        parts = self._places.saved_states(state, "drift")
        trackers = [tracker for _, part in parts for tracker in part["trackers"]]
        scores = [
            row
            for service, slot, rows in self._places.saved_entries(state, "drift")
            for row in (rows if slot else ())
            if row[0] == service  # a place may have had another service before
        ]
        self.monitor.load({**head["monitor"], "trackers": trackers, "scores": scores})


def _labels(service: str, metric: str, scorer: str, kind: str) -> tuple[tuple[str, str], ...]:
    pairs = (("service", service), ("metric", metric), ("scorer", scorer), ("kind", kind))
    return tuple(pair for pair in pairs if pair[1])
