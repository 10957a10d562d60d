"""An alert: what a rule says about one service (or one segment of it) at one moment."""

from __future__ import annotations

import hashlib
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, Literal

__all__ = ["Alert", "AlertState", "Severity", "alert_id"]

Severity = Literal["critical", "warning"]
AlertState = Literal["pending", "firing", "resolved"]


def alert_id(rule: str, service: str, segment: str = "") -> str:
    """The same 16 hex digits for the same rule, service and segment, in every process."""
    # Length-prefixed, so that ("a", "bc") and ("ab", "c") differ whatever the names hold.
    text = "".join(f"{len(part)}:{part}" for part in (rule, service, segment))
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()


@dataclass(slots=True)
class Alert:
    """One alert. All times are event time in Unix seconds.

    `value`, `lower` and `upper` are the estimate and its 95 % interval as last read; None before
    the first reading or where the reading has no interval. `metric` is `latency` for a latency
    rule and `traces` for an absence rule; `scorer` is then empty. `labels` and `annotations` come
    from the rule (a latency rule adds `stage` and `quantile` to the labels).

    `baseline` is what the value was before, None where nobody knows; `top_segment` the segment
    that is behind it, empty where none stands out, with `top_segment_words`; `fingerprint` that of
    the judge or model that scores.

    `drift` is what only an alarm of a drift detector has (`agent.alerts.drift.evidence`): `since`
    is then the estimated time of the change, `threshold` that of the detector's statistic.
    `unscored` is what only a rule on results without a value has: how many by reason, the most
    frequent first. `value` is then their share, of the results of `metric` by `scorer`.
    """

    id: str
    rule: str
    severity: Severity
    state: AlertState
    service: str
    segment: str
    metric: str
    scorer: str
    window: str
    value: float | None
    lower: float | None
    upper: float | None
    threshold: float
    samples: int
    effective_samples: float
    since: float
    fired_at: float | None
    resolved_at: float | None
    updated_at: float
    summary: str
    worst: list[str] = field(default_factory=list)
    no_data: bool = False
    statistic: str = "value"
    op: str = ">"
    reason: str = ""  # why it resolved, where it was not the condition that ended
    labels: dict[str, str] = field(default_factory=dict)
    annotations: dict[str, str] = field(default_factory=dict)
    runbook: str = ""
    baseline: float | None = None
    top_segment: str = ""
    top_segment_words: str = ""
    fingerprint: str = ""
    unscored: dict[str, int] | None = None
    drift: dict[str, Any] | None = None

    def copy(self) -> Alert:
        """A copy that shares nothing that changes."""
        return replace(
            self,
            worst=list(self.worst),
            labels=dict(self.labels),
            annotations=dict(self.annotations),
            unscored=None if self.unscored is None else dict(self.unscored),
            drift=None if self.drift is None else dict(self.drift),
        )

    def to_dict(self) -> dict[str, Any]:
        """Every field, JSON-able."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Alert:
        """The inverse of `to_dict`; keys that this version does not know are left out."""
        known = {item.name for item in fields(cls)}
        return cls(**{key: value for key, value in data.items() if key in known})
