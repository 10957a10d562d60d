"""Detect the encoding of trace messages, and encode and decode the records of the spans topic.

In which form a message of the traces is: a trace of ours, or an OTLP request.

By its header `encoding` where it has one, else by `kafka.traces_encoding`, else by its content.
Content tells them apart: an OTLP/JSON request begins with its only key, which no trace of ours has;
a protobuf request begins with the tag of its only field, a line feed, and is no JSON. What is
neither is taken for a trace of ours, and refused as such.

What crosses the topic of the spans: parts of traces, and where they came from.

A first line of JSON, then the lines of `ragmeter.ingest.stored_spans` as they will lie in the state. What
the assembler has to know of each part is in the first line, so that nobody parses a span before
its trace is complete. All that one message of the traces has for one partition is one record, or
several where it is large: each says how many there are.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated

from pydantic import Field as F
from pydantic import TypeAdapter, ValidationError

from ragmeter.config.kafka import TracesEncoding
from ragmeter.core.errors import UnknownVersion
from ragmeter.ingest.assembler import TracePart
from ragmeter.ingest.native import BOM, is_json_object
from ragmeter.ingest.stored_spans import PART_OVERHEAD, StoredPart
from ragmeter.kafka.score_records import BadRecord, SourceOffset

ENCODING_HEADER = "encoding"

# As lenient as `ragmeter.ingest.otlp.json_requests` is with names.
_OTLP_FIRST_KEY = re.compile(rb'\s*\{\s*"(resource_?[sS]pans|resource_?[lL]ogs|batches)"\s*:')
_DETECT_BYTES = 256  # bytes in which the first key is looked for


class MessageEncoding(StrEnum):
    NATIVE = "native"
    PROTO = "otlp_proto"
    JSON = "otlp_json"


def message_encoding(
    body: bytes,
    headers: Iterable[tuple[str, bytes]] | Mapping[str, bytes] | None,
    wanted: TracesEncoding,
) -> MessageEncoding:
    """`headers` are those of the message."""
    said = dict(headers or ()).get(ENCODING_HEADER, b"").decode("ascii", "replace")
    if said in tuple(MessageEncoding):
        return MessageEncoding(said)
    return detect_encoding(body) if wanted == "auto" else MessageEncoding(wanted)


def detect_encoding(body: bytes) -> MessageEncoding:
    if _first(body) is not None:
        return MessageEncoding.JSON
    # a first resource of 123 bytes makes a protobuf request begin like an object after a line feed
    if body[:1] == b"\n" and not (
        body[:_DETECT_BYTES].lstrip()[:1] == b"{" and is_json_object(body)
    ):
        return MessageEncoding.PROTO
    return MessageEncoding.NATIVE


def is_logs(body: bytes) -> bool:
    """Whether an OTLP/JSON request is one of log records."""
    return b"ogs" in (_first(body) or b"")


def _first(body: bytes) -> bytes | None:
    match = _OTLP_FIRST_KEY.match(body[: len(BOM) + _DETECT_BYTES].removeprefix(BOM))
    return match[1] if match else None


SPAN_VERSION = 1
"""A program reads its own version and the one before: workers are upgraded one by one."""

RECORD_BYTES = 512 * 1024
"""Of one record, where that holds more than one part: what a step writes at a time, too."""

_TRACE_BYTES, _KEY_BYTES = 16, 8
ROOT, _LOG = 1, 2
_MAX_RECORDS = 100_000  # parts: what one request may hold (`ragmeter.ingest.otlp.limits`)


@dataclass(slots=True)
class SpanRecord:
    """`number` of the `count` records that `source` has for this partition."""

    source: SourceOffset
    number: int
    count: int
    parts: Sequence[StoredPart]


@dataclass(slots=True)
class _SpanHead:
    v: int
    at: tuple[Annotated[int, F(ge=0)], Annotated[int, F(ge=0)], Annotated[int, F(ge=0)]]
    part: tuple[Annotated[int, F(ge=0)], Annotated[int, F(ge=1, le=_MAX_RECORDS)]]
    spans: list[tuple[str, str, int]]


_SPAN_HEAD = TypeAdapter(_SpanHead)


@dataclass
class _SpanVersion:
    v: int


_SPAN_VERSION = TypeAdapter(_SpanVersion)


def split_spans(
    parts: Sequence[StoredPart], most: int = RECORD_BYTES
) -> Iterator[list[StoredPart]]:
    """In groups of at most `most` bytes, where that is more than one part; in order."""
    found: list[StoredPart] = []
    size = 0
    for part in parts:
        if found and size + part.part.size > most:
            yield found
            found, size = [], 0
        found.append(part)
        size += part.part.size
    if found:
        yield found


def encode_spans(record: SpanRecord) -> bytes:
    spans = [
        (one.part.trace.hex(), one.part.key.hex(), ROOT * one.part.root + _LOG * one.part.log)
        for one in record.parts
    ]
    head = _SpanHead(SPAN_VERSION, record.source, (record.number, record.count), spans)
    return b"\n".join([_SPAN_HEAD.dump_json(head), *(one.line for one in record.parts)])


def decode_spans(data: bytes) -> SpanRecord:
    """Raises `BadRecord` for what is none, and `UnknownVersion` for a newer one."""
    first, *lines = data.split(b"\n")
    try:
        head = _SPAN_HEAD.validate_json(first, strict=True)
    except ValidationError as error:
        _refuse_newer(first)
        raise BadRecord("invalid_record", str(error.errors()[0]["msg"])) from None
    if head.v > SPAN_VERSION:
        raise _unknown(head.v)
    if head.v != SPAN_VERSION or len(lines) != len(head.spans) or head.part[0] >= head.part[1]:
        raise BadRecord("invalid_record", "the first line does not fit the others")
    return SpanRecord(
        SourceOffset(*head.at),
        *head.part,
        [_carried(span, line) for span, line in zip(head.spans, lines, strict=True)],
    )


def _carried(span: tuple[str, str, int], line: bytes) -> StoredPart:
    try:
        trace, key = bytes.fromhex(span[0]), bytes.fromhex(span[1])
    except ValueError:
        trace = key = b""
    if len(trace) != _TRACE_BYTES or len(key) != _KEY_BYTES:
        raise BadRecord("invalid_record", "ids that are none")
    size = len(line) + PART_OVERHEAD
    return StoredPart(TracePart(trace, key, size, bool(span[2] & ROOT), bool(span[2] & _LOG)), line)


def _refuse_newer(first: bytes) -> None:
    try:
        version = _SPAN_VERSION.validate_json(first, strict=True).v
    except ValidationError:
        return
    if version > SPAN_VERSION:
        raise _unknown(version)


def _unknown(version: int) -> UnknownVersion:
    return UnknownVersion(
        f"a record of spans of format version {version}; this program reads up to {SPAN_VERSION}"
    )
