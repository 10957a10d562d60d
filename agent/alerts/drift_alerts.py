"""Turn alarms of the drift detectors into alerts.

No rule raises them and none is pending: a detector that alarms has waited long enough. An alert
fires until its alarm is cleared, is explained by another one, or a new baseline settles it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from ragmeter.alerts.alert import Alert, alert_id, clean_text, format_number
from ragmeter.alerts.evidence import MAX_WORST
from ragmeter.core.clocks import parse_duration
from ragmeter.core.series import split_scorer
from ragmeter.drift.alarms import Alarm
from ragmeter.windows.windows import Windows

DRIFT_RULE = "RagDrift"
# The judge differs from the cheap score by more than before. `RagJudgeDrift` is the rule on the
# frozen probes.
JUDGE_CHANGED_RULE = "RagJudgeChanged"

_MAX_SUMMARY = 1_000  # characters, as for the alerts of rules


class DriftAlerts:
    """Firing and lately resolved alerts of drift detectors.

    Args:
        max_alerts: How many are held at once, those resolved included.
        keep_resolved: How many seconds of event time a resolved one is held.

    Attributes:
        overflow: How many alarms were refused for lack of room.
    """

    def __init__(self, *, max_alerts: int, keep_resolved: float) -> None:
        self.overflow = 0
        self._max = max_alerts
        self._keep_resolved = keep_resolved
        # by (service, metric, scorer, kind): an alarm that is raised again is the same alert
        self._alerts: dict[tuple[str, str, str, str], Alert] = {}

    def alerts(self) -> list[Alert]:
        """Return copies of all alerts, in a fixed order."""
        return [self._alerts[key].copy() for key in sorted(self._alerts)]

    def apply_alarms(
        self, raised: Sequence[Alarm], active: Iterable[Alarm], windows: Windows, now: float
    ) -> list[Alert]:
        """Update the alerts at event time `now` and return copies of those that moved.

        `raised` are the alarms that the monitor gave since the last call, `active` all it has now.
        """
        self._alerts = {
            key: alert
            for key, alert in self._alerts.items()
            if not alert.is_expired(now, self._keep_resolved)
        }
        moved: list[Alert] = []
        for alarm in raised:
            alert = self._alerts.get(alarm.key)
            firing = alert if alert is not None and alert.state == "firing" else None
            if alarm.state != "firing":
                if firing is not None:
                    _resolve(firing, alarm.cause if alarm.state == "held" else "", now)
                    moved.append(firing.copy())
            elif firing is not None:
                _update(firing, alarm, windows, now)
            elif alert is None and len(self._alerts) >= self._max:
                self.overflow += 1
            else:
                alert = self._alerts[alarm.key] = _new_alert(alarm, now)
                _update(alert, alarm, windows, now)
                moved.append(alert.copy())
        still_firing = {alarm.key for alarm in active if alarm.state == "firing"}
        for key in sorted(self._alerts.keys() - still_firing):
            alert = self._alerts[key]
            if alert.state == "firing":
                _resolve(alert, "no longer watched, or by a new baseline", now)
                moved.append(alert.copy())
        return moved

    def dump(self) -> list[Any]:
        """Return the state, JSON-able."""
        return [[list(key), alert.to_dict()] for key, alert in sorted(self._alerts.items())]

    def load(self, state: Sequence[Any]) -> None:
        """Replace the state by a dump."""
        self._alerts = {
            (key[0], key[1], key[2], key[3]): Alert.from_dict(alert) for key, alert in state
        }


def _new_alert(alarm: Alarm, now: float) -> Alert:
    rule = JUDGE_CHANGED_RULE if alarm.kind == "judge" else DRIFT_RULE
    latency = alarm.kind == "latency"
    return Alert(
        id=alert_id(rule, alarm.service, "\n".join(alarm.key[1:])),
        rule=rule,
        severity="warning",
        state="firing",
        service=alarm.service,
        segment="",
        metric="latency" if latency else alarm.metric,
        scorer=alarm.scorer,
        window="",
        threshold=alarm.threshold,
        since=alarm.since,
        fired_at=now,
        updated_at=now,
        statistic="drift",
        op=">=",
        labels={"kind": alarm.kind, **({"stage": alarm.metric} if latency else {})},
    )


def _update(alert: Alert, alarm: Alarm, windows: Windows, now: float) -> None:
    alert.value, alert.lower, alert.upper = alarm.after, alarm.after_lower, alarm.after_upper
    alert.threshold, alert.effective_samples = alarm.threshold, alarm.effective_samples
    alert.samples = round(alarm.effective_samples)
    alert.since, alert.updated_at = alarm.since, now
    alert.window = alert.window or _window(alarm, windows, now)  # a label: it stays
    alert.worst = _worst_traces(alarm, windows, alert.window) or alert.worst
    series = windows.current_scorer(alarm.metric, alarm.scorer)
    alert.baseline, alert.fingerprint = alarm.before, split_scorer(series)[1]
    alert.top_segment, alert.top_segment_words = alarm.segment or "", alarm.segment_words
    alert.drift = {
        "kind": alarm.kind,
        "baseline_version": alarm.baseline_version,
        "baseline_hours": alarm.baseline_hours,
        "provisional": alarm.provisional,
        "statistic": alarm.statistic,  # the detector's
        "since_earliest": alarm.since_earliest,
        "since_latest": alarm.since_latest,
        "span_seconds": alarm.at - alarm.since,  # from the change to the alarm
        "edge": alarm.edge,
        "cause": alarm.cause,
    }
    early = ", a baseline of less than a day" if alarm.provisional else ""
    alert.summary = clean_text(
        f"{clean_text(alarm.service)}: {alarm.describe()} (95 % interval "
        f"{format_number(alarm.after_lower)} to {format_number(alarm.after_upper)}) since "
        f"{(alarm.at - alarm.since) / 60:.0f} min before the alarm; detector at "
        f"{format_number(alarm.statistic)} of {format_number(alarm.threshold)}, "
        f"{alarm.effective_samples:.0f} effective samples{early}",
        _MAX_SUMMARY,
    )


def _resolve(alert: Alert, reason: str, now: float) -> None:
    alert.resolve(reason, now)
    suffix = f" ({reason})" if reason else ""
    alert.summary = clean_text(f"Resolved: {alert.summary}{suffix}", _MAX_SUMMARY)


def _window(alarm: Alarm, windows: Windows, now: float) -> str:
    """Return the shortest window that reaches back to the change, else the longest."""
    names = sorted(windows.names, key=parse_duration)
    return next((n for n in names if parse_duration(n) >= now - alarm.since), names[-1])


def _worst_traces(alarm: Alarm, windows: Windows, window: str) -> list[str]:
    """Return the ids of the worst traces since the change."""
    series = (alarm.metric, alarm.scorer)
    if alarm.kind == "latency":
        series = ("latency", alarm.metric)
    traces = windows.worst(alarm.service, *series, window, 4 * MAX_WORST)
    since = [trace.trace_id for trace in traces if trace.timestamp >= alarm.since_earliest]
    return since[:MAX_WORST]
