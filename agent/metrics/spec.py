"""What a metric is: its name, kind, range and direction. `agent.metrics.METRICS` lists them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["MetricSpec"]

Kind = Literal["mean", "ratio"]
Tier = Literal["cheap", "model", "judge", "feedback"]


@dataclass(frozen=True, slots=True)
class MetricSpec:
    """One quantity. `kind` says how values combine: a `ratio` is the mean of 0/1 values.

    `low` and `high` bound a value (`high` None: unbounded). `good` says which way is better;
    None where neither is (token counts). `unit` follows Prometheus base units ("" for a share).
    `labels` are those that its series have beside the usual ones: `k` of a cut-off (see `names`).
    `needs` says what is read, `source` who has defined it so. The rule that holds by default, if
    any, stands with all rules, in agent/alerts/default_rules.yaml.
    """

    name: str
    kind: Kind
    tier: Tier
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

    @property
    def gauge(self) -> str:
        """The Prometheus name of the point estimate; `_ci_lower` and the rest share its stem."""
        return f"rag_{self.name}_{self.kind}"

    @property
    def range(self) -> str:
        """What a value can be, in words."""
        top = "…" if self.high is None else f"{self.high:g}"
        return f"{self.low:g} to {top}{' ' + self.unit if self.unit else ''}"
