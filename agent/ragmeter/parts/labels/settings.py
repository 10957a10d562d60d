"""The settings of labels."""

from __future__ import annotations

from pydantic import Field

from ragmeter.config.base import NameList, SettingsSection
from ragmeter.config.settings import Settings
from ragmeter.parts.contract import section_of


class FeedbackSettings(SettingsSection):
    """Joining of feedback to traces."""

    traces: int = Field(
        100_000,
        ge=0,
        description=(
            "traces remembered for their labels, some 300 bytes each; beyond it the oldest are "
            "forgotten. On Kafka each partition has an equal part. 0: no feedback"
        ),
    )
    reserved: NameList = Field(
        [],
        description=(
            "names of scorers in feedback that always have series of their own, as `human` has; "
            "of others 8 at a time"
        ),
    )


class LabelsSettings(SettingsSection):
    """The settings of the part."""

    feedback: FeedbackSettings = FeedbackSettings()


def draws_labels(settings: Settings) -> bool:
    """Return whether people are asked to label traces."""
    remembered = section_of(settings, LabelsSettings).feedback.traces
    return settings.sampling.draws_people and remembered > 0
