"""The Prometheus rule file: the rules of the parts, and the agent's own health.

Both are what Prometheus does better than the agent: budgets of days on counters that outlive it,
and what only somebody outside can raise. Thresholds with intervals, drift and evidence are the
agent's own alerts. The rules on the agent come from `agent_rules.yaml`, and from
`prometheus_rules.yaml` of a part; the labels that every
scrape sets, `job` and `instance`, tell one agent from another.
"""

from __future__ import annotations

from collections.abc import Sequence

import yaml
from ragmeter.alerts.promql import RuleTree
from ragmeter.alerts.rule_sets import RUNBOOK_BASE
from ragmeter.config.settings import Settings
from ragmeter.parts.collection import PartKinds

from ragmeter_exporters.rules.growth import growth_recordings
from ragmeter_exporters.rules.health_rules import health_rules

INTERVAL = 30  # seconds between two evaluations: a tenth of the shortest window

HEAD = """\
# Rules for Prometheus 2.42 or newer, written by `ragmeter rules prometheus` from the settings of
# the agent. Do not edit: change those, and write it anew.
"""


def rule_groups(
    parts: PartKinds, settings: Settings, runbooks: str = RUNBOOK_BASE
) -> list[RuleTree]:
    """Build the groups of rules as Prometheus reads them.

    Args:
        parts: The parts of the agent; each has a group of its own for its rules.
        settings: The settings of the agent.
        runbooks: Base URL of the runbooks.
    """
    groups = {
        **{part.name: part.prometheus_rules(settings, runbooks) for part in parts},
        "agent": [*growth_recordings(), *health_rules(runbooks)],
    }
    return [
        {"name": f"ragmeter-{name}", "interval": f"{INTERVAL}s", "rules": list(rules)}
        for name, rules in groups.items()
        if rules
    ]


def rule_file(groups: Sequence[RuleTree]) -> str:
    """Write groups of rules as the YAML file of Prometheus."""
    tree = {"groups": list(groups)}
    return HEAD + yaml.safe_dump(tree, sort_keys=False, width=1_000, allow_unicode=True)
