"""Estimates over time as a chart: their places in pixels, for the template that draws them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from ragmeter.core.metric_specs import MetricSpec
from ragmeter.metrics.registry import metric_specs
from ragmeter.parts.answer_texts import THOUSAND, format_number, format_range
from ragmeter.parts.views import Answer, Level
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


class Drawn(Protocol):
    """What a point of a chart has: a value and its interval, whose upper end may be unknown."""

    @property
    def value(self) -> float:
        """The value."""

    @property
    def lower(self) -> float:
        """The lower end."""

    @property
    def upper(self) -> float | None:
        """The upper end."""


_DrawnT = TypeVar("_DrawnT", bound=Drawn)


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

    def describe(estimate: Estimate) -> str:
        band = _format_band(estimate.lower, estimate.upper, spec)
        return f"{format_point(estimate.value, spec)} ({band}), {estimate.samples:,} traces"

    ends = [end for _, e in points if e is not None for end in (e.lower, e.upper)]
    if not ends:
        return None
    low, high = fit_domain(ends, spec)
    return _place(
        points=points,
        describe=describe,
        label=label,
        scale=_format_band(low, high, spec),
        across=across,
        y=Scale(low, high, *upward),
    )


def plot_question(
    points: Sequence[tuple[float, Level | None]],
    answer: Answer,
    label: str,
    across: tuple[float, float],
    upward: tuple[float, float],
    also: Sequence[float | None] = (),
) -> Plot | None:
    """Place the levels of a question; the axis shows the values `also` (a goal) too."""

    def describe(level: Level) -> str:
        number = format_number(answer, level.value)
        return f"{number} ({format_range(answer, level)}), based on {level.samples:,}"

    numbers = [value for value in also if value is not None]
    for _, level in points:
        if level is not None:
            numbers += [level.value, level.lower, _top(level)]
    if all(level is None for _, level in points):
        return None
    spec = {"share": metric_specs()["error"], "usd": metric_specs()["cost_usd"], "seconds": None}
    low, high = fit_domain(numbers, spec[answer.unit])
    return _place(
        points=points,
        describe=describe,
        label=label,
        scale=f"{format_tick(answer, low)} to {format_tick(answer, high)}",
        across=across,
        y=Scale(low, high, *upward),
    )


def format_tick(answer: Answer, value: float) -> str:
    """Format a value on the axis of a question."""
    if answer.unit == "seconds":
        return format_seconds(value)
    if answer.unit == "usd":
        return f"${THOUSAND * value:.3g}"
    return f"{100 * value:.3g}\u202f%"


def _top(point: Drawn) -> float:
    return point.value if point.upper is None else point.upper


def _place(
    *,
    points: Sequence[tuple[float, _DrawnT | None]],
    describe: Callable[[_DrawnT], str],
    label: str,
    scale: str,
    across: tuple[float, float],
    y: Scale,
) -> Plot:
    known = [(time, point) for time, point in points if point is not None]
    first, last = points[0][0], points[-1][0]
    # a single point stands at the right end, where the newest always is
    x = Scale(first if last > first else first - 1, last, *across)
    runs = [
        [(x(time), y(e.value), y(e.lower), y(_top(e))) for time, e in run if e is not None]
        for run in unbroken_runs(points, lambda point: point[1] is not None)
    ]
    half = (x.end - x.start) / max(1, len(points) - 1) / 2
    texts = [f"{format_clock(time, last - first)} UTC: {describe(point)}" for time, point in known]
    return Plot(
        label=f"{label}, latest {texts[-1]}; scale {scale}",
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
