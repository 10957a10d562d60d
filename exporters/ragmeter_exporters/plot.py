"""Estimates over time as a chart: their places in pixels, for the template that draws them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ragmeter.core.metric_specs import MetricSpec
from ragmeter.windows.series import Estimate

from ragmeter_exporters.page.numbers import (
    format_clock,
    format_interval,
    format_seconds,
    format_seconds_interval,
    format_value,
)
from ragmeter_exporters.svg import Scale, band_and_line, fit_domain, unbroken_runs

Point = tuple[float, "Estimate | None"]


@dataclass(frozen=True, slots=True)
class Plot:
    """Estimates over time in pixels, for the template that draws them.

    Args:
        label: Names the series and its latest estimate to screen readers.
        lines: (path of the band, points of the line) of each unbroken run.
        lone: (x, y of the value, of the lower and of the upper end) of points without neighbours.
        columns: (left, width, words) over each estimate.
        latest: Where the newest estimate is.
    """

    label: str
    x: Scale
    y: Scale
    lines: list[tuple[str, str]]
    lone: list[tuple[float, float, float, float]]
    columns: list[tuple[float, float, str]]
    latest: tuple[float, float]


def plot(
    points: Sequence[Point],
    spec: MetricSpec | None,
    label: str,
    across: tuple[float, float],
    upward: tuple[float, float],
) -> Plot | None:
    """Place estimates in the pixels `across` and `upward`; None if there is none.

    Points come in order of Unix time, without an estimate where the evidence is not enough: gaps
    stay gaps. Without a spec the values are seconds.
    """
    known = [(time, estimate) for time, estimate in points if estimate is not None]
    if not known:
        return None
    first, last = points[0][0], points[-1][0]
    # a single point stands at the right end, where the newest always is
    x = Scale(first if last > first else first - 1, last, *across)
    y = Scale(*fit_domain([end for _, e in known for end in (e.lower, e.upper)], spec), *upward)
    runs = [
        [(x(time), y(e.value), y(e.lower), y(e.upper)) for time, e in run if e is not None]
        for run in unbroken_runs(points, lambda point: point[1] is not None)
    ]
    half = (x.end - x.start) / max(1, len(points) - 1) / 2
    texts = [
        f"{format_clock(time, last - first)} UTC: {format_point(e.value, spec)}"
        f" ({_format_band(e.lower, e.upper, spec)}), {e.samples:,} traces"
        for time, e in known
    ]
    return Plot(
        label=f"{label}, latest {texts[-1]}; scale {_format_band(y.low, y.high, spec)}",
        x=x,
        y=y,
        lines=[band_and_line(run) for run in runs if len(run) > 1],
        lone=[run[0] for run in runs if len(run) == 1],
        columns=[
            (x(time) - half, 2 * half, text) for (time, _), text in zip(known, texts, strict=True)
        ],
        latest=(x(known[-1][0]), y(known[-1][1].value)),
    )


def format_point(number: float, spec: MetricSpec | None) -> str:
    """Format a value of a chart."""
    return format_seconds(number) if spec is None else format_value(number, spec)


def _format_band(lower: float, upper: float, spec: MetricSpec | None) -> str:
    if spec is None:
        return format_seconds_interval(lower, upper)
    return format_interval(lower, upper, spec)
