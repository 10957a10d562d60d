"""Compose the runbooks in Markdown, from `runbooks.yaml` and the rules that raise their alerts.

The status page renders them; `python -m deploy.pages` writes them to docs/runbooks. Links lead from
there.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import NamedTuple, get_args

from ragmeter.alerts.rule_sets import Runbook, load_runbooks
from ragmeter.alerts.rules import RULE_PROFILES, AlertRule, load_rules
from ragmeter.core.metric_specs import spoken_name
from ragmeter.parts.collection import PartKinds
from ragmeter.parts.contract import PrometheusAlert
from ragmeter.parts.views import IncidentKind

from ragmeter_exporters.rules.health_rules import HEALTH_RULES, HealthRule

INDEX = "README"  # the page about all alerts, with the table of them

_SECTIONS = {
    "meaning": "What it means",
    "hurt": "Who is hurt",
    "look": "How to look",
    "causes": "Likely causes",
    "actions": "What to do",
    "resolves": "When it resolves",
}

# The one default rule that is off: its page says so.
_OFF = "RagTracesAbsent"

# What raises the alerts that are of no rule.
_DETECTORS = {
    "RagDrift": "a question of a service has left its usual",
}


class _AlertRow(NamedTuple):
    """An alert as the tables have it; `brief` is its condition for the table of all."""

    severity: str
    condition: str
    brief: str
    for_: float = 0
    keep: float = 0


def runbook_pages(parts: PartKinds) -> Mapping[str, str]:
    """Return every runbook in Markdown by its name, the index included."""
    return _runbook_pages(tuple(alert for part in parts for alert in part.prometheus_alerts))


@cache
def _runbook_pages(alerts: tuple[PrometheusAlert, ...]) -> Mapping[str, str]:
    runbooks = load_runbooks()
    rows = _alert_rows(alerts)
    index = files(__package__).joinpath("runbook_index.md").read_text("utf-8")
    return {
        INDEX: index.strip().format(
            incidents=_incidents_table(runbooks), rules=_rules_table(runbooks, rows)
        )
        + "\n",
        **{name: _page(runbook, rows) for name, runbook in runbooks.items()},
    }


def markdown_table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    """Write a table in Markdown."""
    lines = [head, tuple("---" for _ in head), *rows]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)


def escape_cell(text: str) -> str:
    """Write a text so that it stays in its cell of a table."""
    return " ".join(text.replace("|", r"\|").split())


def _alert_rows(alerts: Iterable[PrometheusAlert]) -> Mapping[str, _AlertRow]:
    switched_on = {"rules": [{"name": _OFF, "enabled": True}]}
    profiles = [load_rules(profile=profile, brought=[switched_on]) for profile in RULE_PROFILES]
    return {
        **{rules[0].name: _rule_row(rules) for rules in zip(*profiles, strict=True)},
        **{name: _AlertRow("warning", text, text) for name, text in _DETECTORS.items()},
        **{alert.name: _prometheus_row(alert) for alert in alerts},
        **{rule.name: _health_row(rule) for rule in HEALTH_RULES},
    }


def _rule_row(rules: tuple[AlertRule, ...]) -> _AlertRow:
    """Describe a rule of the agent, which has a threshold for each profile."""
    rule = rules[0]
    severity = f"{rule.severity}, off" if rule.name == _OFF else rule.severity
    condition = _condition(rules)
    return _AlertRow(
        severity=severity,
        condition=condition,
        brief=condition,
        for_=rule.for_,
        keep=rule.keep_firing_for,
    )


def _prometheus_row(alert: PrometheusAlert) -> _AlertRow:
    return _AlertRow(
        severity=alert.severity,
        condition=alert.condition,
        brief=alert.condition,
        keep=alert.keep,
    )


def _health_row(rule: HealthRule) -> _AlertRow:
    return _AlertRow(
        severity=rule.severity,
        condition=f"`{escape_cell(rule.expr)}`",
        brief=escape_cell(_without_templates(rule.summary)),
        for_=rule.for_,
        keep=rule.keep,
    )


def _condition(rules: tuple[AlertRule, ...]) -> str:
    rule = rules[0]
    if rule.absence:
        return f"no trace over {rule.window}"
    thresholds = [f"{each.threshold:g}" for each in rules]
    level = thresholds[0] if len(set(thresholds)) == 1 else " / ".join(thresholds)
    if rule.latency is not None:
        what = f"quantile {rule.latency.quantile:g} of `{rule.latency.stage}`, in seconds,"
    elif rule.unscored is not None:
        what = "share of results without a value"
    else:
        metric = rule.metric or ""
        spoken = spoken_name(metric)
        called = f"{spoken}, " if spoken != metric else ""
        what = f"`{metric}` ({called}{rule.scorer})"
    end = "" if rule.statistic == "value" else f"{rule.statistic} end of "
    times = f" times that of {rule.relative_to}" if rule.relative_to else ""
    least = f", from {rule.min_samples} samples on" if rule.min_samples else ""
    return f"{end}{what} {rule.op} {level}{times} over {rule.window}{least}"


def _page(runbook: Runbook, rows: Mapping[str, _AlertRow]) -> str:
    cells = []
    for name in runbook["alerts"]:
        row = rows[name]
        lasting = _duration(row.for_), _duration(row.keep)
        cells.append((f"`{name}`", row.severity, row.condition, *lasting))
    parts = [f"# {runbook['title']}"]
    if kinds := runbook.get("incidents"):
        parts.append(f"Incidents of kind {', '.join(f'`{kind}`' for kind in kinds)}.")
    if cells:
        head = ("alert", "severity", "fires when", "for", "keeps firing for")
        parts.append(markdown_table(head, cells))
    for key, title in _SECTIONS.items():
        text = runbook[key]  # type: ignore[literal-required]
        if key == "actions":
            text = "\n".join(f"{number}. {_indent(item)}" for number, item in enumerate(text, 1))
        elif not isinstance(text, str):
            text = "\n".join(f"- {_indent(item)}" for item in text)
        parts += [f"## {title}", text]
    return "\n\n".join(parts) + "\n"


def _incidents_table(runbooks: Mapping[str, Runbook]) -> str:
    """Write the table of the kinds of incidents with their page."""
    order = get_args(IncidentKind)
    cells = []
    for page, runbook in runbooks.items():
        if kinds := runbook.get("incidents"):
            names = ", ".join(f"`{kind}`" for kind in kinds)
            row = (names, f"[{runbook['title']}]({page}.md)")
            cells.append((order.index(kinds[0]), row))
    rows = [row for _, row in sorted(cells)]
    return markdown_table(("kind", "runbook"), rows)


def _rules_table(runbooks: Mapping[str, Runbook], rows: Mapping[str, _AlertRow]) -> str:
    """Write the table of every alert with its severity and page."""
    cells = []
    for page, runbook in runbooks.items():
        for name in runbook["alerts"]:
            row = rows[name]
            when = row.brief
            if row.for_ and row.brief == row.condition:
                when += f", for {_duration(row.for_)}"
            cells.append((f"`{name}`", row.severity, when, f"[{runbook['title']}]({page}.md)"))
    return markdown_table(("alert", "severity", "fires when", "runbook"), cells)


def _duration(seconds: float) -> str:
    size, unit = next(one for one in ((3600, "h"), (60, "min"), (1, "s")) if seconds % one[0] == 0)
    return f"{seconds / size:g} {unit}" if seconds else ""


def _indent(item: str) -> str:
    return item.replace("\n", "\n  ")


def _without_templates(summary: str) -> str:
    """Write a summary of Prometheus with `N` for the value and names of labels in capitals."""
    summary = re.sub(r"{{ with .*?{{ end }}", "", summary)
    summary = re.sub(r"{{ \$labels\.(\w+) }}", lambda match: match[1].upper(), summary)
    return re.sub(r"^[A-Z]+: ", "", re.sub(r"{{.*?}}", "N", summary))
