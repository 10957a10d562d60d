"""The outer layers of a protobuf request, opened one at a time.

`ExportTraceServiceRequest` and `ExportLogsServiceRequest` have the same frame: a list (field 1) of
resource (1) and groups (2), each of scope (1) and records (2). Parsed as `Layer`, whose fields are
bytes, it falls apart into records that are then parsed with their official types, one by one: a
record that is broken costs itself and not the request, and the tree of one record is all that is
held. (An empty span is 2 bytes on the wire and 172 once parsed, so a whole request parsed at once
could be 1.7 GB.) `Layer` and `Status` are built at run time from descriptors: protobuf parses.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass

from agent.ingest.otlp.result import Undecodable

__all__ = ["MAX_SPAN_MESSAGES", "Status", "groups", "too_many"]

# Messages in one body: 20 MB of the smallest spans that occur (plain HTTP, a dozen attributes of
# 35 bytes) have 1.6 million, of RAG spans 300,000. Only their bytes are held, 16 for each.
MAX_MESSAGES = 2_000_000
# In one span, whose tree is held while it is read: at most 84 bytes for each (links), 40 MB.
MAX_SPAN_MESSAGES = 500_000
MAX_GROUPS = 100_000  # resources, or scopes of one: 100 bytes each once taken apart
SMALL = 32  # bytes; a body of 20 MB has at most 620,000 messages that are not small


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
_NOT_CONTROL = bytes(range(SMALL, 256))


def too_many(data: bytes, most: int) -> bool:
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


def _too_large(what: str) -> Undecodable:
    return Undecodable("too_large", f"more than {what} in one body; send smaller ones")


def groups(body: bytes) -> Iterator[tuple[bytes, list[tuple[bytes, Sequence[bytes]]] | None]]:
    """Each resource and its (scope, records); None for one whose frame is broken.

    Raises `Undecodable` where the frame of the whole body is, or where it holds too much.
    """
    if too_many(body, MAX_MESSAGES):
        raise _too_large(f"{MAX_MESSAGES} messages")
    try:
        resources = list(_open(body).heads)
    except DecodeError:
        raise Undecodable("bad_protobuf", "the body is no protobuf message") from None
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
