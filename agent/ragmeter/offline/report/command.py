"""`ragmeter report`: read scored files, compare them and write the report."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from ragmeter.answers.json_answers import read_answer_text
from ragmeter.config.settings import Settings
from ragmeter.console import terminal
from ragmeter.console.streams import escape_control
from ragmeter.core.counters import Counts
from ragmeter.core.errors import UsageError
from ragmeter.core.files import write_atomically
from ragmeter.core.label_bounds import OTHER_LABEL, bound_label
from ragmeter.core.score import ScoredTrace
from ragmeter.ingest.files import STDIN, InputFile
from ragmeter.ingest.native import DecodedTrace
from ragmeter.ingest.redaction import Redactor
from ragmeter.offline.report.document import report_document
from ragmeter.offline.report.gate import GateOptions
from ragmeter.offline.report.input_files import ReportInputSummary, TraceTexts, read_scored_file
from ragmeter.offline.report.open_rag_eval import OpenRagEvalTable, ReportTrace, normalise_query
from ragmeter.offline.report.run import ScoredRun, TraceText
from ragmeter.offline.report.summary import (
    ScoreReport,
    build_report,
    default_metrics,
    has_default_metrics,
    report_headline,
)
from ragmeter.offline.report.tables import (
    comparison_caption,
    hidden_metrics_line,
    judging_lines,
    missing_values_line,
    own_error_line,
    report_tables,
)
from ragmeter.parts.collection import PartKinds, find_kind
from ragmeter.parts.views import QuestionAnswers
from ragmeter.trace import Trace

MAX_GROUPS = 100  # values of the tag of `--by` that have a row of their own
REPORT_EVERY = 256  # traces between two updates of the progress bar
TAG = "tag:"
NAME = 60  # characters of a run's name
SUFFIXES = (".gz", ".jsonl", ".ndjson", ".json", ".csv", ".parquet")


@dataclass(frozen=True, slots=True)
class ReportOptions:
    """Options of `ragmeter report`.

    Args:
        files: Scored files; the first one is the baseline.
        form: Output format, `table` or `json`.
        traces: File of traces with the queries and answers of worst traces.
        metrics: The only metrics to show and test; empty for those of `default_metrics`.
        every: True to show and test all metrics, as the JSON form always does.
        by: Tag to break the runs down by; empty for none.
        pair_by: `trace_id`, `query` or `tag:NAME`.
        gate: Rules to check the run against.
        apart: Further input files that no output may overwrite.
        parts: The features of the agent, one of which answers the questions.
    """

    files: Sequence[Path]
    form: str = "table"
    html: Path | None = None
    traces: Path | None = None
    service: str | None = None
    metrics: Sequence[str] = ()
    pair_by: str = "trace_id"
    every: bool = False
    by: str = ""
    apart: Sequence[Path] = field(default_factory=tuple)
    gate: GateOptions | None = None
    parts: PartKinds = ()


def run_report(
    wanted: ReportOptions,
    settings: Settings,
    say: Callable[[str], None],
    render_page: Callable[[ScoreReport], str],
) -> bool:
    """Read and compare scored files, print the tables and write the page.

    Returns:
        False if a gate was asked for and failed.

    Raises:
        UsageError: The options contradict each other.
        OSError: A file cannot be read or written, or has no scored trace.
    """
    _check_options(wanted)
    texts = None
    if wanted.traces is not None:
        texts = TraceTexts(wanted.traces, settings.limits.trace_bytes, settings.privacy, say)
    redactor = Redactor(settings.privacy)
    runs = [
        _read_run(
            name=name,
            path=path,
            wanted=wanted,
            settings=settings,
            texts=texts,
            redactor=redactor,
            say=say,
        )
        for name, path in zip(_run_names(wanted.files), wanted.files, strict=True)
    ]
    order = list(dict.fromkeys(part.name for run in runs for part in run.groups))
    for run in runs:  # the largest of the first run first, in every run
        run.groups.sort(key=lambda part: order.index(part.name))
    every = wanted.every or wanted.form == "json" or not has_default_metrics(runs)
    metrics = wanted.metrics or (() if every else default_metrics())
    report = build_report(
        runs,
        paired_by=wanted.pair_by,
        metrics=metrics,
        latency=not wanted.metrics,
    )
    if not report.keys and wanted.metrics:
        raise UsageError(f"--metric: no file has a value of {', '.join(wanted.metrics)}")
    if wanted.html is not None:
        write_atomically(wanted.html, render_page(report).encode("utf-8", "replace"))
    if wanted.form == "json":
        terminal.print_text(report_document(report))
    else:
        _print_lines(report_headline(report))
        terminal.print_tables(report_tables(report))
        more = [hidden_metrics_line(report), own_error_line(report), missing_values_line(report)]
        more += judging_lines(report)
        _print_lines([*comparison_caption(report), *filter(None, more)])
    if wanted.gate is None:
        return True
    # of all metrics, whatever the tables show
    whole = build_report(runs, paired_by=wanted.pair_by)
    result = wanted.gate.run(whole.columns[0])
    for line in result.lines():
        say(line)
    return result.passed


def _print_lines(lines: Iterable[str]) -> None:
    terminal.print_text("".join(f"{escape_control(line)}\n" for line in lines))


def _check_options(wanted: ReportOptions) -> None:
    inputs = [*wanted.files, *([wanted.traces] if wanted.traces else []), *wanted.apart]
    if wanted.html is not None:
        terminal.check_output_path("--html", wanted.html, inputs)
    if wanted.gate is not None and (len(wanted.files) > 1 or wanted.metrics):
        raise UsageError("--gate: one file at a time, and without --metric")
    if inputs.count(STDIN) > 1:
        raise UsageError("standard input can be read once")
    by = wanted.pair_by
    if by not in ("trace_id", "query") and not (by.startswith(TAG) and by[len(TAG) :]):
        raise UsageError(f"--pair-by {by}: trace_id, query or tag:NAME is needed")


def _run_names(files: Sequence[Path]) -> list[str]:
    """Name the runs after their files without suffixes; number repeated names."""
    names: list[str] = []
    for path in files:
        name = "stdin" if path == STDIN else path.name
        for suffix in SUFFIXES:
            name = name.removesuffix(suffix) or name
        name = bound_label(name, NAME)
        number = sum(other == name or other.startswith(f"{name} (") for other in names)
        names.append(f"{name} ({number + 1})" if number else name)
    return names


def _read_run(
    name: str,
    path: Path,
    wanted: ReportOptions,
    settings: Settings,
    texts: TraceTexts | None,
    redactor: Redactor,
    say: Callable[[str], None],
) -> ScoredRun:
    full = settings.privacy.content == "full"
    # who names metrics asks for no more than them
    parts = () if wanted.metrics else wanted.parts
    questions = find_kind(parts, QuestionAnswers).of_file(settings)
    run = ScoredRun(name, redactor if full else None, questions)
    summary = ReportInputSummary()
    run.texts = dict(texts.texts) if texts else {}
    groups: dict[str, ScoredRun] = {}
    seen: set[tuple[str, str]] = set()
    repeated = without = others = 0
    limit = settings.limits.trace_bytes
    with terminal.FileProgress(name, InputFile(path).size) as progress:
        for number, item in enumerate(read_scored_file(path, limit, summary, say), start=1):
            if number % REPORT_EVERY == 0:
                progress.read(number, summary.position)
            trace = item.trace
            if wanted.service is not None and trace.service != wanted.service:
                others += 1
                continue
            if item.question not in (None, trace.trace_id):
                key = _pairing_key(item, wanted.pair_by, texts)
                if key is not None:
                    run.add_again(trace, key)
                    _add_answer(run, key, item, full)
                continue
            if (trace.service, trace.trace_id) in seen:
                repeated += 1
                continue
            seen.add((trace.service, trace.trace_id))
            key = _pairing_key(item, wanted.pair_by, texts)
            without += key is None
            if item.text is not None and full:
                run.texts[trace.trace_id] = _redacted(item, item.text, redactor)
            run.add(trace, key)
            _add_answer(run, key, item, full)
            if wanted.by:
                value = trace.tags.get(wanted.by, "")
                if value not in groups and len(groups) >= MAX_GROUPS:
                    value = OTHER_LABEL
                group = bound_label(f"{wanted.by}={value}" if value else f"no {wanted.by}", NAME)
                groups.setdefault(value, ScoredRun(group)).add(trace, None)
    if not run.traces:
        raise OSError(f"{name}: no scored trace" + (f" of {wanted.service}" if others else ""))
    run.notes = list(summary.notes)
    for count, description in (
        (summary.bad, "lines unreadable"),
        (repeated, "repeated traces left out"),
        (summary.unknown, "results of unknown metrics or scorers left out"),
        (summary.invalid, "values that are none, counted as unscored"),
        (without if len(wanted.files) > 1 else 0, f"traces without {wanted.pair_by} to pair by"),
    ):
        if count:
            run.notes.append(f"{count:,} {description}")
    if len(run.services) > 1:
        run.notes.append(f"{len(run.services)} services taken together; --service picks one")
    for note in run.notes:
        say(f"{name}: {note}")
    run.groups = sorted(groups.values(), key=lambda group: (-group.traces, group.name))
    return run


def _add_answer(run: ScoredRun, question: str | None, item: ReportTrace, full: bool) -> None:
    """Add the text of an answer, if it is known and `privacy.content` lets it be read."""
    text = item.text if full and item.text is not None else run.texts.get(item.trace.trace_id)
    if question is not None and text is not None:
        run.add_answer(question, read_answer_text(text.answer))


def _pairing_key(item: ReportTrace, by: str, texts: TraceTexts | None) -> str | None:
    if by == "trace_id":
        return item.question or item.trace.trace_id
    if by == "query":
        if item.text is not None:
            return normalise_query(item.text.query) or None
        return texts.queries.get(item.trace.trace_id) if texts else None
    return item.trace.tags.get(by.removeprefix(TAG))


def _redacted(item: ReportTrace, text: TraceText, redactor: Redactor) -> TraceText:
    """Redact a text from the scored file by the rules for traces."""
    when = datetime.fromtimestamp(item.trace.timestamp, UTC)
    trace = Trace(
        trace_id=item.trace.trace_id,
        service=item.trace.service,
        timestamp=when,
        query=text.query,
        answer=text.answer,
    )
    redacted = redactor.trace(DecodedTrace(trace, b""), Counts()).trace
    return TraceText(redacted.query or "", redacted.answer or "")


def convert_to_open_rag_eval(
    wanted: ReportOptions, output: Path, settings: Settings, say: Callable[[str], None]
) -> None:
    """Write a scored file as the CSV columns of open-rag-eval.

    Raises:
        UsageError: The options contradict each other.
        OSError: A file cannot be read or written, or has no scored trace.
    """
    if len(wanted.files) != 1:
        raise UsageError("--format open-rag-eval: one file at a time")
    if wanted.html is not None:
        raise UsageError("--format open-rag-eval: writes no page")
    _check_options(wanted)
    limit = settings.limits.trace_bytes
    texts = None
    if wanted.traces is not None:
        texts = TraceTexts(wanted.traces, limit, settings.privacy, say, whole=True)
    if output != STDIN:
        terminal.check_output_path(
            "--output", output, [*wanted.files, *filter(None, [wanted.traces])]
        )
    summary = ReportInputSummary()
    table = OpenRagEvalTable()
    text = io.StringIO()
    written = 0
    for item in read_scored_file(wanted.files[0], limit, summary, say):
        scored: ScoredTrace = item.trace
        if wanted.service is None or scored.service == wanted.service:
            table.add(scored, texts.traces.get(scored.trace_id) if texts else None)
            written += 1
    if not written:
        raise OSError(f"{wanted.files[0]}: no scored trace")
    csv.writer(text, lineterminator="\n").writerows(table.rows())
    if output == STDIN:
        terminal.print_text(text.getvalue())
    else:
        write_atomically(output, text.getvalue().encode("utf-8", "replace"))
    say(f"{written:,} answers" + (f", {summary.bad:,} lines unreadable" if summary.bad else ""))
    if table.empty:
        say(f"without a value: {', '.join(table.empty)}")
