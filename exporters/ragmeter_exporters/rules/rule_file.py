"""The Prometheus rule file: burn rates of error budgets, and the agent's own health.

Both are what Prometheus does better than the agent: budgets of days on counters that outlive it,
and what only somebody outside can raise. Thresholds with intervals, drift and evidence are the
agent's own alerts. The rules on the agent come from `agent_rules.yaml`; the labels that every
scrape sets, `job` and `instance`, tell one agent from another.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import yaml
from ragmeter.alerts.rule_sets import RUNBOOK_BASE, runbook_link
from ragmeter.config.reporting import SloSettings
from ragmeter.core.clocks import parse_duration
from ragmeter.core.files import load_yaml

from ragmeter_exporters.rules.burn_rates import burn_rate_rules
from ragmeter_exporters.rules.promql import KEEP, RuleTree, alerting_rule, growth_recordings

# Stands in `RagScoresAbsent` for the configured window that fits: see `health_rules`.
WINDOW = "{window}"
HOUR = 3600


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
        for entry in load_yaml(__package__, "agent_rules.yaml")
    )


HEALTH_RULES = _load_rules()


def health_rules(base: str = RUNBOOK_BASE, windows: Sequence[str] = ("1h",)) -> list[RuleTree]:
    """Return all alerts on the agent with the links to their runbooks.

    Args:
        base: Base URL of the runbooks.
        windows: Windows of the agent. `RagScoresAbsent` reads the shortest from an hour on, or
            else the longest: in a shorter one a hundred requests an hour may be too few.
    """
    lengths = sorted(windows, key=parse_duration)
    window = next((name for name in lengths if parse_duration(name) >= HOUR), lengths[-1])
    return [_rule_tree(rule, base, window) for rule in HEALTH_RULES]


def _rule_tree(rule: HealthRule, base: str, window: str = "") -> RuleTree:
    return alerting_rule(
        rule.name,
        rule.expr.replace(WINDOW, window),
        for_=rule.for_,
        keep=rule.keep,
        labels={"severity": rule.severity},
        annotations={
            "summary": rule.summary,
            "description": rule.description,
            "runbook_url": runbook_link(rule.name, base),
        },
    )


INTERVAL = 30  # seconds between two evaluations: a tenth of the shortest window

HEAD = """\
# Rules for Prometheus 2.42 or newer, written by `ragmeter rules prometheus` from the objectives of
# the agent. Do not edit: change those, and write it anew.
"""


def rule_groups(
    slos: Sequence[SloSettings],
    *,
    windows: Sequence[str] = ("5m", "1h", "24h"),
    runbooks: str = RUNBOOK_BASE,
) -> list[RuleTree]:
    """Build the groups of rules as Prometheus reads them.

    Args:
        slos: The objectives of the agent.
        windows: The windows of the agent.
        runbooks: Base URL of the runbooks.
    """
    groups = {
        "slo": burn_rate_rules(slos, runbooks) if slos else [],
        "agent": [*growth_recordings(), *health_rules(runbooks, windows)],
    }
    return [
        {"name": f"ragmeter-{name}", "interval": f"{INTERVAL}s", "rules": rules}
        for name, rules in groups.items()
        if rules
    ]


def rule_file(groups: Sequence[RuleTree]) -> str:
    """Write groups of rules as the YAML file of Prometheus."""
    tree = {"groups": list(groups)}
    return HEAD + yaml.safe_dump(tree, sort_keys=False, width=1_000, allow_unicode=True)
