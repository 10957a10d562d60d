"""Decode OTLP protobuf export requests of spans and log records, opening one layer at a time.

The outer layers of a protobuf request, opened one at a time.

`ExportTraceServiceRequest` and `ExportLogsServiceRequest` have the same frame: a list (field 1) of
resource (1) and groups (2), each of scope (1) and records (2). Parsed as `Layer`, whose fields are
bytes, it falls apart into records that are then parsed with their official types, one by one: a
record that is broken costs itself and not the request, and the tree of one record is all that is
held. (An empty span is 2 bytes on the wire and 172 once parsed, so a whole request parsed at once
could be 1.7 GB.) `Layer` and `Status` are built at run time from descriptors: protobuf parses.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Any

from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass
from opentelemetry.proto.common.v1.common_pb2 import InstrumentationScope
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1.trace_pb2 import Span as WireSpan

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
    is_vector,
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

# Messages in one body: 20 MB of the smallest spans that occur (plain HTTP, a dozen attributes of
# 35 bytes) have 1.6 million, of RAG spans 300,000. Only their bytes are held, 16 for each.
MAX_MESSAGES = 2_000_000
# In one span, whose tree is held while it is read: at most 84 bytes for each (links), 40 MB.
MAX_SPAN_MESSAGES = 500_000
MAX_GROUPS = 100_000  # resources, or scopes of one: 100 bytes each once taken apart
_SMALL = 32  # bytes; a body of 20 MB has at most 620,000 messages that are not small


def _types() -> tuple[Any, Any]:
    file = FileDescriptorProto(name="ragmeter/layers.proto", package="ragmeter", syntax="proto3")

    def message(name: str, *fields: tuple[str, int, int, int]) -> None:
        made = file.message_type.add(name=name)
        for field_name, number, label, kind in fields:
            field = made.field.add(name=field_name, number=number)
            field.label = label  # type: ignore[assignment]
            field.type = kind  # type: ignore[assignment]

    field = FieldDescriptorProto
    many, one = field.LABEL_REPEATED, field.LABEL_OPTIONAL
    message("Layer", ("heads", 1, many, field.TYPE_BYTES), ("parts", 2, many, field.TYPE_BYTES))
    message("Status", ("code", 1, one, field.TYPE_INT32), ("message", 2, one, field.TYPE_STRING))
    pool = DescriptorPool()
    pool.Add(file)
    layer, status = (
        GetMessageClass(pool.FindMessageTypeByName(f"ragmeter.{name}"))
        for name in ("Layer", "Status")
    )
    return layer, status


Layer, Status = _types()
"""`Status` is google.rpc.Status, whose published package is not among our dependencies."""

# A message is a tag and a length. These are the tags of all fields that repeat, followed by a
# length below SMALL; either may be written longer than need be (then it ends in a zero byte).
_SMALL_MESSAGE = re.compile(
    rb"[\x0a\x12\x1a\x22\x32\x4a\x5a\x6a](?=[\x00-\x1f]|[\x80-\x9f]\x80{0,3}\x00)"
    rb"|[\x80-\xff]\x80{0,3}\x00"
)
_NOT_CONTROL = bytes(range(_SMALL, 256))


def _has_too_many_messages(data: bytes, most: int) -> bool:
    """Whether `data` holds more than `most` messages that, once parsed, are far larger than here.

    Every small message has a control character, its length or the end of it, that is no other's:
    counting those (2 ns a byte) is nearly always the end of it. Texts may have more of them; then
    the pairs are counted (20 ns a byte).
    """
    if len(data) <= 2 * most or len(data.translate(None, _NOT_CONTROL)) <= most:
        return False
    return sum(1 for _ in islice(_SMALL_MESSAGE.finditer(data), most + 1)) > most


def _open(data: bytes) -> Any:
    layer = Layer.FromString(data)
    if max(len(layer.heads), len(layer.parts)) > MAX_GROUPS:
        raise _too_large(f"{MAX_GROUPS} parts")
    return layer


def _too_large(what: str) -> UndecodableBody:
    return UndecodableBody("too_large", f"more than {what} in one body; send smaller ones")


def _iterate_scopes(
    body: bytes,
) -> Iterator[tuple[bytes, list[tuple[bytes, Sequence[bytes]]] | None]]:
    """Each resource and its (scope, records); None for one whose frame is broken.

    Raises `Undecodable` where the frame of the whole body is, or where it holds too much.
    """
    if _has_too_many_messages(body, MAX_MESSAGES):
        raise _too_large(f"{MAX_MESSAGES} messages")
    try:
        resources = list(_open(body).heads)
    except DecodeError:
        raise UndecodableBody("bad_protobuf", "the body is no protobuf message") from None
    resources.reverse()
    while resources:  # taken off: what has been read is let go
        try:
            layer = _open(resources.pop())
            opened = []
            for part in range(len(layer.parts)):
                group = Layer.FromString(layer.parts[part])
                opened.append((b"".join(group.heads), group.parts))
            # a field that occurs twice is merged, by protobuf's own rule as if joined
            head = b"".join(layer.heads)
            del layer
        except DecodeError:
            yield b"", None
        else:
            yield head, opened


_KINDS = 6  # span kinds 0 to 5, status codes 0 to 2; what is not known is unset
_STATUSES = 3


def _value(wire: Any, room: SpanAllowance, depth: int) -> AttributeValue:
    kind = wire.WhichOneof("value")
    if kind in ("string_value", "int_value", "double_value", "bool_value"):
        scalar: AttributeValue = getattr(wire, kind)
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
    if is_vector(size, _value(held[0], SpanAllowance(0), 0) if size else None):
        return None
    return [_value(inner, room, depth - 1) for inner in held[: room.take(size, size)]]


def _attributes(wire: Any, room: SpanAllowance, limits: OtlpLimits) -> dict[str, AttributeValue]:
    size = len(wire)
    if not size:
        return {}
    taken = room.take(size, limits.attributes)
    depth = limits.depth
    found: dict[str, AttributeValue] = {}
    for kv in wire if taken == size else wire[:taken]:
        value = kv.value
        # nearly all are strings, and asking for one is cheaper than asking which it is
        found[kv.key] = value.string_value or _value(value, room, depth)
    return found


def _id(raw: bytes, size: int, reason: str) -> str:
    if len(raw) != size or not any(raw):
        raise RejectedRecord(reason)
    return raw.hex()


def _parent(raw: bytes) -> str:
    return _id(raw, 8, "bad_parent_id") if any(raw) else ""


def _events(wire: Any, room: SpanAllowance, limits: OtlpLimits) -> list[SpanEvent]:
    read = []
    for event in wire[: room.take(len(wire), limits.events)]:
        room.dropped += event.dropped_attributes_count
        attributes = _attributes(event.attributes, room, limits)
        read.append(SpanEvent(event.name[:MAX_NAME], event.time_unix_nano, attributes))
    return read


def _links(wire: Any, room: SpanAllowance, limits: OtlpLimits) -> list[tuple[str, str]]:
    return [
        (link.trace_id.hex(), link.span_id.hex())
        for link in wire[: room.take(len(wire), limits.links)]
        if len(link.trace_id) == 16 and len(link.span_id) == 8
    ]


class _ProtobufScope:
    """What the spans of one scope share."""

    __slots__ = ("name", "resource", "version")

    def __init__(self, resource: dict[str, AttributeValue], scope: bytes) -> None:
        self.resource = resource
        try:
            read = InstrumentationScope.FromString(scope)
        except DecodeError:  # a name that cannot be read is no reason to lose the spans
            read = InstrumentationScope()
        self.name = read.name[:MAX_NAME]
        self.version = read.version[:MAX_NAME]


def _span(data: bytes, group: _ProtobufScope, room: SpanAllowance, limits: OtlpLimits) -> Span:
    wire: Any = WireSpan.FromString(data)
    attributes = _attributes(wire.attributes, room, limits)
    kind, status = wire.kind, wire.status.code
    span = Span(
        trace_id=_id(wire.trace_id, 16, "bad_trace_id"),
        span_id=_id(wire.span_id, 8, "bad_span_id"),
        parent_id=_parent(wire.parent_span_id),
        name=wire.name[:MAX_NAME],
        kind=kind if 0 <= kind < _KINDS else 0,
        start=wire.start_time_unix_nano,
        end=wire.end_time_unix_nano,
        status=status if 0 <= status < _STATUSES else 0,
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
        span.dropped += trim_attributes(
            (span.attributes, *(event.attributes for event in span.events)), limits.text
        )
    return span


def _log(data: bytes, room: SpanAllowance, limits: OtlpLimits) -> LogEvent | None:
    wire: Any = LogRecord.FromString(data)
    if not any(wire.trace_id) or not any(wire.span_id):
        return None
    name = wire.event_name or next(
        (kv.value.string_value for kv in wire.attributes if kv.key == "event.name"), ""
    )
    if not may_carry_content(name):
        return None
    event = read_log_event(
        _id(wire.trace_id, 16, "bad_trace_id"),
        _id(wire.span_id, 8, "bad_span_id"),
        name[:MAX_NAME],
        wire.time_unix_nano or wire.observed_time_unix_nano,
        _attributes(wire.attributes, room, limits),
        _value(wire.body, room, limits.depth),
    )
    if event is not None and len(data) > limits.text:
        trim_attributes((event.event.attributes,), limits.text)
    return event


def _resource(data: bytes, account: RequestAllowance) -> dict[str, AttributeValue]:
    room = account.room()
    try:
        found = _attributes(Resource.FromString(data).attributes, room, account.limits)
    except DecodeError:
        raise RejectedRecord("bad_resource") from None
    trim_attributes((found,), account.limits.resource_text)
    account.close(room)
    return found


def _records(
    body: bytes, account: RequestAllowance, decoded: DecodedRequest
) -> Iterator[tuple[bytes, _ProtobufScope]]:
    """Every record's bytes with what it shares with others; what is broken above it is counted."""
    for head, opened in _iterate_scopes(body):
        if opened is None:  # nobody knows how many spans were in it
            decoded.reject("unreadable")
            continue
        try:
            resource = _resource(head, account)
        except RejectedRecord as why:
            decoded.reject(str(why), sum(len(records) for _, records in opened))
            continue
        for scope, records in opened:
            group = _ProtobufScope(resource, scope)
            for data in records:
                yield data, group


def _each(
    body: bytes,
    limits: OtlpLimits,
    one: Callable[[bytes, _ProtobufScope, SpanAllowance, DecodedRequest], None],
) -> DecodedRequest:
    decoded = DecodedRequest()
    account = RequestAllowance(limits)
    for data, group in _records(body, account, decoded):
        if refusal := account.refusal():
            decoded.reject(refusal)
            continue
        room = account.room()
        try:
            if _has_too_many_messages(data, MAX_SPAN_MESSAGES):
                raise RejectedRecord("too_large")
            one(data, group, room, decoded)
        except RejectedRecord as why:
            decoded.reject(str(why))
        except DecodeError:
            decoded.reject("unreadable")
        account.close(room)
    if (
        decoded.rejected
        and decoded.reasons["unreadable"] == decoded.rejected
        and not account.records
    ):
        raise UndecodableBody("bad_protobuf", "nothing in the body can be read")
    return decoded


def decode_protobuf_spans(body: bytes, limits: OtlpLimits) -> DecodedRequest:
    """The spans of an `ExportTraceServiceRequest`. Raises `Undecodable`."""

    def one(
        data: bytes, group: _ProtobufScope, room: SpanAllowance, decoded: DecodedRequest
    ) -> None:
        decoded.spans.append(_span(data, group, room, limits))

    return _each(body, limits, one)


def decode_protobuf_logs(body: bytes, limits: OtlpLimits) -> DecodedRequest:
    """The events of an `ExportLogsServiceRequest`. Raises `Undecodable`."""

    def one(
        data: bytes, group: _ProtobufScope, room: SpanAllowance, decoded: DecodedRequest
    ) -> None:
        event = _log(data, room, limits)
        if event is None:
            decoded.ignored += 1
        else:
            decoded.events.append(event)

    return _each(body, limits, one)
