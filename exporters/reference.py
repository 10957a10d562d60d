"""Every exported metric as the docs have it, made from `exporters.families`.

`python -m exporters.reference docs/metrics.md` writes the table between the marks of that page.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

from agent.alerts import load_rules
from agent.metrics import METRICS
from agent.metrics.names import base
from agent.metrics.spec import MetricSpec
from agent.rules import in_words
from exporters.families import families

__all__ = ["BEGIN", "END", "table", "update"]

BEGIN = "<!-- names:begin -->"
END = "<!-- names:end -->"


def table(specs: Mapping[str, MetricSpec] = METRICS) -> str:
    """The generated part of docs/metrics.md: the quality metrics, then every name."""
    rules: dict[str, list[str]] = {}
    for rule in load_rules():
        if rule.metric is not None:
            rules.setdefault(base(rule.metric), []).append(in_words(rule))
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
    for family in families(specs):
        labels = [f"`{label}`" for label in family.labels]
        if family.segmented:
            labels.append("segment tags")
        cells = (f"`{family.name}`", str(family.type), family.unit, ", ".join(labels), family.help)
        lines.append(_row(cells))
    return "\n".join(lines)


def _row(cells: tuple[str, ...]) -> str:
    escaped = [cell.replace("\n", " ").replace("|", r"\|") for cell in cells]
    return "| " + " | ".join(escaped) + " |"


def update(page: str, specs: Mapping[str, MetricSpec] = METRICS) -> str:
    """The page with the block between its marks written anew. ValueError without the marks."""
    before, found, rest = page.partition(BEGIN)
    _, closed, after = rest.partition(END)
    if not found or not closed:
        raise ValueError(f"no {BEGIN} … {END} in the page")
    return f"{before}{BEGIN}\n{table(specs)}\n{END}{after}"


if __name__ == "__main__":
    for name in sys.argv[1:]:
        path = Path(name)
        path.write_text(update(path.read_text("utf-8")), "utf-8")
