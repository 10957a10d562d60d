"""The table of all metrics in docs/metrics.md, made from the registry and the declared families.

`python -m ragmeter.exporters.families.reference docs/metrics.md` writes it between the marks of
that page.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

from ragmeter.alerts.rule_sets import describe_rule
from ragmeter.alerts.rules import load_rules
from ragmeter.core.metric_specs import MetricSpec, base_name
from ragmeter.exporters.families.catalogue import all_families
from ragmeter.metrics.registry import METRICS

BEGIN = "<!-- names:begin -->"
END = "<!-- names:end -->"

_HEAD = """\
### What is measured

| metric | gauge | tier | scorers | range | better | meaning | formula | needs | source\
 | default rule (balanced) |
| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |"""
_NAMES = """
### Every name

| name | type | unit | labels | meaning |
| --- | --- | --- | --- | --- |"""


def reference_table(specs: Mapping[str, MetricSpec] = METRICS) -> str:
    """Return the generated part of docs/metrics.md: the quality metrics, then every name."""
    rules: dict[str, list[str]] = {}
    for rule in load_rules():
        if rule.metric is not None:
            rules.setdefault(base_name(rule.metric), []).append(describe_rule(rule))
    metrics = [
        _row(
            f"`{spec.name}`",
            f"`{spec.gauge}`",
            spec.tier,
            ", ".join(f"`{name}`" for name in spec.scorers),
            spec.range,
            spec.good or "neither",
            *(spec.meaning, spec.formula, spec.needs, spec.source),
            "; ".join(rules.get(spec.name, ())),
        )
        for spec in specs.values()
    ]
    names = []
    for family in all_families(specs):
        labels = [f"`{label}`" for label in family.labels]
        labels += ["segment tags"] if family.segmented else []
        names.append(
            _row(f"`{family.name}`", family.type, family.unit, ", ".join(labels), family.help)
        )
    return "\n".join([_HEAD, *metrics, _NAMES, *names])


def update_reference(page: str, specs: Mapping[str, MetricSpec] = METRICS) -> str:
    """Replace the block between the marks of the page.

    Raises:
        ValueError: The page lacks the marks.
    """
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"no {BEGIN} … {END} in the page")
    return f"{before}{BEGIN}\n{reference_table(specs)}\n{END}{after}"


def _row(*cells: str) -> str:
    escaped = [cell.replace("\n", " ").replace("|", r"\|") for cell in cells]
    return "| " + " | ".join(escaped) + " |"


if __name__ == "__main__":
    for name in sys.argv[1:]:
        path = Path(name)
        path.write_text(update_reference(path.read_text("utf-8")), "utf-8")
