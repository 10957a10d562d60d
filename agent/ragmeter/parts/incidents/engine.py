"""The alert state machine: rules over event time give pending, firing and resolved alerts.

Pure: it reads windows, takes the event time and keeps its state in plain dictionaries. The caller
evaluates at fixed event-time steps; the same windows at the same steps give the same alerts,
whatever the wall clock and however often the process was restarted between steps.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from ragmeter.alerts.alert import (
    KEEP_RESOLVED,
    MAX_ALERTS,
    Alert,
    alert_id,
    fill_template,
    render_summary,
    template_values,
)
from ragmeter.alerts.conditions import ConditionValue, condition_holds
from ragmeter.alerts.explanation import Explain, explain_nothing
from ragmeter.alerts.rule_sets import runbook_link
from ragmeter.alerts.rules import AlertRule
from ragmeter.parts.incidents.conditions import (
    Dependence,
    DueRules,
    RuleTargets,
    read_condition,
    read_failed_share,
    take_as_independent,
)
from ragmeter.parts.incidents.evidence import EvidenceReader
from ragmeter.windows.windows import Windows

# Names of saved rows: of the time of the last evaluation, and before the id of an alert.
_EVALUATED, _OF_RULE = "evaluated", "rule/"

_MAX_REASONS = 5

# Searches in one evaluation for the segment behind an alert: with 64 segments each takes some
# milliseconds. If more fire at once it is an outage of everything; the others wait.
_MAX_SEGMENT_SEARCHES = 20

# (rule, service, subject): the segment, or of an unscored rule "metric scorer"
_AlertKey = tuple[str, str, str]


@dataclass(slots=True)
class TrackedAlert:
    """An alert with the clocks that its state machine needs beside it."""

    alert: Alert
    false_since: float | None = None  # the first false value after the last true one
    no_data_since: float | None = None
    search_at: float | None = None  # when to search for the segment that is behind it

    @property
    def key(self) -> _AlertKey:
        """The rule, the service and the subject."""
        alert = self.alert
        pair = f"{alert.metric} {alert.scorer}"
        return alert.rule, alert.service, alert.segment if alert.unscored is None else pair

    def next_due(self, rule: AlertRule) -> float:
        """Return when time alone moves the alert, or lets it be searched for its segment."""
        alert = self.alert
        if alert.state == "pending":
            return alert.since + rule.for_
        if alert.state == "resolved":
            return (alert.resolved_at or 0.0) + KEEP_RESOLVED
        if alert.no_data:
            return (self.no_data_since or 0.0) + rule.no_data_for
        if self.false_since is not None:
            return self.false_since + rule.keep_firing_for
        return math.inf if self.search_at is None else self.search_at

    def copy(self) -> TrackedAlert:
        """Return a copy that shares nothing that changes."""
        return replace(self, alert=self.alert.copy())


RuleState = float | TrackedAlert
"""A saved row: the time of the last evaluation, or an alert of a rule."""


class AlertEngine:
    """Evaluates rules and holds their alerts, pending and resolved ones included.

    Args:
        max_alerts: How many alerts are held at once.
        runbooks: Base URL of the runbooks, for alerts whose rule has no link of its own.
        explain: Explains by segments what an alert is about.
        dependence: Tells how alike the requests of a service are.

    Attributes:
        overflow: How many true conditions found no room in the last evaluation.
    """

    def __init__(
        self,
        rules: Sequence[AlertRule],
        *,
        max_alerts: int = MAX_ALERTS,
        runbooks: str = "",
        explain: Explain = explain_nothing,
        dependence: Dependence = take_as_independent,
    ) -> None:
        # Critical ones first: if there is no room for all, they take it.
        self.rules = sorted(rules, key=lambda rule: (rule.severity != "critical", rule.name))
        self.overflow = 0
        self._explain = explain
        self._dependence = dependence
        self._runbooks = runbooks
        self._by_name = {rule.name: rule for rule in self.rules}
        self._max_alerts = max_alerts
        self._tracked: dict[_AlertKey, TrackedAlert] = {}
        self._targets = RuleTargets(self.rules)
        self._now: float | None = None
        self._searches_left = _MAX_SEGMENT_SEARCHES
        self._refused: set[str] = set()  # services with a true condition that found no room

    def next_due(self) -> float:
        """Return when time alone next moves an alert.

        That is without traces that come or leave a window; infinity if it never does.
        """
        due = [math.inf]
        for (name, *_), tracked in self._tracked.items():
            rule = self._by_name.get(name)
            if rule is not None:
                due.append(tracked.next_due(rule))
        return min(due)

    def alerts(self) -> list[Alert]:
        """Return copies of all alerts: pending, firing and lately resolved; in a fixed order."""
        return [self._tracked[key].alert.copy() for key in sorted(self._tracked)]

    def complete(self, alerts: Iterable[Alert]) -> None:
        """Add to alerts a link to their runbook."""
        for alert in alerts:
            if self._runbooks and not alert.runbook:
                alert.runbook = runbook_link(alert.rule, self._runbooks)

    def evaluate(
        self,
        windows: Windows,
        now: float,
        changed: Mapping[str, Collection[str]] | None = None,
    ) -> list[Alert]:
        """Evaluate the rules at event time `now` and return copies of the moved alerts.

        Event time never goes back: an earlier `now` than the last one counts as the last one.

        Args:
            windows: What the rules read.
            now: Event time, Unix seconds.
            changed: The windows that changed since the last call, by service. The rules of the
                others are left out, as they have the result that they had, unless they hold an
                alert. None evaluates all rules.
        """
        now = self._now = now if self._now is None else max(now, self._now)
        self.overflow = 0
        self._searches_left = _MAX_SEGMENT_SEARCHES
        evidence = EvidenceReader(windows, self._explain)
        self._tracked = {
            key: tracked
            for key, tracked in self._tracked.items()
            if not tracked.alert.is_expired(now)
        }
        moved = self._end_rewritten(now)
        visited: set[_AlertKey] = set()
        due = self._due_rules(changed)
        for rule, service, subject in self._targets.iterate(windows, self._failing_pairs(), due):
            key = (rule.name, service, subject)
            visited.add(key)
            value = self._read(rule, windows, service, subject)
            moved += self._step(rule=rule, key=key, value=value, evidence=evidence, now=now)
        for key in sorted(self._tracked.keys() - visited):
            moved += self._step_unvisited(key, evidence, now)
        return [alert.copy() for alert in moved]

    def _due_rules(self, changed: Mapping[str, Collection[str]] | None) -> DueRules | None:
        refused, self._refused = self._refused, set()
        if changed is None:
            return None
        held = {key[:2] for key in self._tracked}
        return DueRules(changed, refused, held)

    def rows(self) -> dict[str, RuleState]:
        """Return copies of the whole state, as rows."""
        rows: dict[str, RuleState] = {} if self._now is None else {_EVALUATED: self._now}
        for tracked in self._tracked.values():
            rows[f"{_OF_RULE}{tracked.alert.id}"] = tracked.copy()
        return rows

    def restore(self, rows: Mapping[str, RuleState]) -> None:
        """Continue from rows."""
        for _, row in sorted(rows.items()):
            if isinstance(row, TrackedAlert):
                self._tracked[row.key] = row
            else:
                self._now = row

    def _failing_pairs(self) -> dict[tuple[str, str], set[tuple[str, str]]]:
        """Return (metric, scorer) of the alerts on failed results, by rule and service."""
        pairs: dict[tuple[str, str], set[tuple[str, str]]] = {}
        for (rule, service, _), tracked in self._tracked.items():
            alert = tracked.alert
            if alert.unscored is not None:
                pairs.setdefault((rule, service), set()).add((alert.metric, alert.scorer))
        return pairs

    def _read(
        self, rule: AlertRule, windows: Windows, service: str, subject: str
    ) -> ConditionValue | None:
        if rule.unscored is not None:
            metric, _, scorer = subject.partition(" ")
            return read_failed_share(
                rule=rule, windows=windows, service=service, metric=metric, scorer=scorer
            )
        return read_condition(rule, windows, service, subject, dependence=self._dependence)

    # Steps of the state machine; each returns the alerts that fired or resolved.

    def _end_rewritten(self, now: float) -> list[Alert]:
        """End the alerts of rules that kept their name and now watch something else."""
        moved: list[Alert] = []
        for key, tracked in sorted(self._tracked.items()):
            rule = self._by_name.get(key[0])
            alert = tracked.alert
            unscored = alert.unscored is not None
            if rule is not None and not rule.watches(alert.metric, alert.scorer, unscored):
                moved += self._end(tracked, now, "the rule now watches something else", rule)
        return moved

    def _step_unvisited(
        self, key: _AlertKey, evidence: EvidenceReader, now: float
    ) -> Sequence[Alert]:
        """Step an alert that no rule reads: its rule is gone, or its service fell silent."""
        tracked = self._tracked[key]
        name, service, _ = key
        rule = self._by_name.get(name)
        if rule is None:
            return self._end(tracked, now, "the rule is no longer in force", rule)
        if not rule.covers(service) or rule.tag != tracked.alert.segment.partition("=")[0]:
            reason = "the rule no longer covers this service or segment"
            return self._end(tracked, now, reason, rule)
        return self._step(rule=rule, key=key, value=None, evidence=evidence, now=now)

    def _end(
        self, tracked: TrackedAlert, now: float, reason: str, rule: AlertRule | None
    ) -> Sequence[Alert]:
        """Resolve an alert that fires, and forget one that is pending."""
        alert = tracked.alert
        if alert.state == "pending":
            del self._tracked[tracked.key]
        if alert.state != "firing":
            return ()
        alert.resolve(reason, now)
        alert.summary = _summarize(rule, tracked)
        tracked.false_since = tracked.no_data_since = None
        return (alert,)

    def _step(
        self,
        rule: AlertRule,
        key: _AlertKey,
        value: ConditionValue | None,
        evidence: EvidenceReader,
        now: float,
    ) -> Sequence[Alert]:
        tracked = self._tracked.get(key)
        if value is not None and condition_holds(rule, value):
            if tracked is None or tracked.alert.state == "resolved":
                tracked = self._begin(rule, key, evidence, now)
            return (
                self._step_true(rule=rule, tracked=tracked, value=value, evidence=evidence, now=now)
                if tracked
                else ()
            )
        if tracked is None:
            return ()
        if tracked.alert.state != "firing":
            return self._end(tracked, now, "", rule)
        if value is None:
            return self._step_no_data(rule, tracked, now)
        if tracked.false_since is None:
            tracked.false_since = now
        _update(rule, tracked, value, now)
        over = now - tracked.false_since >= rule.keep_firing_for
        return self._end(tracked, now, "", rule) if over else ()

    def _begin(
        self, rule: AlertRule, key: _AlertKey, evidence: EvidenceReader, now: float
    ) -> TrackedAlert | None:
        """Start a pending alert, in the place of a resolved one of its own or of another."""
        if key not in self._tracked and len(self._tracked) >= self._max_alerts:
            resolved = [
                (tracked.alert.resolved_at or 0.0, other)
                for other, tracked in self._tracked.items()
                if tracked.alert.state == "resolved"
            ]
            if not resolved:
                self.overflow += 1
                self._refused.add(key[1])
                return None
            del self._tracked[min(resolved)[1]]
        name, service, subject = key
        segment = subject
        metric, scorer = rule.watched
        if rule.unscored is not None:
            segment = ""
            metric, _, scorer = subject.partition(" ")
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
            threshold=rule.threshold,
            since=now,
            updated_at=now,
            unscored=None if rule.unscored is None else {},
        )
        alert.baseline = evidence.find_baseline(rule, alert)
        tracked = self._tracked[key] = TrackedAlert(alert)
        return tracked

    def _step_true(
        self,
        rule: AlertRule,
        tracked: TrackedAlert,
        value: ConditionValue,
        evidence: EvidenceReader,
        now: float,
    ) -> Sequence[Alert]:
        alert = tracked.alert
        tracked.false_since = None
        fires = alert.state == "pending" and now - alert.since >= rule.for_
        if fires:
            alert.state = "firing"
            alert.fired_at = now
            tracked.search_at = now
        if alert.state == "firing":
            self._search_origin(rule, tracked, evidence, now)
            alert.name_worst(evidence.find_worst_traces(rule, alert))
            alert.fingerprint = evidence.find_fingerprint(rule, alert)
        _update(rule, tracked, value, now)
        return (alert,) if fires else ()

    def _search_origin(
        self, rule: AlertRule, tracked: TrackedAlert, evidence: EvidenceReader, now: float
    ) -> None:
        """Search for the segment behind an alert, again at each quarter of its first window.

        When it fires, the window may hold too few bad traces to tell.
        """
        alert = tracked.alert
        if tracked.search_at is None or now < tracked.search_at or not self._searches_left:
            return
        self._searches_left -= 1
        origin = evidence.find_origin(rule, alert)
        alert.top_segment, alert.top_segment_words = origin
        again = now + rule.seconds / 4
        over = origin.segment or again > (alert.fired_at or now) + rule.seconds
        tracked.search_at = None if over else again

    def _step_no_data(self, rule: AlertRule, tracked: TrackedAlert, now: float) -> Sequence[Alert]:
        alert = tracked.alert
        if tracked.no_data_since is None:
            tracked.no_data_since = now
        alert.no_data = True
        alert.updated_at = now
        if now - tracked.no_data_since >= rule.no_data_for:
            return self._end(tracked, now, "no data, so not known to be over", rule)
        alert.summary = _summarize(rule, tracked)
        return ()


def _update(rule: AlertRule, tracked: TrackedAlert, value: ConditionValue, now: float) -> None:
    """Bring an alert up to date with a value and with its rule, which may have changed."""
    alert = tracked.alert
    tracked.no_data_since = None
    alert.no_data = False
    alert.value = value.value
    alert.lower = value.lower
    alert.upper = value.upper
    alert.samples = value.samples
    alert.effective_samples = value.effective_samples
    alert.severity = rule.severity
    alert.window = rule.window
    alert.threshold = rule.threshold if value.threshold is None else value.threshold
    alert.statistic, alert.op = ("value", "<=") if rule.absence else (rule.statistic, rule.op)
    if alert.unscored is not None and value.reasons:
        alert.unscored = dict(list(value.reasons.items())[:_MAX_REASONS])
    alert.updated_at = now
    alert.runbook = rule.runbook
    alert.labels = dict(rule.labels)
    if rule.latency is not None:
        alert.labels["stage"] = rule.latency.stage
        alert.labels["quantile"] = f"{rule.latency.quantile:g}"
    fields = template_values(alert)
    alert.annotations = {key: fill_template(text, fields) for key, text in rule.annotations.items()}
    alert.summary = _summarize(rule, tracked)


def _summarize(rule: AlertRule | None, tracked: TrackedAlert) -> str:
    # a rule's text claims that its condition holds; of a value past that only the value is told
    holds = tracked.false_since is None
    return render_summary(tracked.alert, rule.summary if rule is not None and holds else "")
