"""Shapes, scales and axes of the inline SVG pictures, and the plots of the page.

Colours come from the classes of a style sheet, so one picture serves light, dark and print.
Coordinates have one decimal, so the same numbers give the same bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from math import ceil, floor, log10
from typing import TypeVar

from ragmeter.core.metric_specs import MetricSpec

# A chart never shows less than this share of a bounded metric's range: noise must look small.
LEAST_SPAN = 0.1

_PointT = TypeVar("_PointT")


@dataclass(frozen=True, slots=True)
class Scale:
    """A linear map from the domain `low`..`high` to the pixels `start`..`end`, clamped to them."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        """Return the pixel of a value."""
        share = (value - self.low) / (self.high - self.low)
        return self.start + (self.end - self.start) * min(1.0, max(0.0, share))


def fit_domain(numbers: Sequence[float], spec: MetricSpec | None) -> tuple[float, float]:
    """Return the ends of an axis that shows all numbers and at least `LEAST_SPAN` of the range.

    Without `spec`, whose range limits the axis, the numbers are seconds.
    """
    low, high = min(numbers), max(numbers)
    whole = abs(high) if spec is None or spec.high is None else spec.high - spec.low
    least = LEAST_SPAN * whole or 1.0
    if high - low < least:
        middle = (low + high) / 2
        low, high = middle - least / 2, middle + least / 2
    if spec is None:
        return low, high
    # Keep the span when the range pushes back.
    if low < spec.low:
        low, high = spec.low, max(high, spec.low + least)
    if spec.high is not None and high > spec.high:
        low, high = min(low, spec.high - least), spec.high
    return max(low, spec.low), high


def unbroken_runs(
    points: Iterable[_PointT], known: Callable[[_PointT], bool]
) -> Iterator[list[_PointT]]:
    """Yield the stretches of known points between the gaps."""
    run: list[_PointT] = []
    for point in points:
        if known(point):
            run.append(point)
        elif run:
            yield run
            run = []
    if run:
        yield run


def band_and_line(points: Sequence[tuple[float, ...]]) -> tuple[str, str]:
    """Return the path of a band of intervals and the points of the line of values in it.

    Points are x, y of the value, y of the lower and y of the upper end, in pixels.
    """
    over = [f"{x:.1f},{upper:.1f}" for x, _, _, upper in points]
    under = [f"{x:.1f},{lower:.1f}" for x, _, lower, _ in reversed(points)]
    course = " ".join(f"{x:.1f},{y:.1f}" for x, y, _, _ in points)
    return f"M{' L'.join(over + under)}Z", course


def time_ticks(x: Scale, most: int) -> Iterator[tuple[float, str]]:
    """Yield at most `most` whole hours, days and the like of UTC with their labels."""
    step = next((s for s in TICKS if (x.high - x.low) / s <= most), TICKS[-1])
    form = "%Y-%m-%d" if step >= 86400 else "%H:%M" if step >= 60 else "%H:%M:%S"
    day = ""
    for number in range(ceil(x.low / step), floor(x.high / step) + 1):
        moment = datetime.fromtimestamp(number * step, UTC)
        label = moment.strftime(form)
        if step < 86400 and (date := moment.strftime("%m-%d ")) != day:
            label = date + label
            day = date
        yield number * step, label


def value_ticks(y: Scale, most: int) -> Iterator[float]:
    """Yield at most `most` round numbers of an axis, from 1, 2 or 5 times a power of ten on."""
    span = y.high - y.low
    power = 10.0 ** floor(log10(span / most))
    step = next(size * power for size in (1, 2, 5, 10, 20) if span / (size * power) <= most - 1)
    for number in range(ceil(y.low / step - 1e-9), floor(y.high / step + 1e-9) + 1):
        yield number * step


TICKS = (
    1,
    5,
    15,
    30,
    60,
    300,
    600,
    900,
    1800,
    3600,
    7200,
    10800,
    21600,
    43200,
    86400,
    172800,
    604800,
    2592000,
    7776000,
    31536000,
    315360000,
)
