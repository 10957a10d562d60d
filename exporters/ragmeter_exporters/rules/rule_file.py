"""The Prometheus rule file: error budgets, service rules, drift and the agent's own health.

Burn-rate rules read the counters that the agent exports, so Prometheus and the agent see the same
events and fire alike. The rules on the agent itself come from `agent_rules.yaml`; the labels that
every scrape sets, `job` and `instance`, tell one agent from another.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Literal

import yaml
from ragmeter.alerts.error_budgets import Objective, max_error_ratio
from ragmeter.alerts.rule_sets import RUNBOOK_BASE, runbook_link, with_runbooks
from ragmeter.alerts.rules import AlertRule
from ragmeter.core.clocks import parse_duration, parse_whole_seconds
from ragmeter.core.files import load_yaml
from ragmeter.metrics.registry import metric_specs

from ragmeter_exporters.rules.promql import (
    HALF,
    KEEP,
    RuleTree,
    agent_rule,
    alerting_rule,
    glob_matchers,
    growth_recordings,
    quote,
)
from ragmeter_exporters.rules.service import (
    UnsupportedRule,
    failure_recordings,
    failure_rule,
    service_rule,
)

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


def _load_rules() -> dict[str, tuple[HealthRule, ...]]:
    return {
        group: tuple(
            HealthRule(
                entry["alert"],
                entry["severity"],
                entry["expr"],
                entry["summary"],
                entry["description"],
                parse_duration(entry["for"]) if "for" in entry else 0,
                parse_duration(entry["keep"]) if "keep" in entry else KEEP,
            )
            for entry in entries
        )
        for group, entries in load_yaml(__package__, "agent_rules.yaml").items()
    }


_RULES = _load_rules()
DRIFT_RULES, HEALTH_RULES = _RULES["drift"], _RULES["agent"]


def drift_rules(base: str = RUNBOOK_BASE) -> list[RuleTree]:
    """Return the alerts on drift with the links to their runbooks, whose base URL is `base`."""
    return [_rule_tree(rule, base) for rule in DRIFT_RULES]


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


EVENTS = "rag_slo_events_total"
BAD = "rag_slo_bad_events_total"
# Sum of the squared weights of bad events: (sum w)^2 / sum w^2 is their effective number.
BAD_SQUARES = "rag_slo_bad_events_squared_total"

_BY = "sum by (service, slo)"
_RATIO = "service_slo:rag_slo_bad:ratio_rate"
_ERRORS = "service_slo:rag_slo_bad:effective_increase"


def burn_rate_rules(rules: Sequence[AlertRule], objectives: Sequence[Objective]) -> list[RuleTree]:
    """Build recordings and alerts; rules that are no burn rates are left out.

    All belong into one group: it is evaluated in order, so that an alert sees the ratios of its
    own moment and not of the one before.
    """
    burning = [rule for rule in rules if rule.burn is not None]
    long = {rule.window for rule in burning}
    short = {rule.burn.short for rule in burning if rule.burn is not None}
    ratios = [
        {
            "record": f"{_RATIO}{window}",
            "expr": f"{_BY} (rate({BAD}[{window}])) / {_BY} (rate({EVENTS}[{window}]))",
        }
        for window in sorted(long | short, key=parse_whole_seconds)
    ]
    errors = [
        {
            "record": f"{_ERRORS}{window}",
            "expr": f"{_BY} (increase({BAD}[{window}])) ^ 2"
            f" / {_BY} (increase({BAD_SQUARES}[{window}]))",
        }
        for window in sorted(long, key=parse_whole_seconds)
    ]
    alerts = [
        _alert_rule(rule, objective)
        for rule in burning
        for objective in objectives
        if rule.burn is not None and fnmatchcase(objective.name, rule.burn.slo)
    ]
    return [*ratios, *errors, *alerts]


def _alert_rule(rule: AlertRule, objective: Objective) -> RuleTree:
    burn = rule.burn
    assert burn is not None
    limit = max_error_ratio(burn.factor, objective.target)
    matchers = [f"slo={quote(objective.name)}", *glob_matchers("service", rule.services)]
    only = "{" + ",".join(matchers) + "}"
    expr = (
        f"{_RATIO}{rule.window}{only} > {limit:.10g} and {_RATIO}{burn.short}{only} > {limit:.10g}"
    )
    if burn.min_errors > 0:
        expr += f" and {_ERRORS}{rule.window}{only} > {burn.min_errors - HALF:.10g}"
    summary = (
        "{{ $labels.service }}: {{ $labels.slo }} uses up its error budget more than "
        f"{burn.factor:g} times too fast: {{{{ $value | humanizePercentage }}}} of the events "
        f"were bad over {rule.window}, and it goes on over {burn.short} "
        f"(objective {objective.target:g})"
    )
    # The objective is a label, too: Prometheus refuses rules that differ in their expression only.
    labels = {"slo": objective.name, "window": rule.window}
    return agent_rule(rule, expr, labels, {"summary": summary})


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

    `drift` says whether it detects drift; `runbooks` is the base URL of the runbooks.
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
        "service": build(
            service, lambda rule: service_rule(rule, metric_specs(), windows, segments)
        ),
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
