"""The settings of objectives."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from ragmeter.config.base import Distinct, SettingsSection


class SloSettings(SettingsSection):
    """An objective: which events are bad, and the share that should be good."""

    name: str = Field(min_length=1, max_length=64, description="label value of the counters")
    objective: float = Field(0.99, gt=0, lt=1, description="share of events that should be good")
    bad: Literal["failed", "error", "timeout", "slow", "low", "high"] = Field(
        description=(
            "`failed`: status is not ok; `error`, `timeout`: status is that one; `slow`: "
            "timings.total over `seconds`; `low`, `high`: the score of `metric` by `scorer` is "
            "below or above `threshold`"
        )
    )
    seconds: float | None = Field(None, gt=0, description="for `slow`: the objective in seconds")
    metric: str | None = Field(None, min_length=1, description="for `low` and `high`")
    scorer: str | None = Field(None, min_length=1, description="for `low` and `high`: `builtin`")
    threshold: float | None = Field(None, description="for `low` and `high`")

    @model_validator(mode="after")
    def _complete(self) -> SloSettings:
        if self.bad == "slow" and self.seconds is None:
            raise ValueError("`slow` needs `seconds`")
        if self.bad in ("low", "high"):
            if self.metric is None or self.threshold is None:
                raise ValueError(f"`{self.bad}` needs `metric` and `threshold`")
        elif self.metric or self.scorer or self.threshold is not None:
            raise ValueError(f"`{self.bad}` takes no `metric`, `scorer` or `threshold`")
        return self


class ObjectivesSettings(SettingsSection):
    """The settings of the part."""

    slos: Annotated[list[SloSettings], Distinct] = Field(
        [
            SloSettings(name="availability", bad="failed"),
            SloSettings(name="latency", bad="slow", seconds=10, objective=0.95),
        ],
        description="objectives with an error budget",
    )
