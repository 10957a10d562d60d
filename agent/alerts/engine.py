"""The alert state machine: evaluate rules over event time into pending, firing and resolved alerts.

Pure: reads windows, takes the event time, keeps its state in plain dictionaries. The caller
evaluates at fixed event-time steps; the same windows at the same steps give the same alerts,
whatever the wall clock and however often the process was restarted between steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ragmeter.alerts import evidence
from ragmeter.alerts.alert import Alert, alert_id, fill_template, render_summary, template_values
from ragmeter.alerts.conditions import (
    ConditionValue,
    ErrorBudgetsLike,
    RuleTargets,
    WindowsLike,
    condition_holds,
    read_burn_rate,
    read_condition,
    read_failed_share,
)
from ragmeter.alerts.drift_alerts import DriftAlerts
from ragmeter.alerts.rules import AlertRule
from ragmeter.core.errors import UnknownVersion

_STATE_VERSION = 1

_KEEP_RESOLVED = 900.0
"""Seconds of event time that a resolved alert is kept, so that senders can repeat it. Prometheus
keeps its resolved alerts for 15 minutes too."""

_MAX_ALERTS = 1_000
"""Alerts held at once. More at one time is an outage of everything: the first thousand say so."""

_MAX_REASONS = 5

_MAX_SEGMENT_SEARCHES = 20
"""Times in one evaluation that the segment behind an alert is looked for: with 64 segments each
takes some milliseconds. Where more fire at once it is an outage of everything; the others wait."""

_AlertKey = tuple[str, str, str]
"""(rule, service, subject): the segment, or of an unscored rule "metric scorer"."""


@dataclass(slots=True)
class _TrackedAlert:
    """An alert with the two clocks that its state machine needs beside it."""

    alert: Alert
    false_since: float | None = None  # first false reading after the last true one
    no_data_since: float | None = None
    look_at: float | None = None  # when to look for the segment that is behind it


def _key(alert: Alert) -> _AlertKey:
    pair = f"{alert.metric} {alert.scorer}"
    return alert.rule, alert.service, alert.segment if alert.unscored is None else pair


class AlertEngine:
    """Evaluates rules; holds at most `max_alerts` alerts, pending and resolved ones included.

    `budgets` is what burn rules read; without it they see nothing. Whoever calls `evaluate` moves
    it to the same time before.

    After `evaluate`: `unevaluated` is how many (rule, service, subject) had no data, `overflow`
    how many true conditions found no room. Both describe the last evaluation only.
    """

    def __init__(
        self,
        rules: Sequence[AlertRule],
        *,
        max_alerts: int = _MAX_ALERTS,
        keep_resolved: float = _KEEP_RESOLVED,
        budgets: ErrorBudgetsLike | None = None,
    ) -> None:
        # Critical ones first: where there is no room for all, they take it.
        self.rules = sorted(rules, key=lambda rule: (rule.severity != "critical", rule.name))
        self.unevaluated = 0
        self.overflow = 0
        self._budgets = budgets
        self._by_name = {rule.name: rule for rule in self.rules}
        self._max_alerts = max_alerts
        self._keep_resolved = keep_resolved
        self._instances: dict[_AlertKey, _TrackedAlert] = {}
        self.drift = DriftAlerts(max_alerts=max_alerts, keep_resolved=keep_resolved)
        """What no rule raises: the alarms of the drift detectors, in the shape of alerts."""
        self._targets = RuleTargets(self.rules, budgets)
        self._now: float | None = None
        self._looks = _MAX_SEGMENT_SEARCHES

    @property
    def waiting(self) -> bool:
        """Whether an alert is held: only then can time alone change what `evaluate` says."""
        return bool(self._instances)

    def alerts(self) -> list[Alert]:
        """Copies of all alerts held: pending, firing and lately resolved; in a fixed order."""
        ruled = [self._instances[key].alert.copy() for key in sorted(self._instances)]
        return ruled + self.drift.alerts()

    def evaluate(self, windows: WindowsLike, now: float) -> list[Alert]:
        """Evaluate every rule at event time `now`; copies of the alerts that fired or resolved.

        Event time never goes back: an earlier `now` than the last one counts as the last one.
        """
        now = self._now = now if self._now is None else max(now, self._now)
        self.unevaluated = self.overflow = 0
        self._looks = _MAX_SEGMENT_SEARCHES
        moved: list[Alert] = []
        self._expire(now)
        visited: set[_AlertKey] = set()
        self._drop_rewritten(now, moved)
        for rule, service, segment in self._targets.iterate(windows, self._held()):
            key = (rule.name, service, segment)
            visited.add(key)
            if rule.unscored is not None:
                metric, _, scorer = segment.partition(" ")
                reading = read_failed_share(rule, windows, service, metric, scorer)
            elif rule.burn is None:
                reading = read_condition(rule, windows, service, segment)
            else:
                assert self._budgets is not None  # without it there are no such targets
                reading = read_burn_rate(rule, self._budgets, service, segment.partition("=")[2])
            self._step(rule, key, reading, windows, now, moved)
        for key in sorted(self._instances.keys() - visited):
            self._unvisited(key, windows, now, moved)
        return [alert.copy() for alert in moved]

    def dump(self) -> dict[str, Any]:
        """The whole state, JSON-able; floats survive JSON exactly."""
        return {
            "version": _STATE_VERSION,
            "now": self._now,
            "alerts": [
                {
                    "alert": instance.alert.to_dict(),
                    "false_since": instance.false_since,
                    "no_data_since": instance.no_data_since,
                    "look_at": instance.look_at,
                }
                for _, instance in sorted(self._instances.items())
            ],
            "drift": self.drift.dump(),
        }

    def load(self, state: dict[str, Any]) -> None:
        """Continue from a dump. Raises UnknownVersion where the dump is another version's."""
        if state.get("version") != _STATE_VERSION:
            raise UnknownVersion(
                f"alert state of version {state.get('version')!r}, not {_STATE_VERSION}"
            )
        self._now = state["now"]
        self.drift.load(state.get("drift", []))
        self._instances = {}
        for item in state["alerts"]:
            alert = Alert.from_dict(item["alert"])
            self._instances[_key(alert)] = _TrackedAlert(
                alert, item["false_since"], item["no_data_since"], item.get("look_at")
            )

    # -- alerts that no rule looked at

    def _held(self) -> dict[tuple[str, str], set[tuple[str, str]]]:
        """(metric, scorer) of the alerts on failed results, by rule and service."""
        found: dict[tuple[str, str], set[tuple[str, str]]] = {}
        for (rule, service, _), instance in self._instances.items():
            alert = instance.alert
            if alert.unscored is not None:
                found.setdefault((rule, service), set()).add((alert.metric, alert.scorer))
        return found

    def _unvisited(
        self, key: _AlertKey, windows: WindowsLike, now: float, moved: list[Alert]
    ) -> None:
        """An alert that no rule looked at: its rule is gone, or its service fell silent."""
        instance = self._instances[key]
        name, service, _ = key
        rule = self._by_name.get(name)
        if rule is None:
            reason = "the rule is no longer in force"
        elif not rule.covers(service) or rule.tag != instance.alert.segment.partition("=")[0]:
            reason = "the rule no longer covers this service or segment"
        else:
            self._step(rule, key, None, windows, now, moved)
            return
        if instance.alert.state == "firing":
            self._resolve(instance, now, moved, reason, rule)
        elif instance.alert.state == "pending":
            del self._instances[key]

    def _drop_rewritten(self, now: float, moved: list[Alert]) -> None:
        """End the alerts of rules that kept their name and now watch something else."""
        for key, instance in sorted(self._instances.items()):
            rule, alert = self._by_name.get(key[0]), instance.alert
            if rule is None or rule.watches(alert.metric, alert.scorer, alert.unscored is not None):
                continue
            if alert.state == "firing":
                self._resolve(instance, now, moved, "the rule now watches something else", rule)
            elif alert.state == "pending":
                del self._instances[key]

    # -- the state machine

    def _step(
        self,
        rule: AlertRule,
        key: _AlertKey,
        reading: ConditionValue | None,
        windows: WindowsLike,
        now: float,
        moved: list[Alert],
    ) -> None:
        instance = self._instances.get(key)
        state = instance.alert.state if instance is not None else None
        if reading is None:
            self.unevaluated += 1
            if instance is not None:
                self._no_data(rule, key, instance, now, moved)
        elif condition_holds(rule, reading):
            if instance is None or state == "resolved":
                instance = self._begin(rule, key, windows, now)
                if instance is None:
                    return
            self._true(rule, instance, reading, windows, now, moved)
        elif instance is not None:
            self._false(rule, key, instance, reading, now, moved)

    def _begin(
        self, rule: AlertRule, key: _AlertKey, windows: WindowsLike, now: float
    ) -> _TrackedAlert | None:
        """A new pending alert, in the place of a resolved one of its own or of another."""
        if key not in self._instances and len(self._instances) >= self._max_alerts:
            resolved = [
                (instance.alert.resolved_at or 0.0, other)
                for other, instance in self._instances.items()
                if instance.alert.state == "resolved"
            ]
            if not resolved:
                self.overflow += 1
                return None
            del self._instances[min(resolved)[1]]
        name, service, subject = key
        segment, (metric, scorer) = subject, rule.watched
        if rule.unscored is not None:
            segment, (metric, _, scorer) = "", subject.partition(" ")
        alert = Alert(
            id=alert_id(name, service, subject),
            rule=name,
            severity=rule.severity,
            state="pending",
            service=service,
            segment=segment,
            metric=metric,
            scorer=scorer,
            window=rule.window,
            value=None,
            lower=None,
            upper=None,
            threshold=rule.threshold,
            samples=0,
            effective_samples=0.0,
            since=now,
            fired_at=None,
            resolved_at=None,
            updated_at=now,
            summary="",
            unscored=None if rule.unscored is None else {},
        )
        alert.baseline = evidence.find_baseline(rule, alert, windows, self._budgets)
        instance = self._instances[key] = _TrackedAlert(alert)
        return instance

    def _true(
        self,
        rule: AlertRule,
        instance: _TrackedAlert,
        reading: ConditionValue,
        windows: WindowsLike,
        now: float,
        moved: list[Alert],
    ) -> None:
        alert = instance.alert
        instance.false_since = None
        fires = alert.state == "pending" and now - alert.since >= rule.for_
        if fires:
            alert.state, alert.fired_at, instance.look_at = "firing", now, now
        if alert.state == "firing":
            self._look(rule, instance, windows, now)
            alert.worst = (
                evidence.find_worst_traces(rule, alert, windows, self._budgets) or alert.worst
            )
            alert.fingerprint = evidence.find_fingerprint(rule, alert, windows, self._budgets)
        self._update(rule, instance, reading, now)
        if fires:
            moved.append(alert)

    def _look(
        self, rule: AlertRule, instance: _TrackedAlert, windows: WindowsLike, now: float
    ) -> None:
        """Look for the segment behind an alert, and again at each quarter of its first window: the
        first reading may hold too few bad ones to tell."""
        alert = instance.alert
        if instance.look_at is None or now < instance.look_at or not self._looks:
            return
        self._looks -= 1
        found = evidence.find_origin(rule, alert, windows, self._budgets)
        alert.top_segment, alert.top_segment_words = found
        again = now + rule.seconds / 4
        late = found.segment or again > (alert.fired_at or now) + rule.seconds
        instance.look_at = None if late else again

    def _false(
        self,
        rule: AlertRule,
        key: _AlertKey,
        instance: _TrackedAlert,
        reading: ConditionValue,
        now: float,
        moved: list[Alert],
    ) -> None:
        alert = instance.alert
        if alert.state == "pending":
            del self._instances[key]
        elif alert.state == "firing":
            if instance.false_since is None:
                instance.false_since = now
            self._update(rule, instance, reading, now)
            if now - instance.false_since >= rule.keep_firing_for:
                self._resolve(instance, now, moved, "", rule)

    def _no_data(
        self,
        rule: AlertRule,
        key: _AlertKey,
        instance: _TrackedAlert,
        now: float,
        moved: list[Alert],
    ) -> None:
        alert = instance.alert
        if alert.state == "pending":
            del self._instances[key]
        elif alert.state == "firing":
            if instance.no_data_since is None:
                instance.no_data_since = now
            alert.no_data = True
            alert.updated_at = now
            if now - instance.no_data_since >= rule.no_data_for:
                self._resolve(instance, now, moved, "no data, so not known to be over", rule)
            else:
                alert.summary = render_summary(alert, rule.summary)

    def _update(
        self, rule: AlertRule, instance: _TrackedAlert, reading: ConditionValue, now: float
    ) -> None:
        """Bring the alert up to date with a reading and with its rule, which may have changed."""
        alert = instance.alert
        instance.no_data_since = None
        alert.no_data = False
        alert.value, alert.lower, alert.upper = reading.value, reading.lower, reading.upper
        alert.samples, alert.effective_samples = reading.samples, reading.effective_samples
        alert.severity, alert.window = rule.severity, rule.window
        alert.threshold = rule.threshold if reading.threshold is None else reading.threshold
        alert.statistic, alert.op = ("value", "<=") if rule.absence else (rule.statistic, rule.op)
        if alert.unscored is not None and reading.reasons:
            alert.unscored = dict(list(reading.reasons.items())[:_MAX_REASONS])
        alert.updated_at = now
        alert.runbook = rule.runbook
        alert.labels = dict(rule.labels)
        if rule.latency is not None:
            alert.labels["stage"] = rule.latency.stage
            alert.labels["quantile"] = f"{rule.latency.quantile:g}"
        alert.annotations = dict(reading.notes)
        fields = template_values(alert)
        alert.annotations |= {
            key: fill_template(text, fields) for key, text in rule.annotations.items()
        }
        alert.summary = render_summary(alert, rule.summary)

    def _resolve(
        self,
        instance: _TrackedAlert,
        now: float,
        moved: list[Alert],
        reason: str,
        rule: AlertRule | None,
    ) -> None:
        alert = instance.alert
        alert.state, alert.reason = "resolved", reason
        alert.resolved_at = alert.updated_at = now
        alert.summary = render_summary(alert, rule.summary if rule is not None else "")
        instance.false_since = instance.no_data_since = None
        moved.append(alert)

    def _expire(self, now: float) -> None:
        for key in [
            key
            for key, instance in self._instances.items()
            if instance.alert.resolved_at is not None
            and now - instance.alert.resolved_at >= self._keep_resolved
        ]:
            del self._instances[key]
