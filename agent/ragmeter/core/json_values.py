"""Values that JSON can hold."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any


def finite_values(item: Mapping[str, Any]) -> dict[str, Any]:
    """Replace NaN and infinities, which JSON lacks, by None."""
    return {
        key: None if isinstance(value, float) and not math.isfinite(value) else value
        for key, value in item.items()
    }
