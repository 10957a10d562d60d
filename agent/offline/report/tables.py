"""The report as terminal tables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.table import Table

from ragmeter.console.terminal import add_text_row, build_table
from ragmeter.core.label_bounds import bound_label, excerpt
from ragmeter.offline.report.comparison import RunComparison, describe_difference
from ragmeter.offline.report.run import RunSeries
from ragmeter.offline.report.summary import ANSWERED, ScoreReport, format_metric_value, metric_title

NAME = 40  # characters of a run's name
SHOWN_REASONS = 3
WORST_SHOWN = 3  # per metric and run: the HTML page lists more
MAX_TEXT = 90  # characters of a query or an answer on a line
HEADLINE = ("answered", "grounding", "relevance", "citation_f1", "nugget_vital")


def _table(heading: str, *columns: tuple[str, bool]) -> Table:
    return build_table(
        heading,
        *(
            (name, {"justify": "right" if right else "left", "no_wrap": right, "overflow": "fold"})
            for name, right in columns
        ),
    )


def report_tables(report: ScoreReport) -> Iterator[Table]:
    """Yield the summary table, then the comparison and the worst traces if there are any."""
    yield _summary_table(report)
    if len(report.columns) > 1:
        yield _comparison_table(report)
    worst = _worst_table(report)
    if worst is not None:
        yield worst


def series_label(series: RunSeries) -> str:
    """Format the label of a series, such as `precision@5 (umbrela)`, with the scorer's version."""
    version = f" @{bound_label(series.fingerprint, 12)}" if series.fingerprint else ""
    return f"{metric_title(series.metric)} ({series.scorer}){version}"


def format_interval(series: RunSeries) -> str:
    """Format the 95 % interval of the mean; empty without an estimate."""
    estimate = series.estimate
    if estimate is None:
        return ""
    lower, upper = (format_metric_value(v, series.spec) for v in (estimate.lower, estimate.upper))
    return f"{lower} … {upper}"


def format_quartiles(series: RunSeries) -> str:
    """Format the quartiles; empty for ratios, whose binary scores have no useful quartiles."""
    box = series.box
    if box is None or series.spec.kind == "ratio":
        return ""
    return (
        f"{format_metric_value(box.q1, series.spec)} … {format_metric_value(box.q3, series.spec)}"
    )


def format_median(series: RunSeries) -> str:
    """Format the median; empty where `format_quartiles` is."""
    if not format_quartiles(series) or series.box is None:
        return ""
    return format_metric_value(series.box.median, series.spec)


def format_states(series: RunSeries) -> str:
    """Format counts by state, such as `24 scored, 3 unscored (judge_timeout 2, no_text 1)`."""
    descriptions = []
    for state, count in series.states.items():
        if count:
            reasons = series.reasons.get(state)
            explanation = ""
            if reasons and state == "unscored":
                most = sorted(reasons.items(), key=lambda item: (-item[1], item[0]))
                shown = [f"{bound_label(name, 40)} {n:,}" for name, n in most[:SHOWN_REASONS]]
                if len(most) > SHOWN_REASONS:
                    shown.append("…")
                explanation = f" ({', '.join(shown)})"
            descriptions.append(f"{count:,} {state.replace('_', ' ')}{explanation}")
    return ", ".join(descriptions)


def _summary_table(report: ScoreReport) -> Table:
    """Build the table of each series of each run: mean, median, quartiles and states."""
    heading = "; ".join(
        f"{bound_label(column.name, NAME)}: {column.traces:,} traces" for column in report.columns
    )
    several = len(report.columns) > 1
    run = (("run", False),) if several else ()
    table = _table(
        heading, ("metric (scorer)", False), *run, ("mean", True), ("95 % interval", True),
        ("median", True), ("quartiles", True), ("traces", False),
    )  # fmt: skip
    for key in report.keys:
        name = None
        for column in report.columns:
            for series in column.find(key):
                mean = series.estimate and format_metric_value(series.estimate.value, series.spec)
                shown = series_label(series)
                cells = [
                    mean or "–", format_interval(series), format_median(series),
                    format_quartiles(series), format_states(series),
                ]  # fmt: skip
                first = "" if shown == name else shown
                add_text_row(
                    table, first, *([bound_label(column.name, NAME)] if several else []), *cells
                )
                name = shown
    for column in report.columns:
        for stage, items in column.latency:
            for item in items:
                cells = [f"{item.value:.3g} s", "", "", "", f"{item.samples:,} timed"]
                if item.lower is not None and item.upper is not None:
                    cells[1] = f"{item.lower:.3g} … {item.upper:.3g} s"
                shown = f"latency, {bound_label(stage, 20)} p{100 * item.quantile:g}"
                add_text_row(
                    table, shown, *([bound_label(column.name, NAME)] if several else []), *cells
                )
    return table


def missing_values_line(report: ScoreReport) -> str | None:
    """Format a line on the metrics without a value in every run; None if there are none."""
    if not report.missing:
        return None
    descriptions = []
    for key in report.missing:
        series = [s for column in report.columns for s in column.find(key)]
        reasons = {r for s in series for counted in s.reasons.values() for r in counted}
        explanation = f": {', '.join(bound_label(r, 40) for r in sorted(reasons)[:SHOWN_REASONS])}"
        descriptions.append(f"{metric_title(key[0])} ({key[1]}{explanation if reasons else ''})")
    return f"no run has a value of: {'; '.join(descriptions)}"


def answered_line(report: ScoreReport) -> Iterator[str]:
    """Yield a line on the share of questions answered for each run and scorer."""
    for column in report.columns:
        for series in column.series:
            if series.metric == ANSWERED and series.estimate is not None:
                value = format_metric_value(series.estimate.value, series.spec)
                yield (
                    f"{bound_label(column.name, NAME)}: {value} of the questions answered"
                    f" ({format_interval(series)}, by {series.scorer})"
                )


def format_p_value(p: float | None) -> str:
    """Format a p value; empty without a test."""
    if p is None:
        return ""
    return "< 0.001" if p < 0.001 else f"{p:.3f}"


def _comparison_table(report: ScoreReport) -> Table:
    """Build the table of differences from the first run."""
    first = report.columns[0]
    table = _table(
        f"difference from {bound_label(first.name, NAME)}",
        ("metric (scorer)", False), ("run", False), ("difference", True),
        ("95 % interval", True), ("p", True), ("adjusted", True), ("test", False), ("", False),
    )  # fmt: skip
    for key in report.keys:
        for series in first.find(key):
            for number_, column in enumerate(report.columns[1:], start=1):
                item = report.comparison(number_, series)
                if item is not None:
                    add_text_row(
                        table,
                        series_label(series),
                        bound_label(column.name, NAME),
                        *_cells(item, series),
                    )
    return table


def _cells(item: RunComparison, series: RunSeries) -> Sequence[str]:
    verdict = describe_difference(item, series.spec.good)
    if item.p is None or item.difference is None or item.lower is None or item.upper is None:
        return ("", "", "", "", "", verdict)
    spec = series.spec
    test = f"paired, {item.pairs:,}" if item.method == "paired" else "unpaired"
    difference, lower, upper = (
        format_metric_value(value, spec, True)
        for value in (item.difference, item.lower, item.upper)
    )
    return (
        difference, f"{lower} … {upper}", format_p_value(item.p), format_p_value(item.adjusted),
        test, verdict,
    )  # fmt: skip


def comparison_caption(report: ScoreReport) -> list[str]:
    """List the lines that explain the tests behind the comparison; empty without a test."""
    if not report.tests:
        return []
    methods = {item.method for item in report.comparisons}
    lines = []
    if "paired" in methods:
        by = {"trace_id": "trace id", "query": "question"}.get(report.paired_by, report.paired_by)
        lines.append(
            f"paired: by {by}; Fisher's randomisation test of the mean difference, seed"
            f" {report.seed}"
        )
    if "unpaired" in methods:
        lines.append(
            "unpaired: too few questions in common; the two intervals joined (Zou and Donner), p"
            " to match"
        )
    several = report.tests > 1
    lines.append(
        f"adjusted: by Holm for the {report.tests} tests of this report; better and worse are"
        " said below 0.05, so that the chance that luck alone made any of them is 5 % at most"
        if several
        else "adjusted: one test, nothing to adjust"
    )
    return lines


def _worst_table(report: ScoreReport) -> Table | None:
    """Build the table of the worst traces by the headline metrics, with texts if available."""
    several = len(report.columns) > 1
    has_texts = any(column.texts for column in report.columns)
    table = _table(
        "worst traces", ("metric (scorer)", False), *((("run", False),) if several else ()),
        ("score", True), ("trace", False), *((("query and answer", False),) * has_texts),
    )  # fmt: skip
    for key in report.keys:
        if key[0] not in HEADLINE:
            continue
        for column in report.columns:
            for series in column.find(key):
                for item in series.worst[:WORST_SHOWN]:
                    cells = [
                        series_label(series),
                        *([bound_label(column.name, NAME)] if several else []),
                    ]
                    cells += [
                        format_metric_value(item.value, series.spec),
                        bound_label(item.trace_id, 80),
                    ]
                    if has_texts:
                        trace_text = column.texts.get(item.trace_id)
                        texts = (trace_text.query, trace_text.answer) if trace_text else ()
                        cells.append("\n".join(excerpt(text, MAX_TEXT) for text in texts if text))
                    add_text_row(table, *cells)
    return table if table.row_count else None
