"""Shapes, scales and axes of the inline SVG pictures on the pages.

Colours come from the classes of a style sheet, so one picture serves light, dark and print.
Coordinates have one decimal, so the same numbers give the same bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

from markupsafe import Markup, escape

from ragmeter.core.metric_specs import MetricSpec
from ragmeter.exporters.page.numbers import visible

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

    Args:
        numbers: All values and interval ends to show; at least one.
        spec: Limits the axis to the metric's range; None for seconds.
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


def safe(text: str) -> str:
    """Escape a text and make its hidden characters visible."""
    return escape(visible(text))


def line(kind: str, x1: float, x2: float, y1: float, y2: float) -> str:
    """Draw a straight line; `kind` is its CSS class."""
    return f'<line class="{kind}" x1="{x1:.1f}" x2="{x2:.1f}" y1="{y1:.1f}" y2="{y2:.1f}"/>'


def rect(kind: str, x1: float, x2: float, y: float, height: float) -> str:
    """Draw a rectangle that is at least one pixel wide."""
    width = max(x2 - x1, 1.0)
    return (
        f'<rect class="{kind}" x="{x1:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}"/>'
    )


def circle(kind: str, x: float, y: float, radius: float) -> str:
    """Draw a circle."""
    return f'<circle class="{kind}" cx="{x:.1f}" cy="{y:.1f}" r="{radius}"/>'


def text(kind: str, x: float, y: float, content: str, anchor: str = "") -> str:
    """Write a text at its baseline; `anchor` is start, middle or end."""
    end = f' text-anchor="{anchor}"' if anchor else ""
    return f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}"{end}>{safe(content)}</text>'


def banded_line(kind: str, points: Sequence[tuple[float, float, float, float]]) -> tuple[str, str]:
    """Draw values as a line over the band of their intervals.

    Args:
        kind: CSS class of the line; that of the band is `band`.
        points: x, y of the value, y of the lower and y of the upper end, in pixels.
    """
    over = [f"{x:.1f},{upper:.1f}" for x, _, _, upper in points]
    under = [f"{x:.1f},{lower:.1f}" for x, _, lower, _ in reversed(points)]
    course = " ".join(f"{x:.1f},{y:.1f}" for x, y, _, _ in points)
    return (
        f'<path class="band" d="M{" L".join(over + under)}Z"/>',
        f'<polyline class="{kind}" points="{course}"/>',
    )


def svg_element(kind: str, width: int, height: int, label: str, shapes: Iterable[str]) -> Markup:
    """Join shapes to one `<svg>`; a screen reader reads its `label`."""
    return Markup(
        f'<svg class="{kind}" role="img" aria-label="{safe(label)}" viewBox="0 0 {width} {height}"'
        f' width="{width}" height="{height}">{"".join(shapes)}</svg>'
    )
