"""The Prometheus rule file: error budgets, service rules, drift and agent health."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import yaml

from ragmeter.alerts.error_budgets import Objective
from ragmeter.alerts.rule_sets import RUNBOOK_BASE, with_runbooks
from ragmeter.alerts.rules import AlertRule
from ragmeter.exporters.rules.burn_rate_rules import burn_rate_rules
from ragmeter.exporters.rules.health import drift_rules, health_rules
from ragmeter.exporters.rules.promql import RuleTree, growth_recordings
from ragmeter.exporters.rules.service import (
    UnsupportedRule,
    failure_recordings,
    failure_rule,
    service_rule,
)
from ragmeter.metrics.registry import METRICS

INTERVAL = 30  # seconds between two evaluations: a tenth of the shortest window

HEAD = """\
# Rules for Prometheus 2.42 or newer, written by `ragmeter rules prometheus` from the rules and
# objectives of the agent. Do not edit: change those, and write it anew.
"""


@dataclass(frozen=True, slots=True)
class RuleFile:
    """The groups as Prometheus reads them; `left_out` has the reason for each rule that is not."""

    groups: list[RuleTree]
    left_out: dict[str, str]

    def text(self) -> str:
        """Return the YAML file."""
        body = yaml.safe_dump(
            {"groups": self.groups}, sort_keys=False, width=1_000, allow_unicode=True
        )
        return HEAD + body


def build_rule_file(
    rules: Sequence[AlertRule],
    objectives: Sequence[Objective],
    *,
    windows: Sequence[str] = ("5m", "1h", "24h"),
    segments: Sequence[str] = (),
    drift: bool = True,
    runbooks: str = RUNBOOK_BASE,
) -> RuleFile:
    """Build the rules of Prometheus from what the agent itself runs with.

    Args:
        rules: Alert rules of the agent.
        objectives: Its objectives.
        windows: Its windows.
        segments: Its segment tags.
        drift: Whether it detects drift.
        runbooks: Base URL of the runbooks.
    """
    rules = with_runbooks(rules, runbooks)
    left_out: dict[str, str] = {}

    def build(chosen: Sequence[AlertRule], make: Callable[[AlertRule], RuleTree]) -> list[RuleTree]:
        trees = []
        for rule in chosen:
            try:
                trees.append(make(rule))
            except UnsupportedRule as reason:
                left_out[rule.name] = str(reason)
        return trees

    unscored = [rule for rule in rules if rule.unscored is not None]
    service = [rule for rule in rules if rule.burn is None and rule.unscored is None]
    groups = {
        "slo": burn_rate_rules(rules, objectives),
        "service": build(service, lambda rule: service_rule(rule, METRICS, windows, segments)),
        "results": [*failure_recordings(unscored), *build(unscored, failure_rule)],
        "drift": drift_rules(runbooks) if drift else [],
        "agent": [*growth_recordings(), *health_rules(runbooks, windows)],
    }
    return RuleFile(
        [
            {"name": f"ragmeter-{name}", "interval": f"{INTERVAL}s", "rules": trees}
            for name, trees in groups.items()
            if trees
        ],
        left_out,
    )
