"""The whole rule file: error budgets, the agent's other rules, drift, and the agent itself."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import yaml

from agent.alerts.burn import Objective
from agent.alerts.prometheus_rules import INTERVAL, rule_groups
from agent.alerts.rules import Rule
from agent.alerts.runbooks import BASE, with_runbooks
from agent.metrics import METRICS
from exporters.rules.drift import drift_rules
from exporters.rules.growth import recorded
from exporters.rules.health import health_rules
from exporters.rules.promql import Tree
from exporters.rules.results import failed_rule
from exporters.rules.results import recorded as recorded_results
from exporters.rules.service import Left, service_rule

__all__ = ["RuleFile", "rule_file"]

HEAD = """\
# Rules for Prometheus 2.42 or newer, written by `ragmeter rules prometheus` from the rules and
# objectives of the agent. Do not edit: change those, and write it anew.
"""


@dataclass(frozen=True, slots=True)
class RuleFile:
    """`groups` are as Prometheus reads them; `left` says which rules of the agent it cannot hold,
    and why."""

    groups: list[Tree]
    left: dict[str, str]

    def text(self) -> str:
        body = yaml.safe_dump(
            {"groups": self.groups}, sort_keys=False, width=1_000, allow_unicode=True
        )
        return HEAD + body


def rule_file(
    rules: Sequence[Rule],
    objectives: Sequence[Objective],
    *,
    windows: Sequence[str] = ("5m", "1h", "24h"),
    segments: Sequence[str] = (),
    drift: bool = True,
    runbooks: str = BASE,
) -> RuleFile:
    """From what the agent itself runs with. `runbooks` is where the pages are."""
    rules = with_runbooks(rules, runbooks)
    left: dict[str, str] = {}

    def of(wanted: Sequence[Rule], make: Callable[[Rule], Tree]) -> list[Tree]:
        found = []
        for rule in wanted:
            try:
                found.append(make(rule))
            except Left as why:
                left[rule.name] = str(why)
        return found

    unscored = [rule for rule in rules if rule.unscored is not None]
    service = [rule for rule in rules if rule.burn is None and rule.unscored is None]
    failed = of(unscored, failed_rule)
    groups = [
        *rule_groups(rules, objectives)["groups"],
        _group("service", of(service, lambda one: service_rule(one, METRICS, windows, segments))),
        _group("results", [*recorded_results(unscored), *failed]),
        _group("drift", drift_rules(runbooks) if drift else []),
        _group("agent", [*recorded(), *health_rules(runbooks, windows)]),
    ]
    return RuleFile([group for group in groups if group["rules"]], left)


def _group(name: str, rules: list[Tree]) -> Tree:
    return {"name": f"ragmeter-{name}", "interval": f"{INTERVAL}s", "rules": rules}
