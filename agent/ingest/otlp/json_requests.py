"""Decode OTLP/JSON export requests of spans and log records.

Tempo's `batches` and `instrumentationLibrarySpans` are the same things under older names.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from ragmeter.ingest.otlp.json_values import (
    get_field,
    get_list,
    get_text,
    parse_attributes,
    parse_count,
    parse_enum,
    parse_id,
    parse_json_body,
    parse_nanoseconds,
    parse_value,
)
from ragmeter.ingest.otlp.limits import (
    MAX_NAME,
    MAX_STATUS,
    MAX_TRACE_STATE,
    DecodedRequest,
    OtlpLimits,
    RejectedRecord,
    RequestAllowance,
    SpanAllowance,
    UndecodableBody,
    trim_attributes,
)
from ragmeter.ingest.spans import (
    AttributeValue,
    LogEvent,
    Span,
    SpanEvent,
    may_carry_content,
    read_log_event,
)

_KINDS = ("UNSPECIFIED", "INTERNAL", "SERVER", "CLIENT", "PRODUCER", "CONSUMER")
_STATUSES = ("UNSET", "OK", "ERROR")

_DROPPED = ("droppedAttributesCount", "dropped_attributes_count")


@dataclass(frozen=True, slots=True)
class _LayerNames:
    """What the three layers of a request are called."""

    resources: tuple[str, ...]
    groups: tuple[str, ...]
    records: tuple[str, ...]


_SPANS = _LayerNames(
    ("resourceSpans", "resource_spans", "batches"),
    (
        *("scopeSpans", "scope_spans"),
        *("instrumentationLibrarySpans", "instrumentation_library_spans"),
    ),
    ("spans",),
)
_LOGS = _LayerNames(
    ("resourceLogs", "resource_logs"),
    (
        *("scopeLogs", "scope_logs"),
        *("instrumentationLibraryLogs", "instrumentation_library_logs"),
    ),
    ("logRecords", "log_records", "logs"),
)


@dataclass(slots=True)
class _JsonScope:
    """What the spans of one scope share."""

    resource: dict[str, AttributeValue]
    name: str = ""
    version: str = ""


def _required(item: dict[str, Any], size: int, reason: str, *names: str) -> str:
    read = parse_id(get_field(item, *names), size, reason)
    if not read:
        raise RejectedRecord(reason)
    return read


def _trace_id(item: dict[str, Any]) -> str:
    return _required(item, 16, "bad_trace_id", "traceId", "trace_id")


def _span_id(item: dict[str, Any]) -> str:
    return _required(item, 8, "bad_span_id", "spanId", "span_id")


def _events(raw: list[Any], room: SpanAllowance, limits: OtlpLimits) -> list[SpanEvent]:
    read = []
    for event in raw[: room.take(len(raw), limits.events)]:
        if not isinstance(event, dict):
            room.dropped += 1
            continue
        room.dropped += parse_count(get_field(event, *_DROPPED))
        time = parse_nanoseconds(get_field(event, "timeUnixNano", "time_unix_nano"))
        found = parse_attributes(event.get("attributes"), room, limits)
        read.append(SpanEvent(get_text(event.get("name"), MAX_NAME), time, found))
    return read


def _links(raw: list[Any], room: SpanAllowance, limits: OtlpLimits) -> list[tuple[str, str]]:
    read = []
    for link in raw[: room.take(len(raw), limits.links)]:
        if isinstance(link, dict):
            with contextlib.suppress(RejectedRecord):
                read.append((_trace_id(link), _span_id(link)))
    return read


def _span(item: dict[str, Any], group: _JsonScope, room: SpanAllowance, limits: OtlpLimits) -> Span:
    status = item.get("status")
    if not isinstance(status, dict):
        status = {}
    parent = get_field(item, "parentSpanId", "parent_span_id")
    found = parse_attributes(item.get("attributes"), room, limits)
    events = _events(get_list(item, "events"), room, limits)
    links = _links(get_list(item, "links"), room, limits)
    room.dropped += parse_count(get_field(item, *_DROPPED))
    room.dropped += parse_count(get_field(item, "droppedEventsCount", "dropped_events_count"))
    return Span(
        trace_id=_trace_id(item),
        span_id=_span_id(item),
        parent_id=parse_id(parent, 8, "bad_parent_id"),
        name=get_text(item.get("name"), MAX_NAME),
        kind=parse_enum(item.get("kind"), "SPAN_KIND_", _KINDS),
        start=parse_nanoseconds(get_field(item, "startTimeUnixNano", "start_time_unix_nano")),
        end=parse_nanoseconds(get_field(item, "endTimeUnixNano", "end_time_unix_nano")),
        status=parse_enum(status.get("code"), "STATUS_CODE_", _STATUSES),
        status_message=get_text(status.get("message"), MAX_STATUS),
        attributes=found,
        events=events,
        links=links,
        trace_state=get_text(get_field(item, "traceState", "trace_state"), MAX_TRACE_STATE),
        scope=group.name,
        scope_version=group.version,
        resource=group.resource,
        dropped=room.dropped,
    )


def _log(item: dict[str, Any], room: SpanAllowance, limits: OtlpLimits) -> LogEvent | None:
    name = get_text(get_field(item, "eventName", "event_name"), MAX_NAME)
    if not name:
        for pair in get_list(item, "attributes"):
            if isinstance(pair, dict) and pair.get("key") == "event.name":
                found = parse_value(pair.get("value"), SpanAllowance(0), 0)
                name = get_text(found, MAX_NAME)
    if not may_carry_content(name):
        return None
    if not get_field(item, "traceId", "trace_id") or not get_field(item, "spanId", "span_id"):
        return None
    time = parse_nanoseconds(get_field(item, "timeUnixNano", "time_unix_nano"))
    seen = parse_nanoseconds(get_field(item, "observedTimeUnixNano", "observed_time_unix_nano"))
    return read_log_event(
        _trace_id(item),
        _span_id(item),
        name,
        time or seen,
        parse_attributes(item.get("attributes"), room, limits),
        parse_value(item.get("body"), room, limits.depth),
    )


def _resource(item: dict[str, Any], account: RequestAllowance) -> dict[str, AttributeValue]:
    resource = item.get("resource")
    room = account.room()
    raw = resource.get("attributes") if isinstance(resource, dict) else None
    found = parse_attributes(raw, room, account.limits)
    trim_attributes((found,), account.limits.resource_text)
    account.close(room)
    return found


def _records(
    body: bytes, names: _LayerNames, account: RequestAllowance, decoded: DecodedRequest
) -> Iterator[tuple[Any, _JsonScope]]:
    """Every record with what it shares with others; what is broken above it is counted."""
    request = parse_json_body(body)
    if not isinstance(request, dict):
        raise UndecodableBody("bad_json", "the body is no JSON object")
    resources = get_field(request, *names.resources)
    if not isinstance(resources, list | None):
        raise UndecodableBody("bad_json", f"{names.resources[0]} is no list")
    for item in resources or ():
        if not isinstance(item, dict):
            decoded.reject("unreadable")
            continue
        shared = _resource(item, account)
        for part in get_list(item, *names.groups):
            if not isinstance(part, dict):
                decoded.reject("unreadable")
                continue
            scope = get_field(part, "scope", "instrumentationLibrary", "instrumentation_library")
            group = _JsonScope(shared)
            if isinstance(scope, dict):
                group.name = get_text(scope.get("name"), MAX_NAME)
                group.version = get_text(scope.get("version"), MAX_NAME)
            for record in get_list(part, *names.records):
                yield record, group


def _each(
    body: bytes,
    limits: OtlpLimits,
    names: _LayerNames,
    one: Callable[[dict[str, Any], _JsonScope, SpanAllowance, DecodedRequest], None],
) -> DecodedRequest:
    decoded = DecodedRequest()
    account = RequestAllowance(limits)
    for record, group in _records(body, names, account, decoded):
        if refusal := account.refusal():
            decoded.reject(refusal)
            continue
        room = account.room()
        try:
            if not isinstance(record, dict):
                raise RejectedRecord("unreadable")
            one(record, group, room, decoded)
        except RejectedRecord as why:
            decoded.reject(str(why))
        account.close(room)
    return decoded


def decode_json_spans(body: bytes, limits: OtlpLimits) -> DecodedRequest:
    """The spans of a trace request. Raises `Undecodable`."""
    large = len(body) > limits.text

    def one(
        item: dict[str, Any], group: _JsonScope, room: SpanAllowance, decoded: DecodedRequest
    ) -> None:
        span = _span(item, group, room, limits)
        if large:
            maps = (span.attributes, *(event.attributes for event in span.events))
            span.dropped += trim_attributes(maps, limits.text)
        decoded.spans.append(span)

    return _each(body, limits, _SPANS, one)


def decode_json_logs(body: bytes, limits: OtlpLimits) -> DecodedRequest:
    """The events of a log request. Raises `Undecodable`."""
    large = len(body) > limits.text

    def one(
        item: dict[str, Any], group: _JsonScope, room: SpanAllowance, decoded: DecodedRequest
    ) -> None:
        event = _log(item, room, limits)
        if event is None:
            decoded.ignored += 1
            return
        if large:
            trim_attributes((event.event.attributes,), limits.text)
        decoded.events.append(event)

    return _each(body, limits, _LOGS, one)
