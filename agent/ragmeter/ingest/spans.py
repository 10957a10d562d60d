"""Spans and log events as decoded from any form of OTLP, before a convention interprets them.

A collector that sends everything to every backend also returns ragmeter's own evaluator spans and
result events to ragmeter. Scoring them would score scores without end, so the names that mark them
are defined here, for the exporters that send them and for ingestion, which drops them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

# An attribute's value. Lists and maps are nested values; bytes are left out (None).
AttributeValue = str | bool | int | float | list[Any] | dict[str, Any] | None

OWN_SERVICE = "ragmeter"  # `service.name` of the resource
OWN_SCOPE = "ragmeter"  # instrumentation scope: it stays if a collector rewrites the resource
# attribute and value of a span that carries an evaluation, by any sender
KIND = "openinference.span.kind"
EVALUATOR = "EVALUATOR"
RESULT_EVENT = "gen_ai.evaluation.result"  # an event that carries an evaluation, by any sender

_CONTENT = ("gen_ai.", "llm.", "db.query.", "db.search.")
# Scores: ragmeter's own return if one collector serves both directions.
_SCORES = "gen_ai.evaluation."


@dataclass(slots=True)
class SpanEvent:
    """An event of a span; `time` is Unix time in nanoseconds, 0 if unknown."""

    name: str
    time: int = 0
    attributes: dict[str, AttributeValue] = field(default_factory=dict)


@dataclass(slots=True)
class Span:
    """A span.

    Attributes:
        trace_id: 32 lower-case hex digits.
        span_id: 16 lower-case hex digits.
        parent_id: Like `span_id`; empty for a root.
        kind: Number of the OTLP enumeration.
        start: Unix time in nanoseconds, as `end`.
        status: 0 unset, 1 ok, 2 error.
        dropped: Number of attributes and events lost to limits of the sender.
    """

    trace_id: str
    span_id: str
    parent_id: str = ""
    name: str = ""
    kind: int = 0
    start: int = 0
    end: int = 0
    status: int = 0
    status_message: str = ""
    attributes: dict[str, AttributeValue] = field(default_factory=dict)
    events: list[SpanEvent] = field(default_factory=list)
    trace_state: str = ""
    scope: str = ""
    resource: dict[str, AttributeValue] = field(default_factory=dict)
    dropped: int = 0


@dataclass(slots=True)
class LogEvent:
    """A log record with content of a span, which is joined to the events of the span."""

    trace_id: str
    span_id: str
    event: SpanEvent


def replace_surrogates(text: str) -> str:
    """Return text that can be written as UTF-8: JSON may hold half of a surrogate pair."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-8", "replace").decode()
    return text


def is_own_span(span: Span) -> bool:
    """Return whether ragmeter itself sent a span."""
    return span.scope == OWN_SCOPE or span.resource.get("service.name") == OWN_SERVICE


def is_evaluation_span(span: Span) -> bool:
    """Return whether a span carries an evaluation."""
    kind = span.attributes.get(KIND)
    return isinstance(kind, str) and kind.upper() == EVALUATOR  # LlamaIndex.TS: lower case


def is_result_event(log: LogEvent) -> bool:
    """Return whether a log event carries an evaluation, long after its trace was closed."""
    return log.event.name == RESULT_EVENT


def may_carry_content(name: str) -> bool:
    """Return whether an event of this name may have content. Plain log lines have no name."""
    return bool(name) and not name.startswith(_SCORES)


def read_log_event(
    trace_id: str,
    span_id: str,
    name: str,
    time: int,
    attributes: dict[str, AttributeValue],
    body: AttributeValue,
) -> LogEvent | None:
    """Return a log record as an event of its span, None for a plain log line.

    By convention, content is in the body (a map) or in the attributes; both become attributes.
    The name alone does not decide: some frameworks name every log line by its source.
    """
    if not (
        name.startswith(_CONTENT)
        or isinstance(body, dict)
        or any(key.startswith(_CONTENT) for key in attributes)
    ):
        return None
    if isinstance(body, dict):
        attributes = {**body, **attributes}
    elif body not in (None, ""):
        attributes.setdefault("body", body)
    return LogEvent(trace_id, span_id, SpanEvent(name, time, attributes))
