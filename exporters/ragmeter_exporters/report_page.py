"""The report as one HTML file without scripts, with box plots as inline SVG.

A share of yes and no has no box: its mean with the interval is all that it can show.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup
from ragmeter import __version__
from ragmeter.offline.report import tables
from ragmeter.offline.report.run import RunSeries, WorstScore
from ragmeter.offline.report.summary import (
    ReportColumn,
    ScoreReport,
    format_metric_value,
    metric_title,
    report_headline,
    report_title,
)
from ragmeter.windows.people_agreement import AGREEMENT_COLUMNS, AGREEMENT_NOTE

from ragmeter_exporters import svg
from ragmeter_exporters.page.rendering import load_style_sheet, render
from ragmeter_exporters.page.texts import clip, one_line
from ragmeter_exporters.page.traces import TextBlock, evidence_note, mark_answer

WIDTH = 560
LEFT = 150
RIGHT = 18
MAX_LANE_NAME = 22  # characters of a run's name beside its lane
AXIS_TICKS = 5
MAX_NAME = 80  # characters of a run's name or a trace's id
# Characters of a worst trace.
QUESTION = 300
ANSWER = 700


@dataclass(frozen=True, slots=True)
class BoxPlotLane:
    """The scores of one run in a picture of several."""

    name: str
    series: RunSeries


def render_report_page(report: ScoreReport) -> str:
    """Render the whole page."""
    title = one_line(report_title(report), 200)
    facts = (
        f"{one_line(column.run.name, MAX_NAME)}: {tables.describe_traces(column.run)}"
        + "".join(f" ({note})" for note in column.run.notes)
        for column in report.columns
    )
    return render(
        "report.html",
        title=f"{title} · ragmeter report",
        heading=title,
        style=(style := load_style_sheet("style.css", "report.css")),
        css=style.css,
        facts="; ".join(facts),
        headline=report_headline(report),
        question_columns=_headings(tables.question_columns(report)),
        questions=tables.question_rows(report),
        group_columns=_headings(tables.GROUP_COLUMNS),
        groups=[
            (one_line(column.run.name, MAX_NAME), tables.group_rows(column.groups))
            for column in report.columns
            if column.groups
        ],
        repeat_columns=_headings(tables.REPEAT_COLUMNS),
        repeated=tables.repeat_rows(report),
        hidden=tables.hidden_metrics_line(report),
        first=one_line(report.columns[0].run.name, MAX_NAME),
        compared=len(report.columns) > 1,
        difference_columns=_headings(tables.DIFFERENCE_COLUMNS),
        differences=list(tables.difference_rows(report)),
        captions=tables.comparison_caption(report),
        judging=list(tables.judging_lines(report)),
        figures=[_figure(report, key) for key in report.keys],
        number_columns=_headings(tables.NUMBER_COLUMNS),
        numbers=list(tables.number_rows(report)),
        missing=tables.missing_values_line(report),
        own_error=tables.own_error_line(report),
        agreement_columns=AGREEMENT_COLUMNS,
        agreement=[
            (one_line(column.run.name, MAX_NAME), [row.cells for row in column.run.agreement])
            for column in report.columns
            if column.run.agreement
        ],
        agreement_note=AGREEMENT_NOTE,
        worst=list(_worst(report)),
        version=__version__,
    )


def _headings(columns: Sequence[tuple[str, bool]]) -> list[str]:
    return [name if name == "p" else name[:1].upper() + name[1:] for name, _ in columns]


def _figure(report: ScoreReport, key: tuple[str, str]) -> dict[str, str]:
    lanes = [
        BoxPlotLane(one_line(column.run.name, MAX_NAME), series)
        for column in report.columns
        for series in column.find(key)
    ]
    spec = lanes[0].series.spec
    title = metric_title(key[0])
    better = f"{spec.good} is better" if spec.good else ""
    note = " · ".join(part for part in (key[1], better, spec.meaning) if part)
    return {"title": title, "note": note, "plot": draw_box_plots(f"{title} by {key[1]}", lanes)}


def _worst(report: ScoreReport) -> Iterator[tuple[str, str, list[dict[str, Any]]]]:
    for key in report.keys:
        for column in report.columns:
            for series in column.find(key):
                if series.worst:
                    cases = [_case(column, series, item) for item in series.worst]
                    note = f"{series.scorer} · {one_line(column.run.name, MAX_NAME)}"
                    yield metric_title(key[0]), note, cases


def _case(column: ReportColumn, series: RunSeries, item: WorstScore) -> dict[str, Any]:
    text = column.run.texts.get(item.trace_id)
    answer = clip(text.answer, ANSWER) if text else ""
    return {
        "trace_id": item.trace_id,
        "value": format_metric_value(item.value, series.spec),
        "known": text is not None,
        "question": clip(text.query, QUESTION) if text else "",
        "answer": mark_answer(TextBlock("Answer", answer), item.unsupported),
        "unsupported": [(one_line(s.text, 200), evidence_note(s)) for s in item.unsupported],
    }


def axis_domain(lanes: Sequence[BoxPlotLane]) -> tuple[float, float]:
    """Return the ends of the axis that all lanes share.

    It is the range of the metric; without an upper bound it ends above all scores.
    """
    spec = lanes[0].series.spec
    if spec.high is not None:
        return spec.low, spec.high
    seen = [spec.low]
    for lane in lanes:
        box = lane.series.box
        estimate = lane.series.estimate
        if box is not None:
            seen += [box.high, *box.outliers]
        if estimate is not None:
            seen.append(estimate.upper)
    return spec.low, max(seen) * 1.04 or 1.0


def describe_lane(lane: BoxPlotLane) -> str:
    """Describe a lane in words, for screen readers and the browser's hint."""
    spec = lane.series.spec
    box = lane.series.box
    estimate = lane.series.estimate
    if estimate is None or box is None:
        return f"{lane.name}: nothing scored"

    def number(value: float) -> str:
        return format_metric_value(value, spec)

    text = (
        f"{lane.name}: n = {box.n:,}, mean {number(estimate.value)}, 95 % interval"
        f" {number(estimate.lower)} to {number(estimate.upper)}"
    )
    if lane.series.two_valued:
        return text
    return (
        f"{text}, median {number(box.median)}, quartiles {number(box.q1)} and {number(box.q3)},"
        f" whiskers {number(box.low)} and {number(box.high)}, {box.outside:,} outside"
    )


def draw_box_plots(heading: str, lanes: Sequence[BoxPlotLane]) -> Markup:
    """Draw at least one lane, all of one metric, over one axis."""
    spec = lanes[0].series.spec
    x = svg.Scale(*axis_domain(lanes), LEFT, WIDTH - RIGHT)
    values = [x.low + (x.high - x.low) * step / (AXIS_TICKS - 1) for step in range(AXIS_TICKS)]
    picture = render(
        "boxes.svg",
        label=one_line(f"{heading}. {'; '.join(map(describe_lane, lanes))}", 2_000),
        ticks=[(x(v), f"{100 * v:g} %" if spec.kind == "ratio" else f"{v:.3g}") for v in values],
        lanes=[(lane, one_line(lane.name, MAX_LANE_NAME), describe_lane(lane)) for lane in lanes],
        x=x,
        width=WIDTH,
    )
    return Markup(picture)  # escaped by its template
