"""Decode OTLP/JSON export requests of spans and log records.

Tempo's `batches` and `instrumentationLibrarySpans` are the same layers under older names.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
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
    RequestDecoder,
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
_SCOPE = ("scope", "instrumentationLibrary")


# the keys of the three layers of a request
_SPANS = (("resourceSpans", "batches"), ("scopeSpans", "instrumentationLibrarySpans"), ("spans",))
_LOGS = (("resourceLogs",), ("scopeLogs", "instrumentationLibraryLogs"), ("logRecords", "logs"))


@dataclass(slots=True)
class _JsonScope:
    """What the spans of one scope share."""

    resource: dict[str, AttributeValue]
    name: str = ""
    version: str = ""


def decode_json(body: bytes, limits: OtlpLimits, *, logs: bool) -> DecodedRequest:
    """Decode a trace or log request; raise `UndecodableBody` if nothing can be read."""
    request = RequestDecoder(limits)
    return request.decode(_records(body, request, logs), _log if logs else _span)


def _records(
    body: bytes, request: RequestDecoder, logs: bool
) -> Iterator[tuple[Any, _JsonScope, int]]:
    """Yield every record with its scope; broken layers above the records are counted."""
    resource_keys, scope_keys, record_keys = _LOGS if logs else _SPANS
    content = parse_json_body(body)
    if not isinstance(content, dict):
        raise UndecodableBody("bad_json", "the body is no JSON object")
    resources = get_field(content, *resource_keys)
    if not isinstance(resources, list | None):
        raise UndecodableBody("bad_json", f"{resource_keys[0]} is no list")
    for item in resources or ():
        if not isinstance(item, dict):
            request.decoded.reject("unreadable")
            continue
        resource = _resource(item, request)
        for group in get_list(item, *scope_keys):
            if not isinstance(group, dict):
                request.decoded.reject("unreadable")
                continue
            raw_scope = get_field(group, *_SCOPE)
            scope = _JsonScope(resource)
            if isinstance(raw_scope, dict):
                scope.name = get_text(raw_scope.get("name"), MAX_NAME)
                scope.version = get_text(raw_scope.get("version"), MAX_NAME)
            for record in get_list(group, *record_keys):
                yield record, scope, len(body)


def _resource(item: dict[str, Any], request: RequestDecoder) -> dict[str, AttributeValue]:
    resource = item.get("resource")
    allowance = request.allow()
    raw = resource.get("attributes") if isinstance(resource, dict) else None
    attributes = parse_attributes(raw, allowance)
    trim_attributes((attributes,), request.limits.resource_text)
    request.settle(allowance)
    return attributes


def _span(item: Any, scope: _JsonScope, allowance: SpanAllowance) -> Span:
    if not isinstance(item, dict):
        raise RejectedRecord("unreadable")
    status = item.get("status")
    if not isinstance(status, dict):
        status = {}
    parent = get_field(item, "parentSpanId")
    attributes = parse_attributes(item.get("attributes"), allowance)
    events = _events(get_list(item, "events"), allowance)
    links = _links(get_list(item, "links"), allowance)
    allowance.dropped += parse_count(get_field(item, "droppedAttributesCount"))
    allowance.dropped += parse_count(get_field(item, "droppedEventsCount"))
    return Span(
        trace_id=_trace_id(item),
        span_id=_span_id(item),
        parent_id=parse_id(parent, 8, "bad_parent_id"),
        name=get_text(item.get("name"), MAX_NAME),
        kind=parse_enum(item.get("kind"), "SPAN_KIND_", _KINDS),
        start=parse_nanoseconds(get_field(item, "startTimeUnixNano")),
        end=parse_nanoseconds(get_field(item, "endTimeUnixNano")),
        status=parse_enum(status.get("code"), "STATUS_CODE_", _STATUSES),
        status_message=get_text(status.get("message"), MAX_STATUS),
        attributes=attributes,
        events=events,
        links=links,
        trace_state=get_text(get_field(item, "traceState"), MAX_TRACE_STATE),
        scope=scope.name,
        scope_version=scope.version,
        resource=scope.resource,
        dropped=allowance.dropped,
    )


def _required_id(item: dict[str, Any], name: str, size: int, reason: str) -> str:
    identity = parse_id(get_field(item, name), size, reason)
    if not identity:
        raise RejectedRecord(reason)
    return identity


def _trace_id(item: dict[str, Any]) -> str:
    return _required_id(item, "traceId", 16, "bad_trace_id")


def _span_id(item: dict[str, Any]) -> str:
    return _required_id(item, "spanId", 8, "bad_span_id")


def _events(raw: list[Any], allowance: SpanAllowance) -> list[SpanEvent]:
    events = []
    for event in raw[: allowance.take(len(raw), allowance.limits.events)]:
        if not isinstance(event, dict):
            allowance.dropped += 1
            continue
        allowance.dropped += parse_count(get_field(event, "droppedAttributesCount"))
        time = parse_nanoseconds(get_field(event, "timeUnixNano"))
        attributes = parse_attributes(event.get("attributes"), allowance)
        events.append(SpanEvent(get_text(event.get("name"), MAX_NAME), time, attributes))
    return events


def _links(raw: list[Any], allowance: SpanAllowance) -> list[tuple[str, str]]:
    links = []
    for link in raw[: allowance.take(len(raw), allowance.limits.links)]:
        if isinstance(link, dict):
            with contextlib.suppress(RejectedRecord):
                links.append((_trace_id(link), _span_id(link)))
    return links


def _log(item: Any, scope: _JsonScope, allowance: SpanAllowance) -> LogEvent | None:
    if not isinstance(item, dict):
        raise RejectedRecord("unreadable")
    name = get_text(get_field(item, "eventName"), MAX_NAME)
    if not name:
        for pair in get_list(item, "attributes"):
            if isinstance(pair, dict) and pair.get("key") == "event.name":
                none_left = SpanAllowance(0, allowance.limits)
                name = get_text(parse_value(pair.get("value"), none_left, 0), MAX_NAME)
    if not may_carry_content(name):
        return None
    if not get_field(item, "traceId") or not get_field(item, "spanId"):
        return None
    time = parse_nanoseconds(get_field(item, "timeUnixNano"))
    observed = parse_nanoseconds(get_field(item, "observedTimeUnixNano"))
    return read_log_event(
        _trace_id(item),
        _span_id(item),
        name,
        time or observed,
        parse_attributes(item.get("attributes"), allowance),
        parse_value(item.get("body"), allowance, allowance.limits.depth),
    )
