"""Spans and log events as decoded from any form of OTLP, before their meaning is read.

What marks telemetry as ours: results that ragmeter sends must never come back in as traces.

A collector that fans everything out sends our evaluator spans and result events to every backend,
ragmeter among them. Whoever scored those would score its own scores, without end. The names are
here because the side that sends and the side that reads must agree on them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

AttributeValue = str | bool | int | float | list[Any] | dict[str, Any] | None
"""An attribute's value. Lists and maps are nested values; bytes are left out (None)."""


@dataclass(slots=True)
class SpanEvent:
    """`time` is Unix time in nanoseconds, 0 where it is not known."""

    name: str
    time: int = 0
    attributes: dict[str, AttributeValue] = field(default_factory=dict)


@dataclass(slots=True)
class Span:
    """Ids are lower-case hex (32 and 16 digits), `parent_id` is "" for a root. Times are Unix
    nanoseconds. `kind` and `status` are the numbers of OTLP (status: 0 unset, 1 ok, 2 error).
    `dropped` counts attributes and events that the sender's limits have cost."""

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
    links: list[tuple[str, str]] = field(default_factory=list)
    trace_state: str = ""
    scope: str = ""
    scope_version: str = ""
    resource: dict[str, AttributeValue] = field(default_factory=dict)
    dropped: int = 0


@dataclass(slots=True)
class LogEvent:
    """A log record that carries content of a span; joined to the span's events."""

    trace_id: str
    span_id: str
    event: SpanEvent


OWN_SERVICE = "ragmeter"
"""`service.name` of the resource."""

OWN_SCOPE = "ragmeter"
"""Name of the instrumentation scope: it stays where a collector rewrites the resource."""

KIND, EVALUATOR = "openinference.span.kind", "EVALUATOR"
"""Attribute and value of a span that carries an evaluation, whoever made it."""

RESULT_EVENT = "gen_ai.evaluation.result"
"""Name of the event that carries an evaluation, whoever made it."""


def is_own_span(span: Span) -> bool:
    """Whether ragmeter itself has sent this span."""
    return span.scope == OWN_SCOPE or span.resource.get("service.name") == OWN_SERVICE


def is_evaluation_span(span: Span) -> bool:
    """Whether this span carries an evaluation. In any case of letters: LlamaIndex TypeScript wrote
    kinds in lower case."""
    kind = span.attributes.get(KIND)
    return isinstance(kind, str) and kind.upper() == EVALUATOR


def is_result_event(log: LogEvent) -> bool:
    """Whether this log event says how a request was judged: that is no content of the request, and
    it comes long after its trace was closed."""
    return log.event.name == RESULT_EVENT


_CONTENT = ("gen_ai.", "llm.", "db.query.", "db.search.")
# Scores: our own come back this way where one Collector serves both directions.
_SCORES = "gen_ai.evaluation."


def may_carry_content(name: str) -> bool:
    """Whether an event of that name is worth reading. Plain log lines have no name."""
    return bool(name) and not name.startswith(_SCORES)


def read_log_event(
    trace_id: str,
    span_id: str,
    name: str,
    time: int,
    attributes: dict[str, AttributeValue],
    body: AttributeValue,
) -> LogEvent | None:
    """The record as an event of its span, None where it is only a line of a log.

    Content is in the body (a map) or in the attributes, by convention; both become attributes.
    Some frameworks name every log line by its source, so a name alone is not enough.
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
