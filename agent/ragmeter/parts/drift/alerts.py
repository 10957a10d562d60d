"""Turn alarms of the drift detectors into alerts.

No rule raises them and none is pending: a detector that alarms has waited long enough. An alert
fires until its alarm is cleared, is explained by another one, or a new baseline settles it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from ragmeter.alerts.alert import (
    MAX_WORST,
    Alert,
    alert_id,
    clean_text,
    format_days,
    format_number,
)
from ragmeter.alerts.explanation import Explanation
from ragmeter.core.durations import parse_duration
from ragmeter.core.metric_specs import find_helping_spec
from ragmeter.core.score import BUILTIN_SCORER
from ragmeter.core.series import split_scorer
from ragmeter.metrics.registry import metric_specs
from ragmeter.parts.drift.alarms import CHEAP_MOVED, Alarm, AlarmKey
from ragmeter.parts.drift.baseline import DAY, HOUR
from ragmeter.parts.drift.change_cells import ChangeCells
from ragmeter.parts.drift.judge_drift import paired_moments
from ragmeter.parts.views import Explainer
from ragmeter.windows.contrasts import SHARE, CellPair, Contrast, estimate_change, series_kind
from ragmeter.windows.estimators import Z_95
from ragmeter.windows.sums import ScoreSums
from ragmeter.windows.windows import Windows

DRIFT_RULE = "RagDrift"
# The judged score has moved and the cheap score has not. `RagJudgeDrift` is the rule on the frozen
# probes.
JUDGE_CHANGED_RULE = "RagJudgeChanged"

_MAX_SUMMARY = 1_000  # characters, as for the alerts of rules

# The cheap score has not followed the judge if less than half of the move that it would have made
# is there, and all of it is excluded at 1 %.
_LEAST_MISSING = 0.5
_Z_LEVEL = 2.33

_CHEAP_LEVEL = 0.01  # p value up to which a cheap score has moved


# Seconds after a change up to which it is explained again: windows reach back a day.
_EXPLAINED = DAY / 2

_AlertKey = tuple[AlarmKey, str]


class DriftAlerts:
    """Firing and lately resolved alerts of drift detectors.

    Args:
        max_alerts: How many are held at once, those resolved included.
        explainer: Returns who explains a change by segments.

    Attributes:
        overflow: How many alarms were refused for lack of room.
    """

    def __init__(self, max_alerts: int, explainer: Callable[[], Explainer] = Explainer) -> None:
        self.overflow = 0
        self._explainer = explainer
        self._max = max_alerts
        # by key of the alarm and rule: an alarm that is raised again is the same alert
        self._alerts: dict[_AlertKey, Alert] = {}

    def alerts(self) -> list[Alert]:
        """Return copies of all alerts, in a fixed order."""
        return [self._alerts[key].copy() for key in sorted(self._alerts)]

    def judge_changes(self) -> set[AlarmKey]:
        """Return the keys of alarms whose alert says that the judge has changed."""
        return {
            key
            for (key, rule), alert in self._alerts.items()
            if rule == JUDGE_CHANGED_RULE and alert.state == "firing"
        }

    def apply_alarms(
        self, raised: Sequence[Alarm], active: Iterable[Alarm], windows: Windows, now: float
    ) -> list[Alert]:
        """Update the alerts at event time `now` and return copies of those that moved.

        An alarm comes with few samples: while its alert fires it is explained again whenever the
        time since the change has doubled.

        Args:
            raised: The alarms that the monitor gave since the last call.
            active: All that it has now.
            windows: The windows, for evidence.
            now: Event time, Unix seconds.
        """
        self._alerts = {
            key: alert for key, alert in self._alerts.items() if not alert.is_expired(now)
        }
        moved: list[Alert] = []
        for alarm in raised:
            firing = self._firing_alert(alarm.key)
            if alarm.state == "firing":
                moved += self._explain(alarm, firing, windows, now)
            elif firing is not None:
                _resolve(firing, alarm.cause if alarm.state == "held" else "", now)
                moved.append(firing.copy())
        firing_alarms = {alarm.key: alarm for alarm in active if alarm.state == "firing"}
        for key, alert in sorted(self._alerts.items()):
            if alert.state != "firing":
                continue
            if key[0] not in firing_alarms:
                _resolve(alert, "no longer watched, or by a new baseline", now)
                moved.append(alert.copy())
            elif alert.rule == DRIFT_RULE and _is_due(alert, now):
                moved += self._explain(firing_alarms[key[0]], alert, windows, now)
        return moved

    def _firing_alert(self, key: AlarmKey) -> Alert | None:
        alerts = (self._alerts.get((key, rule)) for rule in (DRIFT_RULE, JUDGE_CHANGED_RULE))
        return next((alert for alert in alerts if alert and alert.state == "firing"), None)

    def _explain(
        self, alarm: Alarm, firing: Alert | None, windows: Windows, now: float
    ) -> list[Alert]:
        """Raise the alert of an alarm, or update the one that is `firing`; return what moved."""
        story = _find_story(alarm, windows, now, self._explainer())
        moved: list[Alert] = []
        if firing is not None and firing.rule == DRIFT_RULE != story.rule:
            _resolve(firing, story.cause, now)
            moved.append(firing.copy())
        elif firing is not None:
            _update(alert=firing, alarm=alarm, story=story, windows=windows, now=now)
            return []
        key = alarm.key, story.rule
        if key not in self._alerts and len(self._alerts) >= self._max:
            self.overflow += 1
            return moved
        alert = self._alerts[key] = _new_alert(alarm, story.rule, now)
        _update(alert=alert, alarm=alarm, story=story, windows=windows, now=now)
        return [*moved, alert.copy()]

    def dump(self) -> list[tuple[AlarmKey, Alert]]:
        """Return every alert with the key of its alarm."""
        return [(key, alert) for (key, _), alert in sorted(self._alerts.items())]

    def load(self, alerts: Iterable[tuple[AlarmKey, Alert]]) -> None:
        """Replace the alerts by those of a dump."""
        self._alerts = {(key, alert.rule): alert for key, alert in alerts}


def _is_due(alert: Alert, now: float) -> bool:
    """Return whether the time since the change has doubled since the alert was last explained."""
    return 2 * (alert.updated_at - alert.since) <= now - alert.since < _EXPLAINED


def _new_alert(alarm: Alarm, rule: str, now: float) -> Alert:
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


def _update(alert: Alert, alarm: Alarm, story: _Story, windows: Windows, now: float) -> None:
    alert.value = alarm.after
    alert.lower = alarm.after_lower
    alert.upper = alarm.after_upper
    alert.threshold = alarm.threshold
    alert.effective_samples = alarm.effective_samples
    alert.samples = round(alarm.effective_samples)
    alert.since = alarm.since
    alert.updated_at = now
    alert.window = alert.window or _window(alarm, windows, now)  # a label: it stays
    alert.name_worst(_worst_traces(alarm, windows, alert.window))
    series = windows.current_scorer(alarm.metric, alarm.scorer)
    alert.baseline = alarm.before
    alert.fingerprint = split_scorer(series)[1]
    alert.top_segment, alert.top_segment_words = story.segments
    alert.drift = {
        "kind": alarm.kind,
        "baseline_version": alarm.baseline_version,
        "baseline_hours": alarm.baseline_hours,
        "provisional": bool(alarm.provisional),
        "statistic": alarm.statistic,  # the detector's
        "expected_days": alarm.expected_days,
        "since_earliest": alarm.since_earliest,
        "since_latest": alarm.since_latest,
        "since_at_least": alarm.since_at_least,
        "span_seconds": alarm.at - alarm.since,  # from the change to the alarm
        "edge": alarm.edge,
        "cause": story.cause,
    }
    least = "at least " if alarm.since_at_least else ""
    early = " (less than two weeks of history)" if alarm.provisional else ""
    if alarm.provisional == "first day":
        early = " (less than a day of history)"
    clauses = (
        f"{clean_text(alarm.service)}: {alarm.describe()} (95 % interval "
        f"{format_number(alarm.after_lower)} to {format_number(alarm.after_upper)} on "
        f"{alert.samples} samples), "
        f"{least}{_format_span(alarm.at - alarm.since)} before the alarm",
        story.cause,
        story.segments.text,
    )
    alert.summary = clean_text(
        f"{'; '.join(filter(None, clauses))}. False alarm at most every "
        f"{format_days(alarm.expected_days)}{early}",
        _MAX_SUMMARY,
    )


def _format_span(seconds: float) -> str:
    if seconds < 2 * HOUR:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / HOUR:.1f} h" if seconds < 2 * DAY else f"{seconds / DAY:.1f} days"


class _Story(NamedTuple):
    """The cause of an alarm, judge or answers, and the segments behind it."""

    rule: str
    cause: str
    segments: Explanation


def _find_story(alarm: Alarm, windows: Windows, now: float, explainer: Explainer) -> _Story:
    """Compare the time since a change with the day before it."""
    if alarm.kind == "judge":  # all segments share the judge
        return _Story(JUDGE_CHANGED_RULE, alarm.cause, Explanation())
    cells = ChangeCells(windows, alarm.service, alarm.since, now)

    def read(segment: str) -> CellPair:
        if alarm.kind == "latency":
            return cells.latencies(segment, alarm.metric, alarm.edge or 0.0)
        return cells.scores(segment, alarm.metric, alarm.scorer)

    kind = SHARE if alarm.kind == "latency" else series_kind(alarm.metric, alarm.scorer)
    means = estimate_change(read(""), kind)
    change = means.change if means else None
    # the share above an edge may rise while the mean, which segments have, falls
    shift = change.value if change and alarm.kind == "distribution" else alarm.after - alarm.before
    direction = 1 if shift > 0 else -1
    rule = DRIFT_RULE
    cause = alarm.cause
    judged = alarm.kind in ("rate", "mean") and alarm.scorer != BUILTIN_SCORER
    if judged and cause != CHEAP_MOVED:
        rule, cause = _compare_with_cheap(alarm, cells, change, direction)
    if change is None:
        return _Story(rule, cause, Explanation())
    segment, text = explainer.explain_change(
        windows=windows,
        service=alarm.service,
        read=read,
        kind=kind,
        direction=direction,
    )
    if alarm.kind == "distribution" and text:
        text = f"of its mean: {text}"
    return _Story(rule, cause, Explanation(segment, text))


def _compare_with_cheap(
    alarm: Alarm, cells: ChangeCells, judged: Contrast | None, direction: int
) -> tuple[str, str]:
    """Return the rule and the cause of an alarm of a judged score, which went in a `direction`."""
    helping = find_helping_spec(metric_specs(), alarm.metric)
    metric = helping.name if helping else alarm.metric
    cheap = estimate_change(
        cells.scores("", metric, BUILTIN_SCORER), series_kind(metric, BUILTIN_SCORER)
    )
    if cheap is None:
        return DRIFT_RULE, alarm.cause
    change = cheap.change
    numbers = f"{cheap.before.value:.3g} to {cheap.now.value:.3g}"
    moved = change.p <= _CHEAP_LEVEL
    before, _ = cells.scores("", alarm.metric, alarm.scorer)
    expected = expected_cheap_move(before, judged) if before and judged else (0.0, 0.0)
    if has_not_followed(change, expected):
        return JUDGE_CHANGED_RULE, (
            f"the cheap score of all traffic has {'hardly' if moved else 'not'} moved ({numbers}), "
            f"where answers that changed as before would have moved it by {expected[0]:+.2g}: the "
            "judge has changed, or the answers in a way that the cheap score does not see"
        )
    if moved and change.value * direction > 0:
        return DRIFT_RULE, f"{CHEAP_MOVED} ({numbers})"
    return DRIFT_RULE, (
        f"the cheap score of all traffic has not moved {'that way' if moved else 'beyond chance'} "
        f"({numbers}), which does not tell the judge from the answers"
    )


def has_not_followed(change: Contrast, expected: tuple[float, float]) -> bool:
    """Return whether the cheap score has not moved as `expected`, a move and its standard error.

    The judge sees a sample and the cheap score all traffic, so that this tells a judge that changed
    from answers that did even where the two scores correlate weakly.
    """
    move, error = expected
    missing = abs(move) - math.copysign(change.value, change.value * move)
    return missing > max(_LEAST_MISSING * abs(move), _Z_LEVEL * math.hypot(error, _error(change)))


def expected_cheap_move(before: ScoreSums, judged: Contrast) -> tuple[float, float]:
    """Return how far the cheap score moves if the answers have changed as the judge says.

    New bad answers are taken to look to the cheap score as those did that the judge saw before.

    Args:
        before: Sums of the judged score before the change, with the cheap scores of its traces.
        judged: The change of the judged score.

    Returns:
        The move and its standard error, both 0 without cheap scores.
    """
    moments = paired_moments(before)
    if moments is None or moments.effective <= 2 or moments.yy <= 0:
        return 0.0, 0.0
    yy, yf, ff, n = moments
    slope = yf / yy
    slope_error = math.sqrt(max(0.0, ff / yy - slope * slope) / (n - 2))
    return slope * judged.value, math.hypot(slope_error * judged.value, slope * _error(judged))


def _error(contrast: Contrast) -> float:
    return (contrast.upper - contrast.lower) / (2 * Z_95)


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
