"""What crosses the topic of the spans: parts of traces, and where they came from.

A first line of JSON, then the lines of `agent.ingest.carried` as they will lie in the state. What
the assembler has to know of each part is in the first line, so that nobody parses a span before
its trace is complete. All that one message of the traces has for one partition is one record, or
several where it is large: each says how many there are.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated

from pydantic import Field as F
from pydantic import TypeAdapter, ValidationError

from agent.errors import UnknownVersion
from agent.ingest.assembler import Part
from agent.ingest.carried import OVERHEAD, Carried
from agent.kafka.messages.records import BadRecord
from agent.kafka.messages.source import Source

__all__ = ["RECORD_BYTES", "VERSION", "SpanRecord", "decode_spans", "encode_spans", "split"]

VERSION = 1
"""A program reads its own version and the one before: workers are upgraded one by one."""

RECORD_BYTES = 512 * 1024
"""Of one record, where that holds more than one part: what a step writes at a time, too."""

TRACE_BYTES, KEY_BYTES = 16, 8
ROOT, LOG = 1, 2
MOST = 100_000  # parts: what one request may hold (`agent.ingest.otlp.limits`)


@dataclass(slots=True)
class SpanRecord:
    """`number` of the `count` records that `source` has for this partition."""

    source: Source
    number: int
    count: int
    parts: Sequence[Carried]


@dataclass(slots=True)
class _Head:
    v: int
    at: tuple[Annotated[int, F(ge=0)], Annotated[int, F(ge=0)], Annotated[int, F(ge=0)]]
    part: tuple[Annotated[int, F(ge=0)], Annotated[int, F(ge=1, le=MOST)]]
    spans: list[tuple[str, str, int]]


_HEAD = TypeAdapter(_Head)


@dataclass
class _Version:
    v: int


_VERSION = TypeAdapter(_Version)


def split(parts: Sequence[Carried], most: int = RECORD_BYTES) -> Iterator[list[Carried]]:
    """In groups of at most `most` bytes, where that is more than one part; in order."""
    found: list[Carried] = []
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
        (one.part.trace.hex(), one.part.key.hex(), ROOT * one.part.root + LOG * one.part.log)
        for one in record.parts
    ]
    head = _Head(VERSION, record.source, (record.number, record.count), spans)
    return b"\n".join([_HEAD.dump_json(head), *(one.line for one in record.parts)])


def decode_spans(data: bytes) -> SpanRecord:
    """Raises `BadRecord` for what is none, and `UnknownVersion` for a newer one."""
    first, *lines = data.split(b"\n")
    try:
        head = _HEAD.validate_json(first, strict=True)
    except ValidationError as error:
        _refuse_newer(first)
        raise BadRecord("invalid_record", str(error.errors()[0]["msg"])) from None
    if head.v > VERSION:
        raise _unknown(head.v)
    if head.v != VERSION or len(lines) != len(head.spans) or head.part[0] >= head.part[1]:
        raise BadRecord("invalid_record", "the first line does not fit the others")
    return SpanRecord(
        Source(*head.at),
        *head.part,
        [_carried(span, line) for span, line in zip(head.spans, lines, strict=True)],
    )


def _carried(span: tuple[str, str, int], line: bytes) -> Carried:
    try:
        trace, key = bytes.fromhex(span[0]), bytes.fromhex(span[1])
    except ValueError:
        trace = key = b""
    if len(trace) != TRACE_BYTES or len(key) != KEY_BYTES:
        raise BadRecord("invalid_record", "ids that are none")
    size = len(line) + OVERHEAD
    return Carried(Part(trace, key, size, bool(span[2] & ROOT), bool(span[2] & LOG)), line)


def _refuse_newer(first: bytes) -> None:
    try:
        version = _VERSION.validate_json(first, strict=True).v
    except ValidationError:
        return
    if version > VERSION:
        raise _unknown(version)


def _unknown(version: int) -> UnknownVersion:
    return UnknownVersion(
        f"a record of spans of format version {version}; this program reads up to {VERSION}"
    )
