"""Turn alarms of the drift detectors into alerts.

No rule raises them and nothing is pending: a detector that alarms has waited long enough. An alert
fires until its alarm is cleared, is explained by another one, or a new baseline settles it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Protocol

from ragmeter.alerts.alert import Alert, alert_id, clean_text, format_number
from ragmeter.alerts.evidence import MAX_WORST
from ragmeter.core.clocks import parse_duration
from ragmeter.core.series import split_scorer
from ragmeter.drift.alarms import Alarm

DRIFT_RULE = "RagDrift"
JUDGE_CHANGED_RULE = "RagJudgeChanged"
"""The judge differs from the cheap score by more than it used to. `RagJudgeDrift` is the rule on
the frozen probes."""

_AlarmKey = tuple[str, str, str, str]
"""(service, metric, scorer, kind): an alarm that is raised again is the same alert."""


class _DriftWorstLike(Protocol):
    @property
    def trace_id(self) -> str: ...
    @property
    def timestamp(self) -> float: ...


class _DriftWindowsLike(Protocol):
    """The part of `ragmeter.windows.Windows` that is read for evidence."""

    @property
    def names(self) -> tuple[str, ...]: ...
    def current_scorer(self, metric: str, scorer: str) -> str: ...
    def worst(
        self, service: str, metric: str, scorer: str, window: str, limit: int = 5
    ) -> Sequence[_DriftWorstLike]: ...


def _describe_alarm(alarm: Alarm) -> dict[str, Any]:
    """What a drift alarm knows beyond an alert's own fields: `statistic` is the detector's,
    `span_seconds` the time from the change to the alarm."""
    return {
        "kind": alarm.kind,
        "baseline_version": alarm.baseline_version,
        "baseline_hours": alarm.baseline_hours,
        "provisional": alarm.provisional,
        "statistic": alarm.statistic,
        "since_earliest": alarm.since_earliest,
        "since_latest": alarm.since_latest,
        "span_seconds": alarm.at - alarm.since,
        "edge": alarm.edge,
        "cause": alarm.cause,
    }


class DriftAlerts:
    """Holds at most `max_alerts`, those resolved less than `keep_resolved` seconds ago included.

    `overflow` counts alarms that found no room.
    """

    def __init__(self, *, max_alerts: int, keep_resolved: float) -> None:
        self.overflow = 0
        self._max = max_alerts
        self._keep_resolved = keep_resolved
        self._held: dict[_AlarmKey, Alert] = {}

    def alerts(self) -> list[Alert]:
        """Copies of all that are held, in a fixed order."""
        return [self._held[key].copy() for key in sorted(self._held)]

    def apply_alarms(
        self, said: Sequence[Alarm], active: Iterable[Alarm], windows: _DriftWindowsLike, now: float
    ) -> list[Alert]:
        """What the monitor has said on the way to event time `now`, and what is `active` after
        it. Copies of the alerts that fired or resolved."""
        moved: list[Alert] = []
        for key in [
            key
            for key, alert in self._held.items()
            if alert.resolved_at is not None and now - alert.resolved_at >= self._keep_resolved
        ]:
            del self._held[key]
        for alarm in said:
            alert = self._held.get(alarm.key)
            firing = alert is not None and alert.state == "firing"
            if alarm.state == "firing" and alert is not None and firing:
                _update(alert, alarm, windows, now)
            elif alarm.state == "firing":
                self._fire(alarm, windows, now, moved)
            elif alert is not None and firing:
                _resolve(alert, alarm.cause if alarm.state == "held" else "", now, moved)
        out = {alarm.key for alarm in active if alarm.state == "firing"}
        for key in sorted(self._held.keys() - out):
            if self._held[key].state == "firing":
                _resolve(self._held[key], "no longer watched, or by a new baseline", now, moved)
        return moved

    def _fire(
        self, alarm: Alarm, windows: _DriftWindowsLike, now: float, moved: list[Alert]
    ) -> None:
        if alarm.key not in self._held and len(self._held) >= self._max:
            self.overflow += 1
            return
        judge = alarm.kind == "judge"
        rule = JUDGE_CHANGED_RULE if judge else DRIFT_RULE
        latency = alarm.kind == "latency"
        about = "\n".join(alarm.key[1:])
        alert = Alert(
            id=alert_id(rule, alarm.service, about),
            rule=rule,
            severity="warning",
            state="firing",
            service=alarm.service,
            segment="",
            metric="latency" if latency else alarm.metric,
            scorer=alarm.scorer,
            window="",
            value=alarm.after,
            lower=None,
            upper=None,
            threshold=alarm.threshold,
            samples=0,
            effective_samples=0.0,
            since=alarm.since,
            fired_at=now,
            resolved_at=None,
            updated_at=now,
            summary="",
            statistic="drift",
            op=">=",
            labels={"kind": alarm.kind, **({"stage": alarm.metric} if latency else {})},
        )
        self._held[alarm.key] = alert
        _update(alert, alarm, windows, now)
        moved.append(alert.copy())

    def dump(self) -> list[Any]:
        return [[list(key), alert.to_dict()] for key, alert in sorted(self._held.items())]

    def load(self, state: Sequence[Any]) -> None:
        self._held = {
            (key[0], key[1], key[2], key[3]): Alert.from_dict(alert) for key, alert in state
        }


def _update(alert: Alert, alarm: Alarm, windows: _DriftWindowsLike, now: float) -> None:
    alert.value, alert.lower, alert.upper = alarm.after, alarm.after_lower, alarm.after_upper
    alert.threshold, alert.effective_samples = alarm.threshold, alarm.effective_samples
    alert.samples = round(alarm.effective_samples)
    alert.since, alert.updated_at = alarm.since, now
    alert.window = alert.window or _window(alarm, windows, now)  # a label: it stays
    alert.worst = _worst(alarm, windows, alert.window) or alert.worst
    series = windows.current_scorer(alarm.metric, alarm.scorer)
    alert.baseline, alert.fingerprint = alarm.before, split_scorer(series)[1]
    alert.top_segment, alert.top_segment_words = alarm.segment or "", alarm.segment_words
    alert.drift = _describe_alarm(alarm)
    alert.summary = clean_text(_summary(alert, alarm), 1_000)


def _summary(alert: Alert, alarm: Alarm) -> str:
    minutes = (alarm.at - alarm.since) / 60
    early = ", a baseline of less than a day" if alarm.provisional else ""
    return (
        f"{clean_text(alarm.service)}: {alarm.describe()} (95 % interval {format_number(alarm.after_lower)} to "
        f"{format_number(alarm.after_upper)}) since {minutes:.0f} min before the alarm; detector at "
        f"{format_number(alarm.statistic)} of {format_number(alarm.threshold)}, "
        f"{alarm.effective_samples:.0f} effective samples{early}"
    )


def _resolve(alert: Alert, reason: str, now: float, moved: list[Alert]) -> None:
    alert.state, alert.reason = "resolved", reason
    alert.resolved_at = alert.updated_at = now
    alert.summary = clean_text(
        f"Resolved: {alert.summary}" + (f" ({reason})" if reason else ""), 1_000
    )
    moved.append(alert.copy())


def _window(alarm: Alarm, windows: _DriftWindowsLike, now: float) -> str:
    """The shortest window that reaches back to the change; the longest where none does."""
    names = sorted(windows.names, key=parse_duration)
    return next((n for n in names if parse_duration(n) >= now - alarm.since), names[-1])


def _worst(alarm: Alarm, windows: _DriftWindowsLike, window: str) -> list[str]:
    """The worst traces since the change."""
    latency = alarm.kind == "latency"
    what = ("latency", alarm.metric) if latency else (alarm.metric, alarm.scorer)
    found = windows.worst(alarm.service, *what, window, 4 * MAX_WORST)
    since = [worst.trace_id for worst in found if worst.timestamp >= alarm.since_earliest]
    return since[:MAX_WORST]
