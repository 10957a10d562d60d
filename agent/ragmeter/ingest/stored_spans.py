"""Serialise spans and log events of open traces for the state file, and read them back.

A body is lines of compact JSON, each after a letter for its kind. A line is a list by position,
which takes half the bytes of an object by name. Log events may come before their spans: they are
joined when the trace is read.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from hashlib import blake2b
from typing import Any, NamedTuple

from pydantic_core import from_json, to_json

from ragmeter.config.inputs import PrivacySettings
from ragmeter.core.counters import Counts
from ragmeter.ingest.assembler import TracePart
from ragmeter.ingest.native import BodyLimitExceeded, has_values_over
from ragmeter.ingest.otlp import decode_logs, decode_traces
from ragmeter.ingest.otlp.reader import UndecodableBody
from ragmeter.ingest.redaction import Redactor
from ragmeter.ingest.spans import LogEvent, Span, SpanEvent, is_own_span, is_result_event

PART_OVERHEAD = 200  # bytes that a span costs besides its body: in memory, its row and its index
MAX_VALUES = 500_000  # of one trace; about 100 bytes each once they are objects
_SPAN = b"S"
_LOG = b"L"
_INVALID = (ValueError, TypeError, RecursionError)  # of values or lines that are no valid JSON


class StoredPart(NamedTuple):
    """A part of a trace, its line, and the span itself if it is one."""

    part: TracePart
    line: bytes
    span: Span | None = None


class DecodeSummary(NamedTuple):
    """What else there is to say of a decoded body.

    Args:
        refused: Parts that are left out, by reason.
        counts: What redaction has counted.
        broken: Reason and text where nothing of the body could be read.
    """

    refused: Counter[str]
    counts: Counts
    broken: tuple[str, str] | None = None


def split_parts(parts: Sequence[StoredPart], most: float) -> Iterator[list[StoredPart]]:
    """Yield groups of at most `most` bytes, or of a single larger part, in order."""
    group: list[StoredPart] = []
    size = 0
    for part in parts:
        if group and size + part.part.size > most:
            yield group
            group = []
            size = 0
        group.append(part)
        size += part.part.size
    if group:
        yield group


def decode_parts(
    body: bytes, redactor: Redactor, *, logs: bool, json: bool
) -> tuple[list[StoredPart], DecodeSummary]:
    """Decode a body of spans or log records, redact and serialise them."""
    counts: Counts = {}
    try:
        decoded = (decode_logs if logs else decode_traces)(body, json=json)
    except UndecodableBody as error:
        summary = DecodeSummary(Counter(undecodable=1), counts, (error.reason, str(error)))
        return [], summary
    refused = Counter(decoded.reasons)
    refused["no_content"] += decoded.ignored
    spans = [redactor.span(span, counts) for span in decoded.spans]
    events = [redactor.log_event(event, counts) for event in decoded.events]
    parts = [*serialise_spans(spans, refused), *serialise_log_events(events, refused)]
    return parts, DecodeSummary(+refused, counts)


def iterate_parts(
    body: bytes, privacy: PrivacySettings, logs: bool, json: bool
) -> Iterator[StoredPart | DecodeSummary]:
    """Yield what `decode_parts` returns, for another process: parts without their spans."""
    parts, summary = decode_parts(body, Redactor(privacy), logs=logs, json=json)
    parts.reverse()
    while parts:
        yield parts.pop()._replace(span=None)
    yield summary


def serialise_spans(spans: Iterable[Span], refused: Counter[str]) -> list[StoredPart]:
    """Serialise spans; `refused` counts why others are left out."""
    parts: list[StoredPart] = []
    for span in spans:
        if is_own_span(span):
            refused["own"] += 1
            continue
        try:
            line = _SPAN + dump_span(span)
            trace = bytes.fromhex(span.trace_id)
            key = bytes.fromhex(span.span_id)
        except _INVALID:  # the decoder should have refused it
            refused["internal_error"] += 1
            continue
        part = TracePart(trace, key, len(line) + PART_OVERHEAD, not span.parent_id)
        parts.append(StoredPart(part, line, span))
    return parts


def serialise_log_events(events: Iterable[LogEvent], refused: Counter[str]) -> list[StoredPart]:
    """Serialise log events; `refused` counts why others are left out.

    They have no id: events with the same content count once, as a sender without an answer may
    send them again.
    """
    parts: list[StoredPart] = []
    for log in events:
        if is_result_event(log):
            refused["own"] += 1
            continue
        try:
            line = _LOG + dump_log_event(log)
            trace = bytes.fromhex(log.trace_id)
        except _INVALID:
            refused["internal_error"] += 1
            continue
        key = blake2b(line, digest_size=8).digest()
        parts.append(StoredPart(TracePart(trace, key, len(line) + PART_OVERHEAD, log=True), line))
    return parts


def join_lines(lines: Iterable[bytes]) -> bytes:
    """Return the body of one row."""
    return b"\n".join(lines)


def read_stored_trace(bodies: Sequence[object]) -> tuple[list[Span], Counter[tuple[str, str]]]:
    """Return the spans of a trace with their log events, and lost lines by signal and reason.

    Bodies from a damaged file may be anything.

    Raises:
        BodyLimitExceeded: The trace has more than `MAX_VALUES` values.
    """
    lost: Counter[tuple[str, str]] = Counter()
    spans: list[Span] = []
    logs: dict[str, list[tuple[int, bytes, SpanEvent]]] = {}
    sound = [body for body in bodies if isinstance(body, bytes)]
    lost["traces", "corrupt"] += len(bodies) - len(sound)
    # a value is a byte at least: counting them costs as much as reading them
    if sum(map(len, sound)) > MAX_VALUES and has_values_over(join_lines(sound), MAX_VALUES):
        raise BodyLimitExceeded(f"more than {MAX_VALUES} values in one trace")
    for body in sound:
        for line in body.split(b"\n"):
            try:
                if line[:1] == _LOG:
                    log = load_log_event(line[1:])
                    logs.setdefault(log.span_id, []).append((log.event.time, line, log.event))
                else:
                    spans.append(load_span(line[1:]))
            except _INVALID:
                lost["traces", "corrupt"] += 1
    for span in spans:
        # by time and content, so that the order of arrival does not matter
        for _, _, event in sorted(logs.pop(span.span_id, []), key=lambda log: log[:2]):
            span.events.append(event)
    lost["logs", "no_span"] += sum(map(len, logs.values()))
    return spans, +lost


def dump_span(span: Span) -> bytes:
    """Return a span as JSON."""
    return _dump(
        [
            span.trace_id,
            span.span_id,
            span.parent_id,
            span.name,
            span.kind,
            span.start,
            span.end,
            span.status,
            span.status_message,
            span.attributes,
            [[event.name, event.time, event.attributes] for event in span.events],
            span.trace_state,
            span.scope,
            span.resource,
            span.dropped,
        ]
    )


def load_span(data: bytes) -> Span:
    """Return the span of `dump_span`; raise ValueError for any other data."""
    try:
        span = Span(*_load(data))
        span.events = [SpanEvent(*event) for event in span.events]  # type: ignore[misc]
    except TypeError as error:
        raise ValueError(f"no stored span: {error}") from None
    return span


def dump_log_event(log: LogEvent) -> bytes:
    """Return a log event as JSON."""
    event = log.event
    return _dump([log.trace_id, log.span_id, event.name, event.time, event.attributes])


def load_log_event(data: bytes) -> LogEvent:
    """Return the log event of `dump_log_event`; raise ValueError for any other data."""
    try:
        trace_id, span_id, *event = _load(data)
        return LogEvent(trace_id, span_id, SpanEvent(*event))
    except TypeError as error:
        raise ValueError(f"no stored log event: {error}") from None


def _dump(values: list[Any]) -> bytes:
    return to_json(values, inf_nan_mode="constants")


def _load(data: bytes) -> list[Any]:
    values = from_json(data)
    if not isinstance(values, list):
        raise ValueError("no list")
    return values
