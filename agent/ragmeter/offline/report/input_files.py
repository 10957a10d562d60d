"""The input of a report: scored JSON Lines, Parquet or CSV, and CSV of open-rag-eval."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import IO, Any, cast

from ragmeter.config.inputs import PrivacySettings
from ragmeter.core.counters import Counts
from ragmeter.ingest.files import MAX_SHOWN, InputFile, input_name, iterate_lines, open_input
from ragmeter.ingest.native import BOM, DecodeFailure, check_text
from ragmeter.ingest.redaction import Redactor
from ragmeter.offline import scored_lines
from ragmeter.offline.parquet import is_parquet, read_parquet_lines
from ragmeter.offline.report.open_rag_eval import (
    MAX_TEXT,
    ReportTrace,
    count_runs,
    is_open_rag_eval,
    normalise_query,
    read_open_rag_eval_row,
)
from ragmeter.offline.report.run import TraceText
from ragmeter.trace import Trace

_CSV_KEYS = ("trace_id", "service", "timestamp")  # first columns of ragmeter's own CSV
# Prefixes of its last columns.
TIMING_COLUMN = "timing:"
TAG_COLUMN = "tag:"
JUDGING_COLUMN = "judging"  # by whom a trace was judged and at what price, as JSON


@dataclass(slots=True)
class ReportInputSummary:
    """Counts and notes gathered while reading a scored file.

    Args:
        position: Bytes read, of the text if the file is packed.
        invalid: Invalid values, which count as unscored.
        notes: Remarks for the reader of the report.
    """

    position: int = 0
    bad: int = 0
    unknown: int = 0
    invalid: int = 0
    notes: list[str] = field(default_factory=list)


class TraceTexts:
    """Queries and answers by trace id, read from a file of traces and redacted.

    Args:
        privacy: Redaction rules; texts are held only with full content.
        whole: Hold the whole traces as well.

    Raises:
        OSError: The file cannot be read.
    """

    def __init__(
        self,
        path: Path,
        limit: int,
        privacy: PrivacySettings,
        say: Callable[[str], None],
        whole: bool = False,
    ) -> None:
        self.traces: dict[str, Trace] = {}
        self.texts: dict[str, TraceText] = {}
        self.queries: dict[str, str] = {}
        redactor = Redactor(privacy)
        counts = cast(Counts, {})
        bad = 0
        shown = privacy.content == "full"
        for item, _ in InputFile(path).read(limit):
            if isinstance(item, DecodeFailure):
                bad += 1
                continue
            trace = redactor.trace(item, counts).trace
            if trace.query:
                self.queries[trace.trace_id] = normalise_query(trace.query)
            if shown:
                query = (trace.query or "")[:MAX_TEXT]
                answer = (trace.answer or "")[:MAX_TEXT]
                self.texts[trace.trace_id] = TraceText(query, answer)
                if whole:
                    self.traces[trace.trace_id] = trace
        if bad:
            say(f"{path}: {bad} items unreadable")
        if not shown:
            say(f"{path}: no text is shown (privacy.content)")


def read_scored_file(
    path: Path, limit: int, summary: ReportInputSummary, say: Callable[[str], None]
) -> Iterator[ReportTrace]:
    """Read the scored traces of a file; its beginning tells the format.

    The file is JSON Lines, Parquet or CSV, plain or gzip; a CSV has no details of scores. `summary`
    receives counts and notes while it is read.

    Raises:
        OSError: The file cannot be read, or has none of the known formats.
    """
    name = input_name(path)
    with open_input(path) as file:
        if is_parquet(file):
            lines = read_parquet_lines(file, name)
            yield from _read_jsonl(lines=lines, name=name, limit=limit, summary=summary, say=say)
            return
        head: bytes = file.peek(1)  # type: ignore[attr-defined]
        check_text(head, name)
        if head.removeprefix(BOM).lstrip()[:1] in (b"{", b""):
            lines = iterate_lines(file, name, limit)
            yield from _read_jsonl(lines=lines, name=name, limit=limit, summary=summary, say=say)
        else:
            yield from _read_csv(file=file, name=name, limit=limit, summary=summary, say=say)


def _read_jsonl(
    lines: Iterator[tuple[bytes, int]],
    name: str,
    limit: int,
    summary: ReportInputSummary,
    say: Callable[[str], None],
) -> Iterator[ReportTrace]:
    for line, number in lines:
        summary.position += len(line) + 1
        try:
            scored_line = scored_lines.decode_scored_line(line, limit)
        except scored_lines.InvalidScoredLine as error:
            summary.bad += 1
            if summary.bad <= MAX_SHOWN:
                say(f"{name}, line {number}: {error}")
            continue
        summary.unknown += scored_line.unknown
        summary.invalid += scored_line.invalid
        yield ReportTrace(scored_line.trace)


def _read_csv(
    file: IO[bytes],
    name: str,
    limit: int,
    summary: ReportInputSummary,
    say: Callable[[str], None],
) -> Iterator[ReportTrace]:
    rows = _csv_rows(file, name, limit, summary)
    header = next(rows, (1, []))[1]
    if is_open_rag_eval(header):
        runs = count_runs(header)
        if runs > 1:
            summary.notes.append(
                f"{runs} answers a question: means are those of the first, the others show how far"
                " answers vary"
            )
        summary.notes.append("columns of open-rag-eval: every question counts once")
        make: Callable[[dict[str, str]], list[ReportTrace]] = partial(
            read_open_rag_eval_row, runs=runs
        )
    elif tuple(header[:3]) == _CSV_KEYS:
        summary.notes.append(
            "CSV: no probabilities, so each trace counts once, and no reasons, so empty cells"
            " count nowhere; JSON lines and Parquet have both"
        )
        make = _own_row_reader(summary)
    else:
        raise OSError(
            f"{name}: neither what `ragmeter score` writes (JSON lines, Parquet, CSV) nor a CSV of"
            " open-rag-eval"
        )
    for number, row in rows:
        found = make(dict(zip(header, row, strict=False))) if len(row) == len(header) else []
        if not found:
            summary.bad += 1
            if summary.bad <= MAX_SHOWN:
                say(f"{name}, line {number}: no row of this table")
        yield from found


def _own_row_reader(summary: ReportInputSummary) -> Callable[[dict[str, str]], list[ReportTrace]]:
    def make(row: dict[str, str]) -> list[ReportTrace]:
        results = []
        timings = dict[str, str]()
        tags = dict[str, str]()
        for name, cell in row.items():
            if name in (*_CSV_KEYS, JUDGING_COLUMN) or not cell.strip():
                continue
            if name.startswith((TIMING_COLUMN, TAG_COLUMN)):
                into = timings if name.startswith(TIMING_COLUMN) else tags
                into[name.partition(":")[2]] = cell
                continue
            metric, _, scorer = name.rpartition(".")
            base, _, k = metric.partition(":")
            item: dict[str, Any] = {"metric": base, "scorer": scorer, "state": "scored"}
            if k:
                item["k"] = int(k) if k.isdecimal() and len(k) < 4 else k
            try:
                value = float(cell)
            except ValueError:
                value = math.nan
            item["value"] = value if math.isfinite(value) else None  # None: counted as invalid
            results.append(item)
        failed = {item["metric"] for item in results if item["value"] == 1.0}
        document: dict[str, Any] = {
            **{key: row[key] for key in _CSV_KEYS},
            "status": next((status for status in ("timeout", "error") if status in failed), "ok"),
            "results": results,
            "timings": timings,
            "tags": tags,
        }
        with suppress(ValueError, RecursionError):
            document["judging"] = json.loads(row.get(JUDGING_COLUMN) or "null")
        line = json.dumps(document).encode()
        try:
            scored_line = scored_lines.decode_scored_line(line, len(line))
        except scored_lines.InvalidScoredLine:
            return []
        summary.unknown += scored_line.unknown
        summary.invalid += scored_line.invalid
        return [ReportTrace(scored_line.trace)]

    return make


def _csv_rows(
    file: IO[bytes], name: str, limit: int, summary: ReportInputSummary
) -> Iterator[tuple[int, list[str]]]:
    """Yield each row of a CSV with the number of its last line."""

    def lines() -> Iterator[str]:
        encoding = "utf-8-sig"  # of the first line alone
        while line := file.readline(limit + 1):
            summary.position += len(line)
            if len(line) > limit:
                raise OSError(f"{name}: a line over the limit of {limit} bytes")
            try:
                yield line.decode(encoding)
                encoding = "utf-8"
            except UnicodeDecodeError:
                raise OSError(f"{name}: not UTF-8") from None

    before = csv.field_size_limit(limit)
    try:
        reader = csv.reader(lines())
        for row in reader:
            if row:
                yield reader.line_num, row
    except csv.Error as error:
        raise OSError(f"{name}: broken CSV: {error}") from None
    finally:
        csv.field_size_limit(before)
