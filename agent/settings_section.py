"""What all sections of the settings have in common."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

__all__ = ["Section"]


class Section(BaseModel):
    """No unknown key, no change, no NaN."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)
