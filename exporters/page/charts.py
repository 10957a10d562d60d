"""Sparklines of pooled estimates as inline SVG.

Fewer, better known points for a sparkline of little traffic.

A minute with two traces says nothing, and sixty such minutes draw noise. Neighbours are pooled
until each point has enough traces.

The sparkline: estimates over time with their 95 % interval as a band. Inline SVG, no script.

Colours come from classes of the page's style, so that one drawing serves light, dark and print.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import sqrt
from typing import TYPE_CHECKING, Literal

from ragmeter.core.metric_specs import MetricSpec
from ragmeter.exporters.page.markup import Markup, el
from ragmeter.exporters.page.numbers import format_clock, format_interval, format_value

if TYPE_CHECKING:
    from ragmeter.windows.series import Estimate

_Z = 1.959963984540054
ENOUGH = 20  # traces of a point, on average: a share is then known to some 20 points either way
LEAST = 12  # points; with fewer there is no course to see

Point = tuple[float, "Estimate | None"]


def pool_points(points: Sequence[Point], kind: Literal["mean", "ratio"]) -> list[Point]:
    """Groups of equally many neighbours, as few as give `ENOUGH` traces a group on average.

    A group's value is the mean of its parts, weighted by effective samples. Its interval: for a
    ratio Wilson's, on the sum of effective samples; for a mean from the variances that the parts'
    intervals imply, ((upper - lower) / 2z)^2, which errs on the wide side as those were
    t intervals.
    """
    samples = sum(found.samples for _, found in points if found is not None)
    if not samples:
        return list(points)
    wanted = max(LEAST, min(len(points), samples // ENOUGH))
    size = max(1, -(-len(points) // wanted))
    if size == 1:
        return list(points)
    groups = []
    # Counted from the end, so that the newest group is whole.
    for end in range(len(points), 0, -size):
        part = points[max(0, end - size) : end]
        groups.append((part[-1][0], _pool([found for _, found in part if found], kind)))
    return groups[::-1]


def _pool(parts: Sequence[Estimate], kind: str) -> Estimate | None:
    if len(parts) < 2:
        return parts[0] if parts else None
    weights = [part.effective_samples for part in parts]
    n = sum(weights)
    value = sum(w * part.value for w, part in zip(weights, parts, strict=True)) / n
    if kind == "ratio":
        lower, upper = _wilson(value, n)
    else:
        halves = [(part.upper - part.lower) / 2 for part in parts]
        half = sqrt(sum((w * h) ** 2 for w, h in zip(weights, halves, strict=True))) / n
        lower = max(value - half, min(part.lower for part in parts))
        upper = min(value + half, max(part.upper for part in parts))
    samples = sum(part.samples for part in parts)
    return replace(
        parts[-1], value=value, lower=lower, upper=upper, effective_samples=n, samples=samples
    )


def _wilson(p: float, n: float) -> tuple[float, float]:
    """Wilson 1927, "Probable inference, the law of succession, and statistical inference"."""
    middle = (p + _Z * _Z / (2 * n)) / (1 + _Z * _Z / n)
    half = _Z / (1 + _Z * _Z / n) * sqrt(p * (1 - p) / n + _Z * _Z / (4 * n * n))
    return max(0.0, middle - half), min(1.0, middle + half)


WIDTH, HEIGHT = 132, 34
PAD = 3  # room for the dot of the last point
SCALE = 44  # room for the two numbers of the scale
# A chart never shows less than this share of a bounded metric's range: noise must look small.
LEAST_SPAN = 0.1


def sparkline(points: Sequence[Point], spec: MetricSpec, label: str) -> Markup | None:
    """None where no point has enough evidence. Gaps stay gaps; a lone point is a whisker."""
    points = pool_points(points, spec.kind)
    known = [found for _, found in points if found is not None]
    if not known:
        return None
    low, high = _domain(known, spec)
    first, last = points[0][0], points[-1][0]
    width = (last - first) or 1.0

    def x(time: float) -> float:
        return PAD + (WIDTH - 2 * PAD) * ((time - first) / width if last > first else 1.0)

    def y(number: float) -> float:
        share = (number - low) / (high - low)
        return HEIGHT - PAD - (HEIGHT - 2 * PAD) * min(1.0, max(0.0, share))

    shapes: list[Markup] = [
        el("line", x1=0, x2=WIDTH, y1=at, y2=at, class_="axis") for at in (PAD, HEIGHT - PAD)
    ]
    for run in _runs(points):
        if len(run) == 1:
            time, found = run[0]
            shapes.append(
                el("line", class_="whisker", x1=f"{x(time):.1f}", x2=f"{x(time):.1f}",
                   y1=f"{y(found.lower):.1f}", y2=f"{y(found.upper):.1f}")
            )  # fmt: skip
            shapes.append(el("circle", class_="dot", cx=f"{x(time):.1f}",
                             cy=f"{y(found.value):.1f}", r="1.5"))  # fmt: skip
            continue
        over = [f"{x(time):.1f},{y(found.upper):.1f}" for time, found in run]
        under = [f"{x(time):.1f},{y(found.lower):.1f}" for time, found in reversed(run)]
        shapes.append(el("path", class_="band", d=f"M{' L'.join(over + under)}Z"))
        line = " ".join(f"{x(time):.1f},{y(found.value):.1f}" for time, found in run)
        shapes.append(el("polyline", class_="trace", points=line))
    time, latest = next((t, e) for t, e in reversed(points) if e is not None)
    shapes.append(
        el("circle", class_="dot", cx=f"{x(time):.1f}", cy=f"{y(latest.value):.1f}", r="2.2")
    )
    for at, number in ((PAD + 3.5, high), (HEIGHT - PAD + 1.5, low)):
        shapes.append(el("text", format_value(number, spec), x=WIDTH + 4, y=at, class_="scale"))
    title = (
        f"{label}, {format_clock(first)} to {format_clock(last)} UTC: latest {format_value(latest.value, spec)}, "
        f"95 % interval {format_interval(latest.lower, latest.upper, spec)}; "
        f"scale {format_interval(low, high, spec)}"
    )
    return el(
        "svg", el("title", title), shapes, class_="spark", role="img", aria_label=title,
        viewBox=f"0 0 {WIDTH + SCALE} {HEIGHT}", width=WIDTH + SCALE, height=HEIGHT,
    )  # fmt: skip


def _domain(known: Sequence[Estimate], spec: MetricSpec) -> tuple[float, float]:
    low = min(found.lower for found in known)
    high = max(found.upper for found in known)
    whole = high - low if spec.high is None else spec.high - spec.low
    least = LEAST_SPAN * (whole if spec.high is not None else abs(high)) or 1.0
    if high - low < least:
        middle = (low + high) / 2
        low, high = middle - least / 2, middle + least / 2
    # Keep the span when the range pushes back.
    if low < spec.low:
        low, high = spec.low, max(high, spec.low + least)
    if spec.high is not None and high > spec.high:
        low, high = min(low, spec.high - least), spec.high
    return max(low, spec.low), high


def _runs(points: Sequence[Point]) -> Iterator[list[tuple[float, Estimate]]]:
    run: list[tuple[float, Estimate]] = []
    for time, found in points:
        if found is not None:
            run.append((time, found))
        elif run:
            yield run
            run = []
    if run:
        yield run
