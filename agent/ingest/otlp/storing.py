"""Spans and log events as compact JSON for the state file, and back.

A list by position, not an object by name: half the bytes of a small span. What is added comes at
the end with a default, so that what an older version stored can still be read.
"""

from __future__ import annotations

from typing import Any

from pydantic_core import from_json, to_json

from agent.ingest.spans import Event, LogEvent, Span

__all__ = ["dump_log", "dump_span", "load_log", "load_span"]


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
        span.events = [Event(*event) for event in span.events]  # type: ignore[misc]
        span.links = [(trace_id, span_id) for trace_id, span_id in span.links]
    except TypeError as error:
        raise ValueError(f"no stored span: {error}") from None
    return span


def dump_log(log: LogEvent) -> bytes:
    event = log.event
    return _dump([log.trace_id, log.span_id, event.name, event.time, event.attributes])


def load_log(data: bytes) -> LogEvent:
    """What `dump_log` wrote. Raises `ValueError` for anything else."""
    try:
        trace_id, span_id, *event = _load(data)
        return LogEvent(trace_id, span_id, Event(*event))
    except TypeError as error:
        raise ValueError(f"no stored log event: {error}") from None
