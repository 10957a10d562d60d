"""Settings of feedback: labels that come after a trace."""

from __future__ import annotations

from pydantic import Field, field_validator

from agent.settings.section import Section
from agent.windows.periods import seconds_of

__all__ = ["Feedback"]


class Feedback(Section):
    horizon: str | None = Field(
        None,
        description="how long a trace waits for labels, and labels for their trace; none, and at "
        "most: the longest window, for later ones would have none to enter",
    )
    traces: int = Field(
        100_000,
        ge=0,
        description="traces remembered for their labels, some 350 bytes each; beyond it the oldest "
        "are forgotten. On Kafka each partition has an equal part. 0: no feedback",
    )
    waiting: int = Field(
        10_000,
        ge=1,
        description="feedback waiting for its trace; beyond it the oldest is shed. On Kafka each "
        "partition has an equal part",
    )
    scorers: int = Field(
        8, ge=1, description="names of scorers in feedback with series of their own"
    )

    @field_validator("horizon")
    @classmethod
    def _duration(cls, value: str | None) -> str | None:
        if value is not None:
            seconds_of(value)
        return value
