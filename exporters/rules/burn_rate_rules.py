"""The burn-rate rules as Prometheus rules, from the same rules and objectives.

They read the counters that the agent exports, so both see the same events and fire alike.
"""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase

from ragmeter.alerts.error_budgets import Objective, max_error_ratio
from ragmeter.alerts.rules import AlertRule
from ragmeter.core.clocks import parse_whole_seconds
from ragmeter.exporters.rules.promql import HALF, RuleTree, agent_rule, glob_matchers, quote

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
