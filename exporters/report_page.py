"""The report as one HTML file with box plots as inline SVG.

Box plots as inline SVG: one lane for each run, so that long names can be read. No script.

Of a share of yes and no there is no box: its mean with the interval is all there is to see.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256

from ragmeter import __version__
from ragmeter.exporters.page.markup import CSS, Child, Markup, clip, el, one_line
from ragmeter.exporters.page.tables import scroll_box
from ragmeter.offline.report.comparison import RunComparison, describe_difference
from ragmeter.offline.report.run import RunSeries
from ragmeter.offline.report.summary import (
    ANSWERED,
    ReportColumn,
    ScoreReport,
    format_metric_value,
    metric_title,
)
from ragmeter.offline.report.tables import (
    comparison_caption,
    format_interval,
    format_median,
    format_p_value,
    format_quartiles,
    format_states,
    series_label,
)
from ragmeter.offline.report.tables import missing_values_line as missing_line

WIDTH, LEFT, RIGHT = 560, 150, 18
LANE_HEIGHT, TOP, FOOT = 44, 8, 26
BOX_HEIGHT = 20  # height of a box
MAX_LANE_NAME = 22  # characters of a run's name beside its lane
AXIS_TICKS = 5


@dataclass(frozen=True, slots=True)
class BoxPlotLane:
    name: str
    series: RunSeries


def axis_domain(lanes: Sequence[BoxPlotLane]) -> tuple[float, float]:
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


def describe_lane(lane: BoxPlotLane) -> str:
    """A lane in words: what a screen reader says and a browser shows."""
    series = lane.series
    spec, box, found = series.spec, series.box, series.estimate
    if found is None or box is None:
        return f"{lane.name}: nothing scored"
    text = (
        f"{lane.name}: n = {box.n:,}, mean {format_metric_value(found.value, spec)}, 95 % interval"
        f" {format_metric_value(found.lower, spec)} to {format_metric_value(found.upper, spec)}"
    )
    if spec.kind == "ratio":
        return text
    return (
        f"{text}, median {format_metric_value(box.median, spec)}, quartiles {format_metric_value(box.q1, spec)} and"
        f" {format_metric_value(box.q3, spec)}, whiskers {format_metric_value(box.low, spec)} and {format_metric_value(box.high, spec)},"
        f" {box.outside:,} outside"
    )


def draw_box_plots(heading: str, lanes: Sequence[BoxPlotLane]) -> Markup:
    """The lanes over one axis; at least one lane, all of one metric."""
    low, high = axis_domain(lanes)
    height = TOP + LANE_HEIGHT * len(lanes) + FOOT

    def x(value: float) -> float:
        share = (value - low) / (high - low)
        return LEFT + (WIDTH - LEFT - RIGHT) * min(1.0, max(0.0, share))

    shapes: list[Markup] = []
    spec = lanes[0].series.spec
    bottom = TOP + LANE_HEIGHT * len(lanes)
    for step in range(AXIS_TICKS):
        value = low + (high - low) * step / (AXIS_TICKS - 1)
        shapes.append(_line("grid", x(value), x(value), TOP, bottom))
        anchor = "end" if step == AXIS_TICKS - 1 else "middle"
        tick = f"{100 * value:g} %" if spec.kind == "ratio" else f"{value:.3g}"
        shapes.append(
            el("text", tick, x=f"{x(value):.1f}", y=bottom + 17, class_="tick", text_anchor=anchor)
        )
    for place, lane in enumerate(lanes):
        middle = TOP + LANE_HEIGHT * place + LANE_HEIGHT / 2
        shapes.append(el("g", el("title", describe_lane(lane)), list(_draw_lane(lane, middle, x))))
    label = f"{heading}. {'; '.join(map(describe_lane, lanes))}"
    return el(
        "svg", shapes, class_="boxes", role="img", aria_label=one_line(label, 2_000),
        viewBox=f"0 0 {WIDTH} {height}", width=WIDTH, height=height,
    )  # fmt: skip


def _line(kind: str, x1: float, x2: float, y1: float, y2: float) -> Markup:
    return el("line", class_=kind, x1=f"{x1:.1f}", x2=f"{x2:.1f}", y1=f"{y1:.1f}", y2=f"{y2:.1f}")


def _draw_lane(lane: BoxPlotLane, middle: float, x: Callable[[float], float]) -> Iterator[Markup]:
    series = lane.series
    box, found = series.box, series.estimate
    count = f"n = {box.n:,}" if box is not None else "nothing scored"
    yield el("text", one_line(lane.name, MAX_LANE_NAME), x=0, y=f"{middle - 2:.1f}", class_="run")
    yield el("text", count, x=0, y=f"{middle + 13:.1f}", class_="tick")
    if box is None or found is None:
        return
    top, bottom = middle - BOX_HEIGHT / 2, middle + BOX_HEIGHT / 2
    if series.spec.kind != "ratio":
        for value in box.outliers:
            yield el("circle", class_="outlier", cx=f"{x(value):.1f}", cy=f"{middle:.1f}", r="2.4")
        for start, end in ((box.low, box.q1), (box.q3, box.high)):
            yield _line("whisker", x(start), x(end), middle, middle)
        for end in (box.low, box.high):
            yield _line("whisker", x(end), x(end), middle - 5, middle + 5)
        wide = max(x(box.q3) - x(box.q1), 1.0)  # a box of no width is still one
        yield el("rect", class_="box", x=f"{x(box.q1):.1f}", y=f"{top:.1f}", width=f"{wide:.1f}",
                 height=BOX_HEIGHT)  # fmt: skip
        yield _line("median", x(box.median), x(box.median), top, bottom)
    yield _line("interval", x(found.lower), x(found.upper), middle, middle)
    at = x(found.value)
    yield el("path", class_="mean",
             d=f"M{at:.1f},{middle - 5:.1f} l5,5 l-5,5 l-5,-5 Z")  # fmt: skip


MAX_RUN_NAME = 80  # characters of a run's name or a trace's id
QUERY, ANSWER = 300, 700

STYLE = (
    CSS
    + """
.boxes{display:block;max-width:100%;height:auto;margin:6px 0 2px}
.boxes text{fill:var(--ink);font-size:12.5px}.boxes .tick{fill:var(--soft);font-size:11px}
.boxes .run{font-weight:600}
.boxes .grid{stroke:var(--hair)}
.boxes .whisker{stroke:var(--soft);stroke-width:1.2}
.boxes .box{fill:var(--band);stroke:var(--accent)}
.boxes .median{stroke:var(--ink);stroke-width:2.4}
.boxes .outlier{fill:none;stroke:var(--soft)}
.boxes .interval{stroke:var(--crit);stroke-width:3.4;stroke-opacity:.75}
.boxes .mean{fill:var(--crit);stroke:var(--panel);stroke-width:1}
.figures{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,460px),1fr));gap:12px;
margin-top:10px}
figure{margin:0;background:var(--panel);border:1px solid var(--rule);border-radius:3px;
padding:10px 14px;overflow-x:auto;break-inside:avoid-page}
figcaption{font-weight:600}figcaption small{color:var(--soft);font-weight:400;margin-left:6px}
.better{color:var(--good);font-weight:650}.worse{color:var(--crit);font-weight:650}
.answered{display:flex;flex-wrap:wrap;gap:10px 34px;margin-top:10px}
.answered b{font-size:22px}.answered small{display:block;color:var(--soft)}
"""
)
_HASH = "sha256-" + b64encode(sha256(STYLE.encode()).digest()).decode()

HOW = (
    ("Mean and interval: ", "the diamond and the line through it. The interval holds the mean over"
     " all traffic that the run stands for, with 95 % confidence; what should have a score and has"
     " none widens it by the worst and the best it could be."),
    ("Box: ", "from the first to the third quartile; the line across it is the median. Each score"
     " counts for as many traces as it stands for. Whiskers reach the furthest score within 1.5"
     " lengths of the box (Tukey); rings are scores beyond, at most 200 different ones."),
    ("n: ", "the scored traces. The table says what was not scored and why; that is never a 0."),
)  # fmt: skip


def render_report_page(report: ScoreReport) -> str:
    names = ", ".join(one_line(column.name, MAX_RUN_NAME) for column in report.columns)
    policy = f"default-src 'none'; style-src '{_HASH}'; base-uri 'none'; form-action 'none'"
    head = el(
        "head",
        el("meta", charset="utf-8"),
        el("meta", http_equiv="Content-Security-Policy", content=policy),
        el("meta", name="viewport", content="width=device-width, initial-scale=1"),
        el("meta", name="referrer", content="no-referrer"),
        el("title", f"{one_line(names, 200)} · ragmeter report"),
        el("style", Markup(STYLE)),
    )
    body = el(
        "body",
        el(
            "main",
            el("header", el("h1", "ragmeter report"), el("p", _report_facts(report), class_="soft"),
               class_="top"),
            list(_sections(report)),
            el("footer", [el("p", el("b", name), text) for name, text in HOW],
               el("p", f"ragmeter {__version__}")),
            class_="page",
        ),
    )  # fmt: skip
    return f"<!doctype html>\n{el('html', head, body, lang='en')}\n"


def _report_facts(report: ScoreReport) -> str:
    return "; ".join(
        f"{one_line(column.name, MAX_RUN_NAME)}: {column.traces:,} traces"
        + "".join(f" ({note})" for note in column.notes)
        for column in report.columns
    )


def _sections(report: ScoreReport) -> Iterator[Markup]:
    answered = list(_answered(report))
    if answered:
        yield el("section", el("h2", "Questions answered"), el("div", answered, class_="answered"))
    if len(report.columns) > 1:
        yield el(
            "section",
            el("h2", f"Difference from {one_line(report.columns[0].name, MAX_RUN_NAME)}"),
            scroll_box("Differences", _differences(report)),
            [el("p", line, class_="note") for line in comparison_caption(report)],
        )
    figures = [_figure(report, key) for key in report.keys]
    if figures:
        yield el("section", el("h2", "Scores"), el("div", figures, class_="figures"))
    missing = missing_line(report)
    yield el(
        "section",
        el("h2", "Numbers"),
        scroll_box("Numbers", _numbers(report)),
        el("p", missing, class_="note") if missing else None,
    )
    worst = list(_worst(report))
    if worst:
        yield el("section", el("h2", "Worst traces"), el("div", worst, class_="worst"))


def _answered(report: ScoreReport) -> Iterator[Markup]:
    for column in report.columns:
        for series in column.series:
            if series.metric == ANSWERED and series.estimate is not None:
                yield el(
                    "div",
                    el("b", format_metric_value(series.estimate.value, series.spec)),
                    " ",
                    one_line(column.name, MAX_RUN_NAME),
                    el("small", f"{format_interval(series)} · by {series.scorer}"),
                )


def _figure(report: ScoreReport, key: tuple[str, str]) -> Markup:
    lanes = [
        BoxPlotLane(one_line(column.name, MAX_RUN_NAME), series)
        for column in report.columns
        for series in column.find(key)
    ]
    spec = lanes[0].series.spec
    better = {"higher": "higher is better", "lower": "lower is better", None: ""}[spec.good]
    note = " · ".join(part for part in (key[1], better, spec.meaning) if part)
    return el(
        "figure",
        el("figcaption", metric_title(key[0]), el("small", note)),
        draw_box_plots(f"{metric_title(key[0])} by {key[1]}", lanes),
    )


def _row(cells: Sequence[Child], numeric: Sequence[int] = ()) -> Markup:
    return el(
        "tr",
        el("th", cells[0], scope="row", class_="name"),
        [
            cell
            if isinstance(cell, Markup) and cell.startswith("<td")
            else el("td", cell, class_="n" if at in numeric else None)
            for at, cell in enumerate(cells[1:], start=1)
        ],
    )


def _table(names: Sequence[str], rows: Sequence[Markup], numeric: Sequence[int]) -> Markup:
    head = [
        el("th", name, scope="col", class_="n" if at in numeric else None)
        for at, name in enumerate(names)
    ]
    return el("table", el("thead", el("tr", head)), el("tbody", rows), class_="stick")


def _differences(report: ScoreReport) -> Markup:
    names = ("Metric", "Run", "Difference", "95 % interval", "p", "Adjusted p", "Test", "Verdict")
    numeric = (2, 3, 4, 5)
    rows = []
    for key in report.keys:
        for series in report.columns[0].find(key):
            for at, column in enumerate(report.columns[1:], start=1):
                item = report.comparison(at, series)
                if item is not None:
                    cells = [
                        series_label(series),
                        one_line(column.name, MAX_RUN_NAME),
                        *_cells(item, series),
                    ]
                    rows.append(_row(cells, numeric))
    return _table(names, rows, numeric)


def _cells(item: RunComparison, series: RunSeries) -> list[Child]:
    word, spec = describe_difference(item, series.spec.good), series.spec
    said = el("td", word, class_=word if word in ("better", "worse") else "soft")
    if item.difference is None or item.lower is None or item.upper is None:
        return ["", "", "", "", "", said]
    test = f"paired, {item.pairs:,} pairs" if item.method == "paired" else item.method
    return [
        format_metric_value(item.difference, spec, True),
        f"{format_metric_value(item.lower, spec, True)} … {format_metric_value(item.upper, spec, True)}",
        format_p_value(item.p),
        format_p_value(item.adjusted),
        test,
        said,
    ]


def _numbers(report: ScoreReport) -> Markup:
    names = ("Metric", "Run", "Mean", "95 % interval", "Median", "Quartiles", "Traces")
    rows = []
    for key in report.keys:
        for column in report.columns:
            for series in column.find(key):
                mean = series.estimate and format_metric_value(series.estimate.value, series.spec)
                cells = [series_label(series), one_line(column.name, MAX_RUN_NAME), mean or "—", format_interval(series),
                         format_median(series), format_quartiles(series), format_states(series)]  # fmt: skip
                rows.append(_row(cells, (2, 3, 4, 5)))
    for column in report.columns:
        for stage, items in column.latency:
            for item in items:
                name = f"latency, {one_line(stage, 20)} p{100 * item.quantile:g}"
                around = ""
                if item.lower is not None and item.upper is not None:
                    around = f"{item.lower:.3g} … {item.upper:.3g} s"
                cells = [name, one_line(column.name, MAX_RUN_NAME), f"{item.value:.3g} s", around, "", "",
                         f"{item.samples:,} timed"]  # fmt: skip
                rows.append(_row(cells, (2, 3, 4, 5)))
    return _table(names, rows, (2, 3, 4, 5))


def _worst(report: ScoreReport) -> Iterator[Markup]:
    for key in report.keys:
        for column in report.columns:
            for series in column.find(key):
                if series.worst:
                    note = f"{series.scorer} · {one_line(column.name, MAX_RUN_NAME)}"
                    items = [_case(item.trace_id, format_metric_value(item.value, series.spec), column)
                             for item in series.worst]  # fmt: skip
                    head = el("summary", metric_title(key[0]), el("small", note))
                    yield el("details", head, items)


def _case(trace_id: str, value: str, column: ReportColumn) -> Markup:
    known = column.texts.get(trace_id)
    name = el("code", one_line(trace_id, MAX_RUN_NAME))
    if known is None:
        return el("div", el("b", value), " ", name, class_="case")
    return el(
        "details",
        el("summary", el("span", el("b", value), el("bdi", one_line(known.query, 160), class_="q"),
                         class_="line")),
        el(
            "div",
            _labelled("Trace", one_line(trace_id, 500)),
            _labelled("Question", clip(known.query, QUERY)),
            _labelled("Answer", clip(known.answer, ANSWER)),
            class_="case",
        ),
    )  # fmt: skip


def _labelled(name: str, text: str) -> Markup | None:
    if not text:
        return None
    return el("div", el("span", name, class_="label"), el("p", text, class_="text", dir="auto"))
