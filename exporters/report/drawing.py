"""Box plots as inline SVG: one lane for each run, so that long names can be read. No script.

Of a share of yes and no there is no box: its mean with the interval is all there is to see.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from agent.report.run import Series
from agent.report.summary import number
from exporters.page.markup import Markup, el, one_line

__all__ = ["AXIS_TICKS", "Lane", "domain", "drawing", "told"]

WIDTH, LEFT, RIGHT = 560, 150, 18
LANE, TOP, FOOT = 44, 8, 26
BOX = 20  # height of a box
NAME = 22  # characters of a run's name beside its lane
AXIS_TICKS = 5


@dataclass(frozen=True, slots=True)
class Lane:
    name: str
    series: Series


def domain(lanes: Sequence[Lane]) -> tuple[float, float]:
    """The ends of the axis that all lanes share: what the metric can be, and where it has no bound
    what was seen."""
    spec = lanes[0].series.spec
    if spec.high is not None:
        return spec.low, spec.high
    seen = [spec.low]
    for lane in lanes:
        box, found = lane.series.box, lane.series.estimate
        if box is not None:
            seen += [box.high, *box.outliers]
        if found is not None:
            seen.append(found.upper)
    return spec.low, max(seen) * 1.04 or 1.0


def told(lane: Lane) -> str:
    """A lane in words: what a screen reader says and a browser shows."""
    series = lane.series
    spec, box, found = series.spec, series.box, series.estimate
    if found is None or box is None:
        return f"{lane.name}: nothing scored"
    text = (
        f"{lane.name}: n = {box.n:,}, mean {number(found.value, spec)}, 95 % interval"
        f" {number(found.lower, spec)} to {number(found.upper, spec)}"
    )
    if spec.kind == "ratio":
        return text
    return (
        f"{text}, median {number(box.median, spec)}, quartiles {number(box.q1, spec)} and"
        f" {number(box.q3, spec)}, whiskers {number(box.low, spec)} and {number(box.high, spec)},"
        f" {box.outside:,} outside"
    )


def drawing(heading: str, lanes: Sequence[Lane]) -> Markup:
    """The lanes over one axis; at least one lane, all of one metric."""
    low, high = domain(lanes)
    height = TOP + LANE * len(lanes) + FOOT

    def x(value: float) -> float:
        share = (value - low) / (high - low)
        return LEFT + (WIDTH - LEFT - RIGHT) * min(1.0, max(0.0, share))

    shapes: list[Markup] = []
    spec = lanes[0].series.spec
    bottom = TOP + LANE * len(lanes)
    for step in range(AXIS_TICKS):
        value = low + (high - low) * step / (AXIS_TICKS - 1)
        shapes.append(_line("grid", x(value), x(value), TOP, bottom))
        anchor = "end" if step == AXIS_TICKS - 1 else "middle"
        tick = f"{100 * value:g} %" if spec.kind == "ratio" else f"{value:.3g}"
        shapes.append(
            el("text", tick, x=f"{x(value):.1f}", y=bottom + 17, class_="tick", text_anchor=anchor)
        )
    for place, lane in enumerate(lanes):
        middle = TOP + LANE * place + LANE / 2
        shapes.append(el("g", el("title", told(lane)), list(_lane(lane, middle, x))))
    label = f"{heading}. {'; '.join(map(told, lanes))}"
    return el(
        "svg", shapes, class_="boxes", role="img", aria_label=one_line(label, 2_000),
        viewBox=f"0 0 {WIDTH} {height}", width=WIDTH, height=height,
    )  # fmt: skip


def _line(kind: str, x1: float, x2: float, y1: float, y2: float) -> Markup:
    return el("line", class_=kind, x1=f"{x1:.1f}", x2=f"{x2:.1f}", y1=f"{y1:.1f}", y2=f"{y2:.1f}")


def _lane(lane: Lane, middle: float, x: Callable[[float], float]) -> Iterator[Markup]:
    series = lane.series
    box, found = series.box, series.estimate
    count = f"n = {box.n:,}" if box is not None else "nothing scored"
    yield el("text", one_line(lane.name, NAME), x=0, y=f"{middle - 2:.1f}", class_="run")
    yield el("text", count, x=0, y=f"{middle + 13:.1f}", class_="tick")
    if box is None or found is None:
        return
    top, bottom = middle - BOX / 2, middle + BOX / 2
    if series.spec.kind != "ratio":
        for value in box.outliers:
            yield el("circle", class_="outlier", cx=f"{x(value):.1f}", cy=f"{middle:.1f}", r="2.4")
        for start, end in ((box.low, box.q1), (box.q3, box.high)):
            yield _line("whisker", x(start), x(end), middle, middle)
        for end in (box.low, box.high):
            yield _line("whisker", x(end), x(end), middle - 5, middle + 5)
        wide = max(x(box.q3) - x(box.q1), 1.0)  # a box of no width is still one
        yield el("rect", class_="box", x=f"{x(box.q1):.1f}", y=f"{top:.1f}", width=f"{wide:.1f}",
                 height=BOX)  # fmt: skip
        yield _line("median", x(box.median), x(box.median), top, bottom)
    yield _line("interval", x(found.lower), x(found.upper), middle, middle)
    at = x(found.value)
    yield el("path", class_="mean",
             d=f"M{at:.1f},{middle - 5:.1f} l5,5 l-5,5 l-5,-5 Z")  # fmt: skip
