"""A span as every wire form of OTLP gives it, before anybody asks what it means."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

__all__ = ["Event", "LogEvent", "Span", "Value"]

Value = str | bool | int | float | list[Any] | dict[str, Any] | None
"""An attribute's value. Lists and maps are nested values; bytes are left out (None)."""


@dataclass(slots=True)
class Event:
    """`time` is Unix time in nanoseconds, 0 where it is not known."""

    name: str
    time: int = 0
    attributes: dict[str, Value] = field(default_factory=dict)


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
    attributes: dict[str, Value] = field(default_factory=dict)
    events: list[Event] = field(default_factory=list)
    links: list[tuple[str, str]] = field(default_factory=list)
    trace_state: str = ""
    scope: str = ""
    scope_version: str = ""
    resource: dict[str, Value] = field(default_factory=dict)
    dropped: int = 0


@dataclass(slots=True)
class LogEvent:
    """A log record that carries content of a span; joined to the span's events."""

    trace_id: str
    span_id: str
    event: Event
