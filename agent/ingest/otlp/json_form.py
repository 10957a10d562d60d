"""OTLP in JSON: requests of spans and of log records, also as other tools write them.

Tempo's `batches` and `instrumentationLibrarySpans` are the same things under older names.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from agent.ingest.otlp.json_text import parse
from agent.ingest.otlp.json_values import (
    attributes,
    count,
    enum,
    field,
    identifier,
    listed,
    nanoseconds,
    text,
    value,
)
from agent.ingest.otlp.limits import (
    MAX_NAME,
    MAX_STATUS,
    MAX_TRACE_STATE,
    Limits,
    Room,
    trim,
)
from agent.ingest.otlp.log_events import log_event, may_carry
from agent.ingest.otlp.result import Account, Decoded, Rejected, Undecodable
from agent.ingest.spans import Event, LogEvent, Span, Value

__all__ = ["logs", "spans"]

KINDS = ("UNSPECIFIED", "INTERNAL", "SERVER", "CLIENT", "PRODUCER", "CONSUMER")
STATUSES = ("UNSET", "OK", "ERROR")

_DROPPED = ("droppedAttributesCount", "dropped_attributes_count")


@dataclass(frozen=True, slots=True)
class _Names:
    """What the three layers of a request are called."""

    resources: tuple[str, ...]
    groups: tuple[str, ...]
    records: tuple[str, ...]


_SPANS = _Names(
    ("resourceSpans", "resource_spans", "batches"),
    (
        *("scopeSpans", "scope_spans"),
        *("instrumentationLibrarySpans", "instrumentation_library_spans"),
    ),
    ("spans",),
)
_LOGS = _Names(
    ("resourceLogs", "resource_logs"),
    (
        *("scopeLogs", "scope_logs"),
        *("instrumentationLibraryLogs", "instrumentation_library_logs"),
    ),
    ("logRecords", "log_records", "logs"),
)


@dataclass(slots=True)
class _Group:
    """What the spans of one scope share."""

    resource: dict[str, Value]
    name: str = ""
    version: str = ""


def _required(item: dict[str, Any], size: int, reason: str, *names: str) -> str:
    read = identifier(field(item, *names), size, reason)
    if not read:
        raise Rejected(reason)
    return read


def _trace_id(item: dict[str, Any]) -> str:
    return _required(item, 16, "bad_trace_id", "traceId", "trace_id")


def _span_id(item: dict[str, Any]) -> str:
    return _required(item, 8, "bad_span_id", "spanId", "span_id")


def _events(raw: list[Any], room: Room, limits: Limits) -> list[Event]:
    read = []
    for event in raw[: room.take(len(raw), limits.events)]:
        if not isinstance(event, dict):
            room.dropped += 1
            continue
        room.dropped += count(field(event, *_DROPPED))
        time = nanoseconds(field(event, "timeUnixNano", "time_unix_nano"))
        found = attributes(event.get("attributes"), room, limits)
        read.append(Event(text(event.get("name"), MAX_NAME), time, found))
    return read


def _links(raw: list[Any], room: Room, limits: Limits) -> list[tuple[str, str]]:
    read = []
    for link in raw[: room.take(len(raw), limits.links)]:
        if isinstance(link, dict):
            with contextlib.suppress(Rejected):
                read.append((_trace_id(link), _span_id(link)))
    return read


def _span(item: dict[str, Any], group: _Group, room: Room, limits: Limits) -> Span:
    status = item.get("status")
    if not isinstance(status, dict):
        status = {}
    parent = field(item, "parentSpanId", "parent_span_id")
    found = attributes(item.get("attributes"), room, limits)
    events = _events(listed(item, "events"), room, limits)
    links = _links(listed(item, "links"), room, limits)
    room.dropped += count(field(item, *_DROPPED))
    room.dropped += count(field(item, "droppedEventsCount", "dropped_events_count"))
    return Span(
        trace_id=_trace_id(item),
        span_id=_span_id(item),
        parent_id=identifier(parent, 8, "bad_parent_id"),
        name=text(item.get("name"), MAX_NAME),
        kind=enum(item.get("kind"), "SPAN_KIND_", KINDS),
        start=nanoseconds(field(item, "startTimeUnixNano", "start_time_unix_nano")),
        end=nanoseconds(field(item, "endTimeUnixNano", "end_time_unix_nano")),
        status=enum(status.get("code"), "STATUS_CODE_", STATUSES),
        status_message=text(status.get("message"), MAX_STATUS),
        attributes=found,
        events=events,
        links=links,
        trace_state=text(field(item, "traceState", "trace_state"), MAX_TRACE_STATE),
        scope=group.name,
        scope_version=group.version,
        resource=group.resource,
        dropped=room.dropped,
    )


def _log(item: dict[str, Any], room: Room, limits: Limits) -> LogEvent | None:
    name = text(field(item, "eventName", "event_name"), MAX_NAME)
    if not name:
        for pair in listed(item, "attributes"):
            if isinstance(pair, dict) and pair.get("key") == "event.name":
                found = value(pair.get("value"), Room(0), 0)
                name = text(found, MAX_NAME)
    if not may_carry(name):
        return None
    if not field(item, "traceId", "trace_id") or not field(item, "spanId", "span_id"):
        return None
    time = nanoseconds(field(item, "timeUnixNano", "time_unix_nano"))
    seen = nanoseconds(field(item, "observedTimeUnixNano", "observed_time_unix_nano"))
    return log_event(
        _trace_id(item),
        _span_id(item),
        name,
        time or seen,
        attributes(item.get("attributes"), room, limits),
        value(item.get("body"), room, limits.depth),
    )


def _resource(item: dict[str, Any], account: Account) -> dict[str, Value]:
    resource = item.get("resource")
    room = account.room()
    raw = resource.get("attributes") if isinstance(resource, dict) else None
    found = attributes(raw, room, account.limits)
    trim((found,), account.limits.resource_text)
    account.close(room)
    return found


def _records(
    body: bytes, names: _Names, account: Account, decoded: Decoded
) -> Iterator[tuple[Any, _Group]]:
    """Every record with what it shares with others; what is broken above it is counted."""
    request = parse(body)
    if not isinstance(request, dict):
        raise Undecodable("bad_json", "the body is no JSON object")
    resources = field(request, *names.resources)
    if not isinstance(resources, list | None):
        raise Undecodable("bad_json", f"{names.resources[0]} is no list")
    for item in resources or ():
        if not isinstance(item, dict):
            decoded.reject("unreadable")
            continue
        shared = _resource(item, account)
        for part in listed(item, *names.groups):
            if not isinstance(part, dict):
                decoded.reject("unreadable")
                continue
            scope = field(part, "scope", "instrumentationLibrary", "instrumentation_library")
            group = _Group(shared)
            if isinstance(scope, dict):
                group.name = text(scope.get("name"), MAX_NAME)
                group.version = text(scope.get("version"), MAX_NAME)
            for record in listed(part, *names.records):
                yield record, group


def _each(
    body: bytes,
    limits: Limits,
    names: _Names,
    one: Callable[[dict[str, Any], _Group, Room, Decoded], None],
) -> Decoded:
    decoded = Decoded()
    account = Account(limits)
    for record, group in _records(body, names, account, decoded):
        if refusal := account.refusal():
            decoded.reject(refusal)
            continue
        room = account.room()
        try:
            if not isinstance(record, dict):
                raise Rejected("unreadable")
            one(record, group, room, decoded)
        except Rejected as why:
            decoded.reject(str(why))
        account.close(room)
    return decoded


def spans(body: bytes, limits: Limits) -> Decoded:
    """The spans of a trace request. Raises `Undecodable`."""
    large = len(body) > limits.text

    def one(item: dict[str, Any], group: _Group, room: Room, decoded: Decoded) -> None:
        span = _span(item, group, room, limits)
        if large:
            maps = (span.attributes, *(event.attributes for event in span.events))
            span.dropped += trim(maps, limits.text)
        decoded.spans.append(span)

    return _each(body, limits, _SPANS, one)


def logs(body: bytes, limits: Limits) -> Decoded:
    """The events of a log request. Raises `Undecodable`."""
    large = len(body) > limits.text

    def one(item: dict[str, Any], group: _Group, room: Room, decoded: Decoded) -> None:
        event = _log(item, room, limits)
        if event is None:
            decoded.ignored += 1
            return
        if large:
            trim((event.event.attributes,), limits.text)
        decoded.events.append(event)

    return _each(body, limits, _LOGS, one)
