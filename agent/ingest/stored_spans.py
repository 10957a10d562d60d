"""Serialise spans and log events of open traces to JSON lines for the state file, and read them back.

Spans and log events as compact JSON for the state file, and back.

A list by position, not an object by name: half the bytes of a small span. What is added comes at
the end with a default, so that what an older version stored can still be read.

Spans and log events as they lie in the state file until their trace is complete.

A body is lines of compact JSON, each after a letter that says what it is. Log events join their
spans when the trace is read: they may come first.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from hashlib import blake2b
from typing import Any, NamedTuple

from pydantic_core import from_json, to_json

from ragmeter.ingest.assembler import TracePart
from ragmeter.ingest.native import BodyLimitExceeded, has_values_over
from ragmeter.ingest.spans import LogEvent, Span, SpanEvent, is_own_span, is_result_event


def _dump(values: list[Any]) -> bytes:
    return to_json(values, inf_nan_mode="constants")


def _load(data: bytes) -> list[Any]:
    values = from_json(data)
    if not isinstance(values, list):
        raise ValueError("no list")
    return values


def dump_span(span: Span) -> bytes:
    return _dump(
        [
            *(span.trace_id, span.span_id, span.parent_id, span.name, span.kind),
            *(span.start, span.end, span.status, span.status_message, span.attributes),
            [[event.name, event.time, event.attributes] for event in span.events],
            *(span.links, span.trace_state, span.scope, span.scope_version, span.resource),
            span.dropped,
        ]
    )


def load_span(data: bytes) -> Span:
    """What `dump_span` wrote. Raises `ValueError` for anything else."""
    try:
        span = Span(*_load(data))
        span.events = [SpanEvent(*event) for event in span.events]  # type: ignore[misc]
        span.links = [(trace_id, span_id) for trace_id, span_id in span.links]
    except TypeError as error:
        raise ValueError(f"no stored span: {error}") from None
    return span


def dump_log_event(log: LogEvent) -> bytes:
    event = log.event
    return _dump([log.trace_id, log.span_id, event.name, event.time, event.attributes])


def load_log_event(data: bytes) -> LogEvent:
    """What `dump_log` wrote. Raises `ValueError` for anything else."""
    try:
        trace_id, span_id, *event = _load(data)
        return LogEvent(trace_id, span_id, SpanEvent(*event))
    except TypeError as error:
        raise ValueError(f"no stored log event: {error}") from None


_SPAN, _LOG = b"S", b"L"
PART_OVERHEAD = 200  # bytes that a span costs besides its body: in memory, its row and its index
MAX_VALUES = 500_000  # of one trace; about 100 bytes each once they are objects


class StoredPart(NamedTuple):
    """A part of a trace, its line, and the span itself where it is one."""

    part: TracePart
    line: bytes
    span: Span | None = None


def serialise_spans(spans: Iterable[Span], refused: Counter[str]) -> list[StoredPart]:
    """What is to be kept of these spans; counts in `refused` why others are not."""
    out: list[StoredPart] = []
    for span in spans:
        if is_own_span(span):
            refused["own"] += 1
            continue
        try:
            line = _SPAN + dump_span(span)
            trace, key = bytes.fromhex(span.trace_id), bytes.fromhex(span.span_id)
        except (ValueError, TypeError, RecursionError):  # a decoder of ours has let it through
            refused["internal_error"] += 1
            continue
        part = TracePart(trace, key, len(line) + PART_OVERHEAD, not span.parent_id)
        out.append(StoredPart(part, line, span))
    return out


def serialise_log_events(events: Iterable[LogEvent], refused: Counter[str]) -> list[StoredPart]:
    """The same for log events. They have no id of their own: what is the same in all counts once,
    as where a sender that got no answer sends again."""
    out: list[StoredPart] = []
    for log in events:
        if is_result_event(log):
            refused["own"] += 1
            continue
        try:
            line = _LOG + dump_log_event(log)
            trace = bytes.fromhex(log.trace_id)
        except (ValueError, TypeError, RecursionError):
            refused["internal_error"] += 1
            continue
        key = blake2b(line, digest_size=8).digest()
        out.append(StoredPart(TracePart(trace, key, len(line) + PART_OVERHEAD, log=True), line))
    return out


def join_lines(lines: Iterable[bytes]) -> bytes:
    """The body of one row."""
    return b"\n".join(lines)


def read_stored_trace(bodies: Sequence[object]) -> tuple[list[Span], Counter[tuple[str, str]]]:
    """The spans of a trace with their log events, and how many lines are lost, by signal and why.

    A body of a damaged file may be anything. Raises `TooMuch` where a trace holds more values
    than one may.
    """
    lost: Counter[tuple[str, str]] = Counter()
    spans: list[Span] = []
    logs: dict[str, list[tuple[int, bytes, SpanEvent]]] = {}
    whole = [body for body in bodies if isinstance(body, bytes)]
    lost["traces", "corrupt"] += len(bodies) - len(whole)
    # a value is a byte at least: counting them costs as much as reading them
    if sum(map(len, whole)) > MAX_VALUES and has_values_over(join_lines(whole), MAX_VALUES):
        raise BodyLimitExceeded(f"more than {MAX_VALUES} values in one trace")
    for body in whole:
        for line in body.split(b"\n"):
            try:
                if line[:1] == _LOG:
                    log = load_log_event(line[1:])
                    logs.setdefault(log.span_id, []).append((log.event.time, line, log.event))
                else:
                    spans.append(load_span(line[1:]))
            except (ValueError, TypeError, RecursionError):
                lost["traces", "corrupt"] += 1
    for span in spans:
        # by time and content: the same trace, whatever came first
        for _, _, event in sorted(logs.pop(span.span_id, []), key=lambda one: one[:2]):
            span.events.append(event)
    lost["logs", "no_span"] += sum(map(len, logs.values()))
    return spans, +lost
