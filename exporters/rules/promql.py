"""PromQL as text: selectors, and gauges that survive a failed scrape."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from agent.alerts.prometheus_rules import literal, regex

__all__ = [
    "HALF",
    "HOLD",
    "KEEP",
    "MINUTE",
    "TARGET",
    "Tree",
    "alert",
    "globs",
    "held",
    "quoted",
    "seconds",
    "selector",
]

Tree = dict[str, Any]
"""A rule as it stands in the file."""

HOLD = "2m"
"""How far back the last value of a gauge counts. A failed scrape marks every series as gone, and
an alert would end. Two scrapes of a minute; not longer than the shortest `for` of the rules (2 m),
so that a single reading never fires one."""

HALF = 0.5
"""`increase` of whole numbers is no whole number: "at least 20" is "more than 19.5"."""

MINUTE = 60
KEEP = 15 * MINUTE
"""For how long a rule that only Prometheus has keeps firing: as those on an hour."""

TARGET = "job, instance"
"""What tells one agent from another."""


def quoted(text: str) -> str:
    """A text as a PromQL string."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


def globs(label: str, patterns: Sequence[str], after: str = "") -> list[str]:
    """The matcher of shell globs, none where they match everything; `after` is an expression that
    each may go on with."""
    if "*" in patterns:
        return []
    return [f"{label}=~{quoted('|'.join(regex(glob) + after for glob in patterns))}"]


def selector(name: str, labels: Mapping[str, str], *more: str) -> str:
    """`name{label="value",...}`; `more` are matchers as they are."""
    inner = ",".join([*(f"{label}={quoted(value)}" for label, value in labels.items()), *more])
    return f"{name}{{{inner}}}" if inner else name


def held(series: str, window: str = HOLD) -> str:
    """The last value of a gauge, also where the last scrape has failed."""
    return f"last_over_time({series}[{window}])"


def seconds(value: float) -> str:
    """A duration as Prometheus writes it in whole seconds."""
    return f"{value:.0f}s"


def alert(
    name: str,
    expr: str,
    *,
    for_: float,
    keep: float,
    labels: Mapping[str, str],
    annotations: Mapping[str, str],
) -> Tree:
    """An alerting rule; durations in seconds. Labels and the link are texts, not templates."""
    labels = {key: literal(text) for key, text in labels.items()}
    link = annotations.get("runbook_url")
    if link is not None:
        annotations = {**annotations, "runbook_url": literal(link)}
    tree: Tree = {"alert": name, "expr": expr}
    if for_:
        tree["for"] = seconds(for_)
    if keep:  # Prometheus 2.42 or newer
        tree["keep_firing_for"] = seconds(keep)
    return {**tree, "labels": dict(labels), "annotations": dict(annotations)}
