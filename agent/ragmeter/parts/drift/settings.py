"""The settings of drift detection."""

from __future__ import annotations

from pydantic import Field

from ragmeter.config.base import SettingsSection


class DriftDetectionSettings(SettingsSection):
    """Detection of drift."""

    enabled: bool = Field(True, description="watch every series for drift")
    false_alarm_days: float = Field(
        30,
        gt=0,
        description="days with one false alarm, over all services and their series together",
    )
    baseline_days: float = Field(
        14,
        ge=0.25,
        le=28,
        description=(
            "days a baseline is learned from: of a day or more by hour of the day, of a week or "
            "more by hour of the week"
        ),
    )


class DriftPartSettings(SettingsSection):
    """The settings of the part."""

    drift: DriftDetectionSettings = DriftDetectionSettings()
