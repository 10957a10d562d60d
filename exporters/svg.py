"""Shapes, scales and axes of the inline SVG pictures, and the sparklines of the page.

Colours come from the classes of a style sheet, so one picture serves light, dark and print.
Coordinates have one decimal, so the same numbers give the same bytes. A minute with two traces
carries no information, and sixty such minutes draw noise, so a sparkline pools neighbours until
each point has enough traces.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import sqrt
from typing import Literal, TypeVar

from markupsafe import Markup, escape

from ragmeter.core.metric_specs import MetricSpec
from ragmeter.exporters.page.numbers import format_clock, format_interval, format_value, visible
from ragmeter.windows.estimators import wilson_interval
from ragmeter.windows.series import Estimate

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
    """Draw values as a line over the band of their intervals, which has the CSS class `band`.

    Points are x, y of the value, y of the lower and y of the upper end, in pixels.
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


ENOUGH = 20  # traces of a point, on average: a share is then known to some 20 points either way
LEAST = 12  # points; with fewer there is no course to see
WIDTH, HEIGHT = 132, 34
PAD = 3  # room for the dot of the last point
SCALE = 44  # room for the two numbers of the scale

Point = tuple[float, "Estimate | None"]


def sparkline(points: Sequence[Point], spec: MetricSpec, label: str) -> Markup | None:
    """Draw estimates over time; gaps stay gaps, and a lone point is a whisker.

    The points come in order of Unix time, without an estimate where the evidence is not enough;
    the result is None if that is everywhere. The label names the series to screen readers.
    """
    points = pool_points(points, spec.kind)
    known = [(time, estimate) for time, estimate in points if estimate is not None]
    if not known:
        return None
    low, high = fit_domain([end for _, e in known for end in (e.lower, e.upper)], spec)
    first, last = points[0][0], points[-1][0]
    # a single point stands at the right end, where the newest always is
    x = Scale(first if last > first else first - 1, last, PAD, WIDTH - PAD)
    y = Scale(low, high, HEIGHT - PAD, PAD)
    time, latest = known[-1]
    title = (
        f"{label}, {format_clock(first)} to {format_clock(last)} UTC: "
        f"latest {format_value(latest.value, spec)}, "
        f"95 % interval {format_interval(latest.lower, latest.upper, spec)}; "
        f"scale {format_interval(low, high, spec)}"
    )
    shapes = [f"<title>{safe(title)}</title>"]
    shapes += [line("axis", 0, WIDTH, at, at) for at in (PAD, HEIGHT - PAD)]
    for run in unbroken_runs(points, lambda point: point[1] is not None):
        places = [(x(t), y(e.value), y(e.lower), y(e.upper)) for t, e in run if e is not None]
        if len(places) > 1:
            shapes += banded_line("trace", places)
            continue
        ((at, value, lower, upper),) = places
        shapes += [line("whisker", at, at, lower, upper), circle("dot", at, value, 1.5)]
    shapes.append(circle("dot", x(time), y(latest.value), 2.2))
    for at, number in ((PAD + 3.5, high), (HEIGHT - PAD + 1.5, low)):
        shapes.append(text("scale", WIDTH + 4, at, format_value(number, spec)))
    return svg_element("spark", WIDTH + SCALE, HEIGHT, title, shapes)


def pool_points(points: Sequence[Point], kind: Literal["mean", "ratio"]) -> list[Point]:
    """Pool neighbours into as few groups as give `ENOUGH` traces a group on average.

    A group's value is the mean of its parts, weighted by effective samples. Its interval: for a
    ratio Wilson's, on the sum of effective samples; for a mean from the variances that the parts'
    intervals imply, ((upper - lower) / 2z)^2, which errs on the wide side as those were
    t intervals.
    """
    samples = sum(estimate.samples for _, estimate in points if estimate is not None)
    if not samples:
        return list(points)
    wanted = max(LEAST, min(len(points), samples // ENOUGH))
    size = max(1, -(-len(points) // wanted))
    if size == 1:
        return list(points)
    groups = []
    # Counted from the end, so that the newest group is whole.
    for end in range(len(points), 0, -size):
        group = points[max(0, end - size) : end]
        groups.append((group[-1][0], _pool([estimate for _, estimate in group if estimate], kind)))
    return groups[::-1]


def _pool(parts: Sequence[Estimate], kind: str) -> Estimate | None:
    if len(parts) < 2:
        return parts[0] if parts else None
    weights = [part.effective_samples for part in parts]
    n = sum(weights)
    value = sum(w * part.value for w, part in zip(weights, parts, strict=True)) / n
    if kind == "ratio":
        lower, upper = wilson_interval(value, n)
    else:
        halves = [(part.upper - part.lower) / 2 for part in parts]
        half = sqrt(sum((w * h) ** 2 for w, h in zip(weights, halves, strict=True))) / n
        lower = max(value - half, min(part.lower for part in parts))
        upper = min(value + half, max(part.upper for part in parts))
    samples = sum(part.samples for part in parts)
    return replace(
        parts[-1], value=value, lower=lower, upper=upper, effective_samples=n, samples=samples
    )
