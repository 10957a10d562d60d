"""All metric families, and the reference table of docs/metrics.md made from them.

Every exported metric as the docs have it, made from `ragmeter.exporters.families.reference`.

`python -m ragmeter.exporters.families.reference docs/metrics.md` writes the table between the marks of that page.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

from ragmeter.alerts.rule_sets import describe_rule
from ragmeter.alerts.rules import load_rules
from ragmeter.core.metric_specs import MetricSpec, base_name
from ragmeter.exporters.exposition import MetricFamily
from ragmeter.exporters.families.health import HEALTH, PROCESS
from ragmeter.exporters.families.service import (
    CONSISTENCY,
    INDEXING,
    LATENCY,
    TRAFFIC,
    quality_families,
)
from ragmeter.metrics.registry import METRICS


def all_families(specs: Mapping[str, MetricSpec] = METRICS) -> list[MetricFamily]:
    """All families, in the order in which they are exported."""
    quality = [family for spec in specs.values() for family in quality_families(spec)]
    return [*quality, *LATENCY, *TRAFFIC, *CONSISTENCY, *INDEXING, *HEALTH, *PROCESS]


BEGIN = "<!-- names:begin -->"
END = "<!-- names:end -->"


def reference_table(specs: Mapping[str, MetricSpec] = METRICS) -> str:
    """The generated part of docs/metrics.md: the quality metrics, then every name."""
    rules: dict[str, list[str]] = {}
    for rule in load_rules():
        if rule.metric is not None:
            rules.setdefault(base_name(rule.metric), []).append(describe_rule(rule))
    lines = [
        "### What is measured",
        "",
        "| metric | gauge | tier | scorers | range | better | meaning | formula | needs | source"
        " | default rule (balanced) |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for spec in specs.values():
        about = (
            f"`{spec.name}`", f"`{spec.gauge}`", spec.tier,
            ", ".join(f"`{name}`" for name in spec.scorers), spec.range, spec.good or "neither",
            spec.meaning, spec.formula, spec.needs, spec.source,
            "; ".join(rules.get(spec.name, ())),
        )  # fmt: skip
        lines.append(_row(about))
    lines += [
        "",
        "### Every name",
        "",
        "| name | type | unit | labels | meaning |",
        "| --- | --- | --- | --- | --- |",
    ]
    for family in all_families(specs):
        labels = [f"`{label}`" for label in family.labels]
        if family.segmented:
            labels.append("segment tags")
        cells = (f"`{family.name}`", str(family.type), family.unit, ", ".join(labels), family.help)
        lines.append(_row(cells))
    return "\n".join(lines)


def _row(cells: tuple[str, ...]) -> str:
    escaped = [cell.replace("\n", " ").replace("|", r"\|") for cell in cells]
    return "| " + " | ".join(escaped) + " |"


def update_reference(page: str, specs: Mapping[str, MetricSpec] = METRICS) -> str:
    """The page with the block between its marks written anew. ValueError without the marks."""
    before, found, rest = page.partition(BEGIN)
    _, closed, after = rest.partition(END)
    if not found or not closed:
        raise ValueError(f"no {BEGIN} … {END} in the page")
    return f"{before}{BEGIN}\n{reference_table(specs)}\n{END}{after}"


if __name__ == "__main__":
    for name in sys.argv[1:]:
        path = Path(name)
        path.write_text(update_reference(path.read_text("utf-8")), "utf-8")
