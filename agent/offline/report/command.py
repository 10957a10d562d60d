"""`ragmeter report`: read scored files, compare them and write the report."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

from ragmeter.config.settings import Settings
from ragmeter.console.terminal import (
    FileProgress,
    UsageError,
    check_output_path,
    print_tables,
    print_text,
)
from ragmeter.core.atomic_files import write_atomically
from ragmeter.core.counters import Counts
from ragmeter.core.label_bounds import bound_label
from ragmeter.core.score import ScoredTrace
from ragmeter.ingest.files import STDIN
from ragmeter.ingest.native import DecodedTrace
from ragmeter.ingest.redaction import Redactor
from ragmeter.offline.report.input_files import (
    ReportInputSummary,
    ReportTrace,
    TraceTexts,
    normalise_query,
    read_scored_file,
)
from ragmeter.offline.report.open_rag_eval import OPEN_RAG_EVAL_HEADER, OpenRagEvalRows
from ragmeter.offline.report.run import ScoredRun
from ragmeter.offline.report.summary import (
    ReportColumn,
    ScoreReport,
    TraceText,
    build_report,
    report_document,
)
from ragmeter.offline.report.tables import (
    answered_line,
    comparison_caption,
    missing_values_line,
    report_tables,
)
from ragmeter.offline.scored_lines import input_size
from ragmeter.trace import Trace

REPORT_EVERY = 256  # traces between two updates of the progress bar
TAG = "tag:"
NAME = 60  # characters of a run's name
SUFFIXES = (".gz", ".jsonl", ".ndjson", ".json", ".csv")


@dataclass(frozen=True, slots=True)
class ReportOptions:
    """What the call asks for."""

    files: Sequence[Path]
    form: str = "table"
    html: Path | None = None
    traces: Path | None = None
    service: str | None = None
    metrics: Sequence[str] = ()
    pair_by: str = "trace_id"
    worst: int = 5
    seed: int = 0
    apart: Sequence[Path] = field(default_factory=tuple)


def run_report(
    wanted: ReportOptions,
    settings: Settings,
    say: Callable[[str], None],
    render_page: Callable[[ScoreReport], str],
) -> None:
    """Read and compare scored files, print the tables and write the page.

    Args:
        wanted: The options of the call.
        settings: The settings in force; limits and privacy apply to the traces.
        say: Receives each message for the terminal.
        render_page: Renders the HTML page of `--html`.

    Raises:
        UsageError: The options contradict each other.
        OSError: A file cannot be read or written, or has no scored trace.
    """
    _check_options(wanted)
    texts = None
    if wanted.traces is not None:
        texts = TraceTexts(wanted.traces, settings.limits.trace_bytes, settings.privacy, say)
    runs, notes, own = [], [], []
    redactor = Redactor(settings.privacy)
    for name, path in zip(_run_names(wanted.files), wanted.files, strict=True):
        run, said, found = _read_run(name, path, wanted, settings, texts, redactor, say)
        for note in said:
            say(f"{name}: {note}")
        runs.append(run)
        notes.append(said)
        own.append(found)
    report = build_report(
        runs, paired_by=wanted.pair_by, seed=wanted.seed, worst=wanted.worst,
        metrics=wanted.metrics, notes=notes,
    )  # fmt: skip
    if not report.keys and wanted.metrics:
        raise UsageError(f"--metric: no file has a value of {', '.join(wanted.metrics)}")
    known = texts.texts if texts else {}
    columns = zip(report.columns, own, strict=True)
    report = replace(
        report,
        columns=[replace(c, texts=_worst_texts(c, {**known, **found})) for c, found in columns],
    )
    if wanted.html is not None:
        write_atomically(wanted.html, render_page(report).encode("utf-8", "replace"))
    if wanted.form == "json":
        print_text(report_document(report))
    else:
        for line in answered_line(report):
            say(line)
        print_tables(report_tables(report))
        for line in [*comparison_caption(report), *filter(None, [missing_values_line(report)])]:
            say(line)


def _check_options(wanted: ReportOptions) -> None:
    read = [*wanted.files, *([wanted.traces] if wanted.traces else []), *wanted.apart]
    if wanted.html is not None:
        check_output_path("--html", wanted.html, read)
    if list(read).count(STDIN) > 1:
        raise UsageError("standard input can be read once")
    by = wanted.pair_by
    if by not in ("trace_id", "query") and not (by.startswith(TAG) and by[len(TAG) :]):
        raise UsageError(f"--pair-by {by}: trace_id, query or tag:NAME is needed")


def _run_names(files: Sequence[Path]) -> list[str]:
    """What the runs are called: the names of their files without the endings, each once."""
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
) -> tuple[ScoredRun, list[str], dict[str, TraceText]]:
    run, found, own = ScoredRun(name), ReportInputSummary(), {}
    seen: set[tuple[str, str]] = set()
    repeated = without = others = position = 0
    limit = settings.limits.trace_bytes
    with FileProgress(name, input_size(path)) as progress:
        for number, read in enumerate(read_scored_file(path, limit, found, say), start=1):
            trace = read.trace
            if wanted.service is not None and trace.service != wanted.service:
                others += 1
                continue
            if (trace.service, trace.trace_id) in seen:
                repeated += 1
                continue
            seen.add((trace.service, trace.trace_id))
            key = _pairing_key(read, wanted.pair_by, texts)
            without += key is None
            if read.text is not None and settings.privacy.content == "full":
                own[trace.trace_id] = _redacted(read, read.text, redactor)
            run.add(trace, key)
            if number % REPORT_EVERY == 0:
                progress.read(number, found.bad, position)
    if not run.traces:
        raise OSError(f"{name}: no scored trace" + (f" of {wanted.service}" if others else ""))
    notes = list(found.notes)
    for count, what in (
        (found.bad, "lines unreadable"),
        (repeated, "repeated traces left out"),
        (found.unknown, "results of unknown metrics or scorers left out"),
        (found.invalid, "values that are none, counted as unscored"),
        (without if len(wanted.files) > 1 else 0, f"traces without {wanted.pair_by} to pair by"),
    ):
        if count:
            notes.append(f"{count:,} {what}")
    if len(run.services) > 1:
        notes.append(f"{len(run.services)} services taken together; --service picks one")
    return run, notes, own


def _pairing_key(read: ReportTrace, by: str, texts: TraceTexts | None) -> str | None:
    if by == "trace_id":
        return read.trace.trace_id
    if by == "query":
        if read.text is not None:
            return normalise_query(read.text.query) or None
        return texts.queries.get(read.trace.trace_id) if texts else None
    return read.trace.tags.get(by.removeprefix(TAG))


def _redacted(read: ReportTrace, text: TraceText, redactor: Redactor) -> TraceText:
    """A text of the file itself, under the rules for those of traces."""
    when = datetime.fromtimestamp(read.trace.timestamp, UTC)
    trace = Trace(
        trace_id=read.trace.trace_id, service=read.trace.service, timestamp=when,
        query=text.query, answer=text.answer,
    )  # fmt: skip
    kept = redactor.trace(DecodedTrace(trace, b""), Counts()).trace
    return TraceText(kept.query or "", kept.answer or "")


def _worst_texts(column: ReportColumn, known: dict[str, TraceText]) -> dict[str, TraceText]:
    ids = {item.trace_id for series in column.series for item in series.worst}
    return {trace_id: known[trace_id] for trace_id in sorted(ids) if trace_id in known}


def convert_to_open_rag_eval(
    wanted: ReportOptions, output: Path, settings: Settings, say: Callable[[str], None]
) -> None:
    """Write the columns of open-rag-eval. Raises OSError and `UsageError`."""
    if len(wanted.files) != 1:
        raise UsageError("--format open-rag-eval: one file at a time")
    if wanted.html is not None:
        raise UsageError("--format open-rag-eval: writes no page")
    _check_options(wanted)
    limit = settings.limits.trace_bytes
    known = None
    if wanted.traces is not None:
        known = TraceTexts(wanted.traces, limit, settings.privacy, say, whole=True)
    if output != STDIN:
        check_output_path("--output", output, [*wanted.files, *filter(None, [wanted.traces])])
    found, rows, text = ReportInputSummary(), OpenRagEvalRows(), io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(OPEN_RAG_EVAL_HEADER)
    written = 0
    for read in read_scored_file(wanted.files[0], limit, found, say, details=True):
        scored: ScoredTrace = read.trace
        if wanted.service is None or scored.service == wanted.service:
            writer.writerow(rows.row(scored, known.traces.get(scored.trace_id) if known else None))
            written += 1
    if not written:
        raise OSError(f"{wanted.files[0]}: no scored trace")
    if output == STDIN:
        print_text(text.getvalue())
    else:
        write_atomically(output, text.getvalue().encode("utf-8", "replace"))
    say(f"{written:,} rows" + (f", {found.bad:,} lines unreadable" if found.bad else ""))
    if rows.empty:
        say(f"without a value: {', '.join(rows.empty)}")
