"""The rules in force: defaults, rules of custom metrics and the user's file, with runbook links."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from functools import cache
from typing import NotRequired, TypedDict

from ragmeter.alerts.rules import AlertRule, RuleError, load_rules
from ragmeter.config.settings import Settings
from ragmeter.core.files import load_of_parts, load_yaml
from ragmeter.metrics.custom import CustomMetric
from ragmeter.metrics.registry import custom_metrics, metric_specs

log = logging.getLogger(__name__)

# Names that begin with this are reserved for the rules of ragmeter.
_RESERVED_PREFIX = "Rag"

# Where the pages are in the repository. Whoever publishes them sets `alerts.runbook_url`.
RUNBOOK_BASE = "docs/runbooks"

# For an alert of a user's own rule: how to read any alert.
_RUNBOOK_INDEX = "README.md"


class Runbook(TypedDict):
    """What to do about the incidents and alerts of one page, in Markdown."""

    title: str
    alerts: list[str]
    incidents: NotRequired[list[str]]
    meaning: str
    hurt: str
    look: list[str]
    causes: list[str]
    actions: list[str]
    resolves: str


@cache
def load_runbooks() -> Mapping[str, Runbook]:
    """Load the runbooks of the parts and of the agent itself, by the name of their page."""
    found: dict[str, Runbook] = {}
    for runbooks in (*load_of_parts("runbooks.yaml"), load_yaml(__package__, "runbooks.yaml")):
        found |= runbooks
    return found


@cache
def runbook_pages() -> Mapping[str, str]:
    """Return the file of the page by the name of the alert."""
    return {
        alert: f"{page}.md"
        for page, runbook in load_runbooks().items()
        for alert in runbook["alerts"]
    }


def runbook_link(alert: str, base: str = RUNBOOK_BASE) -> str:
    """Return the link to the runbook page of an alert."""
    return f"{base.rstrip('/')}/{runbook_pages().get(alert, _RUNBOOK_INDEX)}"


@cache
def _incident_pages() -> Mapping[str, str]:
    """Return the file of the page by the kind of the incident."""
    return {
        kind: f"{page}.md"
        for page, runbook in load_runbooks().items()
        for kind in runbook.get("incidents", ())
    }


def incident_runbook(kind: str, base: str = RUNBOOK_BASE) -> str:
    """Return the link to the runbook page of a kind of incident."""
    return f"{base.rstrip('/')}/{_incident_pages().get(kind, _RUNBOOK_INDEX)}"


def load_configured_rules(settings: Settings) -> list[AlertRule]:
    """Load the rules that the settings ask for.

    The user's file overrides the default rules and those of custom metrics. A default rule on a
    window that is not configured is left out with a warning.

    Raises:
        RuleError: A rule is invalid, or one of the user is on a window that is not configured.
    """
    alerts = settings.alerts
    rules = load_rules(
        alerts.rules,
        profile=alerts.profile,
        brought=[_custom_metric_rules(custom_metrics())],
        metrics=metric_specs(),
        segments=settings.segments,
    )
    defaults = {rule.name: rule for rule in load_default_rules(alerts.profile)}
    in_force = []
    for rule in rules:
        needed = (rule.window, rule.relative_to or rule.window)
        missing = next((name for name in needed if name not in settings.windows), None)
        if missing is None:
            in_force.append(rule)
        elif defaults.get(rule.name) == rule:
            log.warning("rule %s is off: no window %s is configured", rule.name, missing)
        else:
            allowed = ", ".join(settings.windows)
            raise RuleError(f"rule {rule.name!r}: window {missing!r} is not one of {allowed}")
    return in_force


def load_default_rules(profile: str = "balanced") -> list[AlertRule]:
    """Load the rules in force without a file of the user, with those of custom metrics."""
    return load_rules(profile=profile, brought=[_custom_metric_rules(custom_metrics())])


def describe_rule(rule: AlertRule) -> str:
    """Describe a rule on a metric in one line."""
    statistic = "" if rule.statistic == "value" else f"{rule.statistic} end "
    return (
        f"{rule.name}: {rule.severity} if {statistic}{rule.op} {rule.threshold:g}"
        f"{f' x {rule.relative_to}' if rule.relative_to else ''}"
        f" over {rule.window} ({rule.scorer})"
    )


def _custom_metric_rules(metrics: Iterable[CustomMetric]) -> dict[str, object]:
    """Return the rules that custom metrics define, each about its own metric, as a document."""
    entries: list[object] = []
    for metric in metrics:
        name = metric.spec.name
        own = {"metric": name, "scorer": metric.scorer}
        for rule in metric.rules:
            other = {key: rule[key] for key in own if rule.get(key, own[key]) != own[key]}
            if other:
                raise RuleError(f"metric {name!r} brings a rule about another: {other}")
            if str(rule.get("name")).startswith(_RESERVED_PREFIX):
                raise RuleError(
                    f"metric {name!r} brings rule {rule['name']!r}: names that begin"
                    f" with {_RESERVED_PREFIX} are those of ragmeter"
                )
            entries.append({**rule, **own})
    return {"rules": entries}
