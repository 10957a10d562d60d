"""The Prometheus rule file: error budgets, service rules, drift and agent health."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import yaml

from ragmeter.alerts.drift_alerts import DRIFT_RULE, JUDGE_CHANGED_RULE
from ragmeter.alerts.error_budgets import Objective
from ragmeter.alerts.rule_sets import RUNBOOK_BASE, runbook_link, with_runbooks
from ragmeter.alerts.rules import AlertRule
from ragmeter.exporters.rules.burn_rate_rules import INTERVAL, build_rule_groups
from ragmeter.exporters.rules.health import health_rules
from ragmeter.exporters.rules.promql import (
    KEEP,
    TARGET,
    RuleTree,
    alerting_rule,
    growth_recordings,
    hold_last_value,
    series_selector,
)
from ragmeter.exporters.rules.service import UnsupportedRule, failure_rule, service_rule
from ragmeter.exporters.rules.service import failure_recordings as recorded_results
from ragmeter.metrics.registry import METRICS


def _drift_rules(base: str = RUNBOOK_BASE) -> list[RuleTree]:
    """The agent scales each statistic so that 1 is its threshold, and holds back an alarm that
    another one explains: it must say itself that one fires."""
    found = []
    for name, kind, what in (
        (DRIFT_RULE, 'kind!="judge"', "has left its baseline"),
        (JUDGE_CHANGED_RULE, 'kind="judge"', "differs from the cheap score by more than it did"),
    ):
        statistic = hold_last_value(series_selector("ragmeter_drift_statistic", {}, kind))
        says = hold_last_value(series_selector("ragmeter_alerts_firing", {"alertname": name}))
        series = "{{ $labels.metric }}{{ with $labels.scorer }} by {{ . }}{{ end }}"
        told = {
            "summary": f"{{{{ $labels.service }}}}: {series} {what} ({{{{ $labels.kind }}}}), "
            'statistic {{ $value | printf "%.3g" }} times its threshold',
            "description": "The agent's status page says since when, from what to what, and in "
            "which segment.",
            "runbook_url": runbook_link(name, base),
        }
        found.append(
            alerting_rule(
                name,
                f"{statistic} >= 1 and on ({TARGET}) {says} > 0",
                for_=0,  # a detector that alarms has waited long enough
                keep=KEEP,
                labels={"severity": "warning"},
                annotations=told,
            )
        )
    return found


HEAD = """\
# Rules for Prometheus 2.42 or newer, written by `ragmeter rules prometheus` from the rules and
# objectives of the agent. Do not edit: change those, and write it anew.
"""


@dataclass(frozen=True, slots=True)
class RuleFile:
    """`groups` are as Prometheus reads them; `left` says which rules of the agent it cannot hold,
    and why."""

    groups: list[RuleTree]
    left_out: dict[str, str]

    def text(self) -> str:
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
    """From what the agent itself runs with. `runbooks` is where the pages are."""
    rules = with_runbooks(rules, runbooks)
    left: dict[str, str] = {}

    def of(wanted: Sequence[AlertRule], make: Callable[[AlertRule], RuleTree]) -> list[RuleTree]:
        found = []
        for rule in wanted:
            try:
                found.append(make(rule))
            except UnsupportedRule as why:
                left[rule.name] = str(why)
        return found

    unscored = [rule for rule in rules if rule.unscored is not None]
    service = [rule for rule in rules if rule.burn is None and rule.unscored is None]
    failed = of(unscored, failure_rule)
    groups = [
        *build_rule_groups(rules, objectives)["groups"],
        _group("service", of(service, lambda one: service_rule(one, METRICS, windows, segments))),
        _group("results", [*recorded_results(unscored), *failed]),
        _group("drift", _drift_rules(runbooks) if drift else []),
        _group("agent", [*growth_recordings(), *health_rules(runbooks, windows)]),
    ]
    return RuleFile([group for group in groups if group["rules"]], left)


def _group(name: str, rules: list[RuleTree]) -> RuleTree:
    return {"name": f"ragmeter-{name}", "interval": f"{INTERVAL}s", "rules": rules}
