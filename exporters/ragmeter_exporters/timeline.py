"""The timeline of a backtest as an SVG file: services and their alerts over event time.

Each alert has a lane with the estimate and its 95 % band, the threshold, and the spans in which it
was pending or fired. The file has no script, no link and no font from elsewhere.
"""

from __future__ import annotations

import math
from typing import Any

from ragmeter.core.label_bounds import bound_label
from ragmeter.offline.backtest_report import Timeline, TimelineLane, alert_times

from ragmeter_exporters import svg
from ragmeter_exporters.page.rendering import load_style_sheet, render

WIDTH, GUTTER, RIGHT = 1160, 300, 80
PLOT = WIDTH - GUTTER - RIGHT
TOP, HEAD, LANE, PAD, FOOT = 58, 30, 76, 14, 30
BAR = 6  # height of the bar that shows pending or firing
MAX_TEXT = 44
MAX_LANES = 100
MAX_SPANS = 500  # of one lane: more are finer than a pixel
MAX_TICKS = 9


def render_timeline(timeline: Timeline) -> str:
    """Render the SVG file; the same timeline gives the same bytes."""
    x = svg.Scale(timeline.start, max(timeline.end, timeline.start + 1.0), GUTTER, GUTTER + PLOT)
    y = TOP
    drawn = 0
    left_out = 0
    services = []
    for service, lanes in timeline.services:
        shown = lanes[: max(0, MAX_LANES - drawn)]
        left_out += len(lanes) - len(shown)
        if lanes and not shown:
            continue
        drawn += max(1, len(shown))
        places = [y + HEAD + LANE * number for number in range(len(shown))]
        plots = [_plot(lane, at, x) for lane, at in zip(shown, places, strict=True)]
        services.append((service, y, list(zip(shown, places, plots, strict=True))))
        y += HEAD + LANE * len(shown)
    notes = list(timeline.notes)
    if left_out:
        notes.append(f"{left_out} more alerts are not drawn")
    if not timeline.services:
        notes.append("no trace in any window")
    return render(
        "timeline.svg",
        clean=_clean,
        hint=lambda alert: _clean("; ".join([*alert_times(alert), alert.summary]), 500),
        css=load_style_sheet("timeline.css").css,
        title=timeline.title,
        services=services,
        notes=notes,
        ticks=list(svg.time_ticks(x, MAX_TICKS)),
        x=x,
        bottom=y,
        left=GUTTER,
        right=GUTTER + PLOT,
        width=WIDTH,
        top=TOP,
        bar=BAR,
        depth=LANE - PAD - BAR - 4,
        max_spans=MAX_SPANS,
    )


def _clean(text: str, limit: int = MAX_TEXT) -> str:
    """Bound a text from outside and drop the characters that XML forbids."""
    return "".join(char for char in bound_label(text, limit) if ord(char) & 0xFFFE != 0xFFFE)


def _plot(lane: TimelineLane, top: float, x: svg.Scale) -> dict[str, Any] | None:
    """Place the estimates of a lane in pixels; None if there is none."""
    known = [point for point in lane.points if not math.isnan(point[1])]
    if not known:
        return None
    numbers = [n for point in known for n in point[1:] if not math.isnan(n)]
    if lane.threshold is not None:
        numbers.append(lane.threshold)
    low, high = svg.fit_domain(numbers, lane.spec)
    y = svg.Scale(low, high, top + LANE - PAD - BAR - 4, top + 4)
    runs = [
        # Without an interval the band has no height.
        [(x(at), y(v), *(y(v if math.isnan(n) else n) for n in ends)) for at, v, *ends in run]
        for run in svg.unbroken_runs(lane.points, lambda point: not math.isnan(point[1]))
    ]
    return {
        "limit": None if lane.threshold is None else y(lane.threshold),
        "lines": [svg.band_and_line(run) for run in runs if len(run) > 1],
        "lone": [run[0] for run in runs if len(run) == 1],
        "ends": [(_number(high, lane), top + 12), (_number(low, lane), y.start)],
    }


def _number(number: float, lane: TimelineLane) -> str:
    if lane.seconds:
        return f"{number:.3g} s"
    spec = lane.spec
    if spec is not None and spec.kind == "ratio":
        return f"{100 * number:.1f} %"
    return f"{number:.2f}" if spec is not None and spec.high is not None else f"{number:.4g}"
