"""Sparklines: estimates over time with their 95 % interval as a band.

A minute with two traces says nothing, and sixty such minutes draw noise. Neighbours are therefore
pooled until each point has enough traces.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import sqrt
from typing import TYPE_CHECKING, Literal

from markupsafe import Markup

from ragmeter.core.metric_specs import MetricSpec
from ragmeter.exporters import svg
from ragmeter.exporters.page.numbers import format_clock, format_interval, format_value
from ragmeter.windows.estimators import wilson_interval

if TYPE_CHECKING:
    from ragmeter.windows.series import Estimate

ENOUGH = 20  # traces of a point, on average: a share is then known to some 20 points either way
LEAST = 12  # points; with fewer there is no course to see
WIDTH, HEIGHT = 132, 34
PAD = 3  # room for the dot of the last point
SCALE = 44  # room for the two numbers of the scale

Point = tuple[float, "Estimate | None"]


def sparkline(points: Sequence[Point], spec: MetricSpec, label: str) -> Markup | None:
    """Draw estimates over time; gaps stay gaps, and a lone point is a whisker.

    Args:
        points: (Unix time, estimate) in order; the estimate is None without enough evidence.
        spec: The metric: its range bounds the scale.
        label: Name of the series in the description for screen readers.

    Returns:
        The SVG, or None where no point has enough evidence.
    """
    points = pool_points(points, spec.kind)
    known = [(time, estimate) for time, estimate in points if estimate is not None]
    if not known:
        return None
    low, high = svg.fit_domain([end for _, e in known for end in (e.lower, e.upper)], spec)
    first, last = points[0][0], points[-1][0]
    # a single point stands at the right end, where the newest always is
    x = svg.Scale(first if last > first else first - 1, last, PAD, WIDTH - PAD)
    y = svg.Scale(low, high, HEIGHT - PAD, PAD)
    time, latest = known[-1]
    title = (
        f"{label}, {format_clock(first)} to {format_clock(last)} UTC: "
        f"latest {format_value(latest.value, spec)}, "
        f"95 % interval {format_interval(latest.lower, latest.upper, spec)}; "
        f"scale {format_interval(low, high, spec)}"
    )
    shapes = [f"<title>{svg.safe(title)}</title>"]
    shapes += [svg.line("axis", 0, WIDTH, at, at) for at in (PAD, HEIGHT - PAD)]
    for run in svg.unbroken_runs(points, lambda point: point[1] is not None):
        places = [(x(t), y(e.value), y(e.lower), y(e.upper)) for t, e in run if e is not None]
        if len(places) > 1:
            shapes += svg.banded_line("trace", places)
            continue
        ((at, value, lower, upper),) = places
        shapes += [svg.line("whisker", at, at, lower, upper), svg.circle("dot", at, value, 1.5)]
    shapes.append(svg.circle("dot", x(time), y(latest.value), 2.2))
    for at, number in ((PAD + 3.5, high), (HEIGHT - PAD + 1.5, low)):
        shapes.append(svg.text("scale", WIDTH + 4, at, format_value(number, spec)))
    return svg.svg_element("spark", WIDTH + SCALE, HEIGHT, title, shapes)


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
