"""The settings of drift detection."""

from __future__ import annotations

from pydantic import Field, field_validator

from ragmeter.config.base import SettingsSection

# Shares and cheap scores from 0 to 1; of `fast` and `cost` a share of the usual.
DEFAULT_LEAST = {
    "works": 0.02,
    "fast": 0.25,
    "answered": 0.03,
    "uncut": 0.03,
    "grounded": 0.03,
    "retrieved": 0.03,
    "cited": 0.03,
    "cost": 0.15,
}


class DriftDetectionSettings(SettingsSection):
    """Detection of what moves away from its usual."""

    enabled: bool = Field(True, description="tell when a question moves away from its usual")
    least_change: dict[str, float] = Field(
        {},
        description=(
            "the least change of a question that matters, in shares of 1 (of `fast` and `cost` as "
            "a share of the usual; `uncut`: answers that no limit and no filter cut off): "
            + ", ".join(f"`{name}` {value:g}" for name, value in DEFAULT_LEAST.items())
            + " unless they are given"
        ),
    )

    @field_validator("least_change")
    @classmethod
    def _check(cls, least: dict[str, float]) -> dict[str, float]:
        for name, value in least.items():
            if name not in DEFAULT_LEAST:
                raise ValueError(f"{name!r} is not watched: one of {', '.join(DEFAULT_LEAST)}")
            if not 0 < value < 10:
                raise ValueError(f"{name}: a number above 0 is needed, as 0.05")
        return least

    @property
    def least(self) -> dict[str, float]:
        """The least change of each question."""
        return DEFAULT_LEAST | self.least_change


class DriftPartSettings(SettingsSection):
    """The settings of the part."""

    drift: DriftDetectionSettings = DriftDetectionSettings()
