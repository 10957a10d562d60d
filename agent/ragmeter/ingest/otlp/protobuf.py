"""Decode OTLP protobuf export requests of spans and log records, opening one layer at a time.

`ExportTraceServiceRequest` and `ExportLogsServiceRequest` have the same frame: a list (field 1) of
resource (1) and groups (2), each of scope (1) and records (2). Parsed as `Layer`, whose fields are
bytes, it falls apart into records that are then parsed with their official types, one by one: a
broken record costs itself and not the request, and only the tree of one record is held. (An empty
span is 2 bytes on the wire and 172 once parsed, so a whole request parsed at once could be 1.7 GB.)
`Layer` and `Status` are built at run time from descriptors, so that protobuf parses them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import partial
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

from ragmeter.ingest.otlp.reader import (
    DecodedRequest,
    OtlpLimits,
    RecordForm,
    RecordScope,
    RejectedRecord,
    RequestReader,
    SpanAllowance,
    UndecodableBody,
    read_nested,
)
from ragmeter.ingest.spans import AttributeValue

# Messages in one body: 20 MB of the smallest spans that occur (plain HTTP, a dozen attributes of
# 35 bytes) have 1.6 million, of RAG spans 300,000. Only their bytes are held, 16 for each.
MAX_MESSAGES = 2_000_000
# In one span, whose tree is held while it is read: at most 84 bytes for each (links), 40 MB.
MAX_SPAN_MESSAGES = 500_000
MAX_GROUPS = 100_000  # resources, or scopes of one: 100 bytes each once taken apart
_SMALL = 32  # bytes; a body of 20 MB has at most 620,000 messages that are not small
# A message is a tag and a length. These are the tags of all fields that repeat, followed by a
# length below SMALL; either may be written longer than need be (then it ends in a zero byte).
_SMALL_MESSAGE = re.compile(
    rb"[\x0a\x12\x1a\x22\x32\x4a\x5a\x6a](?=[\x00-\x1f]|[\x80-\x9f]\x80{0,3}\x00)"
    rb"|[\x80-\xff]\x80{0,3}\x00"
)
_NOT_CONTROL = bytes(range(_SMALL, 256))


def _types() -> tuple[Any, Any]:
    file = FileDescriptorProto(name="ragmeter/layers.proto", package="ragmeter", syntax="proto3")

    def message(name: str, *fields: tuple[str, int, int, int]) -> None:
        descriptor = file.message_type.add(name=name)
        for field_name, number, label, kind in fields:
            field = descriptor.field.add(name=field_name, number=number)
            field.label = label  # type: ignore[assignment]
            field.type = kind  # type: ignore[assignment]

    field = FieldDescriptorProto
    many = field.LABEL_REPEATED
    one = field.LABEL_OPTIONAL
    message("Layer", ("heads", 1, many, field.TYPE_BYTES), ("parts", 2, many, field.TYPE_BYTES))
    message("Status", ("code", 1, one, field.TYPE_INT32), ("message", 2, one, field.TYPE_STRING))
    pool = DescriptorPool()
    pool.Add(file)
    layer, status = (
        GetMessageClass(pool.FindMessageTypeByName(f"ragmeter.{name}"))
        for name in ("Layer", "Status")
    )
    return layer, status


# `Status` is google.rpc.Status, whose published package is not among our dependencies.
Layer, Status = _types()


def decode_protobuf(body: bytes, limits: OtlpLimits, *, logs: bool) -> DecodedRequest:
    """Decode a trace or log request; raise `UndecodableBody` if nothing can be read."""
    reader = RequestReader(limits, FORM)
    message_type = LogRecord if logs else WireSpan
    parse = partial(_parse, message_type)
    decoded = reader.read(_records(body, reader), parse, logs=logs)
    broken = decoded.rejected and decoded.reasons["unreadable"] == decoded.rejected
    if broken and not reader.records:
        raise UndecodableBody("bad_protobuf", "nothing in the body can be read")
    return decoded


def _has_too_many_messages(data: bytes, most: int) -> bool:
    """Return whether `data` holds more than `most` messages that are far larger once parsed.

    Every small message has a control character of its own, its length or the end of it: counting
    those (2 ns a byte) nearly always decides. Texts may have more of them; then the pairs are
    counted (20 ns a byte).
    """
    if len(data) <= 2 * most or len(data.translate(None, _NOT_CONTROL)) <= most:
        return False
    return sum(1 for _ in islice(_SMALL_MESSAGE.finditer(data), most + 1)) > most


def _open(data: bytes) -> Any:
    layer = Layer.FromString(data)
    if max(len(layer.heads), len(layer.parts)) > MAX_GROUPS:
        raise _too_large(f"{MAX_GROUPS} parts")
    return layer


def _too_large(limit: str) -> UndecodableBody:
    return UndecodableBody("too_large", f"more than {limit} in one body; send smaller ones")


def _iterate_scopes(
    body: bytes,
) -> Iterator[tuple[bytes, list[tuple[bytes, Sequence[bytes]]] | None]]:
    """Yield each resource and its (scope, records), None for one whose frame is broken."""
    if _has_too_many_messages(body, MAX_MESSAGES):
        raise _too_large(f"{MAX_MESSAGES} messages")
    try:
        resources = list(_open(body).heads)
    except DecodeError:
        raise UndecodableBody("bad_protobuf", "the body is no protobuf message") from None
    resources.reverse()
    while resources:  # each is taken off the list, so that its memory is freed once read
        try:
            layer = _open(resources.pop())
            scopes = []
            for part in range(len(layer.parts)):
                group = Layer.FromString(layer.parts[part])
                scopes.append((b"".join(group.heads), group.parts))
            # a field that occurs twice is merged, by protobuf's own rule as if joined
            head = b"".join(layer.heads)
            del layer
        except DecodeError:
            yield b"", None
        else:
            yield head, scopes


def first_record(body: bytes) -> bytes | None:
    """Return the bytes of the first record of any signal; None without one.

    Raises:
        UndecodableBody: The body has no such frame.
    """
    for _, scopes in _iterate_scopes(body):
        for _, records in scopes or ():
            if records:
                return records[0]
    return None


def _records(body: bytes, reader: RequestReader) -> Iterator[tuple[bytes, RecordScope, int]]:
    """Yield every record's bytes with its scope; broken layers above the records are counted."""
    for head, scopes in _iterate_scopes(body):
        if scopes is None:  # the number of spans in it is unknown
            reader.decoded.reject("unreadable")
            continue
        try:
            resource = reader.resource(Resource.FromString(head).attributes)
        except DecodeError:
            reader.decoded.reject("bad_resource", sum(len(records) for _, records in scopes))
            continue
        for scope_data, records in scopes:
            scope = RecordScope(resource, _scope_name(scope_data))
            for data in records:
                yield data, scope, len(data)


def _scope_name(data: bytes) -> str:
    try:
        name: str = InstrumentationScope.FromString(data).name
        return name
    except DecodeError:  # an unreadable name is no reason to lose the spans
        return ""


def _parse(message_type: Any, data: bytes) -> Any:
    if _has_too_many_messages(data, MAX_SPAN_MESSAGES):
        raise RejectedRecord("too_large")
    try:
        return message_type.FromString(data)
    except DecodeError:
        raise RejectedRecord("unreadable") from None


def _pairs(wire: Any, allowance: SpanAllowance, depth: int) -> dict[str, AttributeValue]:
    attributes: dict[str, AttributeValue] = {}
    for kv in wire:
        value = kv.value
        # nearly all are strings, and asking for one is cheaper than asking which it is
        attributes[kv.key] = value.string_value or _value(value, allowance, depth)
    return attributes


def _value(wire: Any, allowance: SpanAllowance, depth: int) -> AttributeValue:
    kind = wire.WhichOneof("value")
    if kind in ("string_value", "int_value", "double_value", "bool_value"):
        scalar: AttributeValue = getattr(wire, kind)
        return scalar
    if kind not in ("array_value", "kvlist_value"):  # bytes, nothing, or newer than we are
        return None
    is_map = kind == "kvlist_value"
    return read_nested(getattr(wire, kind).values, allowance, depth, FORM, is_map=is_map)


def _text_at(wire: Any, key: str) -> str:
    return next((kv.value.string_value for kv in wire if kv.key == key), "")


FORM = RecordForm(_pairs, _value, _text_at)
