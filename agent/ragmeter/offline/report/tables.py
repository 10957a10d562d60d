"""The report as terminal tables."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from rich.table import Table

from ragmeter.console.terminal import add_text_row, build_table
from ragmeter.core.judging import MARK
from ragmeter.core.label_bounds import bound_label, excerpt
from ragmeter.core.metric_specs import OWN_ERROR, base_name
from ragmeter.offline.report.comparison import RunComparison, describe_difference
from ragmeter.offline.report.run import RunSeries, ScoredRun
from ragmeter.offline.report.summary import (
    DEFAULT_METRICS,
    MAX_NAME,
    ReportColumn,
    ScoreReport,
    format_metric_value,
    format_p_value,
    metric_title,
)
from ragmeter.parts.answer_texts import MARKS, format_goal, format_level
from ragmeter.reasons import Reason
from ragmeter.windows.people_agreement import AGREEMENT_COLUMNS, AGREEMENT_NOTE, ScorerAgreement

SHOWN_REASONS = 3
WORST_SHOWN = 3  # per metric and run: the HTML page lists more
MAX_TEXT = 90  # characters of a query or an answer on a line


def _table(heading: str, *columns: tuple[str, bool]) -> Table:
    return build_table(
        heading,
        *(
            (name, {"justify": "right" if right else "left", "no_wrap": right, "overflow": "fold"})
            for name, right in columns
        ),
    )


def agreement_table(rows: Iterable[ScorerAgreement], heading: str) -> Table:
    """Build the table of how well scorers agree with people's labels."""
    columns = ((name, at > 0) for at, name in enumerate(AGREEMENT_COLUMNS))
    table = _fill_table(_table(heading, *columns), (row.cells for row in rows))
    table.columns[0].min_width = len("grounding")  # whole where the terminal is narrow
    for at in range(2, 8):  # where the terminal is narrow, titles and intervals wrap, not digits
        table.columns[at].no_wrap = False
        table.columns[at].min_width = len("[-0.75,") if at in (3, 5, 6) else len("0.67")
    table.caption = AGREEMENT_NOTE
    return table


def report_tables(report: ScoreReport) -> Iterator[Table]:
    """Yield the questions and the summary, then comparison, groups and worst traces, if any."""
    questions = question_rows(report)
    if questions:
        yield _fill_table(_table(runs_heading(report), *question_columns(report)), questions)
    yield _summary_table(report)
    if len(report.columns) > 1:
        heading = f"difference from {bound_label(report.columns[0].run.name, MAX_NAME)}"
        yield _fill_table(_table(heading, *DIFFERENCE_COLUMNS), difference_rows(report))
    for column in filter(lambda column: column.groups, report.columns):
        heading = f"{bound_label(column.run.name, MAX_NAME)} by group"
        yield _fill_table(_table(heading, *GROUP_COLUMNS), group_rows(column.groups))
    repeated = repeat_rows(report)
    if repeated:
        yield _fill_table(_table("questions asked again", *REPEAT_COLUMNS), repeated)
    for column in report.columns:
        if column.run.agreement:
            heading = f"{bound_label(column.run.name, MAX_NAME)}: agreement with people"
            yield agreement_table(column.run.agreement, heading)
    worst = _worst_table(report)
    if worst is not None:
        yield worst


def runs_heading(report: ScoreReport) -> str:
    """Return the names of the runs, with how many traces they have and when these were."""
    return "; ".join(
        f"{bound_label(column.run.name, MAX_NAME)}: {describe_traces(column.run)}"
        for column in report.columns
    )


def question_columns(report: ScoreReport) -> list[tuple[str, bool]]:
    """Return the titles of `question_rows`; of several runs each has a column."""
    if len(report.columns) == 1:
        return [("question", False), ("", False), ("goal", False), ("rests on", False)]
    names = [(bound_label(column.run.name, MAX_NAME), False) for column in report.columns]
    return [("question", False), *names, ("goal", False)]


def question_rows(report: ScoreReport) -> list[tuple[str, ...]]:
    """Return a row for each of the questions, none where no part answers them.

    Of several runs each cell says what its number rests on: a judge's is no model's.
    """
    runs = [column.run.answers for column in report.columns]
    if not all(runs):
        return []
    rows: list[tuple[str, ...]] = []
    for answers in zip(*runs, strict=True):
        first = answers[0]
        goal = format_goal(first)
        if len(answers) == 1:
            source = first.source if first.level is not None else first.meaning
            mark = MARKS[first.state]
            rows.append((first.question, f"{format_level(first)} {mark}".strip(), goal, source))
            continue
        cells = (
            f"{format_level(one)} {MARKS[one.state]}".strip()
            + (f"\n{one.source}" if one.level is not None else "")
            for one in answers
        )
        rows.append((first.question, *cells, goal))
    return rows


def describe_traces(run: ScoredRun) -> str:
    """Describe the traces of a run, such as `24 traces, 2026-01-15`."""
    return f"{run.traces:,} traces" + (f", {run.dates}" if run.dates else "")


def series_label(series: RunSeries) -> str:
    """Format the label of a series: `precision@5 (umbrela)`, with its model and version."""
    version = ""
    if series.instrument:
        version = f" {bound_label(series.instrument, MAX_NAME)} @{series.fingerprint[:MARK]}"
    elif series.fingerprint:
        version = f" @{bound_label(series.fingerprint, 12)}"
    return f"{metric_title(series.metric)} ({series.scorer}){version}"


def format_interval(series: RunSeries) -> str:
    """Format the 95 % interval of the mean; empty without an estimate."""
    estimate = series.estimate
    if estimate is None:
        return ""
    lower, upper = (format_metric_value(v, series.spec) for v in (estimate.lower, estimate.upper))
    return f"{lower} … {upper}"


def format_quartiles(series: RunSeries) -> str:
    """Format the quartiles; empty for scores of two values, which have no useful quartiles."""
    box = series.box
    if box is None or series.two_valued:
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
            if state == "not_applicable":  # the other reasons lie in the answers
                language = reasons[Reason.LANGUAGE] if reasons else 0
                explanation = f" (language {language:,})" if language else ""
            elif reasons and state == "unscored":
                most = sorted(reasons.items(), key=lambda item: (-item[1], item[0]))
                shown = [f"{bound_label(name, 40)} {n:,}" for name, n in most[:SHOWN_REASONS]]
                if len(most) > SHOWN_REASONS:
                    shown.append("…")
                explanation = f" ({', '.join(shown)})"
            descriptions.append(f"{count:,} {state.replace('_', ' ')}{explanation}")
    return ", ".join(descriptions)


NUMBER_COLUMNS = (
    ("metric (scorer)", False),
    ("run", False),
    ("mean", True),
    ("95 % interval", True),
    ("median", True),
    ("quartiles", True),
    ("traces", False),
)


def number_rows(report: ScoreReport) -> Iterator[tuple[str, ...]]:
    """Yield a row of `NUMBER_COLUMNS` for each series of each run, and each quantile of latency."""
    for key in report.keys:
        for column in report.columns:
            for series in column.find(key):
                mean = series.estimate and format_metric_value(series.estimate.value, series.spec)
                yield (
                    series_label(series),
                    bound_label(column.run.name, MAX_NAME),
                    mean or "–",
                    format_interval(series),
                    format_median(series),
                    format_quartiles(series),
                    format_states(series),
                )
    for column in report.columns:
        for stage, items in column.latency:
            for item in items:
                interval = ""
                if item.lower is not None and item.upper is not None:
                    interval = f"{item.lower:.3g} … {item.upper:.3g} s"
                yield (
                    f"latency, {bound_label(stage, 20)} p{100 * item.quantile:g}",
                    bound_label(column.run.name, MAX_NAME),
                    f"{item.value:.3g} s",
                    interval,
                    "",
                    "",
                    f"{item.samples:,} timed",
                )


def _summary_table(report: ScoreReport) -> Table:
    """Build the table of each series of each run: mean, median, quartiles and states."""
    heading = "scores" if question_rows(report) else runs_heading(report)
    if len(report.columns) > 1:
        return _fill_table(_table(heading, *NUMBER_COLUMNS), number_rows(report))
    first, _, *others = NUMBER_COLUMNS
    rows = ((label, *cells) for label, _, *cells in number_rows(report))
    return _fill_table(_table(heading, first, *others), rows)


def _fill_table(table: Table, rows: Iterable[Sequence[str]]) -> Table:
    """Add rows; the first cell is left out where it is that of the row before."""
    before = None
    for label, *cells in rows:
        add_text_row(table, "" if label == before else label, *cells)
        before = label
    return table


REPEAT_COLUMNS = (
    ("metric (scorer)", False),
    ("run", False),
    ("questions", True),
    ("scores", True),
    ("mean", True),
    ("variance", True),
    ("variation", True),
)


def repeat_rows(report: ScoreReport) -> list[list[str]]:
    """Return rows of `REPEAT_COLUMNS` on the questions that were asked again.

    There is one for each ROUGE of their answers, which counts answers, and for each series.
    """
    rows = []
    for column in report.columns:
        alike = column.run.consistency
        if alike is None:
            continue
        for name, overlap in alike.overlaps.items():
            spread = overlap["f"]
            rows.append(
                [
                    f"consistency_{name} (answers)",
                    bound_label(column.run.name, MAX_NAME),
                    f"{alike.questions:,}",
                    f"{alike.answers:,}",
                    f"{spread['mean']:.3f}",
                    _or_dash(spread["variance"], ".4f"),
                    _or_dash(spread["variation"], ".0%"),
                ]
            )
    for key in report.keys:
        for column in report.columns:
            for series in column.find(key):
                again = series.repeats
                if again is not None:
                    rows.append(
                        [
                            series_label(series),
                            bound_label(column.run.name, MAX_NAME),
                            f"{again.questions:,}",
                            f"{again.scores:,}",
                            format_metric_value(again.mean, series.spec),
                            f"{again.variance:.4f}",
                            _or_dash(again.variation, ".0%"),
                        ]
                    )
    return rows


def _or_dash(value: float | None, form: str) -> str:
    return "–" if value is None else f"{value:{form}}".replace("%", " %")


def judging_lines(report: ScoreReport) -> Iterator[str]:
    """Yield lines on the judges of each run: what they cost, and who is behind a fingerprint."""
    for column in report.columns:
        shown = {series.fingerprint for series in column.series}
        for line in column.run.judging.lines(shown):
            yield f"{bound_label(column.run.name, MAX_NAME)}: {line}"


GROUP_COLUMNS = (
    ("metric (scorer)", False),
    ("group", False),
    ("traces", True),
    ("scored", True),
    ("mean", True),
    ("95 % interval", True),
)


def group_rows(groups: Sequence[ReportColumn]) -> list[list[str]]:
    """Return a row of `GROUP_COLUMNS` for each metric with a value in any group, and each group."""
    labels = {
        (series.metric, series.scorer): f"{metric_title(series.metric)} ({series.scorer})"
        for group in groups
        for series in group.series
        if series.estimate is not None
    }
    rows = []
    for key, label in labels.items():
        for group in groups:
            name = bound_label(group.run.name, MAX_NAME)
            traces = f"{group.run.traces:,}"
            cells = [label, name, traces, "0", "–", ""]
            for series in group.find(key)[:1]:  # the current version of its scorer
                if series.estimate is not None:
                    mean = format_metric_value(series.estimate.value, series.spec)
                    cells[3:] = [f"{len(series.scores):,}", mean, format_interval(series)]
            rows.append(cells)
    return rows


def hidden_metrics_line(report: ScoreReport) -> str | None:
    """Format a line on the metrics that are not shown; None if all are."""
    hidden = max((column.hidden for column in report.columns), default=0)
    what = "metric has" if hidden == 1 else "metrics have"
    return f"{hidden} more {what} a value: --all shows them" if hidden else None


def own_error_line(report: ScoreReport) -> str | None:
    """Return what the intervals of scorers without a judge cover; None without such a scorer."""
    own = (s.spec.has_own_error(s.scorer) for column in report.columns for s in column.series)
    return OWN_ERROR if any(own) else None


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


DIFFERENCE_COLUMNS = (
    ("metric (scorer)", False),
    ("run", False),
    ("difference", True),
    ("95 % interval", True),
    ("p", True),
    ("adjusted p", True),
    ("test", False),
    ("verdict", False),
)


def difference_rows(report: ScoreReport) -> Iterator[tuple[str, ...]]:
    """Yield a row of `DIFFERENCE_COLUMNS` for each difference from the first run."""
    for key in report.keys:
        for series in report.columns[0].find(key):
            for number, column in enumerate(report.columns[1:], start=1):
                item = report.comparison(number, series)
                if item is not None and item.method != "constant":
                    name = bound_label(column.run.name, MAX_NAME)
                    yield series_label(series), name, *_difference_cells(item, series)


def _difference_cells(item: RunComparison, series: RunSeries) -> tuple[str, ...]:
    spec = series.spec
    verdict = describe_difference(item, spec.good)
    if item.difference is None or item.lower is None or item.upper is None:
        return "", "", "", "", "", verdict
    difference, lower, upper = (
        format_metric_value(value, spec, True)
        for value in (item.difference, item.lower, item.upper)
    )
    return (
        difference,
        f"{lower} … {upper}",
        format_p_value(item.p),
        format_p_value(item.adjusted),
        f"paired, {item.pairs:,}" if item.method == "paired" else item.method,
        verdict,
    )


def comparison_caption(report: ScoreReport) -> list[str]:
    """List the lines below the comparison: what is always the same, and the tests behind it."""
    first = report.columns[0]
    same = [
        series_label(series)
        for series in first.series
        if any(
            (item := report.comparison(number, series)) is not None and item.method == "constant"
            for number in range(1, len(report.columns))
        )
    ]
    folded = [f"the same in every score: {', '.join(same)}"] if same else []
    if not report.tests:
        return folded
    methods = {item.method for item in report.comparisons}
    lines = folded
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
    table = _table(
        "worst traces",
        ("metric (scorer)", False),
        *((("run", False),) if several else ()),
        ("score", True),
        ("trace, its question and its answer", False),
    )
    for key in report.keys:
        if base_name(key[0]) not in DEFAULT_METRICS:
            continue
        for column in report.columns:
            for series in column.find(key):
                for item in series.worst[:WORST_SHOWN]:
                    cells = [
                        series_label(series),
                        *([bound_label(column.run.name, MAX_NAME)] if several else []),
                    ]
                    trace_text = column.run.texts.get(item.trace_id)
                    texts = (trace_text.query, trace_text.answer) if trace_text else ()
                    shown = [excerpt(text, MAX_TEXT) for text in texts if text]
                    if item.unsupported:
                        words = ", ".join(f"'{span.text}'" for span in item.unsupported)
                        shown.append(excerpt(f"unsupported: {words}", 2 * MAX_TEXT))
                    cells += [
                        format_metric_value(item.value, series.spec),
                        "\n".join([bound_label(item.trace_id, 80), *shown]),
                    ]
                    add_text_row(table, *cells)
    return table if table.row_count else None
