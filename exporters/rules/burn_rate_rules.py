"""The burn-rate rules as a Prometheus rule group, from the same rules and objectives.

It reads the counters that the agent exports, so both see the same events: whoever trusts their
Prometheus more than the agent's own alerts loads this file, and gets the same pages.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

import yaml

from ragmeter.alerts.error_budgets import Objective, max_error_ratio
from ragmeter.alerts.rules import AlertRule
from ragmeter.core.clocks import parse_whole_seconds

EVENTS = "rag_slo_events_total"
BAD = "rag_slo_bad_events_total"
BAD_SQUARES = "rag_slo_bad_events_squared_total"
"""Sum of the squared weights of bad events: (sum w)^2 / sum w^2 is their effective number."""

INTERVAL = 30
"""Seconds between two evaluations: a tenth of the shortest window."""

_HALF_AN_ERROR = 0.5
"""`increase` of whole numbers is no whole number: it is stretched to the ends of the window. So
"at least 10 errors" is "more than 9.5" there."""

_BY = "sum by (service, slo)"
_RATIO = "service_slo:rag_slo_bad:ratio_rate"
_ERRORS = "service_slo:rag_slo_bad:effective_increase"


def render_rule_file(rules: Sequence[AlertRule], objectives: Sequence[Objective]) -> str:
    """The YAML file; rules that are no burn rules are left out."""
    return yaml.safe_dump(
        build_rule_groups(rules, objectives), sort_keys=False, width=100, allow_unicode=True
    )


def build_rule_groups(
    rules: Sequence[AlertRule], objectives: Sequence[Objective]
) -> dict[str, Any]:
    """The file as a tree. All is one group: it is evaluated in order, so that an alert sees the
    ratios of its own moment and not of the one before."""
    burning = [rule for rule in rules if rule.burn is not None]
    long = {rule.window for rule in burning}
    short = {rule.burn.short for rule in burning if rule.burn is not None}
    recorded = [
        {
            "record": f"{_RATIO}{window}",
            "expr": f"{_BY} (rate({BAD}[{window}])) / {_BY} (rate({EVENTS}[{window}]))",
        }
        for window in sorted(long | short, key=parse_whole_seconds)
    ]
    recorded += [
        {
            "record": f"{_ERRORS}{window}",
            "expr": f"{_BY} (increase({BAD}[{window}])) ^ 2"
            f" / {_BY} (increase({BAD_SQUARES}[{window}]))",
        }
        for window in sorted(long, key=parse_whole_seconds)
    ]
    alerts = [
        _alert_rule(rule, one)
        for rule in burning
        for one in objectives
        if rule.burn is not None and fnmatchcase(one.name, rule.burn.slo)
    ]
    group = {"name": "ragmeter-slo", "interval": f"{INTERVAL}s", "rules": [*recorded, *alerts]}
    return {"groups": [group]}


def _alert_rule(rule: AlertRule, objective: Objective) -> dict[str, Any]:
    burn = rule.burn
    assert burn is not None
    limit = max_error_ratio(burn.factor, objective.target)
    only = "{" + ",".join([f"slo={_quoted(objective.name)}", *_services(rule)]) + "}"
    expr = (
        f"{_RATIO}{rule.window}{only} > {limit:.10g} and {_RATIO}{burn.short}{only} > {limit:.10g}"
    )
    if burn.min_errors > 0:
        expr += f" and {_ERRORS}{rule.window}{only} > {burn.min_errors - _HALF_AN_ERROR:.10g}"
    found: dict[str, Any] = {"alert": rule.name, "expr": expr}
    if rule.for_:
        found["for"] = f"{rule.for_:.0f}s"
    if rule.keep_firing_for:  # Prometheus 2.42 or newer
        found["keep_firing_for"] = f"{rule.keep_firing_for:.0f}s"
    # the objective once more: rules that differ in nothing but their expression are a fault
    own = {"severity": rule.severity, "slo": objective.name, "window": rule.window}
    found["labels"] = {name: escape_template(text) for name, text in {**own, **rule.labels}.items()}
    found["annotations"] = _annotations(rule, objective)
    return found


def _annotations(rule: AlertRule, objective: Objective) -> Mapping[str, str]:
    assert rule.burn is not None
    told = {
        "summary": "{{ $labels.service }}: {{ $labels.slo }} uses up its error budget more than "
        f"{rule.burn.factor:g} times too fast: {{{{ $value | humanizePercentage }}}} of the events "
        f"were bad over {rule.window}, and it goes on over {rule.burn.short} "
        f"(objective {objective.target:g})"
    }
    if rule.runbook:
        told["runbook_url"] = escape_template(rule.runbook)
    return told


def _quoted(text: str) -> str:
    """A text as a PromQL string."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


def _services(rule: AlertRule) -> list[str]:
    """The matcher of the rule's services; none where it covers all."""
    if "*" in rule.services:
        return []
    return [f"service=~{_quoted('|'.join(map(glob_to_regex, rule.services)))}"]


def escape_template(text: str) -> str:
    """A text as Prometheus' templates leave it: labels and annotations are such templates there."""
    return text.replace("{{", '{{ "{{" }}')


# Possessive, so that `[!]` is what it is for `fnmatch`: a bracket that is never closed.
_PARTS = re.compile(r"\[(!?+)(\]?+[^\]]*+)\]|.", re.DOTALL)


def glob_to_regex(glob: str) -> str:
    """A shell glob, as `fnmatch` reads it, as an RE2 expression (Prometheus anchors it itself)."""
    return "".join(_translate_part(part) for part in _PARTS.finditer(glob))


def _translate_part(part: re.Match[str]) -> str:
    if part[2]:
        inside = _translate_set(part[2])
        if part[1]:
            return f"[^{inside}]" if inside else "."
        return f"[{inside}]" if inside else r"[^\s\S]"  # which nothing is
    return {"*": ".*", "?": "."}.get(part[0]) or re.escape(part[0])


def _translate_set(text: str) -> str:
    """Characters and ranges of a set; a range that ends before it begins is empty, and RE2 would
    not read the expression."""
    found, at = "", 0
    while at < len(text):
        if text[at + 1 : at + 2] == "-" and at + 2 < len(text):
            low, high = text[at], text[at + 2]
            found += f"{re.escape(low)}-{re.escape(high)}" if low <= high else ""
            at += 3
        else:
            found += re.escape(text[at])
            at += 1
    return found
