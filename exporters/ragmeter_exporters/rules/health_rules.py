"""The alerts on the agent itself, for Prometheus."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ragmeter.alerts.promql import RuleTree, alerting_rule
from ragmeter.alerts.rule_sets import RUNBOOK_BASE, runbook_link
from ragmeter.core.durations import parse_duration
from ragmeter.core.files import load_of_parts, load_yaml

_FILE = "agent_rules.yaml"
KEEP = 900  # seconds for which a rule keeps firing that says nothing else: as those on an hour


@dataclass(frozen=True, slots=True)
class HealthRule:
    """An alert that Prometheus has; `for_` and `keep` (keep_firing_for) are in seconds."""

    name: str
    severity: Literal["critical", "warning"]
    expr: str
    summary: str
    description: str
    for_: float
    keep: float


def _load_rules() -> tuple[HealthRule, ...]:
    return tuple(
        HealthRule(
            name=entry["alert"],
            severity=entry["severity"],
            expr=entry["expr"],
            summary=entry["summary"],
            description=entry["description"],
            for_=parse_duration(entry["for"]) if "for" in entry else 0,
            keep=parse_duration(entry["keep"]) if "keep" in entry else KEEP,
        )
        for entries in (load_yaml(__package__, _FILE), *load_of_parts("prometheus_rules.yaml"))
        for entry in entries
    )


HEALTH_RULES = _load_rules()


def health_rules(base: str = RUNBOOK_BASE) -> list[RuleTree]:
    """Return all alerts on the agent with the links to their runbooks, under the URL `base`."""
    return [_rule_tree(rule, base) for rule in HEALTH_RULES]


def _rule_tree(rule: HealthRule, base: str) -> RuleTree:
    return alerting_rule(
        rule.name,
        rule.expr,
        for_=rule.for_,
        keep=rule.keep,
        labels={"severity": rule.severity},
        annotations={
            "summary": rule.summary,
            "description": rule.description,
            "runbook_url": runbook_link(rule.name, base),
        },
    )
