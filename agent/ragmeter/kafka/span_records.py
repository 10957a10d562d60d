"""Records of the spans topic, and the encodings of the messages of the traces topic.

A record is a first line of JSON, then the lines of `ragmeter.ingest.stored_spans` as the state will
hold them. The first line has what the assembler needs of each span, so that nobody parses a span
before its trace is complete.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated

from pydantic import Field, TypeAdapter

from ragmeter.config.kafka import TracesEncoding
from ragmeter.ingest.assembler import TracePart
from ragmeter.ingest.native import BOM, is_json_object
from ragmeter.ingest.stored_spans import PART_OVERHEAD, StoredPart
from ragmeter.kafka.wire import BadRecord, read_wire, refuse_other_version

ENCODING_HEADER = "encoding"
# As lenient as `ragmeter.ingest.otlp.json_format` is with names.
_OTLP_FIRST_KEY = re.compile(rb'\s*\{\s*"(resource_?[sS]pans|resource_?[lL]ogs|batches)"\s*:')
_DETECT_BYTES = 256  # bytes in which the first key is looked for

SPAN_VERSION = 1
# Of a record with more than one span; also what a step writes at a time.
RECORD_BYTES = 512 * 1024
_TraceId = Annotated[str, Field(pattern="^[0-9a-f]{32}$")]
_SpanKey = Annotated[str, Field(pattern="^[0-9a-f]{16}$")]
# Flags of a span.
_ROOT = 1
_LOG = 2


class MessageEncoding(StrEnum):
    """The encoding of a message of the traces topic."""

    NATIVE = "native"
    PROTO = "otlp_proto"
    JSON = "otlp_json"


def message_encoding(
    body: bytes,
    headers: Iterable[tuple[str, bytes]] | Mapping[str, bytes] | None,
    configured: TracesEncoding,
) -> MessageEncoding:
    """Return the encoding by the header `encoding`, else the settings, else the content."""
    header = dict(headers or ()).get(ENCODING_HEADER, b"").decode("ascii", "replace")
    if header in tuple(MessageEncoding):
        return MessageEncoding(header)
    return detect_encoding(body) if configured == "auto" else MessageEncoding(configured)


def detect_encoding(body: bytes) -> MessageEncoding:
    """Return the encoding by the content.

    An OTLP/JSON request begins with its only key, which no native trace has; a protobuf request
    begins with the tag of its only field, a line feed, and is no JSON. Anything else is taken for a
    native trace, and refused as such.
    """
    if _first_key(body) is not None:
        return MessageEncoding.JSON
    # a first resource of 123 bytes makes a protobuf request begin like an object after a line feed
    if body[:1] == b"\n" and not (
        body[:_DETECT_BYTES].lstrip()[:1] == b"{" and is_json_object(body)
    ):
        return MessageEncoding.PROTO
    return MessageEncoding.NATIVE


def is_logs(body: bytes) -> bool:
    """Return whether an OTLP/JSON request holds log records."""
    return b"ogs" in (_first_key(body) or b"")


def _first_key(body: bytes) -> bytes | None:
    match = _OTLP_FIRST_KEY.match(body[: len(BOM) + _DETECT_BYTES].removeprefix(BOM))
    return match[1] if match else None


@dataclass(slots=True)
class _SpanHead:
    v: int
    spans: list[tuple[_TraceId, _SpanKey, int]]


_SPAN_HEAD = TypeAdapter(_SpanHead)


def encode_spans(parts: Sequence[StoredPart]) -> bytes:
    """Return the record of spans for one partition out of one message of the traces topic."""
    spans = [
        (one.part.trace.hex(), one.part.key.hex(), _ROOT * one.part.root + _LOG * one.part.log)
        for one in parts
    ]
    head = _SpanHead(SPAN_VERSION, spans)
    return b"\n".join([_SPAN_HEAD.dump_json(head), *(one.line for one in parts)])


def decode_spans(data: bytes) -> list[StoredPart]:
    """Return the spans of a record.

    Raises:
        BadRecord: The data is no record of spans.
        UnknownVersion: The record is in the format of another version.
    """
    first, *lines = data.split(b"\n")
    refuse_other_version(first, SPAN_VERSION, "a record of spans")
    head = read_wire(_SPAN_HEAD, first)
    if len(lines) != len(head.spans):
        raise BadRecord.of("the first line does not fit the others")
    return [_stored_part(*span, line) for span, line in zip(head.spans, lines, strict=True)]


def _stored_part(trace_hex: str, key_hex: str, flags: int, line: bytes) -> StoredPart:
    trace = bytes.fromhex(trace_hex)
    key = bytes.fromhex(key_hex)
    size = len(line) + PART_OVERHEAD
    return StoredPart(
        TracePart(
            trace=trace, key=key, size=size, root=bool(flags & _ROOT), log=bool(flags & _LOG)
        ),
        line,
    )
