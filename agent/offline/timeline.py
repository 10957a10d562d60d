"""The timeline of a backtest as SVG: services and their alerts over event time.

Each alert has a lane with the estimate and its 95 % band, the threshold, and the spans in which
it was pending or fired. No script, no link, no font from elsewhere; all text is escaped. Every
coordinate has one decimal, so the same numbers give the same bytes.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from html import escape

from ragmeter.core.label_bounds import bound_label
from ragmeter.core.metric_specs import MetricSpec
from ragmeter.offline.backtest import EstimatePoint

WIDTH, GUTTER, RIGHT = 1160, 300, 80
PLOT = WIDTH - GUTTER - RIGHT
TOP, HEAD, LANE, PAD, FOOT = 58, 30, 76, 14, 30
BAR = 6  # height of the bar that says pending or firing
MAX_TEXT = 44
MAX_LANES = 100
MAX_SPANS = 500  # of one lane: more are finer than a pixel
LEAST_SPAN = 0.1  # of a bounded metric's range, as on the status page: noise must look small
TICKS = (1, 5, 15, 30, 60, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400, 172800,
         604800, 2592000, 7776000, 31536000, 315360000)  # fmt: skip
MAX_TICKS = 9

STYLE = """
svg{color-scheme:light dark;--bg:#fff;--ink:#1a1e23;--soft:#58616c;--rule:#d5d9dd;--hair:#e9ebed;
--accent:#0a5a94;--band:#0a5a9426;--critical:#b02f06;--warning:#7d5a00;background:var(--bg)}
@media (prefers-color-scheme:dark){svg{--bg:#181c21;--ink:#e4e7ea;--soft:#9aa4af;--rule:#353c44;
--hair:#262c33;--accent:#6cb6ee;--band:#6cb6ee33;--critical:#ff8a5c;--warning:#e3b94a}}
text{font:12px system-ui,-apple-system,"Segoe UI",Roboto,"Noto Sans","DejaVu Sans",sans-serif;
fill:var(--ink);font-variant-numeric:tabular-nums}
.title{font-size:17px;font-weight:650}.service{font-size:14px;font-weight:650}
.rule{font-weight:600}.soft{fill:var(--soft);font-size:11px}
.paper{fill:var(--bg)}.edge{stroke:var(--rule)}.tick{stroke:var(--hair)}
.band{fill:var(--band)}.line{fill:none;stroke:var(--accent);stroke-width:1.4;stroke-linejoin:round}
.dot{fill:var(--accent)}.whisker{stroke:var(--accent);stroke-opacity:.35;stroke-width:3}
.limit{stroke:var(--soft);stroke-dasharray:4 3}
.critical{--tone:var(--critical)}.warning{--tone:var(--warning)}
.word{fill:var(--tone);font-weight:600;font-size:11px}
.firing{fill:var(--tone)}.shade{fill:var(--tone);fill-opacity:.1}
.pending{fill:none;stroke:var(--tone)}
"""

_UNITS = ((86400, "d"), (3600, "h"), (60, "min"), (1, "s"))


@dataclass(frozen=True, slots=True)
class AlertSpan:
    """Pending since `pending`; firing from `fired` until `resolved`, None: at the end still.
    `title` is what a browser shows of it."""

    pending: float
    fired: float | None
    resolved: float | None
    title: str = ""


@dataclass(frozen=True, slots=True)
class TimelineLane:
    """One alert of one service. `spec` says how its numbers are written; None: seconds."""

    name: str
    severity: str
    about: str
    spans: Sequence[AlertSpan]
    points: Sequence[EstimatePoint] = ()
    threshold: float | None = None
    spec: MetricSpec | None = None
    seconds: bool = False


@dataclass(frozen=True, slots=True)
class Timeline:
    """`services` in the order they are drawn, each with its lanes; one without was quiet."""

    title: str
    start: float
    end: float
    services: Sequence[tuple[str, Sequence[TimelineLane]]]
    notes: Sequence[str] = field(default_factory=tuple)


def render_timeline(picture: Timeline) -> str:
    """The SVG file."""
    start, end = picture.start, max(picture.end, picture.start + 1.0)
    body: list[str] = []
    y, drawn, left_out = TOP, 0, 0
    for service, lanes in picture.services:
        shown = lanes[: max(0, MAX_LANES - drawn)]
        left_out += len(lanes) - len(shown)
        if lanes and not shown:
            continue
        drawn += max(1, len(shown))
        body.append(_line("edge", 0, WIDTH, y, y))
        body.append(_text(service, 12, y + 20, "service"))
        if not lanes:
            body.append(_text("no alert", GUTTER, y + 20, "soft"))
        y += HEAD
        for lane in shown:
            body += _lane(lane, y, start, end)
            y += LANE
    notes = list(picture.notes)
    if left_out:
        notes.append(f"{left_out} more alerts are not drawn")
    if not picture.services:
        notes.append("no trace in any window")
    height = y + FOOT + 16 * len(notes)
    ticks = list(_ticks(start, end, y))
    feet = [_text(note, 12, y + 18 + 16 * n, "soft", 200) for n, note in enumerate(notes)]
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" width="{WIDTH}" height="{height}"'
        f' viewBox="0 0 {WIDTH} {height}" aria-label="{_clean(picture.title, 200)}">'
    )
    parts = [
        '<?xml version="1.0" encoding="UTF-8"?>',
        head,
        f"<title>{_clean(picture.title, 200)}</title>",
        f"<style>{STYLE}</style>",
        f'<rect class="paper" width="{WIDTH}" height="{height}"/>',
        _text(picture.title, 12, 26, "title", 100),
        *ticks,
        *body,
        _line("edge", 0, WIDTH, y, y),
        *feet,
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _clean(text: str, limit: int = MAX_TEXT) -> str:
    """Text from outside: short, without control characters, escaped; always valid XML."""
    return escape("".join(c for c in bound_label(text, limit) if ord(c) & 0xFFFE != 0xFFFE))


def _text(
    text: str, x: float, y: float, kind: str, limit: int = MAX_TEXT, end: bool = False
) -> str:
    anchor = ' text-anchor="end"' if end else ""
    return f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}"{anchor}>{_clean(text, limit)}</text>'


def _line(kind: str, x1: float, x2: float, y1: float, y2: float) -> str:
    return f'<line class="{kind}" x1="{x1:.1f}" x2="{x2:.1f}" y1="{y1:.1f}" y2="{y2:.1f}"/>'


def _rect(kind: str, x1: float, x2: float, y: float, height: float) -> str:
    width = max(x2 - x1, 1.0)  # what was shorter than a pixel was there
    return (
        f'<rect class="{kind}" x="{x1:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}"/>'
    )


def _x_of(time: float, start: float, end: float) -> float:
    return GUTTER + PLOT * min(1.0, max(0.0, (time - start) / (end - start)))


def _lane(lane: TimelineLane, y: float, start: float, end: float) -> Iterator[str]:
    tone = "critical" if lane.severity == "critical" else "warning"
    bottom = y + LANE - PAD - BAR - 4
    yield f'<g class="{tone}">'
    yield _text(lane.name, 12, y + 18, "rule", 40)
    yield _text(lane.about, 12, y + 34, "soft", 48)
    yield _text(f"{lane.severity}, {_times(lane.spans)}", 12, y + 50, "word")
    for span in lane.spans[:MAX_SPANS]:
        yield from _span(span, y, bottom, start, end)
    yield from _estimate(lane, y + 4, bottom, start, end)
    yield "</g>"


def _times(spans: Sequence[AlertSpan]) -> str:
    fired = sum(span.fired is not None for span in spans)
    if not fired:
        return "pending at the end"
    return "fired once" if fired == 1 else f"fired {fired} times"


def _span(span: AlertSpan, y: float, bottom: float, start: float, end: float) -> Iterator[str]:
    begin = _x_of(span.pending, start, end)
    fired = end if span.fired is None else span.fired
    yield f"<g><title>{_clean(span.title, 500)}</title>"
    if fired > span.pending:
        yield _rect("pending", begin, _x_of(fired, start, end), bottom + 4.5, BAR - 1)
    if span.fired is not None:
        over = end if span.resolved is None else span.resolved
        x1, x2 = _x_of(span.fired, start, end), _x_of(over, start, end)
        yield _rect("shade", x1, x2, y, bottom + 4 - y)
        yield _rect("firing", x1, x2, bottom + 4, BAR)
    yield "</g>"


def _estimate(
    lane: TimelineLane, top: float, bottom: float, start: float, end: float
) -> Iterator[str]:
    known = [point for point in lane.points if not math.isnan(point[1])]
    numbers = [n for point in known for n in point[1:] if not math.isnan(n)]
    if lane.threshold is not None:
        numbers.append(lane.threshold)
    if not known:
        return
    low, high = _domain(numbers, lane.spec)

    def at(number: float) -> float:
        return bottom - (bottom - top) * min(1.0, max(0.0, (number - low) / (high - low)))

    if lane.threshold is not None:
        yield _line("limit", GUTTER, GUTTER + PLOT, at(lane.threshold), at(lane.threshold))
    for run in _unbroken_runs(lane.points):
        places = [(_x_of(time, start, end), *numbers) for time, *numbers in run]
        if len(places) == 1:
            x, value, lower, upper = places[0]
            if not (math.isnan(lower) or math.isnan(upper)):
                yield _line("whisker", x, x, at(lower), at(upper))
            yield f'<circle class="dot" cx="{x:.1f}" cy="{at(value):.1f}" r="1.6"/>'
            continue
        over = [
            f"{x:.1f},{at(_value_or_default(upper, value)):.1f}" for x, value, _, upper in places
        ]
        under = [
            f"{x:.1f},{at(_value_or_default(lower, value)):.1f}" for x, value, lower, _ in places
        ]
        yield f'<path class="band" d="M{" L".join([*over, *reversed(under)])}Z"/>'
        line = " ".join(f"{x:.1f},{at(value):.1f}" for x, value, *_ in places)
        yield f'<polyline class="line" points="{line}"/>'
    for number, place in ((high, top + 8), (low, bottom)):
        yield _text(_shown(number, lane), GUTTER + PLOT + 8, place, "soft")


def _value_or_default(number: float, other: float) -> float:
    return other if math.isnan(number) else number


def _domain(numbers: Sequence[float], spec: MetricSpec | None) -> tuple[float, float]:
    low, high = min(numbers), max(numbers)
    whole = spec.high - spec.low if spec is not None and spec.high is not None else None
    least = LEAST_SPAN * (abs(high) if whole is None else whole) or 1.0
    if high - low < least:
        middle = (low + high) / 2
        low, high = middle - least / 2, middle + least / 2
    if spec is None or spec.high is None:
        return low, high
    if low < spec.low:
        low, high = spec.low, max(high, spec.low + least)
    if high > spec.high:
        low, high = min(low, spec.high - least), spec.high
    return max(low, spec.low), high


def _unbroken_runs(points: Sequence[EstimatePoint]) -> Iterator[list[EstimatePoint]]:
    """Stretches without a gap."""
    run: list[EstimatePoint] = []
    for point in points:
        if not math.isnan(point[1]):
            run.append(point)
        elif run:
            yield run
            run = []
    if run:
        yield run


def _shown(number: float, lane: TimelineLane) -> str:
    if lane.seconds:
        return f"{number:.3g} s"
    if lane.spec is not None and lane.spec.kind == "ratio":
        return f"{100 * number:.1f} %"
    return (
        f"{number:.2f}" if lane.spec is not None and lane.spec.high is not None else f"{number:.4g}"
    )


def _ticks(start: float, end: float, bottom: float) -> Iterator[str]:
    """Whole hours, days and the like of UTC, with their labels on top."""
    step = next((s for s in TICKS if (end - start) / s <= MAX_TICKS), TICKS[-1])
    form = "%Y-%m-%d" if step >= 86400 else "%H:%M" if step >= 60 else "%H:%M:%S"
    day = ""
    for number in range(math.ceil(start / step), math.floor(end / step) + 1):
        x, moment = _x_of(number * step, start, end), datetime.fromtimestamp(number * step, UTC)
        yield _line("tick", x, x, TOP - 4, bottom)
        label = moment.strftime(form)
        if step < 86400 and (date := moment.strftime("%m-%d ")) != day:
            label, day = date + label, date
        yield f'<text class="soft" x="{x:.1f}" y="{TOP - 10}" text-anchor="middle">{label}</text>'
