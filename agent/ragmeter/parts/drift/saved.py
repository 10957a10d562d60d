"""Types of fields that JSON cannot hold as they are."""

from __future__ import annotations

import math
from typing import Annotated

from pydantic import BeforeValidator, PlainSerializer


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


FirstTime = Annotated[
    float,
    BeforeValidator(lambda value: math.inf if value is None else value),
    PlainSerializer(_finite, return_type=float | None),
]
"""A time, infinity before the first."""

LastTime = Annotated[
    float,
    BeforeValidator(lambda value: -math.inf if value is None else value),
    PlainSerializer(_finite, return_type=float | None),
]
"""A time, minus infinity before the first."""
