"""`ragmeter inspect`: show which traces recorded OTLP requests yield, and from which spans.

For whoever asks why a field is missing before anything is deployed: nothing is scored or kept.
"""

from __future__ import annotations

import gzip
import sys
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from ragmeter.config.inputs import OtlpSettings
from ragmeter.console.terminal import escape_control
from ragmeter.ingest.files import GZIP
from ragmeter.ingest.live_inspection import describe_request
from ragmeter.ingest.otlp.bodies import decode_logs, decode_traces
from ragmeter.ingest.otlp.json_values import is_json_body
from ragmeter.ingest.otlp.limits import DecodedRequest, UndecodableBody
from ragmeter.ingest.requests.extraction import FieldOrigin, extract_requests
from ragmeter.ingest.spans import LogEvent, Span
from ragmeter.trace import Trace

STDIN = Path("-")
MAX_BODY = 512 * 2**20  # bytes, as for files of traces
_MAX_SHOWN_CHARS = 300  # characters of a text on the terminal; JSON has them all


FieldOrigins = Mapping[str, Sequence[FieldOrigin]]


@dataclass(slots=True)
class Inspection:
    """`traces` with the spans that gave their fields. `dropped` counts traces that are no request,
    `rejected` spans that cannot be read, both by reason; `spans` and `bodies` were read."""

    traces: list[tuple[Trace, FieldOrigins]] = field(default_factory=list)
    dropped: Counter[str] = field(default_factory=Counter)
    rejected: Counter[str] = field(default_factory=Counter)
    spans: int = 0
    bodies: int = 0


def inspect_files(paths: Iterable[Path], settings: OtlpSettings) -> Inspection:
    """Read files of export requests, traces and logs mixed, and join all their spans: a protobuf
    body, a JSON body, or JSON bodies a line; gzip too. A folder is all that lies in it, in the
    order of the names. OSError for what cannot be read."""
    found = Inspection()
    spans: dict[tuple[str, str], Span] = {}
    logs: list[LogEvent] = []
    for path in _files(paths):
        for body in _bodies(path):
            found.bodies += 1
            try:
                decoded = _decode(body)
            except UndecodableBody as error:
                found.rejected[error.reason] += 1
                continue
            found.rejected.update(decoded.reasons)
            for span in decoded.spans:
                spans.setdefault((span.trace_id, span.span_id), span)
            logs += decoded.events
    for log in logs:
        owner = spans.get((log.trace_id, log.span_id))
        if owner is not None:
            owner.events.append(log.event)
    found.spans = len(spans)
    read = extract_requests(list(spans.values()), settings)
    found.dropped = read.dropped
    found.traces = list(zip(read.traces, read.origins, strict=True))
    return found


def _files(paths: Iterable[Path]) -> Iterator[Path]:
    for path in paths:
        if not path.is_dir():
            yield path
            continue
        for inside in sorted(path.iterdir()):
            if inside.is_file() and not inside.name.startswith("."):
                yield inside


def _bodies(path: Path) -> Iterator[bytes]:
    # never more than may be read: a file can be endless
    if path == STDIN:
        data = sys.stdin.buffer.read(MAX_BODY + 1)
    else:
        with path.open("rb") as file:
            data = file.read(MAX_BODY + 1)
    if data.startswith(GZIP) and len(data) <= MAX_BODY:
        try:
            with gzip.open(BytesIO(data)) as packed:
                data = packed.read(MAX_BODY + 1)
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise OSError(f"{path}: broken gzip: {error}") from None
    if len(data) > MAX_BODY:
        raise OSError(f"{path}: more than {MAX_BODY} bytes")
    if not is_json_body(data):
        yield data
        return
    lines = [line for line in data.splitlines() if line.strip()]
    # one body printed over several lines begins with a line that is no whole object
    alone = len(lines) > 1 and all(line.rstrip().endswith(b"}") for line in lines[:2])
    yield from lines if alone else [data]


def _decode(body: bytes) -> DecodedRequest:
    """Spans, or else log events: one wire form does not tell which it holds."""
    form = is_json_body(body)
    decoded = decode_traces(body, json=form)
    if decoded.spans or (form and b"esourceLogs" not in body and b"esource_logs" not in body):
        return decoded
    logs = decode_logs(body, json=form)
    return logs if logs.events else decoded


def inspection_to_dict(inspection: Inspection) -> dict[str, Any]:
    """JSON-able: the native traces, each with the spans of its fields, and the counts."""
    return {
        "requests": [
            describe_request(trace.model_dump(mode="json", exclude_none=True), origins)
            for trace, origins in inspection.traces
        ],
        "not_requests": dict(inspection.dropped),
        "rejected": dict(inspection.rejected),
        "spans": inspection.spans,
        "bodies": inspection.bodies,
    }


def format_trace_lines(inspection: Inspection) -> Iterator[str]:
    """The native traces as JSON lines."""
    for trace, _ in inspection.traces:
        yield trace.model_dump_json(exclude_none=True)


def print_request(trace: Trace, origins: FieldOrigins, out: Console) -> None:
    """A table: field, value, and where it is from."""
    table = Table(
        title=Text(escape_control(f"{trace.service}  {trace.trace_id}")), title_justify="left"
    )
    table.add_column("field")
    table.add_column("value", overflow="fold", ratio=3)
    table.add_column("from", overflow="fold", ratio=1)
    for name, value in _rows(trace):
        table.add_row(name, Text(value), Text(_format_origins(origins.get(name, ()))))
    out.print(table)


def print_inspection(inspection: Inspection, out: Console) -> None:
    """A table a request, then the counts."""
    for trace, origins in inspection.traces:
        print_request(trace, origins, out)
    for title, counts in (
        ("traces that are no request", inspection.dropped),
        ("could not be read", inspection.rejected),
    ):
        if counts:
            listed = ", ".join(f"{number} {reason}" for reason, number in sorted(counts.items()))
            out.print(f"{title}: {listed}", markup=False)
    out.print(
        f"{len(inspection.traces)} requests in {inspection.spans} spans of"
        f" {inspection.bodies} bodies",
        markup=False,
    )


def _rows(trace: Trace) -> Iterator[tuple[str, str]]:
    passages = None
    if trace.passages is not None:
        listed = (
            f"{n}. [{escape_control(passage.id)}] {_shorten(passage.text) if passage.text else '(no text)'}"
            for n, passage in enumerate(trace.passages, 1)
        )
        passages = "\n".join(listed) or "(none retrieved)"
    for name, value in (
        ("query", _shorten(trace.query or "")),
        ("passages", passages),
        ("answer", _shorten(trace.answer or "")),
    ):
        reason = trace.missing.get(name)
        yield name, " ".join(part for part in (value, reason and f"({reason})") if part) or "-"
    status = trace.status if trace.error is None else f"{trace.status}: {_shorten(trace.error)}"
    yield "status", status
    timings = {stage: s for stage, s in (trace.timings or {}).items() if s is not None}
    yield "timings", ", ".join(f"{stage} {s:.3f} s" for stage, s in timings.items()) or "-"
    usage = trace.usage.model_dump(exclude_none=True) if trace.usage else {}
    yield "usage", ", ".join(f"{name} {number}" for name, number in usage.items()) or "-"
    yield "model", escape_control(trace.model or "-")
    yield (
        "tags",
        ", ".join(escape_control(f"{name}={value}") for name, value in trace.tags.items()) or "-",
    )
    if trace.probability < 1:
        yield "sampling", f"probability {trace.probability:g}"


def _shorten(text: str) -> str:
    return escape_control(text if len(text) <= _MAX_SHOWN_CHARS else f"{text[:_MAX_SHOWN_CHARS]} …")


def _format_origins(origins: Sequence[FieldOrigin]) -> str:
    return "\n".join(
        dict.fromkeys(escape_control(f"{one.name} ({one.convention})") for one in origins)
    )
