"""PromQL expressions and Prometheus rules as text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

RuleTree = dict[str, Any]  # a rule as it stands in the file

# `increase` of whole numbers is no whole number, for it is stretched to the ends of the window:
# "at least 20" is "more than 19.5".
HALF = 0.5


def alerting_rule(
    name: str,
    expr: str,
    *,
    for_: float,
    keep: float,
    labels: Mapping[str, str],
    annotations: Mapping[str, str],
) -> RuleTree:
    """Build an alerting rule; `for_` and `keep` (keep_firing_for) are in seconds.

    Annotations are templates, labels and the runbook link are texts; an empty link is left out.
    """
    tree: RuleTree = {"alert": name, "expr": expr}
    if for_:
        tree["for"] = f"{for_:.0f}s"
    if keep:  # Prometheus 2.42 or newer
        tree["keep_firing_for"] = f"{keep:.0f}s"
    tree["labels"] = {key: escape_template(text) for key, text in labels.items()}
    tree["annotations"] = {
        key: escape_template(text) if key == "runbook_url" else text
        for key, text in annotations.items()
        if text
    }
    return tree


def quote(text: str) -> str:
    """Write a text as a PromQL string."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


def escape_template(text: str) -> str:
    """Escape a text for labels and annotations, which Prometheus expands as templates."""
    return text.replace("{{", '{{ "{{" }}')
