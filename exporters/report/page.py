"""A report as one HTML file: no script, nothing from elsewhere, names and texts escaped."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator, Sequence
from hashlib import sha256

from agent import __version__
from agent.report.compare import Comparison, verdict
from agent.report.run import Series
from agent.report.summary import ANSWERED, Column, Report, number, title
from agent.report.tables import caption, chance, interval, label, median, quartiles, states
from agent.report.tables import why_missing as missing_line
from exporters.page.markup import Child, Markup, clip, el, one_line
from exporters.page.style import CSS
from exporters.page.tables import box
from exporters.report.drawing import Lane, drawing

__all__ = ["page"]

NAME = 80  # characters of a run's name or a trace's id
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


def page(report: Report) -> str:
    names = ", ".join(one_line(column.name, NAME) for column in report.columns)
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
            el("header", el("h1", "ragmeter report"), el("p", _told(report), class_="soft"),
               class_="top"),
            list(_sections(report)),
            el("footer", [el("p", el("b", name), text) for name, text in HOW],
               el("p", f"ragmeter {__version__}")),
            class_="page",
        ),
    )  # fmt: skip
    return f"<!doctype html>\n{el('html', head, body, lang='en')}\n"


def _told(report: Report) -> str:
    return "; ".join(
        f"{one_line(column.name, NAME)}: {column.traces:,} traces"
        + "".join(f" ({note})" for note in column.notes)
        for column in report.columns
    )


def _sections(report: Report) -> Iterator[Markup]:
    answered = list(_answered(report))
    if answered:
        yield el("section", el("h2", "Questions answered"), el("div", answered, class_="answered"))
    if len(report.columns) > 1:
        yield el(
            "section",
            el("h2", f"Difference from {one_line(report.columns[0].name, NAME)}"),
            box("Differences", _differences(report)),
            [el("p", line, class_="note") for line in caption(report)],
        )
    figures = [_figure(report, key) for key in report.keys]
    if figures:
        yield el("section", el("h2", "Scores"), el("div", figures, class_="figures"))
    missing = missing_line(report)
    yield el(
        "section",
        el("h2", "Numbers"),
        box("Numbers", _numbers(report)),
        el("p", missing, class_="note") if missing else None,
    )
    worst = list(_worst(report))
    if worst:
        yield el("section", el("h2", "Worst traces"), el("div", worst, class_="worst"))


def _answered(report: Report) -> Iterator[Markup]:
    for column in report.columns:
        for series in column.series:
            if series.metric == ANSWERED and series.estimate is not None:
                yield el(
                    "div",
                    el("b", number(series.estimate.value, series.spec)),
                    " ",
                    one_line(column.name, NAME),
                    el("small", f"{interval(series)} · by {series.scorer}"),
                )


def _figure(report: Report, key: tuple[str, str]) -> Markup:
    lanes = [
        Lane(one_line(column.name, NAME), series)
        for column in report.columns
        for series in column.find(key)
    ]
    spec = lanes[0].series.spec
    better = {"higher": "higher is better", "lower": "lower is better", None: ""}[spec.good]
    note = " · ".join(part for part in (key[1], better, spec.meaning) if part)
    return el(
        "figure",
        el("figcaption", title(key[0]), el("small", note)),
        drawing(f"{title(key[0])} by {key[1]}", lanes),
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


def _differences(report: Report) -> Markup:
    names = ("Metric", "Run", "Difference", "95 % interval", "p", "Adjusted p", "Test", "Verdict")
    numeric = (2, 3, 4, 5)
    rows = []
    for key in report.keys:
        for series in report.columns[0].find(key):
            for at, column in enumerate(report.columns[1:], start=1):
                item = report.comparison(at, series)
                if item is not None:
                    cells = [label(series), one_line(column.name, NAME), *_cells(item, series)]
                    rows.append(_row(cells, numeric))
    return _table(names, rows, numeric)


def _cells(item: Comparison, series: Series) -> list[Child]:
    word, spec = verdict(item, series.spec.good), series.spec
    said = el("td", word, class_=word if word in ("better", "worse") else "soft")
    if item.difference is None or item.lower is None or item.upper is None:
        return ["", "", "", "", "", said]
    test = f"paired, {item.pairs:,} pairs" if item.method == "paired" else item.method
    return [
        number(item.difference, spec, True),
        f"{number(item.lower, spec, True)} … {number(item.upper, spec, True)}",
        chance(item.p),
        chance(item.adjusted),
        test,
        said,
    ]


def _numbers(report: Report) -> Markup:
    names = ("Metric", "Run", "Mean", "95 % interval", "Median", "Quartiles", "Traces")
    rows = []
    for key in report.keys:
        for column in report.columns:
            for series in column.find(key):
                mean = series.estimate and number(series.estimate.value, series.spec)
                cells = [label(series), one_line(column.name, NAME), mean or "—", interval(series),
                         median(series), quartiles(series), states(series)]  # fmt: skip
                rows.append(_row(cells, (2, 3, 4, 5)))
    for column in report.columns:
        for stage, items in column.latency:
            for item in items:
                name = f"latency, {one_line(stage, 20)} p{100 * item.quantile:g}"
                around = ""
                if item.lower is not None and item.upper is not None:
                    around = f"{item.lower:.3g} … {item.upper:.3g} s"
                cells = [name, one_line(column.name, NAME), f"{item.value:.3g} s", around, "", "",
                         f"{item.samples:,} timed"]  # fmt: skip
                rows.append(_row(cells, (2, 3, 4, 5)))
    return _table(names, rows, (2, 3, 4, 5))


def _worst(report: Report) -> Iterator[Markup]:
    for key in report.keys:
        for column in report.columns:
            for series in column.find(key):
                if series.worst:
                    note = f"{series.scorer} · {one_line(column.name, NAME)}"
                    items = [_case(item.trace_id, number(item.value, series.spec), column)
                             for item in series.worst]  # fmt: skip
                    head = el("summary", title(key[0]), el("small", note))
                    yield el("details", head, items)


def _case(trace_id: str, value: str, column: Column) -> Markup:
    known = column.texts.get(trace_id)
    name = el("code", one_line(trace_id, NAME))
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
