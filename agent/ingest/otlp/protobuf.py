"""OTLP in protobuf: requests of spans and of log records, by the official definitions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from google.protobuf.message import DecodeError
from opentelemetry.proto.common.v1.common_pb2 import InstrumentationScope
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1.trace_pb2 import Span as WireSpan

from agent.ingest.otlp.layers import MAX_SPAN_MESSAGES, groups, too_many
from agent.ingest.otlp.limits import (
    MAX_NAME,
    MAX_STATUS,
    MAX_TRACE_STATE,
    Limits,
    Room,
    is_vector,
    trim,
)
from agent.ingest.otlp.log_events import log_event, may_carry
from agent.ingest.otlp.result import Account, Decoded, Rejected, Undecodable
from agent.ingest.spans import Event, LogEvent, Span, Value

__all__ = ["logs", "spans"]

KINDS = 6  # span kinds 0 to 5, status codes 0 to 2; what is not known is unset
STATUSES = 3


def _value(wire: Any, room: Room, depth: int) -> Value:
    kind = wire.WhichOneof("value")
    if kind in ("string_value", "int_value", "double_value", "bool_value"):
        scalar: Value = getattr(wire, kind)
        return scalar
    if kind not in ("array_value", "kvlist_value"):  # bytes, nothing, or newer than we are
        return None
    if depth <= 0:
        room.dropped += 1
        return None
    held = getattr(wire, kind).values
    size = len(held)
    if kind == "kvlist_value":
        taken = room.take(size, size)
        return {kv.key: _value(kv.value, room, depth - 1) for kv in held[:taken]}
    if is_vector(size, _value(held[0], Room(0), 0) if size else None):
        return None
    return [_value(inner, room, depth - 1) for inner in held[: room.take(size, size)]]


def _attributes(wire: Any, room: Room, limits: Limits) -> dict[str, Value]:
    size = len(wire)
    if not size:
        return {}
    taken = room.take(size, limits.attributes)
    depth = limits.depth
    found: dict[str, Value] = {}
    for kv in wire if taken == size else wire[:taken]:
        value = kv.value
        # nearly all are strings, and asking for one is cheaper than asking which it is
        found[kv.key] = value.string_value or _value(value, room, depth)
    return found


def _id(raw: bytes, size: int, reason: str) -> str:
    if len(raw) != size or not any(raw):
        raise Rejected(reason)
    return raw.hex()


def _parent(raw: bytes) -> str:
    return _id(raw, 8, "bad_parent_id") if any(raw) else ""


def _events(wire: Any, room: Room, limits: Limits) -> list[Event]:
    read = []
    for event in wire[: room.take(len(wire), limits.events)]:
        room.dropped += event.dropped_attributes_count
        attributes = _attributes(event.attributes, room, limits)
        read.append(Event(event.name[:MAX_NAME], event.time_unix_nano, attributes))
    return read


def _links(wire: Any, room: Room, limits: Limits) -> list[tuple[str, str]]:
    return [
        (link.trace_id.hex(), link.span_id.hex())
        for link in wire[: room.take(len(wire), limits.links)]
        if len(link.trace_id) == 16 and len(link.span_id) == 8
    ]


class _Group:
    """What the spans of one scope share."""

    __slots__ = ("name", "resource", "version")

    def __init__(self, resource: dict[str, Value], scope: bytes) -> None:
        self.resource = resource
        try:
            read = InstrumentationScope.FromString(scope)
        except DecodeError:  # a name that cannot be read is no reason to lose the spans
            read = InstrumentationScope()
        self.name = read.name[:MAX_NAME]
        self.version = read.version[:MAX_NAME]


def _span(data: bytes, group: _Group, room: Room, limits: Limits) -> Span:
    wire: Any = WireSpan.FromString(data)
    attributes = _attributes(wire.attributes, room, limits)
    kind, status = wire.kind, wire.status.code
    span = Span(
        trace_id=_id(wire.trace_id, 16, "bad_trace_id"),
        span_id=_id(wire.span_id, 8, "bad_span_id"),
        parent_id=_parent(wire.parent_span_id),
        name=wire.name[:MAX_NAME],
        kind=kind if 0 <= kind < KINDS else 0,
        start=wire.start_time_unix_nano,
        end=wire.end_time_unix_nano,
        status=status if 0 <= status < STATUSES else 0,
        status_message=wire.status.message[:MAX_STATUS],
        attributes=attributes,
        events=_events(wire.events, room, limits) if wire.events else [],
        links=_links(wire.links, room, limits) if wire.links else [],
        trace_state=wire.trace_state[:MAX_TRACE_STATE],
        scope=group.name,
        scope_version=group.version,
        resource=group.resource,
        dropped=room.dropped + wire.dropped_attributes_count + wire.dropped_events_count,
    )
    if len(data) > limits.text:
        span.dropped += trim(
            (span.attributes, *(event.attributes for event in span.events)), limits.text
        )
    return span


def _log(data: bytes, room: Room, limits: Limits) -> LogEvent | None:
    wire: Any = LogRecord.FromString(data)
    if not any(wire.trace_id) or not any(wire.span_id):
        return None
    name = wire.event_name or next(
        (kv.value.string_value for kv in wire.attributes if kv.key == "event.name"), ""
    )
    if not may_carry(name):
        return None
    event = log_event(
        _id(wire.trace_id, 16, "bad_trace_id"),
        _id(wire.span_id, 8, "bad_span_id"),
        name[:MAX_NAME],
        wire.time_unix_nano or wire.observed_time_unix_nano,
        _attributes(wire.attributes, room, limits),
        _value(wire.body, room, limits.depth),
    )
    if event is not None and len(data) > limits.text:
        trim((event.event.attributes,), limits.text)
    return event


def _resource(data: bytes, account: Account) -> dict[str, Value]:
    room = account.room()
    try:
        found = _attributes(Resource.FromString(data).attributes, room, account.limits)
    except DecodeError:
        raise Rejected("bad_resource") from None
    trim((found,), account.limits.resource_text)
    account.close(room)
    return found


def _records(body: bytes, account: Account, decoded: Decoded) -> Iterator[tuple[bytes, _Group]]:
    """Every record's bytes with what it shares with others; what is broken above it is counted."""
    for head, opened in groups(body):
        if opened is None:  # nobody knows how many spans were in it
            decoded.reject("unreadable")
            continue
        try:
            resource = _resource(head, account)
        except Rejected as why:
            decoded.reject(str(why), sum(len(records) for _, records in opened))
            continue
        for scope, records in opened:
            group = _Group(resource, scope)
            for data in records:
                yield data, group


def _each(
    body: bytes, limits: Limits, one: Callable[[bytes, _Group, Room, Decoded], None]
) -> Decoded:
    decoded = Decoded()
    account = Account(limits)
    for data, group in _records(body, account, decoded):
        if refusal := account.refusal():
            decoded.reject(refusal)
            continue
        room = account.room()
        try:
            if too_many(data, MAX_SPAN_MESSAGES):
                raise Rejected("too_large")
            one(data, group, room, decoded)
        except Rejected as why:
            decoded.reject(str(why))
        except DecodeError:
            decoded.reject("unreadable")
        account.close(room)
    if (
        decoded.rejected
        and decoded.reasons["unreadable"] == decoded.rejected
        and not account.records
    ):
        raise Undecodable("bad_protobuf", "nothing in the body can be read")
    return decoded


def spans(body: bytes, limits: Limits) -> Decoded:
    """The spans of an `ExportTraceServiceRequest`. Raises `Undecodable`."""

    def one(data: bytes, group: _Group, room: Room, decoded: Decoded) -> None:
        decoded.spans.append(_span(data, group, room, limits))

    return _each(body, limits, one)


def logs(body: bytes, limits: Limits) -> Decoded:
    """The events of an `ExportLogsServiceRequest`. Raises `Undecodable`."""

    def one(data: bytes, group: _Group, room: Room, decoded: Decoded) -> None:
        event = _log(data, room, limits)
        if event is None:
            decoded.ignored += 1
        else:
            decoded.events.append(event)

    return _each(body, limits, one)
