"""What the windows give out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

__all__ = ["BucketRow", "Estimate", "Failed", "Quantile", "Worst"]

BucketRow = tuple[str, str, int, int, bytes | None]
"""(service, segment, width, start, data): key and content of a saved bucket; None: delete it.
The row ("", "", 0, 0) holds the stream time."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """A 95 % interval, with how many equal-weight samples would know as much.

    `samples` were scored; `states` counts all traces by state, and its sum is what was seen.
    `unscored` is the weighted share of what should have a value and has none: `lower` and `upper`
    hold whatever those values are, `value` is of those that are there.
    """

    value: float
    lower: float
    upper: float
    effective_samples: float
    samples: int
    states: Mapping[str, int]
    unscored: float = 0.0


@dataclass(frozen=True, slots=True)
class Quantile:
    """Seconds, within 1 %. A limit is None where the samples do not carry it."""

    quantile: float
    value: float
    lower: float | None
    upper: float | None
    samples: int


@dataclass(frozen=True, slots=True)
class Failed:
    """The weighted share of the results that should have a value and got none through a fault of
    ours, with its 95 % interval, of `samples` that should; `reasons` counts them, most frequent
    first."""

    value: float
    lower: float
    upper: float
    effective_samples: float
    samples: int
    reasons: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Worst:
    trace_id: str
    value: float
    timestamp: float
