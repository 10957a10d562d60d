"""What the monitor says: one record per alarm, and again when its state changes."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

__all__ = ["Alarm", "Kind", "State", "with_state"]

Kind = Literal["rate", "mean", "distribution", "latency", "judge"]

State = Literal["firing", "held", "cleared"]
"""`held`: true of the series, but explained by another alarm (`cause` says which) or waiting for
what tells quality from judge."""


@dataclass(frozen=True, slots=True)
class Alarm:
    """`metric` is the stage for latency. `before` and `after` are means; for a distribution or
    latency the share of values above `edge`, where it changed most, and for judge drift the mean
    of judge minus calibrated cheap score. The shift was picked because it is large: `after` tends
    to overstate it a little. `at` is event time, `since` the estimated time of the change with
    its 95 % set.
    """

    service: str
    metric: str
    scorer: str
    kind: Kind
    state: State
    at: float
    since: float
    since_earliest: float
    since_latest: float
    before: float
    after: float
    after_lower: float
    after_upper: float
    statistic: float
    threshold: float
    effective_samples: float
    baseline_version: int
    baseline_hours: float
    provisional: bool
    edge: float | None = None
    segment: str | None = None
    segment_words: str = ""
    cause: str = ""

    @property
    def key(self) -> tuple[str, str, str, str]:
        """Which alarm this is, whatever its state."""
        return self.service, self.metric, self.scorer, self.kind

    def words(self) -> str:
        """What happened, in a sentence or two."""
        what = {
            "rate": f"{self.metric} went from {self.before:.3g} to {self.after:.3g}",
            "mean": f"{self.metric} went from {self.before:.3g} to {self.after:.3g}",
            "judge": f"{self.scorer} judges {self.metric} differently: its distance from the cheap "
            f"score went from {self.before:.3g} to {self.after:.3g}",
        }.get(
            self.kind,
            f"the share of {self.metric} above {self.edge or 0.0:.3g} went from {self.before:.3g} "
            f"to {self.after:.3g}",
        )
        return ". ".join(part for part in (what, self.cause, self.segment_words) if part)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def with_state(alarm: Alarm, state: State, cause: str = "", at: float | None = None) -> Alarm:
    """The same alarm in another state, from `at` on."""
    return replace(alarm, state=state, cause=cause, at=alarm.at if at is None else at)
