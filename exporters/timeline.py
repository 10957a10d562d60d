"""The timeline of a backtest as an SVG file: services and their alerts over event time.

Each alert has a lane with the estimate and its 95 % band, the threshold, and the spans in which it
was pending or fired. The file has no script, no link and no font from elsewhere.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from ragmeter.core.label_bounds import bound_label
from ragmeter.exporters import svg
from ragmeter.exporters.page.rendering import load_style_sheet
from ragmeter.offline.backtest_report import AlertSpan, Timeline, TimelineLane

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
    body: list[str] = []
    y, drawn, left_out = TOP, 0, 0
    for service, lanes in timeline.services:
        shown = lanes[: max(0, MAX_LANES - drawn)]
        left_out += len(lanes) - len(shown)
        if lanes and not shown:
            continue
        drawn += max(1, len(shown))
        body.append(svg.line("edge", 0, WIDTH, y, y))
        body.append(_text("service", 12, y + 20, service))
        if not lanes:
            body.append(_text("soft", GUTTER, y + 20, "no alert"))
        y += HEAD
        for lane in shown:
            body += _lane(lane, y, x)
            y += LANE
    notes = list(timeline.notes)
    if left_out:
        notes.append(f"{left_out} more alerts are not drawn")
    if not timeline.services:
        notes.append("no trace in any window")
    height = y + FOOT + 16 * len(notes)
    title = svg.safe(_clean(timeline.title, 200))
    parts = [
        '<?xml version="1.0" encoding="UTF-8"?>',
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" width="{WIDTH}" height="{height}"'
        f' viewBox="0 0 {WIDTH} {height}" aria-label="{title}">',
        f"<title>{title}</title>",
        f"<style>\n{load_style_sheet('timeline.css').css}</style>",
        f'<rect class="paper" width="{WIDTH}" height="{height}"/>',
        _text("title", 12, 26, timeline.title, 100),
        *_ticks(x, y),
        *body,
        svg.line("edge", 0, WIDTH, y, y),
        *(_text("soft", 12, y + 18 + 16 * n, note, 200) for n, note in enumerate(notes)),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _clean(text: str, limit: int = MAX_TEXT) -> str:
    """Bound a text from outside and drop the characters that XML forbids."""
    return "".join(char for char in bound_label(text, limit) if ord(char) & 0xFFFE != 0xFFFE)


def _text(kind: str, x: float, y: float, content: str, limit: int = MAX_TEXT) -> str:
    return svg.text(kind, x, y, _clean(content, limit))


def _lane(lane: TimelineLane, y: float, x: svg.Scale) -> Iterator[str]:
    tone = "critical" if lane.severity == "critical" else "warning"
    bottom = y + LANE - PAD - BAR - 4
    yield f'<g class="{tone}">'
    yield _text("rule", 12, y + 18, lane.name, 40)
    yield _text("soft", 12, y + 34, lane.about, 48)
    yield _text("word", 12, y + 50, f"{lane.severity}, {_fired_words(lane.spans)}")
    for span in lane.spans[:MAX_SPANS]:
        yield from _span(span, y, bottom, x)
    yield from _estimate(lane, y + 4, bottom, x)
    yield "</g>"


def _fired_words(spans: Sequence[AlertSpan]) -> str:
    fired = sum(span.fired is not None for span in spans)
    if not fired:
        return "pending at the end"
    return "fired once" if fired == 1 else f"fired {fired} times"


def _span(span: AlertSpan, y: float, bottom: float, x: svg.Scale) -> Iterator[str]:
    fired = x.high if span.fired is None else span.fired
    yield f"<g><title>{svg.safe(_clean(span.title, 500))}</title>"
    if fired > span.pending:
        yield svg.rect("pending", x(span.pending), x(fired), bottom + 4.5, BAR - 1)
    if span.fired is not None:
        end = x(x.high if span.resolved is None else span.resolved)
        yield svg.rect("shade", x(span.fired), end, y, bottom + 4 - y)
        yield svg.rect("firing", x(span.fired), end, bottom + 4, BAR)
    yield "</g>"


def _estimate(lane: TimelineLane, top: float, bottom: float, x: svg.Scale) -> Iterator[str]:
    known = [point for point in lane.points if not math.isnan(point[1])]
    if not known:
        return
    numbers = [n for point in known for n in point[1:] if not math.isnan(n)]
    if lane.threshold is not None:
        numbers.append(lane.threshold)
    low, high = svg.fit_domain(numbers, lane.spec)
    y = svg.Scale(low, high, bottom, top)
    if lane.threshold is not None:
        limit = y(lane.threshold)
        yield svg.line("limit", GUTTER, GUTTER + PLOT, limit, limit)
    for run in svg.unbroken_runs(lane.points, lambda point: not math.isnan(point[1])):
        if len(run) > 1:
            # Without an interval the band has no height.
            band, course = svg.band_and_line(
                [
                    (
                        x(time),
                        y(value),
                        y(value if math.isnan(lower) else lower),
                        y(value if math.isnan(upper) else upper),
                    )
                    for time, value, lower, upper in run
                ]
            )
            yield f'<path class="band" d="{band}"/><polyline class="line" points="{course}"/>'
            continue
        ((time, value, lower, upper),) = run
        if not (math.isnan(lower) or math.isnan(upper)):
            yield svg.line("whisker", x(time), x(time), y(lower), y(upper))
        yield svg.circle("dot", x(time), y(value), 1.6)
    for number, baseline in ((high, top + 8), (low, bottom)):
        yield _text("soft", GUTTER + PLOT + 8, baseline, _number(number, lane))


def _number(number: float, lane: TimelineLane) -> str:
    if lane.seconds:
        return f"{number:.3g} s"
    spec = lane.spec
    if spec is not None and spec.kind == "ratio":
        return f"{100 * number:.1f} %"
    return f"{number:.2f}" if spec is not None and spec.high is not None else f"{number:.4g}"


def _ticks(x: svg.Scale, bottom: float) -> Iterator[str]:
    """Draw whole hours, days and the like of UTC, with their labels on top."""
    for time, label in svg.time_ticks(x, MAX_TICKS):
        yield svg.line("tick", x(time), x(time), TOP - 4, bottom)
        yield svg.text("soft", x(time), TOP - 10, label, "middle")
