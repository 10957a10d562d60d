"""Specifications of metrics, metric names with a cut-off, and the display order of metrics.

A metric with a cut-off is named `precision_at_k:5` (k = 5). Windows, rules and scores use the whole
name, the registry uses the base name, and in Prometheus the cut-off is the label `k`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from ragmeter.core.files import load_yaml

MetricKind = Literal["mean", "ratio"]
MetricTier = Literal["cheap", "model", "judge", "feedback"]


# Scorers that estimate what people would say of answers, and others that show that a metric is such
# a matter: whether an answer has a citation, say, is a fact.
_ESTIMATING = frozenset(("builtin", "mini"))
_JUDGING = frozenset(("hhem", "judge", "mini", "umbrela"))
OWN_ERROR = (
    "Intervals of builtin and mini cover sampling, not the scorer's own error: docs/agreement.md"
    " has its agreement with people, `ragmeter label` that with yours."
)


# Scorers that ask an LLM judge.
_JUDGES = frozenset(("umbrela", "judge", "autonuggetizer", "annotation"))


def is_judged(scorer: str) -> bool:
    """Return whether an LLM judge gives the scores."""
    return scorer.partition("@")[0] in _JUDGES


@dataclass(frozen=True, slots=True)
class MetricSpec:
    """The definition of one metric.

    Args:
        name: Base name, without a cut-off.
        kind: How values combine: a `ratio` is the mean of 0/1 values.
        high: Largest value; None if unbounded.
        good: Which direction is better; None where neither is (token counts).
        unit: Prometheus base unit; empty for a share.
        labels: Labels of its series beside the usual ones: `k` of a cut-off.
        source: Who defined it.
        helped_by: Base name of the metric whose built-in score of all traffic helps to estimate
            this one from a sample; empty for its own built-in score.
    """

    name: str
    kind: MetricKind
    tier: MetricTier
    scorers: tuple[str, ...]
    meaning: str
    formula: str
    needs: str
    low: float = 0.0
    high: float | None = 1.0
    good: Literal["higher", "lower"] | None = "higher"
    unit: str = ""
    labels: tuple[str, ...] = ()
    source: str = ""
    helped_by: str = ""

    @property
    def gauge(self) -> str:
        """The Prometheus name of the point estimate; `_ci_lower` and the rest share its stem."""
        return f"rag_{self.name}_{self.kind}"

    def has_own_error(self, scorer: str) -> bool:
        """Return whether a scorer without a judge only estimates what people would say.

        Its interval covers sampling, and not that error.
        """
        return scorer in _ESTIMATING and not _JUDGING.isdisjoint(self.scorers)

    @property
    def range(self) -> str:
        """The range of values, for people."""
        top = "…" if self.high is None else f"{self.high:g}"
        return f"{self.low:g} to {top}{' ' + self.unit if self.unit else ''}"


def name_at_cutoff(name: str, k: int) -> str:
    """Return the name of a metric cut off at rank `k`."""
    return f"{name}:{k}"


# The share of the passages' facts that the answer uses; others call something else groundedness.
_SPOKEN_NAMES = {"groundedness": "used facts"}


def spoken_name(metric: str) -> str:
    """Return the name of a metric where people read it; that of its series may be another."""
    return _SPOKEN_NAMES.get(metric, metric)


def base_name(metric: str) -> str:
    """Return the name in the registry, without a cut-off."""
    return metric.partition(":")[0]


def parse_cutoff(metric: str) -> str | None:
    """Return the cut-off, None for a metric without one."""
    return metric.partition(":")[2] or None


def find_spec(specs: Mapping[str, MetricSpec], metric: str) -> MetricSpec | None:
    """Return the spec of a metric by its whole name, None if it is not declared."""
    return specs.get(base_name(metric))


def find_helping_spec(specs: Mapping[str, MetricSpec], metric: str) -> MetricSpec | None:
    """Return the spec of the metric whose built-in score helps to estimate `metric`."""
    spec = find_spec(specs, metric)
    return specs.get(spec.helped_by) if spec and spec.helped_by else spec


METRIC_GROUPS: dict[str, tuple[str, ...]] = {
    group: tuple(names) for group, names in load_yaml(__package__, "metric_groups.yaml").items()
}
OTHER_GROUP = "More"  # the section of all other metrics

_DISPLAY_RANK = {
    name: rank for rank, name in enumerate(n for group in METRIC_GROUPS.values() for n in group)
}


def display_rank(metric: str) -> int:
    """Return the sort key of a metric on the page and in the table; ungrouped ones come last."""
    return _DISPLAY_RANK.get(base_name(metric), len(_DISPLAY_RANK))
