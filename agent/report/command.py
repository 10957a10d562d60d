"""`ragmeter report`: the input and output around `agent.report`."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

from agent.config import Settings
from agent.counters import Counts
from agent.ingest.native import Good
from agent.labels import bounded
from agent.outputs import UsageError, check_apart, print_tables, print_text, write_whole
from agent.privacy.redactor import Redactor
from agent.progress import ReplayProgress
from agent.report.document import document
from agent.report.files import Read, Reading, Texts, normalised, read_scored
from agent.report.open_rag_eval_rows import HEADER, Rows
from agent.report.run import Run
from agent.report.summary import Column, Report, Text, report_of
from agent.report.tables import answered_line, caption, tables, why_missing
from agent.scored_input import size_of
from agent.sources.files import STDIN
from agent.trace import ScoredTrace, Trace

__all__ = ["Wanted", "convert", "run_report"]

REPORT_EVERY = 256  # traces between two updates of the progress bar
TAG = "tag:"
NAME = 60  # characters of a run's name
SUFFIXES = (".gz", ".jsonl", ".ndjson", ".json", ".csv")


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the call asks for."""

    files: Sequence[Path]
    form: str = "table"
    html: Path | None = None
    png: Path | None = None
    traces: Path | None = None
    service: str | None = None
    metrics: Sequence[str] = ()
    pair_by: str = "trace_id"
    worst: int = 5
    seed: int = 0
    apart: Sequence[Path] = field(default_factory=tuple)


def run_report(wanted: Wanted, settings: Settings, say: Callable[[str], None]) -> bool:
    """Read, compare, print to stdout, draw. False where a picture could not be made for want of
    its library. Raises OSError, `UsageError` where the call cannot be meant, and OSError where a
    file has no scored trace."""
    _check(wanted)
    texts = None
    if wanted.traces is not None:
        texts = Texts(wanted.traces, settings.limits.trace_bytes, settings.privacy, say)
    runs, notes, own = [], [], []
    redactor = Redactor(settings.privacy)
    for name, path in zip(_names(wanted.files), wanted.files, strict=True):
        run, said, found = _read(name, path, wanted, settings, texts, redactor, say)
        for note in said:
            say(f"{name}: {note}")
        runs.append(run)
        notes.append(said)
        own.append(found)
    report = report_of(
        runs, paired_by=wanted.pair_by, seed=wanted.seed, worst=wanted.worst,
        metrics=wanted.metrics, notes=notes,
    )  # fmt: skip
    if not report.keys and wanted.metrics:
        raise UsageError(f"--metric: no file has a value of {', '.join(wanted.metrics)}")
    known = texts.texts if texts else {}
    columns = zip(report.columns, own, strict=True)
    report = replace(
        report, columns=[replace(c, texts=_shown(c, {**known, **found})) for c, found in columns]
    )
    whole = _draw(report, wanted, say)
    if wanted.form == "json":
        print_text(document(report))
    else:
        for line in answered_line(report):
            say(line)
        print_tables(tables(report))
        for line in [*caption(report), *filter(None, [why_missing(report)])]:
            say(line)
    return whole


def _check(wanted: Wanted) -> None:
    read = [*wanted.files, *([wanted.traces] if wanted.traces else []), *wanted.apart]
    for option, output in (("--html", wanted.html), ("--png", wanted.png)):
        if output is not None:
            check_apart(option, output, read)
    if list(read).count(STDIN) > 1:
        raise UsageError("standard input can be read once")
    by = wanted.pair_by
    if by not in ("trace_id", "query") and not (by.startswith(TAG) and by[len(TAG) :]):
        raise UsageError(f"--pair-by {by}: trace_id, query or tag:NAME is needed")


def _names(files: Sequence[Path]) -> list[str]:
    """What the runs are called: the names of their files without the endings, each once."""
    names: list[str] = []
    for path in files:
        name = "stdin" if path == STDIN else path.name
        for suffix in SUFFIXES:
            name = name.removesuffix(suffix) or name
        name = bounded(name, NAME)
        number = sum(other == name or other.startswith(f"{name} (") for other in names)
        names.append(f"{name} ({number + 1})" if number else name)
    return names


def _read(
    name: str,
    path: Path,
    wanted: Wanted,
    settings: Settings,
    texts: Texts | None,
    redactor: Redactor,
    say: Callable[[str], None],
) -> tuple[Run, list[str], dict[str, Text]]:
    run, found, own = Run(name), Reading(), {}
    seen: set[tuple[str, str]] = set()
    repeated = without = others = position = 0
    limit = settings.limits.trace_bytes
    with ReplayProgress(name, size_of(path)) as progress:
        for number, read in enumerate(read_scored(path, limit, found, say), start=1):
            trace = read.trace
            if wanted.service is not None and trace.service != wanted.service:
                others += 1
                continue
            if (trace.service, trace.trace_id) in seen:
                repeated += 1
                continue
            seen.add((trace.service, trace.trace_id))
            key = _key(read, wanted.pair_by, texts)
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


def _key(read: Read, by: str, texts: Texts | None) -> str | None:
    if by == "trace_id":
        return read.trace.trace_id
    if by == "query":
        if read.text is not None:
            return normalised(read.text.query) or None
        return texts.queries.get(read.trace.trace_id) if texts else None
    return read.trace.tags.get(by.removeprefix(TAG))


def _redacted(read: Read, text: Text, redactor: Redactor) -> Text:
    """A text of the file itself, under the rules for those of traces."""
    when = datetime.fromtimestamp(read.trace.timestamp, UTC)
    trace = Trace(
        trace_id=read.trace.trace_id, service=read.trace.service, timestamp=when,
        query=text.query, answer=text.answer,
    )  # fmt: skip
    kept = redactor.trace(Good(trace, b""), Counts()).trace
    return Text(kept.query or "", kept.answer or "")


def _shown(column: Column, known: dict[str, Text]) -> dict[str, Text]:
    ids = {item.trace_id for series in column.series for item in series.worst}
    return {trace_id: known[trace_id] for trace_id in sorted(ids) if trace_id in known}


def _draw(report: Report, wanted: Wanted, say: Callable[[str], None]) -> bool:
    from exporters.report import NoLibrary, page, picture

    if wanted.html is not None:
        write_whole(wanted.html, page(report).encode("utf-8", "replace"))
    if wanted.png is not None:
        try:
            write_whole(wanted.png, picture(report))
        except NoLibrary as error:
            say(f"--png: {error}")
            return False
    return True


def convert(wanted: Wanted, output: Path, settings: Settings, say: Callable[[str], None]) -> None:
    """Write the columns of open-rag-eval. Raises OSError and `UsageError`."""
    if len(wanted.files) != 1:
        raise UsageError("--format open-rag-eval: one file at a time")
    if wanted.html is not None or wanted.png is not None:
        raise UsageError("--format open-rag-eval: writes no page and no picture")
    _check(wanted)
    limit = settings.limits.trace_bytes
    known = None
    if wanted.traces is not None:
        known = Texts(wanted.traces, limit, settings.privacy, say, whole=True)
    if output != STDIN:
        check_apart("--output", output, [*wanted.files, *filter(None, [wanted.traces])])
    found, rows, text = Reading(), Rows(), io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(HEADER)
    written = 0
    for read in read_scored(wanted.files[0], limit, found, say, details=True):
        scored: ScoredTrace = read.trace
        if wanted.service is None or scored.service == wanted.service:
            writer.writerow(rows.row(scored, known.traces.get(scored.trace_id) if known else None))
            written += 1
    if not written:
        raise OSError(f"{wanted.files[0]}: no scored trace")
    if output == STDIN:
        print_text(text.getvalue())
    else:
        write_whole(output, text.getvalue().encode("utf-8", "replace"))
    say(f"{written:,} rows" + (f", {found.bad:,} lines unreadable" if found.bad else ""))
    if rows.empty:
        say(f"without a value: {', '.join(rows.empty)}")
