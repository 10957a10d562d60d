"""Names of metrics with a cut-off: `precision_at_k:5` is precision_at_k with k = 5.

Windows, rules and scores use the whole name; the registry knows the base; in Prometheus the
cut-off is the label `k`.
"""

from __future__ import annotations

from collections.abc import Mapping

from agent.metrics.spec import MetricSpec

__all__ = ["at", "base", "cutoff", "spec_of"]


def at(name: str, k: int) -> str:
    """The name of the metric `name` cut off at rank `k`."""
    return f"{name}:{k}"


def base(metric: str) -> str:
    """The name in the registry."""
    return metric.partition(":")[0]


def cutoff(metric: str) -> str | None:
    """The cut-off, where the metric has one."""
    return metric.partition(":")[2] or None


def spec_of(specs: Mapping[str, MetricSpec], metric: str) -> MetricSpec | None:
    """The spec of a metric by its whole name; None where nobody has declared it."""
    return specs.get(base(metric))
